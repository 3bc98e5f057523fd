package hardcap

import (
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/outlier"
)

// All protected tasks are witnesses of a nudge (Params.Confirm.Witnesses). Who fills the cache or the memory
// bus hurts everybody on the machine, so that holding it back for a moment is an experiment on all of them:
// what one victim's signal cannot tell from its own noise, twenty tell together. Everybody who has a spec is
// asked, whether it suffers or not: those who suffered most just before would do better now of themselves.

// sureTogether is how sure the fall of all signals together must be, in standard errors. They are not independent: load
// that goes away helps all of them.
const sureTogether = 4

// fellTogether is the fall of the protected tasks' signals while the nudge lasted, in standard errors of their mean, and how
// many tasks were asked.
func fellTogether(in *policy.View, inc *Incident, r *model.Round) (sigmas float64, asked int) {
	sum := 0.0
	for i := range in.Window.Victims {
		v := &in.Window.Victims[i]
		if v.Source != inc.Source || !v.Verdict.Evidence() || v.Spec.Mean <= 0 || v.Spec.StdDev <= 0 {
			continue
		}
		before, nb := in.History.MeanSignal(v.Num, r.WindowsJudged, badBefore)
		during, nd := in.History.MeanSignal(v.Num, 0, r.WindowsJudged)
		if nb == 0 || nd == 0 {
			continue
		}
		noise := v.Spec.StdDev * max(1, before/v.Spec.Mean) * math.Sqrt(1/float64(nb)+1/float64(nd))
		sum += (before - during) / noise
		asked++
	}
	if asked == 0 {
		return 0, 0
	}
	return sum / math.Sqrt(float64(asked)), asked
}

// pausedToo names a best-effort task that paused while the nudge lasted, and before took at least half of what the
// nudged ones took, of the cache's misses or else of CPU: what everybody gained may be its doing. "" where there is none.
func (s *State) pausedToo(in *policy.View, r *model.Round) string {
	var usage, misses float64
	held := heldIn(r)
	for _, n := range held {
		u, m := in.History.Took(n, r.WindowsJudged, badBefore)
		usage, misses = usage+u, misses+m
	}
	for i := range in.Table.Tasks {
		t := &in.Table.Tasks[i]
		if t.Class != model.BE || slices.Contains(held, t.Num) {
			continue
		}
		u, m := in.History.Took(t.Num, r.WindowsJudged, badBefore)
		now, _ := in.History.Took(t.Num, 0, r.WindowsJudged)
		large := m >= misses/2
		if misses == 0 {
			large = u >= usage/2
		}
		if large && u >= leastUntouchable && now < u/2 {
			return t.Path
		}
	}
	return ""
}

// noteHelped notes who else suffered lately and is well under the hold: what loosens it goes by them too.
func (inc *Incident) noteHelped(in *policy.View) {
	inc.Helped = inc.Helped[:0]
	for i := range in.Window.Victims {
		v := &in.Window.Victims[i]
		if v.Num != inc.Victim && v.Source == inc.Source && v.Verdict == outlier.Good && v.Violations > 0 {
			inc.Helped = append(inc.Helped, v.Num)
		}
	}
}

// hurtsHelped reports whether one of those who were helped is above its threshold, and whether one is for the second
// window in a row: by chance that is rare, also among many.
func (inc *Incident) hurtsHelped(in *policy.View) (once, twice bool) {
	for _, n := range inc.Helped {
		v := findVictim(in.Window.Victims, n)
		if v == nil || v.Verdict != outlier.Outlier {
			continue
		}
		before, got := in.History.MeanSignal(n, 1, 1)
		once, twice = true, twice || got > 0 && before > v.Threshold
	}
	return once, twice
}

// wouldSuffer reports whether the victim would suffer at a looser level, as far as what it had before the hold and
// has now tell: between the two its signal is taken to be a straight line.
func (inc *Incident) wouldSuffer(p *Params, in *policy.View, v *policy.Victim, level float64) bool {
	r := inc.round()
	now, n := in.History.MeanSignal(inc.Victim, 0, p.Feedback.LoosenAfter)
	if n == 0 || r.MeanBefore <= now || r.Level >= 1 {
		return false
	}
	return now+(r.MeanBefore-now)*(level-r.Level)/(1-r.Level) > allowed(p, v)
}

// clear notes that a nudge did nobody any good: nobody has it nudged again for a while.
func (s *State) clear(p *Params, in *policy.View, task model.TaskNum) {
	for i := range in.Window.Victims {
		if v := in.Window.Victims[i].Num; !s.refuted(v, task) {
			s.noteRefuted(p, in, v, task)
		}
	}
}

// known holds a suspect of which an experiment has shown that it hurts the services of this machine, at once. It reports
// whether there is one.
func (s *State) known(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round) bool {
	ap := &p.Antagonist[inc.Source]
	for i := range s.analysis.Scores {
		sc := s.analysis.Scores[i]
		if !s.tested(sc.Num, true) || s.refuted(inc.Victim, sc.Num) {
			continue
		}
		if _, may := s.weigh(ap, in, inc, &sc, s.leastNudged(p, r.Threshold)); may {
			s.take(p, in, out, inc, r, sc, fmt.Sprintf("score %.2f, and it was found guilty a while ago", sc.Value))
			return true
		}
	}
	return false
}

// leastNudged is the score asked of a suspect that is to be nudged.
func (s *State) leastNudged(p *Params, needed float64) float64 {
	least := needed - p.Confirm.Margin
	if a := &s.analysis; p.Confirm.Share > 0 {
		least = min(least, a.Steady+p.Confirm.Share*(a.Perfect-a.Steady))
	}
	return least
}
