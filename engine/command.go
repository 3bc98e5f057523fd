package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// command carries out what an operator said. Operators come before policies: their caps
// stand also in observe mode and against a policy's, and a task they freed is left
// alone for a cap's duration.
func (e *Engine) command(in *Input, c *model.Command) {
	s := e.State
	d := model.Decision{Kind: model.DecideOperator, Task: c.Task}
	switch c.Kind {
	case model.CommandCap:
		d.Facts = []model.Fact{model.FactCap.Is(c.Cap)}
		d.Reason = e.operatorClaims(in, c, model.Claim{
			Kind: model.ClaimCap, Value: model.Ask(model.CPUBandwidth), Cap: c.Cap, ExpiresNsec: in.MonoNsec + c.DurationNsec,
		}, fmt.Sprintf("%s caps it to %.3g CPU for %.0f s", c.By, c.Cap, float64(c.DurationNsec)/1e9))
	case model.CommandDemote:
		d.Reason = e.operatorClaims(in, c, model.Claim{
			Kind: model.ClaimCap, Value: model.Ask(model.CPUWeight), Cap: model.WeightIdle, ExpiresNsec: in.MonoNsec + c.DurationNsec,
		}, fmt.Sprintf("%s demotes it for %.0f s: it runs when nobody else wants the CPU", c.By, float64(c.DurationNsec)/1e9))
	case model.CommandReclaim:
		d.Facts = []model.Fact{model.FactBytes.Is(float64(c.Bytes))}
		d.Reason = e.operatorClaims(in, c, model.Claim{
			Kind: model.ClaimRun, Value: model.Reclaim(c.Bytes), ExpiresNsec: in.MonoNsec + runNsec,
		}, fmt.Sprintf("%s asks the kernel to reclaim %d bytes of it", c.By, c.Bytes))
	case model.CommandMovePages:
		d.Facts = []model.Fact{model.FactNode.Is(float64(c.Node)), model.FactKeep.Is(c.Keep)}
		d.Reason = e.operatorClaims(in, c, model.Claim{
			Kind: model.ClaimRun, Value: model.Pages(int64(math.Round(1000*c.Keep)), c.Node), ExpiresNsec: in.MonoNsec + runNsec,
		}, fmt.Sprintf("%s has its pages moved off memory node %d, but for %.3g %%", c.By, c.Node, 100*c.Keep))
	case model.CommandUncap:
		s.Ledger.Free(c.Task, in.MonoNsec+e.Params.Hardcap.DurationNsec)
		e.touched(in, model.OfTask(c.Task), model.CPUBandwidth, model.Release, byOperator)
		d.Reason = fmt.Sprintf("%s frees it; policies leave it alone for %.0f s", c.By, float64(e.Params.Hardcap.DurationNsec)/1e9)
	case model.CommandProtectOff, model.CommandProtectOn:
		d.Path, d.Reason = jobName(c.Job), e.protect(c)
	default:
		d.Reason = fmt.Sprintf("unknown command %q", c.Kind)
	}
	e.decide(in, d)
}

// protect turns protection on or off, on this node or as the whole fleet is told, and returns what is to be said of it.
func (e *Engine) protect(c *model.Command) string {
	list, where := &e.State.ProtectOff, ""
	if c.Fleet {
		list, where = &e.State.FleetOff, " in the whole fleet"
	}
	switch {
	case c.Kind == model.CommandProtectOff:
		if !slices.Contains(*list, c.Job) {
			*list = append(*list, c.Job)
		}
		return c.By + " turned protection off" + where
	case c.Job == "":
		*list = (*list)[:0]
	default:
		*list = slices.DeleteFunc(*list, func(j string) bool { return j == c.Job })
	}
	e.State.Hardcap.Wake()
	return c.By + " turned protection on" + where
}

// off reports whether protection of a job, "" of all, is off: on this node, or in the whole fleet.
func (s *State) off(job string) bool {
	return slices.Contains(s.ProtectOff, job) || slices.Contains(s.FleetOff, job)
}

// runNsec is how long an operator's action may wait until it is begun.
const runNsec = int64(60e9)

// notToHold says why an operator may not hold a task back; the shell refuses it with an
// answer, and nobody gets past here.
func (e *Engine) notToHold(c *model.Command) string {
	switch t := e.State.Tasks.Get(c.Task); {
	case t == nil:
		return fmt.Sprintf("%s asked to %s a task that is gone", c.By, c.Kind)
	case t.Class != model.BE:
		return fmt.Sprintf("%s asked to %s it, but %s is never held", c.By, c.Kind, t.Class)
	case e.State.Ledger.Shielded(c.Task) != "":
		return fmt.Sprintf("%s asked to %s it, but %s", c.By, c.Kind, e.State.Ledger.Shielded(c.Task))
	}
	return ""
}

// operatorClaims makes an operator's claim in place of all others on the knob. It returns what is to be
// said of it: why the task may not be held, else what is given.
func (e *Engine) operatorClaims(in *Input, c *model.Command, claim model.Claim, said string) string {
	if why := e.notToHold(c); why != "" {
		return why
	}
	if why := e.State.Ledger.Busy(c.Task, claim.Value.Knob); why != "" {
		return fmt.Sprintf("%s asked to %s it, but %s: it is not done", c.By, c.Kind, why)
	}
	claim.Target, claim.Owner, claim.MadeNsec = model.OfTask(c.Task), model.OwnerOperator, in.MonoNsec
	claim.Reason, claim.UsageAtClaim = c.Kind+" by "+c.By, e.usage(c.Task)
	e.State.Ledger.Clear(c.Task, claim.Value.Knob)
	e.State.Ledger.Claim(claim, e.Params.Limits, e.State.BECPU)
	if claim.Kind == model.ClaimCap { // it may be what a policy holds already: nothing is written then, and it is the operator's all the same
		e.touched(in, claim.Target, claim.Value.Knob, model.Set, byOperator)
	}
	return said
}

func jobName(job string) string {
	if job == "" {
		return "(all jobs)"
	}
	return job
}

// usage returns a task's CPU-sec/sec in the last window, 0 when unknown.
func (e *Engine) usage(n model.TaskNum) float64 {
	if t := e.track(n); t != nil && t.CPU.Outcome == model.OK {
		return t.CPU.V
	}
	return 0
}

// track returns what is remembered of a task, nil when it is not here.
func (e *Engine) track(n model.TaskNum) *Track {
	i, ok := slices.BinarySearchFunc(e.State.Tracks, n, func(t Track, n model.TaskNum) int { return cmp.Compare(t.Num, n) })
	if !ok {
		return nil
	}
	return &e.State.Tracks[i]
}
