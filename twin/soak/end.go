package soak

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Policy pressure ends tasks where the configuration gives them up: an action of which there is no way back.

// endName is the file that does it, on cgroup v2.
const endName = "cgroup.kill"

// enderCalls looks at who is ended on v1, which has no such file.
type enderCalls struct {
	cgroup.Ender
	w *world
}

func (c enderCalls) End(pid int32, meant func() bool) error {
	if g := c.w.groupWith(pid); g != nil {
		c.w.ends(g.task)
	}
	return c.Ender.End(pid, meant)
}

// groupWith is the group that a process is in, and not those above; nil: none that is watched.
func (w *world) groupWith(pid int32) (g *watchedGroup) {
	for _, o := range w.witness.list {
		if (g == nil || within(o.path, g.path)) && slices.Contains(w.k.PIDs(o.path), int(pid)) {
			g = o
		}
	}
	return g
}

// ends looks whether policy pressure or remedy wants a task's end, and may.
func (w *world) ends(path string) {
	w.res.Ends++
	e := w.life.Engine
	i := slices.IndexFunc(e.State.Tasks.Tasks, func(t model.Task) bool { return t.Path == path })
	if i < 0 {
		w.fail(checkEnds, path+" is ended, which is no task")
		return
	}
	t := &e.State.Tasks.Tasks[i]
	now := &e.Params.CPU
	// What was decided under a roll-out, or before one, is done beside the loop, which a slow kernel lets end after it: the policy may have forgotten it by then,
	// and the ledger has not.
	given := func(name string, is func(p *engine.CPUParams) (model.Mode, string)) bool {
		asked := slices.ContainsFunc(e.State.Ledger.Knobs, func(k engine.Knob) bool {
			return k.Task() == t.Num && k.Kind == model.GroupKill && k.State == engine.KnobAsked && k.AskedBy == name
		})
		return asked && w.ever(func(p *engine.Params) bool {
			mode, end := is(&p.CPU)
			return mode == model.ModeEnforce && policy.MayEnd(end, t)
		})
	}
	if !given(model.PolicyPressure, func(p *engine.CPUParams) (model.Mode, string) { return p.PressureMode, p.Pressure.End }) &&
		!given(model.PolicyRemedy, func(p *engine.CPUParams) (model.Mode, string) { return p.RemedyMode, p.Remedy.End }) {
		w.fail(checkEnds, fmt.Sprintf("%s is ended: %s, %s; pressure is in mode %s and may end %s, remedy in mode %s and may end %s", path, t.Class, t.Importance, now.PressureMode, now.Pressure.End, now.RemedyMode, now.Remedy.End))
	}
}
