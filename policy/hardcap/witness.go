package hardcap

import (
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// All protected tasks are witnesses of a nudge (Params.Confirm.Witnesses). Who fills the cache or the memory
// bus hurts everybody on the machine, so that holding it back for a moment is an experiment on all of them:
// what one victim's signal cannot tell from its own noise, twenty tell together. Everybody who has a spec is
// asked, whether it suffers or not: those who suffered most just before would do better now of themselves.

// sureTogether is how sure the fall of all signals together must be, in standard errors. They are not independent: load
// that goes away helps all of them.
const sureTogether = 4

// fellTogether is the fall of the protected tasks' signals in the last windows against those before, in standard errors of their mean,
// and how many tasks were asked. A hold made in between that helps makes them fall, a release that harms rise.
func fellTogether(in *policy.View, inc *Incident, windows int) (sigmas float64, asked int) {
	return fell(in, inc.Source, "", 0, windows)
}

// fell is fellTogether of one job's tasks, or of all where job is "", as it was so many windows ago.
func fell(in *policy.View, src model.Source, job string, skip, windows int) (sigmas float64, asked int) {
	sum := 0.0
	for i := range in.Window.Victims {
		v := &in.Window.Victims[i]
		if v.Source != src || !v.Verdict.Evidence() || v.Spec.Mean <= 0 || v.Spec.StdDev <= 0 {
			continue
		}
		if t := in.Table.Get(v.Num); job != "" && (t == nil || t.Job != job) {
			continue
		}
		before, nb := in.History.MeanSignal(v.Num, skip+windows, badBefore)
		during, nd := in.History.MeanSignal(v.Num, skip, windows)
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

// pausedToo names a best-effort task that paused in the windows for which the nudge lasted, and before took at least half of what the
// nudged ones took, of what the victim lacks, else of the cache's misses, or else of CPU: what everybody gained may be its doing. "" where there is none.
func (s *State) pausedToo(in *policy.View, victim model.TaskNum, r *model.Round, windows int) string {
	var usage, misses, lacked float64
	held, near := heldIn(r), nearTo(in, victim, r.Lack)
	for _, n := range held {
		u, m := in.History.Took(n, windows, badBefore)
		l, _ := in.History.TookOf(n, r.Lack, near, windows, badBefore)
		usage, misses, lacked = usage+u, misses+m, lacked+l
	}
	for i := range in.Table.Tasks {
		t := &in.Table.Tasks[i]
		if t.Class != model.BE || slices.Contains(held, t.Num) {
			continue
		}
		u, m := in.History.Took(t.Num, windows, badBefore)
		now, _ := in.History.Took(t.Num, 0, windows)
		large := m >= misses/2
		if misses == 0 {
			large = u >= usage/2
		}
		if l, counted := in.History.TookOf(t.Num, r.Lack, near, windows, badBefore); counted && lacked > 0 {
			large = l >= lacked/2
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

// Helped is one whom a hold helped, and its mean signal in the last bad windows before.
type Helped struct {
	Num    model.TaskNum `json:"num"`
	Before float64       `json:"before"`
}

// noteMore adds who is helped later, and how bad each was.
func (inc *Incident) noteMore(in *policy.View) {
	for i := range in.Window.Victims {
		v := &in.Window.Victims[i]
		if v.Num == inc.Victim || v.Source != inc.Source || v.Verdict != outlier.Good || slices.ContainsFunc(inc.HelpedBy, func(h Helped) bool { return h.Num == v.Num }) {
			continue
		}
		if before, n := in.History.RecentSignal(v.Num, badBefore, v.Threshold); n == badBefore {
			inc.HelpedBy = append(inc.HelpedBy, Helped{v.Num, before})
		}
	}
}

// wouldHurt reports whether any of those who were helped would suffer at a looser level, by the same straight line as
// wouldSuffer. The mildest victim's incident is the first to see its victim well, and would loosen the cap at the others' expense.
func (inc *Incident) wouldHurt(p *Params, in *policy.View, level float64) bool {
	r := inc.round()
	if r.Level >= 1 {
		return false
	}
	inc.noteMore(in)
	for _, h := range inc.HelpedBy {
		v := findVictim(in.Window.Victims, h.Num)
		now, n := in.History.MeanSignal(h.Num, 0, p.Feedback.LoosenAfter)
		if v != nil && n > 0 && h.Before > now && now+(h.Before-now)*(level-r.Level)/(1-r.Level) > v.Threshold {
			return true
		}
	}
	return false
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

// othersSuffer reports whether one of those who were helped is above its threshold.
func (inc *Incident) othersSuffer(in *policy.View) bool {
	once, _ := inc.hurtsHelped(in)
	return once
}

// risen reports whether the protected tasks' signals rose together since a member of a group was released, so many windows ago, by more
// than noise. The victim for whose sake it was held may be the mildest of those that it hurts.
func risen(in *policy.View, inc *Incident, windows int) bool {
	z, _ := fellTogether(in, inc, windows)
	return z <= -sureTogether
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
	sc, pair, ok := s.knownOf(p, in, inc, r.Threshold)
	if !ok {
		return false
	}
	who := "it"
	if pair != nil {
		who = jobOf(in.Table.Get(sc.Num))
	}
	s.take(p, in, out, inc, r, sc, fmt.Sprintf("score %.2f, and %s %s", sc.Value, who, pair.text(p, in.NowNsec)), pair.facts(p, in.NowNsec)...)
	return true
}

// knownOf finds such a suspect among those of the last analysis. pair is what earlier incidents have shown, nil where a late experiment did.
func (s *State) knownOf(p *Params, in *policy.View, inc *Incident, needed float64) (sc antagonist.Score, pair *Pair, ok bool) {
	ap := &p.Antagonist[inc.Source]
	for i := range s.analysis.Scores {
		sc = s.analysis.Scores[i]
		pair = s.decided(p, in.NowNsec, inc.VictimJob, in.Table.Get(sc.Num))
		if pair == nil && (!s.tested(sc.Num, true) || s.refuted(inc.Victim, sc.Num)) {
			continue
		}
		if _, may := s.weigh(ap, in, inc, &sc, s.leastNudged(p, needed)); may {
			return sc, pair, true
		}
	}
	return sc, nil, false
}

// leastNudged is the score asked of a suspect that is to be nudged.
func (s *State) leastNudged(p *Params, needed float64) float64 {
	least := needed - p.Confirm.Margin
	if a := &s.analysis; p.Confirm.Share > 0 {
		least = min(least, a.Steady+p.Confirm.Share*(a.Perfect-a.Steady))
	}
	return least
}
