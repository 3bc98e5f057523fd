package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// What a policy wishes for becomes claims here, the same way for all policies: what is new is
// claimed, what stands is renewed, what is no longer wished for is given back.

// renewShare: claims are renewed when so large a part of their life is over.
const renewShare = 4

// tellAgainNsec is after how long without a note the same reason is worth telling again.
const tellAgainNsec = int64(600e9)

// told is one reason that was told.
type told struct {
	Policy string        `json:"policy"`
	Task   model.TaskNum `json:"task"`
	Word   string        `json:"word"`
	AtNsec int64         `json:"at_nsec"` // when it was last noted
}

// tellings are the reasons that were told, ordered. They are bounded by tasks and reasons.
type tellings []told

func (l *tellings) forget(which func(*told) bool) {
	*l = slices.DeleteFunc(*l, func(t told) bool { return which(&t) })
}

// first notes a reason and reports whether it is to be told now. One that was noted at wishedNsec,
// when its policy last wished anew, has stood since: nothing was other than then.
func (l *tellings) first(t told, wishedNsec int64) bool {
	i, ok := slices.BinarySearchFunc(*l, t, func(a, b told) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), strings.Compare(a.Policy, b.Policy), strings.Compare(a.Word, b.Word))
	})
	if !ok {
		*l = slices.Insert(*l, i, t)
		return true
	}
	was := (*l)[i].AtNsec
	again := was != wishedNsec && t.AtNsec-was >= tellAgainNsec
	(*l)[i].AtNsec = t.AtNsec
	return again
}

// grant takes the wishes of a policy.
func (e *Engine) grant(in *Input, i int) {
	w, p := &e.scratch.wishes, &e.State.Policies[i]
	for j := range w.Decisions {
		e.decideFor(in, p, w.Decisions[j])
	}
	for j := range w.Notes {
		n := &w.Notes[j]
		if e.State.Told.first(told{p.Policy, n.Decision.Task, n.Word, in.MonoNsec}, p.WishedNsec) {
			e.decideFor(in, p, n.Decision)
		}
	}
	if !w.AsBefore {
		p.WishedNsec = in.MonoNsec
	}
	e.out.Incidents = append(e.out.Incidents, w.Incidents...)
	for _, n := range w.Forgiven {
		if t := e.track(n); t != nil {
			t.Flags.Clear()
		}
	}
	for _, f := range w.ForgivenBeside {
		if t := e.track(f.Num); t != nil {
			t.beside(f.Source).Clear()
		}
	}
	switch {
	case p.Mode != model.ModeEnforce:
		return
	case !w.AsBefore:
		e.endOthers(in, p, w)
		e.claim(in, p, w)
	case p.HoldNsec == 0 || in.MonoNsec < p.RenewNsec:
		return
	default:
		e.State.Ledger.renewAll(p.Policy, in.MonoNsec)
	}
	e.scratch.still = false
	p.RenewNsec = in.MonoNsec + p.HoldNsec/renewShare
}

// decideFor records a decision of a policy.
func (e *Engine) decideFor(in *Input, p *Standing, d model.Decision) {
	d.Policy, d.Mode = p.Policy, p.Mode.String()
	e.decide(in, d)
}

// endOthers gives back what the policy claimed and does not wish for any more.
func (e *Engine) endOthers(in *Input, p *Standing, w *policy.Wishes) {
	l := &e.State.Ledger
	e.scratch.step++
	for j := range w.Claims {
		c := &w.Claims[j]
		if k := l.knob(c.Target, c.Value.Knob); k != nil {
			if old := k.claimOf(p.Policy, c); old != nil {
				old.Wished = e.scratch.step
			}
		}
	}
	for j := range l.Knobs {
		l.drop(&l.Knobs[j], func(c *model.Claim) bool {
			if c.Owner != model.OwnerPolicy || c.Policy != p.Policy || c.Wished == e.scratch.step {
				return false
			}
			e.decideFor(in, p, model.Decision{Kind: model.DecideRelease, Task: c.Task(), Path: e.State.Tasks.NameOf(c.Target), Incident: c.Incident, Reason: endOf(w, c)})
			return true
		})
	}
}

// endOf says why a claim is no longer wished for.
func endOf(w *policy.Wishes, c *model.Claim) string {
	for j := range w.Ends {
		if w.Ends[j].Claim.Is(c) {
			return w.Ends[j].Reason
		}
	}
	return cmp.Or(w.Why, "it is not wanted any more")
}

// claim makes or renews what the policy wishes for.
func (e *Engine) claim(in *Input, p *Standing, w *policy.Wishes) {
	p.HoldNsec = 0
	for j := range w.Claims {
		c := w.Claims[j]
		c.Owner, c.Policy, c.MadeNsec = model.OwnerPolicy, p.Policy, in.MonoNsec
		if c.HoldNsec > 0 {
			c.ExpiresNsec = in.MonoNsec + c.HoldNsec
			if p.HoldNsec == 0 || c.HoldNsec < p.HoldNsec {
				p.HoldNsec = c.HoldNsec
			}
		}
		if c.ExpiresNsec <= in.MonoNsec {
			continue
		}
		why := e.notHis(&c)
		if why == "" {
			why = e.State.Ledger.Claim(c, e.Params.Limits, e.State.BECPU)
		}
		// A claim that waits for something shows in the view: void, exempt or refused. One that
		// an incident needs now fails, and its policy looks for another way.
		if why != "" && c.Incident != "" {
			d := model.Decision{Kind: model.DecideLimit, Task: c.Task(), Incident: c.Incident, Reason: why}
			if c.Value.Knob.Spec().CPUs != nil {
				d.Facts = []model.Fact{model.FactCap.Is(c.Cap)}
			}
			e.decideFor(in, p, d)
		}
	}
}

// notHis says why a policy may not have a claim on a task of such a class: the last line of
// defence of the rule that LC is never held.
func (e *Engine) notHis(c *model.Claim) string {
	if c.Scope != model.ScopeTask {
		return ""
	}
	t, spec := e.State.Tasks.Get(c.Num), c.Value.Knob.Spec()
	switch {
	case t == nil:
		return ""
	case slices.Contains(spec.Takes[c.Kind], t.Class) && (spec.Suits == nil || spec.Suits(c.Value, t.Class)):
		return ""
	}
	return fmt.Sprintf("a %s on %s is not for %s tasks", c.Kind, c.Value.Knob, t.Class)
}
