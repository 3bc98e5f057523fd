package balm

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// A trial says nothing where somebody else changed something of its tasks or of the service meanwhile, or has one of them frozen. There are two verdicts here: that a step
// back did harm, or none, and that nothing has helped. While bandwidth is taken from one after the other nothing is concluded, and of who is well again nothing is remembered.

// void is what to say where something since a time is in the way of a verdict on some rungs; ok is false where nothing is.
func (s *State) void(v *policy.View, sinceNsec int64, rungs ...Rung) (d model.Decision, ok bool) {
	tasks := []model.TaskNum{s.Victim}
	for i := range rungs {
		tasks = append(tasks, rungs[i].Tasks...)
	}
	why, _ := v.Disturbed(model.PolicyBalm, sinceNsec, tasks...)
	return model.Decision{Kind: model.DecideVoid, Task: tasks[len(tasks)-1], Reason: "the trial says nothing: " + why}, why != ""
}

// voidBack reports whether a step back says nothing. Where services are in trouble it is taken back, and tried again as if it had not been; else it is looked at
// from the beginning.
func (s *State) voidBack(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) bool {
	r := &s.Rungs[s.Trial-1]
	d, ok := s.void(v, s.AskedNsec, *r)
	switch {
	case !ok:
		return false
	case !inTrouble(s.Colour):
		d.Reason += "; it is looked at from now on"
		if what, _ := v.OthersDid(model.PolicyBalm, s.AskedNsec, append([]model.TaskNum{s.Victim}, r.Tasks...)...); what != "" {
			w.Decide(d) // each time, but not for as long as a task stays frozen
		}
		s.AskedNsec, s.SetNsec = v.NowNsec, v.NowNsec
		return true
	}
	d.Reason += "; the step back is taken back"
	w.Decide(d)
	s.Trial, r.RetryNsec = 0, v.NowNsec+p.RetryNsec
	s.move(r, s.tighter(have, r), v, w)
	return true
}
