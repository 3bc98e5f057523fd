package pressure

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// end has the next tasks ended that the configuration gives up, and reports whether there was one. It is the last means: there is little
// memory although nobody is left to freeze, for a while, or the reserve is used up a window after the freezing began.
func (s *State) end(p *Params, v *policy.View, w *policy.Wishes, froze bool) bool {
	reserve := s.share() < p.Reserve
	switch {
	case p.End == policy.EndNobody || s.Level != Freeze || s.share() >= p.Low || froze && !reserve:
		s.HelplessNsec = 0
		return false
	case s.HelplessNsec == 0:
		s.HelplessNsec = v.NowNsec
	}
	if s.LevelNsec == v.NowNsec || !reserve && v.NowNsec-s.HelplessNsec < p.EndAfterNsec || s.EndedNsec > 0 && v.NowNsec-s.EndedNsec < p.EndEveryNsec {
		return false
	}
	if len(s.Ending) > 0 || s.EndedNsec > 0 && !v.Enforced() {
		return false // the last ones are on their way; observing, it was said of the first ones
	}
	text := fmt.Sprintf("%.1f %% of memory are available and nobody is left to freeze", 100*s.share())
	if reserve {
		text = fmt.Sprintf("%.1f %% of memory are available, less than the reserve", 100*s.share())
	}
	var ending []model.TaskNum
	for _, c := range s.given(p, v) {
		t := &c.t.Task
		if len(ending) == p.AtOnce {
			break
		}
		if !s.CanEnd(c.t, w) {
			continue
		}
		ending = append(ending, t.Num)
		w.Decide(model.Decision{
			Kind: model.DecideEnd, Task: t.Num, Path: t.Path, Facts: append(s.facts(p), model.FactHeld.Is(c.bytes)),
			Reason: fmt.Sprintf("%s, and this task, which may be ended (pressure.end: %s), has %.0f MiB", text, p.End, c.bytes/(1<<20)),
		})
	}
	if len(ending) == 0 {
		return false
	}
	s.Ending, s.EndedNsec = ending, v.NowNsec
	return true
}

// outlived takes in who was told to end and holds memory all the same.
func (s *State) outlived(p *Params, v *policy.View) {
	const rounds = 12
	s.Outlive(v, func(num model.TaskNum) bool {
		has, ok := inUse(v, num)
		return ok && has >= leastAsk
	}, v.NowNsec+rounds*p.EndEveryNsec)
}

// given are the tasks that are given up, in the order in which they are ended: those that are frozen first, which do nothing as it is.
func (s *State) given(p *Params, v *policy.View) []candidate {
	list := slices.DeleteFunc(s.candidates(p, v), func(c candidate) bool { return !policy.MayEnd(p.End, &c.t.Task) || c.bytes < leastAsk })
	frozen := func(c candidate) int {
		if slices.ContainsFunc(s.Frozen, func(f Frozen) bool { return f.Num == c.t.Task.Num }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return frozen(a) - frozen(b) })
	return list
}
