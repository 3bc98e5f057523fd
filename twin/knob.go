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
		for kind := range model.NumKnobs {
			if e.knobs[kind].held && !e.gone {
				dst = append(dst, model.KnobReading{Task: e.task.Num, Value: h.setting(e, kind), Outcome: model.OK})
			}
		}
	}
	return dst
}

// setting reads a knob of a task that lives.
func (h *Host) setting(e *entry, kind model.KnobKind) model.Setting {
	if kind == model.CPUPlace {
		cpus, err := h.m.CPUs(e.num)
		if err != nil {
			panic("a task that lives has a place: " + err.Error())
		}
		return model.Place(cpus)
	}
	v, err := h.m.CPUMax(e.num)
	if err != nil {
		panic("a task that lives has a limit: " + err.Error())
	}
	return model.Bandwidth(model.CPUMax(v))
}

// set writes a knob.
func (h *Host) set(e *entry, v model.Setting) error {
	if v.Knob == model.CPUPlace {
		return h.m.SetCPUs(e.num, v.CPUs)
	}
	return h.m.SetCPUMax(e.num, machine.CPUMax(v.CPUMax))
}

// Apply implements node.Host. The journal of a simulated machine is its own memory.
func (h *Host) Apply(changes []model.Change, dst []model.Result) []model.Result {
	for i := range changes {
		c := &changes[i]
		res := model.Result{Seq: c.Seq, Task: c.Task, MonoNsec: h.m.NowNsec()}
		e := h.find(c.Task)
		switch {
		case c.Kind == model.Disown:
			if e != nil {
				e.knobs[c.Value.Knob].held = false
			}
			continue
		case e == nil:
			res.Kind, res.Error = model.Vanished, "the task is gone"
			res.Found.Knob, res.Now.Knob = c.Value.Knob, c.Value.Knob
		default:
			h.change(e, c, &res)
		}
		dst = append(dst, res)
	}
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
	if c.Kind == model.Release && !k.held {
		return // nothing of ours: as found
	}
	want := res.Found
	if c.Kind == model.Set || c.Kind == model.Hold && tighter(&c.Value, &res.Found) {
		want = c.Value
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

// tighter says whether a limit leaves less than another. Places have no order.
func tighter(a, b *model.Setting) bool {
	return a.Knob == model.CPUBandwidth && a.Ratio() < b.Ratio()
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
		for kind := range model.NumKnobs {
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
