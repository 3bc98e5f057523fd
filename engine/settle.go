package engine

import (
	"math"

	"github.com/commensal-io/commensal/model"
)

// settle ends claims whose time is over, and turns what is claimed into changes.
func (e *Engine) settle(in *Input) {
	s := e.State
	if e.scratch.still && !in.stirs() && in.MonoNsec < e.scratch.due {
		return
	}
	exempt, knobs := len(s.Ledger.Exemptions), len(s.Ledger.Knobs)
	for _, c := range s.Ledger.Expire(in.MonoNsec) {
		e.decide(in, model.Decision{
			Kind: model.DecideRelease, Policy: c.Policy, Task: c.Task(), Path: e.State.Tasks.NameOf(c.Target), Incident: c.Incident, Reason: "the " + c.Kind.String() + "'s time is over",
		})
	}
	if e.Params.EndRuns {
		e.out.Changes = s.Ledger.endRuns(e.out.Changes)
	}
	e.out.Changes = s.Ledger.Arbitrate(in.MonoNsec, e.Params.CapPeriodNsec, e.out.Changes)
	for i := range e.out.Changes {
		if c := &e.out.Changes[i]; c.Kind == model.Run { // from its beginning on: it may take the kernel long
			e.touched(in, c.Target, c.Value.Knob, c.Kind, s.Ledger.knob(c.Target, c.Value.Knob).AskedBy)
		}
	}
	e.scratch.still, e.scratch.due = true, s.Ledger.dueNsec(in.MonoNsec)
	if len(e.out.Changes) > 0 || len(s.Ledger.Exemptions) != exempt || len(s.Ledger.Knobs) != knobs { // one that is forgotten was in the view, too
		e.moved()
	}
}

// A pulse in which nothing happens touches no knob: as long as nothing was put to the ledger since
// it was gone through, and no time has come that it waits for, going through it would change nothing.

// stirs reports whether an input may put something to the ledger by itself. What policies wish for
// and what operators, hosts and modes change is noted where it is done (moved, grant).
func (in *Input) stirs() bool {
	return in.Snapshot != nil || in.Restored != nil || in.Params != nil || in.KillSwitch ||
		len(in.Results)+len(in.Knobs)+len(in.Commands) > 0
}

// dueNsec is when the ledger has to be gone through again although nobody puts anything to it: a
// claim, an exemption or the memory of a failure is over, or a refused write is tried again.
func (l *Ledger) dueNsec(nowNsec int64) int64 {
	due := int64(math.MaxInt64)
	next := func(at int64) {
		if at > nowNsec {
			due = min(due, at)
		}
	}
	for i := range l.Knobs {
		k := &l.Knobs[i]
		if k.State == KnobAsked {
			return nowNsec // what becomes of it is heard at the next turn
		}
		for j := range k.Claims {
			next(k.Claims[j].ExpiresNsec)
		}
		if next(k.RetryAt); k.Failures > 0 {
			next(k.RetryAt + maxRetryNsec)
		}
	}
	for i := range l.Exemptions {
		next(l.Exemptions[i].UntilNsec)
	}
	for i := range l.Failures {
		next(l.Failures[i].AtNsec + failureNsec)
	}
	return due
}
