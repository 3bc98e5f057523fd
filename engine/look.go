package engine

import (
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// look derives what a reading of memory between windows says, by the one before, which a window may have brought.
func (e *Engine) look(in *Input) {
	v, s := &e.scratch.view, e.State
	v.Look = nil
	now := model.Look{}
	switch {
	case in.Snapshot != nil:
		now = model.Look{MonoNsec: in.Snapshot.MonoNsec, Node: in.Snapshot.Node}
	case in.Look != nil:
		now = model.Look{MonoNsec: in.Look.MonoNsec, Node: in.Look.Node}
		if s.Memory != nil && now.MonoNsec > s.Memory.MonoNsec {
			e.scratch.look = policy.Look{
				Room: model.ObserveRoom(&s.Memory.Node, &now.Node, now.MonoNsec-s.Memory.MonoNsec), Tasks: in.Look.Tasks,
			}
			v.Look = &e.scratch.look
		}
	}
	if now.Node.C[model.CountMemoryTotal].Outcome != model.OK {
		return // rates are taken from the last one that could be read
	}
	if s.Memory == nil {
		s.Memory = &model.Look{}
	}
	*s.Memory = now
}

// LookDue returns when memory is to be read between windows, monotonic; math.MaxInt64: it is not, as long as nobody waits for
// some.
func (e *Engine) LookDue() int64 {
	if e.Params.CPU.PressureMode == model.ModeOff {
		return math.MaxInt64
	}
	return e.State.CPU.Pressure.LookDue(&e.Params.CPU.Pressure)
}

// Stalls returns for which shares of a second some task, or all tasks, wait for memory when it is to be read at once; ok is
// false where nobody goes by it.
func (p *Params) Stalls() (some, full float64, ok bool) {
	return p.CPU.Pressure.Some, p.CPU.Pressure.Full, p.CPU.PressureMode != model.ModeOff && p.CPU.Pressure.LookNsec > 0
}

// Wakes reports whether a machine that was opened to wake who runs with these parameters does it for others as well.
func (p *Params) Wakes(now *Params) bool {
	hadSome, hadFull, had := p.Stalls()
	some, full, wanted := now.Stalls()
	return !wanted || had && some == hadSome && full == hadFull
}

// InForce returns what a knob is set to, as far as it is known.
func (l *Ledger) InForce(task model.TaskNum, kind model.KnobKind) (model.Setting, bool) {
	if k := l.knob(model.OfTask(task), kind); k != nil && k.Ours {
		return k.Written, true
	}
	return l.Bases.get(model.OfTask(task), kind)
}
