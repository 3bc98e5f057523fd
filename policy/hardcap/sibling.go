package hardcap

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// Siblings (Params.Groups): tasks of the suspect's own job that move as it does. A suspect's
// score does not look at its size, so that each member of a job whose tasks came together
// scores as the whole job would, and CPI²'s rule holds one of them; the others go on, the
// victim does not recover, and the right suspect is let go as if it were wrong. So they are
// held, or nudged, as one. With ByJob all tasks of the job that could have done it are: steady tasks do
// not move at all, and of several that fill the cache each leaves it full. Which of them are needed is found out by releasing them on trial.

// siblings gathers the suspects that go with one, the largest first. They must score least
// themselves.
func (s *State) siblings(p *Params, ap *antagonist.Params, in *policy.View, inc *Incident, pick int, least float64) []antagonist.GroupMember {
	if pick < 0 || !p.Groups.Enabled || p.Groups.MaxMembers < 2 {
		return nil
	}
	first := s.analysis.Scores[pick]
	task := in.Table.Get(first.Num)
	if task.Job == "" || task.Importance == model.Critical {
		return nil
	}
	var list []antagonist.GroupMember
	for i := range s.analysis.Scores {
		sc := &s.analysis.Scores[i]
		o := in.Table.Get(sc.Num)
		if i == pick || o == nil || o.Job != task.Job || o.Importance == model.Critical || s.tested(sc.Num, false) {
			continue
		}
		if _, may := s.weigh(ap, in, inc, sc, least); may && (p.Groups.ByJob || in.History.Alike(first.Num, sc.Num)) {
			list = append(list, antagonist.GroupMember{Num: sc.Num, Score: sc.Value, Usage: sc.Usage, Alike: true})
		}
	}
	slices.SortStableFunc(list, func(a, b antagonist.GroupMember) int { return cmp.Compare(b.Usage, a.Usage) })
	return list[:min(len(list), p.Groups.MaxMembers-1)]
}

// holdSiblings holds a suspect together with its siblings. It reports whether it has any.
func (s *State) holdSiblings(p *Params, ap *antagonist.Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round, pick int) bool {
	others := s.siblings(p, ap, in, inc, pick, r.Threshold)
	if len(others) == 0 {
		return false
	}
	sc := s.analysis.Scores[pick]
	s.group.Members = append(s.group.Members[:0], antagonist.GroupMember{Num: sc.Num, Score: sc.Value, Usage: sc.Usage})
	s.group.Members = append(s.group.Members, others...)
	s.group.Score, s.group.Explained = sc.Value, 0
	s.askForGroup(p, in, out, inc, *r)
	return true
}

// memberOf is what a round notes of one task of a group.
func memberOf(in *policy.View, task *model.Task, m *antagonist.GroupMember, limit float64) model.Member {
	return model.Member{
		Task: m.Num, Path: task.Path, Score: m.Score, Usage: m.Usage, Gain: m.Gain, Cap: limit, Alike: m.Alike,
		Peak: in.History.PeakUsage(m.Num),
	}
}
