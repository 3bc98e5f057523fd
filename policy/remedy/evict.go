package remedy

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Eviction, the last rung: the processes of one task are ended. It is off unless the configuration gives tasks up by their importance, for there is no way back
// from it. So it needs all of this: a target that is missed in a good part of the time, nothing left to try for it, for as long as is said; evidence of what
// is contended, which a service that is late for a reason of its own does not have; and somebody who takes of it and may be ended. One at a time: what it
// was good for has as long to show before the next one, and there is no next one where it was good for nothing, until the service has been well.

// leastShare is how much a task that is ended has to take of what all batch work beside the service takes.
const leastShare = 0.1

// end has the next task ended that the configuration gives up, who takes most of what is contended first.
func (s *State) end(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes, x *Victim, about Means) {
	if p.End == policy.EndNobody || !x.often() || len(s.Ending) > 0 || v.NowNsec-max(s.StuckNsec, s.EndedNsec) < p.EndAfterNsec {
		return
	}
	if s.Parting.N >= 2 {
		if fell, sem := x.Figure.below(&s.Parting, overlap); fell <= sem {
			w.Once("in vain", model.Decision{Kind: model.DecideLeftAlone, Reason: "the end of the last task did not help " + v.Table.Name(x.Task) + ": nobody more is ended for its sake"})
			return
		}
	}
	list, all := s.candidates(p, have, v, x), 0.0
	for i := range list {
		all += list[i].share(about)
	}
	for _, c := range ranked(list, about) {
		t := &c.task.Task
		if c.share(about) < leastShare*all || !policy.MayEnd(p.End, t) || !s.CanEnd(c.task, w) {
			continue
		}
		s.Ending, s.EndedNsec, s.changed = append(s.Ending, t.Num), v.NowNsec, true
		w.Decide(model.Decision{
			Kind: model.DecideEnd, Task: t.Num, Path: t.Path, Facts: append(x.facts(), model.FactUsage.Is(c.cpu)),
			Reason: fmt.Sprintf("%s; nothing was left to try for %.0f s, and this task, which may be ended (remedy.end: %s), takes most", x.text(v), float64(v.NowNsec-s.StuckNsec)/1e9, p.End),
		})
		s.Parting = x.Figure
		s.reset(0)
		return
	}
}

// outlived takes in who was told to end and runs all the same.
func (s *State) outlived(p *Params, v *policy.View) {
	if len(s.Ending)+len(s.Outlived) == 0 {
		return
	}
	n := len(s.Ending)
	s.Outlive(v, func(num model.TaskNum) bool { return v.History.RecentUsage(num, 1) > 0 }, v.NowNsec+p.RestNsec)
	s.changed = s.changed || n != len(s.Ending)
}
