package remedy

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// A trial says nothing where somebody else changed something of its tasks or of the service meanwhile: memory that was short, an operator, another
// program, a new configuration. Whether the service is better off is then no verdict on the step, so nothing is remembered of it, good or bad. What was
// taken is given back, and may be taken anew once it is known again how the service does without. A step back is looked at from the beginning while services are well.

// void ends a trial that was disturbed, or begins it anew, and reports whether there is one.
func (s *State) void(p *Params, v *policy.View, w *policy.Wishes) bool {
	t := s.Trial
	if t == nil || s.hold(t.Task, t.Means) == nil {
		return false
	}
	h := s.hold(t.Task, t.Means)
	if h.Means == Pages && h.Moved == "" {
		return false // they are on their way: what came of that first
	}
	of := append([]model.TaskNum{h.Victim, t.Task}, t.With...)
	why, _ := v.Disturbed(model.PolicyRemedy, t.SinceNsec, of...)
	if why == "" {
		return false
	}
	if t.Back && s.inTrouble(p, 0) == nil {
		d := model.Decision{Kind: model.DecideVoid, Task: t.Task, Path: v.Table.Name(t.Task), Reason: "the trial says nothing: " + why + "; services are well, and it is looked at from now on"}
		if what, _ := v.OthersDid(model.PolicyRemedy, t.SinceNsec, of...); what != "" {
			w.Decide(d) // each time, but not for as long as a task stays frozen
		}
		t.SinceNsec = v.NowNsec
		if s.SetNsec != 0 {
			s.SetNsec = v.NowNsec
		}
		return true
	}
	s.undo(p, v, w, h, why)
	return true
}

// undo ends a trial that says nothing with everything as it was before; pages stay where they are.
func (s *State) undo(p *Params, v *policy.View, w *policy.Wishes, h *Hold, why string) {
	t, d := s.Trial, model.Decision{Kind: model.DecideVoid, Task: h.Task, Path: v.Table.Name(h.Task)}
	for h := range s.held(t) {
		if h.Means != Pages {
			s.move(v, h, h.Was)
		}
		if t.Back {
			h.RetryNsec = v.NowNsec + p.RetryNsec
		}
	}
	d.Reason = "the trial says nothing: " + why + "; back to " + h.text()
	if h.Means == Pages {
		d.Reason = "the trial says nothing: " + why + "; its pages stay where they are"
		s.away(v, h)
	}
	d.Facts = slices.DeleteFunc(h.tell(v, &Victim{}).Facts, func(f model.Fact) bool {
		return f.Name != model.FactCap.String() && f.Name != model.FactUsage.String() // who reckons what was taken goes by these
	})
	w.Decide(d)
	s.Trial = nil
	s.resetOf(t)
	s.drop("the trial says nothing: " + why)
}
