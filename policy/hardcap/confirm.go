package hardcap

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// Active confirmation (Params.Confirm). Section 4.2 rejects an active scheme, because it
// "may disrupt many innocent tasks", and leaves open to combine active measures with
// passive ones. So it is used only where the passive evidence cannot decide: several
// suspects within a margin of each other, or the best one just under the threshold. Then
// the suspect that used most CPU among them is held for a window or two while the victim
// suffers and the suspect runs. What follows:
//
//   - the victim's signal falls by half of its excess and more than its noise: confirmed;
//     the nudge becomes a cap and is verified like any other;
//   - it falls as much, but another suspect paused meanwhile: nothing is known, the suspect
//     is let go and may be tried again;
//   - it does not: refuted; the suspect is let go, is left out for the rest of the incident,
//     and the next one is tried.
//
// A victim that suffers in nearly all windows, as one does that came back slower of itself, makes everybody score alike, and each task would be
// nudged after the other. So with Params.Confirm.Share who is nudged must beat a steady suspect by as much as who is capped
// (antagonist.Params.Steady), or its job takes half of what all best-effort tasks take: who takes that much needs no rhythm to be suspected.
//
// What it costs is bounded (windows a nudge, nudges an incident and an hour), counted and
// reported: the time held, and the CPU-seconds that the suspect would have used. A victim that
// nobody hurts opens one incident after the other; the bound on an incident therefore holds
// across its incidents for as long as refutations are remembered.

const hourNsec = int64(3600e9)

// nudgeSlack is how many windows without evidence a nudge may outlive.
const nudgeSlack = 2

// badBefore is how many bad windows before a nudge its effect is measured against.
const badBefore = 3

// Refuted is a nudge that did not help a victim. It is forgotten when what trials have shown
// is, see testedFactor.
type Refuted struct {
	Victim    model.TaskNum `json:"victim"`
	Task      model.TaskNum `json:"task"`
	UntilNsec int64         `json:"until_nsec"`
}

// refuted reports whether a nudge of a suspect did not help a victim.
func (s *State) refuted(victim, task model.TaskNum) bool {
	return slices.ContainsFunc(s.Refuted, func(r Refuted) bool { return r.Victim == victim && r.Task == task })
}

// noteRefuted notes that the nudge that ends now did not help a victim. Both who judges by the victim alone and who asks
// all services say so; it is noted once.
func (s *State) noteRefuted(p *Params, in *policy.View, victim, task model.TaskNum) {
	note := Refuted{victim, task, in.NowNsec + testedFactor*p.DurationNsec}
	if !slices.Contains(s.Refuted, note) {
		s.Refuted = append(s.Refuted, note)
	}
}

// inVain counts the nudges that did not help a victim: those whose tasks were held together have one end, and are one.
func (s *State) inVain(victim model.TaskNum) int {
	n, end := 0, int64(0)
	for _, r := range s.Refuted {
		if r.Victim == victim && (n == 0 || r.UntilNsec != end) {
			n, end = n+1, r.UntilNsec
		}
	}
	return n
}

// nudge holds the prime suspect for a moment where the evidence is split. It reports
// whether that is what this analysis led to, or waits for.
func (s *State) nudge(p *Params, ap *antagonist.Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round, pick int) bool {
	prime, split := s.split(p, ap, in, inc, r.Threshold, pick)
	if prime < 0 || in.Mode != model.ModeEnforce || !s.mayNudge(p, in, inc) {
		return false
	}
	sc := s.analysis.Scores[prime]
	task := in.Table.Get(sc.Num)
	// The window that closed last may have closed some ticks ago: at one analysis a second victims take turns.
	if signal, n := in.History.MeanSignal(inc.Victim, 0, 1); n == 0 || signal <= inc.Threshold || in.History.RecentUsage(sc.Num, 1) < sc.Usage/2 {
		inc.SearchLeft--
		if inc.SearchLeft <= 0 {
			return false
		}
		s.say(in, out, inc, model.Decision{
			Kind: model.DecideSearch, Task: inc.Victim, Facts: []model.Fact{model.FactSignal.Is(inc.LastSignal), model.FactThreshold.Is(inc.Threshold)},
			Reason: fmt.Sprintf("%s; waits for a moment in which %s runs and the victim suffers", undecided(split), task.Path),
		})
		return true
	}
	num := task.Num
	r.Chosen, r.ChosenPath, r.Cap, r.Nudge = &num, task.Path, p.nudgeCap(task, sc.Usage), true
	r.MeanBefore, _ = in.History.RecentSignal(inc.Victim, badBefore, inc.Threshold)
	s.nudgeSiblings(p, ap, in, inc, r, prime, s.leastNudged(p, r.Threshold))
	for i := range r.Suspects {
		if slices.Contains(heldIn(r), r.Suspects[i].Task) {
			r.Suspects[i].Judge(model.SuspectNudged, "")
		} else if r.Suspects[i].State == model.SuspectChosen {
			r.Suspects[i].Judge(model.SuspectUndecided, "")
		}
	}
	inc.Rounds = append(inc.Rounds, *r)
	inc.State = model.Holding
	s.NudgedAt = append(s.NudgedAt, in.NowNsec)
	period := max(in.History.PeriodNsec(), in.Window.LengthNsec)
	expires := in.NowNsec + min(p.DurationNsec, int64(p.Confirm.Windows+nudgeSlack)*period)
	lack, facts := s.lacks.text(in, r, task.Path, num)
	reason := fmt.Sprintf("score %.2f of %.2f asked for, and %s%s: holds %s to %.3g CPU for %d windows, to see whether %s recovers",
		sc.Value, r.Threshold, undecided(split), lack, heldNames(r), r.Cap, p.Confirm.Windows, inc.VictimPath)
	s.renewKept(p, in, out, inc)
	for _, h := range holdsOf(r) {
		usage := h.usage
		if h.task == num {
			usage = sc.Usage // also where the suspect is past the list that is kept
		}
		s.want(inc.claim(h.task, h.floor, usage, expires, reason))
	}
	facts = slices.Concat([]model.Fact{model.FactCorrelation.Is(sc.Value), model.FactAsked.Is(r.Threshold)}, facts, capped(r.Cap, sc.Usage))
	s.say(in, out, inc, model.Decision{Kind: model.DecideNudge, Task: num, Facts: facts, Reason: reason})
	return true
}

// nudgeSiblings adds those to a nudge that go with its suspect: held alone it would be refuted
// by what they do.
func (s *State) nudgeSiblings(p *Params, ap *antagonist.Params, in *policy.View, inc *Incident, r *model.Round, prime int, least float64) {
	others := s.siblings(p, ap, in, inc, prime, least)
	if len(others) == 0 {
		return
	}
	sc := &s.analysis.Scores[prime]
	first := antagonist.GroupMember{Num: sc.Num, Score: sc.Value, Usage: sc.Usage}
	for _, m := range append([]antagonist.GroupMember{first}, others...) {
		task := in.Table.Get(m.Num)
		r.Members = append(r.Members, memberOf(in, task, &m, p.nudgeCap(task, m.Usage)))
	}
}

// undecided says why the passive evidence does not do.
func undecided(among int) string {
	if among == 1 {
		return "the best suspect just misses it"
	}
	return fmt.Sprintf("the evidence is split among %d", among)
}

// nudgeCap is the cap of a nudge.
func (p *Params) nudgeCap(t *model.Task, usage float64) float64 {
	return max(p.capOf(t), p.Confirm.UsageShare*usage)
}

// mayNudge reports whether the bounds leave room for another nudge.
func (s *State) mayNudge(p *Params, in *policy.View, inc *Incident) bool {
	s.NudgedAt = slices.DeleteFunc(s.NudgedAt, func(at int64) bool { return in.NowNsec-at >= hourNsec })
	n := 0
	for i := range inc.Rounds {
		if inc.Rounds[i].Nudge {
			n++
		}
	}
	return max(n, s.inVain(inc.Victim)) < p.Confirm.MaxPerIncident && len(s.NudgedAt) < p.Confirm.MaxPerHour
}

// split finds the suspects among whom the passive evidence cannot decide, and returns the
// one that used most CPU among them, which the score does not look at. prime is -1 when
// the evidence is clear, or when there is none.
func (s *State) split(p *Params, ap *antagonist.Params, in *policy.View, inc *Incident, needed float64, pick int) (prime, among int) {
	prime = -1
	var like []int
	top, untouchable := -2.0, -2.0
	least := s.leastNudged(p, needed)
	if pick >= 0 {
		top = s.analysis.Scores[pick].Value
	}
	for i := range s.analysis.Scores {
		sc := &s.analysis.Scores[i]
		sus, may := s.weigh(ap, in, inc, sc, least)
		if sus.Kind != model.SuspectTask && sc.Value >= least && sc.Usage >= leastUntouchable {
			untouchable = max(untouchable, sc.Value)
		}
		if !may || (i != pick && (s.tested(sc.Num, false) || s.refuted(inc.Victim, sc.Num))) || sc.Value < untouchable-antagonist.ClearlyBetter || (i != pick && in.Table.Get(sc.Num).Importance == model.Critical) {
			continue
		}
		if p.Confirm.Share > 0 && i != pick && sc.Usage < 2*p.nudgeCap(in.Table.Get(sc.Num), sc.Usage) {
			continue // to hold it would change nothing
		}
		top = max(top, sc.Value)
		if sc.Value < top-p.Confirm.Margin {
			continue
		}
		like = append(like, i)
		if p.Confirm.Share > 0 && i != pick && sc.Value < s.analysis.Steady+ap.Steady && !s.takesHalf(in, in.Table.Get(sc.Num)) {
			continue // whoever used the same CPU all the time scores as much: the evidence is split by it, and it is not nudged
		}
		if prime < 0 || s.likelier(in, sc, &s.analysis.Scores[prime]) {
			prime = i
		}
	}
	if prime < 0 {
		return -1, 0
	}
	among = s.distinct(p, in, like, prime)
	if pick >= 0 && among < 2 {
		return -1, among
	}
	return prime, among
}

// takesHalf reports whether a task's job takes at least half of what all best-effort tasks take: of the cache's misses in the windows in which
// the victim suffered, or, where nobody counted these, of CPU.
func (s *State) takesHalf(in *policy.View, of *model.Task) bool {
	var misses, usage, allMisses, allUsage float64
	for i := range s.analysis.Scores {
		sc := &s.analysis.Scores[i]
		t := in.Table.Get(sc.Num)
		if t == nil || t.Class != model.BE {
			continue
		}
		m := max(0, in.History.Taken(sc.Num))
		allMisses, allUsage = allMisses+m, allUsage+sc.Usage
		if jobOf(t) == jobOf(of) {
			misses, usage = misses+m, usage+sc.Usage
		}
	}
	if allMisses == 0 {
		return usage >= allUsage/2
	}
	return misses >= allMisses/2
}

// distinct counts suspects; those that go with the prime one are one with it.
func (s *State) distinct(p *Params, in *policy.View, like []int, prime int) int {
	n := 0
	for _, i := range like {
		a, b := s.analysis.Scores[prime].Num, s.analysis.Scores[i].Num
		if i == prime || !p.Groups.Enabled || in.Table.Get(a).Job != in.Table.Get(b).Job || !p.Groups.ByJob && !in.History.Alike(a, b) {
			n++
		}
	}
	return n
}

// likelier ranks suspects of like score: who was found guilty before, then who took more of what the victim lacks, or of the cache and
// the memory, while it suffered, then, where that is not known, who used more CPU.
func (s *State) likelier(in *policy.View, a, b *antagonist.Score) bool {
	if ga, gb := s.tested(a.Num, true), s.tested(b.Num, true); ga != gb {
		return ga
	}
	if c := s.byTaken(in, a.Num, b.Num); c != 0 {
		return c < 0
	}
	return a.Usage > b.Usage
}

// judgeNudge looks at the victim during a nudge, and decides at its end.
func (s *State) judgeNudge(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim, h policy.Hold) {
	r := inc.round()
	if h.State == policy.HoldNone {
		s.endNudge(in, out, inc, model.RoundUnjudged, "ended without enough evidence of the victim")
		return
	}
	if v == nil || !v.Verdict.Evidence() || !inc.judged(in) {
		return
	}
	inc.judge(r, v)
	if r.WindowsJudged < p.Confirm.Windows {
		change(out, inc)
		return
	}
	drop := fmt.Sprintf("%s of %s went from %.3g to %.3g", inc.Source, inc.VictimPath, r.MeanBefore, r.SignalAfter)
	windows := under(in, r)
	sigmas, paused := p.Confirm.Sigmas, s.rivalPaused(p, in, r, windows)
	if p.Confirm.Witnesses {
		if paused == "" {
			paused = s.pausedToo(in, inc.Victim, r, windows)
		}
		if paused == "" {
			s.experiment(p, in, inc, in.Table.Get(*r.Chosen), windows)
		}
		pair := s.decided(p, in.NowNsec, inc.VictimJob, in.Table.Get(*r.Chosen))
		z, asked := fellTogether(in, inc, windows)
		drop += fmt.Sprintf(", all %d together fell by %.1f standard errors", asked, z)
		switch {
		case (z >= sureTogether || pair != nil) && paused == "":
			sigmas = 0
			if len(r.Members) == 0 {
				s.noteTested(p, in, *r.Chosen, true)
			}
		case asked > 0 && z < 1:
			for _, n := range heldIn(r) {
				s.clear(p, in, n)
			}
		}
	}
	switch {
	case !inc.helpedBy(r, s.leastDrop(p), sigmas, badBefore):
		s.noteRefuted(p, in, inc.Victim, *r.Chosen)
		s.endNudge(in, out, inc, model.RoundRefuted, drop+": refuted")
	case paused != "":
		s.endNudge(in, out, inc, model.RoundUnjudged, drop+", but "+paused+" paused meanwhile: nothing is known")
	default:
		s.confirm(p, in, out, inc, drop)
	}
}

// leastDrop is the share of the excess that must go away. With groups a part is enough: the
// suspect is kept, and the others are sought beside it.
func (s *State) leastDrop(p *Params) float64 {
	if p.Groups.Enabled {
		return min(p.Confirm.Drop, p.Groups.HelpShare)
	}
	return p.Confirm.Drop
}

// rivalPaused names a suspect of like score that used less than half of its usual CPU in the windows
// for which the nudge lasted, "" when there is none.
func (s *State) rivalPaused(p *Params, in *policy.View, r *model.Round, windows int) string {
	for i := range r.Suspects {
		o := &r.Suspects[i]
		if slices.Contains(heldIn(r), o.Task) || (o.Class != model.BE && o.Kind == model.SuspectTask) || o.Usage < leastUntouchable || o.Score < r.Threshold-p.Confirm.Margin {
			continue
		}
		if in.History.RecentUsage(o.Task, windows) < o.Usage/2 {
			return o.Path
		}
	}
	return ""
}

// account counts what a nudge took.
func (s *State) account(in *policy.View, r *model.Round) {
	r.HeldNsec = max(0, in.NowNsec-r.AppliedNsec)
	for _, h := range holdsOf(r) {
		r.LostCPUSec += max(0, h.usage-h.floor) * float64(r.HeldNsec) / 1e9
	}
	s.NudgedNsec += r.HeldNsec
	s.NudgedLost += r.LostCPUSec
}

// endNudge lets a nudged suspect go. A refuted one is left out from now on.
func (s *State) endNudge(in *policy.View, out *policy.Wishes, inc *Incident, is model.RoundState, why string) {
	s.account(in, inc.round())
	s.letNudgedGo(in, out, inc, is, why, is == model.RoundRefuted)
}

// letNudgedGo is endNudge where what was taken is counted already. Who is left out is so from now on.
func (s *State) letNudgedGo(in *policy.View, out *policy.Wishes, inc *Incident, is model.RoundState, why string, leftOut bool) {
	r := inc.round()
	r.Conclude(is, why)
	s.dropRound(out, inc, r, "the nudge is over")
	if leftOut {
		inc.Excluded = append(inc.Excluded, heldIn(r)...)
	}
	inc.State, inc.Fresh, inc.SearchLeft = model.Searching, true, max(1, inc.SearchLeft)
	s.say(in, out, inc, model.Decision{
		Kind: model.DecideRefute, Task: *r.Chosen, Path: heldNames(r), Facts: []model.Fact{model.FactSignal.Is(r.SignalAfter), model.FactThreshold.Is(inc.Threshold)},
		Reason: fmt.Sprintf("%s; held for %.3g s, %.3g CPU-seconds lost", why, float64(r.HeldNsec)/1e9, r.LostCPUSec),
	})
}

// confirm turns a nudge into a cap.
func (s *State) confirm(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, drop string) {
	r := inc.round()
	task := in.Table.Get(*r.Chosen)
	if task == nil { // it left meanwhile: what the victim does now is judged as after a cap
		r.Confirmed = true
		return
	}
	s.account(in, r)
	if p.Feedback.Enabled {
		r.Peak = in.History.PeakUsage(*r.Chosen)
	}
	if len(r.Members) == 0 {
		s.noteTested(p, in, *r.Chosen, true)
	}
	r.Confirmed, r.Cap = true, p.capOf(task)
	r.AppliedNsec = in.NowNsec
	for i := range r.Members {
		if t := in.Table.Get(r.Members[i].Task); t != nil {
			r.Members[i].Cap = p.capOf(t)
		}
	}
	for _, h := range holdsOf(r) {
		if in.Table.Get(h.task) == nil {
			continue
		}
		reason := fmt.Sprintf("confirmed: %s; holds %s to %.3g CPU", drop, h.path, h.floor)
		s.want(inc.claim(h.task, h.floor, h.usage, in.NowNsec+p.DurationNsec, reason))
		s.say(in, out, inc, model.Decision{Kind: model.DecideCap, Task: h.task, Facts: append(capped(h.floor, h.usage), model.FactAsked.Is(r.Threshold)), Reason: reason})
	}
}
