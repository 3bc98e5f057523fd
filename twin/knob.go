package twin

import (
	"errors"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/machine"
)

// Knobs implements node.Host.
func (h *Host) Knobs(dst []model.KnobReading) []model.KnobReading {
	for i := range h.tasks {
		e := &h.tasks[i]
		for kind := range model.OfCgroups {
			if e.knobs[kind].held && !e.gone {
				dst = append(dst, model.KnobReading{Target: model.OfTask(e.task.Num), Value: h.setting(e, kind), Outcome: model.OK})
			}
		}
	}
	return dst
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
}

// setting reads a knob of a task that lives.
func (h *Host) setting(e *entry, kind model.KnobKind) model.Setting {
	v, err := wires[kind].get(h.m, e.num)
	if err != nil {
		panic("a task that lives has a " + kind.String() + ": " + err.Error())
	}
	return v
}

// set writes a knob.
func (h *Host) set(e *entry, v model.Setting) error { return wires[v.Knob].set(h.m, e.num, v) }

// Apply implements node.Host. The journal of a simulated machine is its own memory.
func (h *Host) Apply(changes []model.Change) {
	for i := range changes {
		c := &changes[i]
		none := model.Ask(c.Value.Knob)
		res := model.Result{Seq: c.Seq, Target: c.Target, Found: none, Now: none, MonoNsec: h.m.NowNsec()}
		e := h.find(c.Task())
		switch {
		case c.Kind == model.Disown:
			if e != nil {
				e.knobs[c.Value.Knob].held = false
			}
			continue
		case e == nil:
			res.Kind, res.Error = model.Vanished, "the task is gone"
		case c.Kind == model.Run:
			res.Kind, res.Error = model.Refused, "the simulated machine has no "+c.Value.Knob.String()
		default:
			h.change(e, c, &res)
		}
		h.results = append(h.results, res)
	}
}

// Results implements node.Host.
func (h *Host) Results(dst []model.Result) []model.Result {
	dst = append(dst, h.results...)
	h.results = h.results[:0]
	return dst
}

func (h *Host) change(e *entry, c *model.Change, res *model.Result) {
	k, now := &e.knobs[c.Value.Knob], h.setting(e, c.Value.Knob)
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
	if c.Kind == model.Set || c.Kind == model.Hold && !c.Value.Knob.Spec().Within(res.Found, c.Value) {
		want = c.Value
	}
	if want == model.Weight(model.WeightIdle) && h.m.Config().Kernel == machine.NoBurst {
		want.Amount = model.WeightLeast // a kernel that old has no cpu.idle
	}
	if want != now { // a write of what stands there would refill a quota
		if err := h.write(e, want); err != nil {
			res.Kind, res.Error = model.Refused, err.Error()
			return
		}
	}
	if !k.held {
		k.found = res.Found
	}
	k.held, k.wrote = c.Kind != model.Release, want
	res.Now = want
}

// write writes a knob as the agent does.
func (h *Host) write(e *entry, v model.Setting) error {
	if deny := e.knobs[v.Knob].deny; deny != "" {
		return errors.New(deny)
	}
	return h.set(e, v)
}

// Restore implements node.Host.
func (h *Host) Restore() (node.Report, error) {
	var rep node.Report
	for i := range h.tasks {
		e := &h.tasks[i]
		for kind := range model.OfCgroups {
			if e.knobs[kind].held && !e.gone {
				rep.Items = append(rep.Items, h.restore(e, kind))
			}
		}
	}
	return rep, nil
}

func (h *Host) restore(e *entry, kind model.KnobKind) node.Restoration {
	k := &e.knobs[kind]
	item := node.Restoration{Path: e.task.Path, Kind: node.Restored, Found: k.found, Now: h.setting(e, kind)}
	switch {
	case item.Now == k.found:
		item.Kind = node.AsFound
	case item.Now != k.wrote:
		item.Kind = node.LeftForeign
	default:
		if err := h.write(e, k.found); err != nil {
			item.Kind, item.Error = node.NotRestored, err.Error()
			return item
		}
		item.Now = k.found
	}
	k.held = false
	return item
}
