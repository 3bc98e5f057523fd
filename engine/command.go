package engine

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// command carries out what an operator said. Operators come before policies: their caps
// stand also in observe mode and against a policy's, and a task they freed is left
// alone for a cap's duration.
func (e *Engine) command(in *Input, c *model.Command) {
	s := e.State
	d := model.Decision{Kind: model.DecideOperator, Task: c.Task, Value: c.Cap}
	switch c.Kind {
	case model.CommandCap:
		t := s.Tasks.Get(c.Task)
		if t == nil {
			d.Reason = fmt.Sprintf("%s asked to cap a task that is gone", c.By)
			break
		}
		if t.Class != model.BE { // the shell refuses it with an answer; nobody gets past here
			d.Reason = fmt.Sprintf("%s asked to cap it, but %s is never held", c.By, t.Class)
			break
		}
		s.Ledger.Clear(c.Task)
		s.Ledger.Claim(model.Claim{
			Task: c.Task, Cap: c.Cap, Owner: model.OwnerOperator, Reason: "capped by " + c.By,
			MadeNsec: in.MonoNsec, ExpiresNsec: in.MonoNsec + c.DurationNsec, UsageAtClaim: e.usage(c.Task),
		}, e.Params.Limits, s.BECPU)
		d.Reason = fmt.Sprintf("%s caps it to %.3g CPU for %.0f s", c.By, c.Cap, float64(c.DurationNsec)/1e9)
	case model.CommandUncap:
		s.Ledger.Free(c.Task, in.MonoNsec+e.Params.Hardcap.DurationNsec)
		d.Reason = fmt.Sprintf("%s frees it; policies leave it alone for %.0f s", c.By, float64(e.Params.Hardcap.DurationNsec)/1e9)
	case model.CommandProtectOff:
		if !slices.Contains(s.ProtectOff, c.Job) {
			s.ProtectOff = append(s.ProtectOff, c.Job)
		}
		d.Path, d.Reason = jobName(c.Job), c.By+" turned protection off"
	case model.CommandProtectOn:
		if c.Job == "" {
			s.ProtectOff = s.ProtectOff[:0]
		} else {
			s.ProtectOff = slices.DeleteFunc(s.ProtectOff, func(j string) bool { return j == c.Job })
		}
		s.Hardcap.Wake()
		d.Path, d.Reason = jobName(c.Job), c.By+" turned protection on"
	default:
		d.Reason = fmt.Sprintf("unknown command %q", c.Kind)
	}
	e.decide(in, d)
}

func jobName(job string) string {
	if job == "" {
		return "(all jobs)"
	}
	return job
}

// usage returns a task's CPU-sec/sec in the last window, 0 when unknown.
func (e *Engine) usage(n model.TaskNum) float64 {
	for i := range e.State.Tracks {
		if t := &e.State.Tracks[i]; t.Num == n && t.CPU.Outcome == model.OK {
			return t.CPU.V
		}
	}
	return 0
}
