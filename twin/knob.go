package twin

import (
	"errors"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/machine"
)

// Knobs implements node.Host.
func (h *Host) Knobs(dst []model.KnobReading) []model.KnobReading {
	for p := range h.held {
		dst = append(dst, model.KnobReading{Target: p.target, Value: p.get(), Outcome: model.OK})
	}
	return dst
}

// point is one knob of the simulated machine: how it is read and written, and what is kept of it.
type point struct {
	target model.Target
	name   string
	knob   *knob
	get    func() model.Setting
	set    func(v model.Setting) error
}

// point returns a knob of a task that lives, or of a class of service; ok is false where there is no such.
func (h *Host) point(of model.Target, kind model.KnobKind) (p point, ok bool) {
	if of.Scope == model.ScopeCLOS {
		return h.classPoint(of, kind)
	}
	e := h.find(of.Task())
	if e == nil {
		return p, false
	}
	return point{
		of, e.task.Path, &e.knobs[kind], func() model.Setting { return h.setting(e, kind) },
		func(v model.Setting) error { return h.set(e, v) },
	}, true
}

// held ranges over the knobs in which something of ours stands.
func (h *Host) held(yield func(p point) bool) {
	for i := range h.tasks {
		e := &h.tasks[i]
		for kind := range e.knobs {
			if e.knobs[kind].held && !e.gone {
				if p, _ := h.point(model.OfTask(e.task.Num), model.KnobKind(kind)); !yield(p) {
					return
				}
			}
		}
	}
	for _, c := range h.classes {
		if !c.held {
			continue
		}
		if p, _ := h.classPoint(c.target, c.kind); !yield(p) {
			return
		}
	}
}

// wires are the knobs of the simulated machine, by kind: how one is read and written. A task
// that lives has a value for each.
var wires = [model.NumKnobs]struct {
	get func(m *machine.Machine, num int) (model.Setting, error)
	set func(m *machine.Machine, num int, v model.Setting) error
}{
	model.CPUBandwidth: {
		func(m *machine.Machine, num int) (model.Setting, error) {
			v, err := m.CPUMax(num)
			return model.Bandwidth(model.CPUMax(v)), err
		},
		func(m *machine.Machine, num int, v model.Setting) error {
			return m.SetCPUMax(num, machine.CPUMax(v.CPUMax))
		},
	},
	model.CPUPlace: {
		func(m *machine.Machine, num int) (model.Setting, error) {
			cpus, err := m.CPUs(num)
			return model.Place(cpus), err
		},
		func(m *machine.Machine, num int, v model.Setting) error { return m.SetCPUs(num, v.CPUs) },
	},
	model.CPUWeight: {
		func(m *machine.Machine, num int) (model.Setting, error) {
			shares, idle, err := m.Weight(num)
			if idle {
				shares = model.WeightIdle
			}
			return model.Weight(shares), err
		},
		func(m *machine.Machine, num int, v model.Setting) error {
			if v.Amount == model.WeightIdle {
				return m.SetIdle(num, true)
			}
			return errors.Join(m.SetIdle(num, false), m.SetShares(num, v.Amount))
		},
	},
	model.GroupFreeze: {
		func(m *machine.Machine, num int) (model.Setting, error) {
			frozen, err := m.Frozen(num)
			return model.Freeze(frozen), err
		},
		func(m *machine.Machine, num int, v model.Setting) error { return m.SetFrozen(num, v.Amount != 0) },
	},
	model.IOMaxKnob:  {diskLimit, setDiskLimit},
	model.MemoryHigh: {memoryHigh, setMemoryHigh},
}

// setting reads a knob of a task that lives.
func (h *Host) setting(e *entry, kind model.KnobKind) model.Setting {
	if kind == model.ServiceClass {
		return h.classOf(e)
	}
	v, err := wires[kind].get(h.m, e.num)
	if err != nil {
		panic("a task that lives has a " + kind.String() + ": " + err.Error())
	}
	return v
}

// set writes a knob.
func (h *Host) set(e *entry, v model.Setting) error {
	if v.Knob == model.ServiceClass {
		return h.classify(e, model.TaskNum(v.Amount))
	}
	return wires[v.Knob].set(h.m, e.num, v)
}

// Apply implements node.Host. The journal of a simulated machine is its own memory.
func (h *Host) Apply(changes []model.Change) {
	for i := range changes {
		c := &changes[i]
		none := model.Ask(c.Value.Knob)
		res := model.Result{Seq: c.Seq, Target: c.Target, Found: none, Now: none, MonoNsec: h.m.NowNsec()}
		p, ok := h.point(c.Target, c.Value.Knob)
		switch {
		case c.Kind == model.Disown:
			if ok {
				p.knob.held = false
			}
			continue
		case c.Kind == model.Stop:
			if e := h.find(c.Task()); e != nil {
				h.late.End(h.m, c.Target, e.num)
			}
			continue
		case !ok:
			res.Kind, res.Error = model.Vanished, "the task is gone"
		case c.Kind == model.Run:
			h.run(h.find(c.Task()), c.Value, &res)
		default:
			h.change(&p, c, &res)
		}
		h.results = append(h.results, res)
	}
}

// Results implements node.Host.
func (h *Host) Results(dst []model.Result) []model.Result {
	from := len(dst)
	dst = append(dst, h.results...)
	h.results = h.results[:0]
	return h.late.Pass(h.m, dst, from)
}

func (h *Host) change(p *point, c *model.Change, res *model.Result) {
	k, now := p.knob, p.get()
	res.Found, res.Now = now, now
	if k.held {
		res.Found = k.found
		if now != k.wrote {
			res.Kind, res.Error = model.Foreign, "another program wrote this knob"
			return
		}
	}
	if c.Base != nil && !k.held && now != *c.Base {
		res.Kind = model.Stale
		return
	}
	if c.Kind == model.Release && !k.held {
		return // nothing of ours: as found
	}
	want := res.Found
	switch c.Kind {
	case model.Set:
		want = c.Value
	case model.Hold:
		want = res.Found.Tightest(c.Value)
	}
	if want == model.Weight(model.WeightIdle) && h.m.Config().Kernel == machine.NoBurst {
		want.Amount = model.WeightLeast // a kernel that old has no cpu.idle
	}
	if want != now { // a write of what stands there would refill a quota
		if err := p.write(want); err != nil {
			res.Kind, res.Error = model.Refused, err.Error()
			return
		}
		if p.target.Scope == model.ScopeCLOS {
			want = p.get() // rounded
		}
	}
	if !k.held {
		k.found = res.Found
	}
	k.held, k.wrote = c.Kind != model.Release, want
	res.Now = want
}

// write writes a knob as the agent does.
func (p *point) write(v model.Setting) error {
	if p.knob.deny != "" {
		return errors.New(p.knob.deny)
	}
	return p.set(v)
}

// Restore implements node.Host.
func (h *Host) Restore() (node.Report, error) {
	var rep node.Report
	for p := range h.held {
		rep.Items = append(rep.Items, p.restore())
	}
	return rep, nil
}

func (p *point) restore() node.Restoration {
	k := p.knob
	item := node.Restoration{Path: p.name, Kind: node.Restored, Found: k.found, Now: p.get()}
	switch {
	case item.Now == k.found:
		item.Kind = node.AsFound
	case item.Now != k.wrote:
		item.Kind = node.LeftForeign
	default:
		if err := p.write(k.found); err != nil {
			item.Kind, item.Error = node.NotRestored, err.Error()
			return item
		}
		item.Now = k.found
	}
	k.held = false
	return item
}
