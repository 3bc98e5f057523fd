package beside

import (
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

const (
	// maxHalved is how often a limit that helps, and not enough, is halved.
	maxHalved = 2
	// windowSlack: a window that began so much of its length before a change is judged as one after it.
	windowSlack = 10
)

// search looks for who makes the victim wait, and holds the best suspect.
func (s *step) search(inc *Incident, x *policy.Victim) {
	r := model.Round{MonoNsec: s.v.NowNsec, SignalBefore: x.Signal}
	pick := -1
	h, why := s.realm.Taken(inc)
	if h != nil {
		h.Correlate(s.in.Correlation, inc.Victim, inc.Threshold, &s.analysis)
		r.Considered, r.Median, r.Steady = len(s.analysis.Scores), s.analysis.Median, s.analysis.Steady
		bad, good, some := Means(h, inc.Victim, inc.Threshold, func(num model.TaskNum) bool { return num != inc.Victim })
		pick = s.choose(inc, &r, bad)
		if !some {
			pick, why = -1, fmt.Sprintf("it was well in none of the last %d windows: with nothing to compare nobody is held", h.Filled)
		} else if bad <= good*(1+s.p.Rise) {
			pick, why = -1, s.realm.Itself(inc, bad, good)
		}
	}
	if pick >= 0 {
		if s.hold(inc, &r, s.analysis.Scores[pick]) {
			return
		}
		why = fmt.Sprintf("%s would be held, and does nothing just now", s.v.Table.Name(s.analysis.Scores[pick].Num))
	}
	if why == "" {
		why = "no suspect reaches the correlation that is asked for"
		if len(r.Suspects) > 0 && r.Suspects[0].Score >= r.Threshold {
			why = fmt.Sprintf("nobody may be held: the top suspect %s scores %.2f (%.2f asked for): %s", r.Suspects[0].Path, r.Suspects[0].Score, r.Threshold, r.Suspects[0].Verdict)
		}
	}
	if inc.SearchLeft--; inc.SearchLeft > 0 {
		s.say(inc, model.Decision{Kind: model.DecideSearch, Task: inc.Victim, Facts: inc.facts(x.Signal), Reason: why})
		return
	}
	r.Conclude(model.RoundNobody, "nobody was held")
	inc.Rounds = append(inc.Rounds, r)
	s.cannotFix(inc, why)
}

// choose fills in the round's suspects and returns the index of the one to hold, or -1. most is what all others took in bad windows.
func (s *step) choose(inc *Incident, r *model.Round, most float64) int {
	ap := s.in.Correlation
	needed, byMargin := ap.Needed(&s.analysis)
	if reachable := s.analysis.Reachable(needed, s.p.Trial); reachable < needed {
		needed, byMargin = reachable, false
	}
	if r.Threshold = needed; byMargin {
		r.Margin = ap.Margin
	}
	choice, untouchable := antagonist.NewChoice(), -2.0
	for i, sc := range s.analysis.Scores {
		sus := model.Suspect{Task: sc.Num, Path: s.v.Table.Name(sc.Num), Score: sc.Value, Usage: sc.Usage}
		may := s.weigh(inc, &sus, needed, most)
		if may && sc.Value < untouchable-antagonist.ClearlyBetter {
			sus.Judge(model.SuspectOutdone, "")
			may = false
		}
		switch {
		case sus.State == model.SuspectLeftAlone && sus.Class != model.BE:
			untouchable = max(untouchable, sc.Value)
		case sus.State == model.SuspectHeldAlready: // what comes of that first: nobody behind it is held
			untouchable = max(untouchable, sc.Value+2*antagonist.ClearlyBetter)
		}
		choice.Take(r, i, sus, may, may && s.v.Table.Get(sc.Num).Importance == model.Critical)
	}
	return choice.Made(r)
}

// weigh says what stands for or against one suspect, and whether it can be held.
func (s *step) weigh(inc *Incident, sus *model.Suspect, needed, most float64) bool {
	t := s.v.Task(sus.Task)
	if t != nil {
		sus.Job, sus.Class = t.Task.Job, t.Task.Class
	}
	switch {
	case t == nil:
		sus.Judge(model.SuspectGone, "")
	case sus.Score < needed:
		sus.Judge(model.SuspectBelow, "")
	case !s.realm.Weigh(inc, sus, most):
	case t.Task.Class != model.BE:
		sus.Judge(model.SuspectLeftAlone, t.Task.Class.String()+" is never held")
	case s.v.LeaveAlone(sus.Task, s.words.Policy) != "":
		sus.Judge(model.SuspectLeftAlone, s.v.LeaveAlone(sus.Task, s.words.Policy))
	case slices.Contains(inc.Excluded, sus.Task):
		sus.Judge(model.SuspectTried, "")
	case slices.ContainsFunc(s.Incidents, func(o Incident) bool { return (o.Share > 0 || o.Mild) && *o.Round().Chosen == sus.Task }):
		sus.Judge(model.SuspectHeldAlready, "")
	default:
		if _, why := t.Closed(s.words.Knob); why != "" {
			sus.Judge(model.SuspectLeftAlone, why)
			return false
		}
		return true
	}
	return false
}

// hold limits one suspect, or tries the milder means on it, or notes that it would be so; it is false where the suspect takes nothing just now.
func (s *step) hold(inc *Incident, r *model.Round, chosen antagonist.Score) bool {
	text, facts, ok := s.realm.Take(inc, chosen)
	if !ok {
		return false
	}
	num, path := chosen.Num, s.v.Table.Name(chosen.Num)
	inc.Rounds = append(inc.Rounds, *r)
	r = inc.Round()
	r.Chosen, r.ChosenPath = &num, path
	s.first(inc)
	inc.Reason = fmt.Sprintf("score %.2f of %.2f asked for; %s, for the sake of %s", chosen.Value, r.Threshold, text, inc.VictimPath)
	d := model.Decision{Kind: model.DecideCap, Task: num, Reason: inc.Reason, Facts: append([]model.Fact{
		model.FactCorrelation.Is(chosen.Value), model.FactAsked.Is(r.Threshold), s.words.Share.Is(inc.First),
	}, facts...)}
	mild, first := s.realm.Mild(inc)
	if first {
		d = mild
	}
	if !s.v.Enforced() {
		inc.Round().Conclude(model.RoundObserved, "observed only: nothing was written")
		inc.State, inc.ClosedNsec = model.Observed, s.v.NowNsec
		s.rest(inc)
		s.say(inc, d)
		return true
	}
	inc.GoodRow, inc.GoodSum, inc.BadRow, inc.Sum, inc.Enough, inc.HeldNsec = 0, 0, 0, 0, 0, s.v.NowNsec
	if inc.Mild = first; first {
		inc.State, inc.MovedNsec, inc.Asks = model.Verifying, s.v.NowNsec, 1
	} else {
		inc.State, inc.Share = model.Holding, inc.First
	}
	s.moved = true
	s.say(inc, d)
	return true
}

// first finds the share that is left to who was chosen at first.
func (s *step) first(inc *Incident) {
	inc.First = s.realm.First(inc)
	inc.Round().Cap = inc.First
}

// tryMild looks what came of the milder means. It is repeated VerifyWindows times at most while the victim suffers; then the task
// is held, once what was done had time to show, or as soon as it does not begin to.
func (s *step) tryMild(inc *Incident, x *policy.Victim) {
	r := inc.Round()
	if s.v.Task(*r.Chosen) == nil {
		s.say(inc, model.Decision{Kind: model.DecideGone, Task: *r.Chosen, Path: r.ChosenPath, Reason: "its cgroup is gone"})
		inc.Mild = false
		s.next(inc, model.RoundSuspectGone, "its cgroup is gone")
		return
	}
	settled, regained := s.judged(inc, x), s.realm.Regained(inc)
	switch {
	case !s.v.Window.Closed || x == nil || !x.Verdict.Evidence():
	case inc.GoodRow >= s.p.RecoveredWindows && (!regained || inc.GoodRow >= s.p.LoosenAfter):
		why := fmt.Sprintf("the time that it %s went from %.3g to %.3g with nobody held", s.words.Waits, r.SignalBefore, x.Signal)
		r.Conclude(model.RoundRecovered, why)
		inc.Evidence = why
		s.w.ForgivenBeside = append(s.w.ForgivenBeside, policy.Forgiven{Num: inc.Victim, Source: s.words.Source})
		s.say(inc, model.Decision{Kind: model.DecideVerified, Task: inc.Victim, Facts: inc.facts(x.Signal), Reason: why})
		s.close(inc, model.Recovered, why)
	case inc.GoodRow > 0:
	case s.v.TriedByOther(*r.Chosen, s.words.Policy) != "": // what comes of that first
	case regained:
		s.escalate(inc, x, "it had that back at once: ")
	case inc.Asks < s.p.VerifyWindows:
		inc.Asks++
		if d, ok := s.realm.Mild(inc); ok {
			inc.MovedNsec, s.moved = s.v.NowNsec, true
			s.say(inc, d)
		}
	case settled || !inc.helps(x.Signal) && s.v.NowNsec-inc.MovedNsec >= int64(s.p.VerifyWindows)*s.v.Window.LengthNsec:
		s.escalate(inc, x, "that did not help: ")
	}
}

// escalate holds the task on which the milder means did not help.
func (s *step) escalate(inc *Incident, x *policy.Victim, why string) {
	r := inc.Round()
	s.first(inc)
	inc.Mild, inc.State, inc.Share, inc.HeldNsec = false, model.Holding, inc.First, s.v.NowNsec
	inc.GoodRow, inc.GoodSum, inc.BadRow, inc.Sum, r.WindowsJudged = 0, 0, 0, 0, 0
	s.moved = true
	s.say(inc, model.Decision{
		Kind: model.DecideCap, Task: *r.Chosen, Reason: why + inc.Reason,
		Facts: append(inc.facts(x.Signal), s.words.Share.Is(inc.First)),
	})
}

// follow looks what became of a limit, and what it does to the victim.
func (s *step) follow(inc *Incident, x *policy.Victim) {
	c, r := s.realm.Claim(inc), inc.Round()
	switch h := s.v.Ledger.Hold(s.words.Policy, &c); {
	case h.State == policy.HoldInForce && inc.State == model.Holding:
		inc.State, inc.MovedNsec, r.AppliedNsec = model.Verifying, h.SinceNsec, h.SinceNsec
	case h.State == policy.HoldFailed || h.State == policy.HoldGone:
		st, why := model.RoundEnded, "it could not be held: "+h.Why
		if h.State == policy.HoldGone {
			st, why = model.RoundSuspectGone, "its cgroup is gone"
			s.say(inc, model.Decision{Kind: model.DecideGone, Task: *r.Chosen, Path: r.ChosenPath, Reason: "held for " + inc.VictimPath + ": " + why})
		}
		s.next(inc, st, why)
		return
	case h.State == policy.HoldNone && !s.moved && inc.HeldNsec != s.v.NowNsec:
		s.close(inc, model.Dropped, "the limit is no longer there: an operator or the kill switch took it away")
		return
	}
	if inc.State == model.Holding || !s.judged(inc, x) {
		return
	}
	if inc.State == model.Recovered {
		s.giveBack(inc, x)
		return
	}
	switch {
	case inc.GoodRow >= s.p.RecoveredWindows:
		s.recovered(inc, x, "the victim recovered", "")
	case r.WindowsJudged < s.p.VerifyWindows || inc.GoodRow > 0:
	case inc.helps(r.SignalAfter) && s.halve(inc, "waits less, but still more than it should"):
		r.WindowsJudged, inc.Sum = 0, 0
	case inc.helps(r.SignalAfter) && r.SignalAfter+inc.margin() < r.SignalBefore:
		inc.Enough = r.SignalAfter + inc.margin()
		s.recovered(inc, x, "the victim waits less, if more than it should", fmt.Sprintf(", above its threshold of %.3g", inc.Threshold))
	default:
		s.say(inc, model.Decision{
			Kind: model.DecideTakenBack, Task: *r.Chosen, Facts: inc.facts(x.Signal),
			Reason: fmt.Sprintf("holding it did not bring the time that %s %s under its threshold", inc.VictimPath, s.words.Waits),
		})
		s.next(inc, model.RoundNoHelp, "it did not help the victim")
	}
}

// judged takes in how the victim is in a window that is all after the last change, and reports whether there is one that says
// something.
func (s *step) judged(inc *Incident, x *policy.Victim) bool {
	if !s.v.Window.Closed || x == nil || !x.Verdict.Evidence() || s.v.Window.StartNsec < inc.MovedNsec-s.v.Window.LengthNsec/windowSlack {
		return false
	}
	bad := x.Verdict == outlier.Outlier && x.Signal > inc.Enough
	if returning := bad && s.realm.Returning(inc); bad && (inc.State == model.Verifying || inc.Share <= inc.Good) && (returning || s.v.NowNsec-inc.MovedNsec < s.p.SettleNsec) {
		inc.GoodRow, inc.GoodSum = 0, 0
		return false
	}
	r := inc.Round()
	if s.disturbed(inc, bad) {
		return false
	}
	r.WindowsJudged++
	inc.Sum += x.Signal
	r.SignalAfter = inc.Sum / float64(r.WindowsJudged)
	if bad {
		inc.GoodRow, inc.GoodSum, inc.BadRow = 0, 0, inc.BadRow+1
	} else {
		inc.GoodRow, inc.GoodSum, inc.BadRow = inc.GoodRow+1, inc.GoodSum+x.Signal, 0
	}
	return true
}

// recovered begins the way back.
func (s *step) recovered(inc *Incident, x *policy.Victim, why, above string) {
	r := inc.Round()
	inc.State, inc.GoodRow, inc.GoodSum, inc.BadRow = model.Recovered, 0, 0, 0
	inc.Floor, inc.Good, inc.Bad, inc.Fails = inc.Share, inc.Share, 1, 0
	r.Conclude(model.RoundRecovered, why)
	inc.Evidence = fmt.Sprintf("holding %s brought the time that it %s from %.3g to %.3g%s", r.ChosenPath, s.words.Waits, r.SignalBefore, x.Signal, above)
	s.w.ForgivenBeside = append(s.w.ForgivenBeside, policy.Forgiven{Num: inc.Victim, Source: s.words.Source})
	s.say(inc, model.Decision{Kind: model.DecideVerified, Task: inc.Victim, Facts: inc.facts(x.Signal), Reason: inc.Evidence})
}

// margin is by how much a signal must be above what is usual to be an outlier.
func (inc *Incident) margin() float64 { return max(0, inc.Threshold-inc.Spec.Mean) }

// helps reports whether half of what the victim waited too long is gone, or as much as makes an outlier: a share of the time that was nearly all
// of it falls little when what the victim waits falls much.
func (inc *Incident) helps(signal float64) bool {
	before := inc.Round().SignalBefore
	return signal <= max((before+inc.Threshold)/2, before-inc.margin())
}

// mayHalve reports whether the share was not halved as often as may be.
func (inc *Incident) mayHalve() bool { return inc.Share/2 >= inc.First/(1<<maxHalved) }

// halve tightens a limit that helps, or had helped, and not enough, and reports whether it could. how says how the victim fares.
func (s *step) halve(inc *Incident, how string) bool {
	if !inc.mayHalve() {
		return false
	}
	s.move(inc, inc.Share/2, "tightened", inc.VictimPath+" "+how)
	return true
}

// next takes back what is held, and searches on without that suspect.
func (s *step) next(inc *Incident, st model.RoundState, why string) {
	r := inc.Round()
	s.letGo(inc, why)
	r.Conclude(st, why)
	inc.Excluded = append(inc.Excluded, *r.Chosen)
	inc.State, inc.SearchLeft = model.Searching, s.p.SearchWindows
	if len(inc.Rounds) >= s.p.MaxRounds {
		s.cannotFix(inc, fmt.Sprintf("%d suspects were held one after the other and the victim still waits", len(inc.Rounds)))
	}
}

const (
	// leastStep is the least factor by which a share is raised; closer to what was too much there is nothing to win.
	leastStep = 1.1
	// mayShow is the part of the way from the signal at the floor to the threshold that the signal may go while a share is raised, and shows
	// that from which what the held task does is seen in it.
	mayShow, shows = 0.5, 0.2
	// settled is how often LoosenAfter is doubled before more than what was too much is tried, and once more for each time that it was; forget is
	// how much more that is.
	settled, forget = 2, 1.2
)

// giveBack lets the held task do more while the victim is well, and goes back to the last good share when it is not. The victim's waiting tells
// that the disk fills before it suffers: so a share is tried that is half way to what was too much, never all at once.
func (s *step) giveBack(inc *Incident, x *policy.Victim) {
	tried := inc.Share > inc.Good
	switch {
	case inc.BadRow > 0 && tried:
		s.back(inc, inc.Good, "waits again")
	case inc.BadRow >= s.p.TightenAfter && inc.Share > inc.Floor:
		s.back(inc, max(inc.Floor, inc.Share/2), "waits again")
	case inc.BadRow >= s.p.TightenAfter && x.Anomalous && s.v.TriedByOther(*inc.Round().Chosen, s.words.Policy) != "": // what comes of that first
	case inc.BadRow >= s.p.TightenAfter && x.Anomalous && (inc.helps(x.Signal) || inc.mayHalve()):
		// Whatever it waits now: its trouble may have grown since it was measured, and the limit with it be too much.
		if s.halve(inc, "suffers again") { // else it is as tight as may be, and stays: it helps
			inc.Good, inc.Floor = inc.Share, inc.Share
			s.w.ForgivenBeside = append(s.w.ForgivenBeside, policy.Forgiven{Num: inc.Victim, Source: s.words.Source})
		}
	case inc.BadRow >= s.p.TightenAfter && x.Anomalous:
		s.say(inc, model.Decision{
			Kind: model.DecideRelapse, Task: inc.Victim, Facts: inc.facts(x.Signal), Reason: "suffers again while " + inc.Round().ChosenPath + " is held",
		})
		s.next(inc, model.RoundCoincidence, "the recovery was a coincidence")
	case inc.GoodRow >= s.p.LoosenAfter:
		s.loosen(inc, inc.GoodSum/float64(inc.GoodRow))
	}
}

// back takes a share back that was too much.
func (s *step) back(inc *Incident, share float64, why string) {
	inc.Bad, inc.Good, inc.Fails = inc.Share, share, inc.Fails+1
	s.w.ForgivenBeside = append(s.w.ForgivenBeside, policy.Forgiven{Num: inc.Victim, Source: s.words.Source})
	s.move(inc, share, "tightened", inc.VictimPath+" "+why)
}

// loosen decides what comes after windows in which the victim was well, at such a signal in the mean.
func (s *step) loosen(inc *Incident, mean float64) {
	if inc.Share <= inc.Floor {
		inc.Low = mean
	}
	room := max(0, max(inc.Threshold, inc.Enough)-inc.Low)
	if inc.Share > inc.Good {
		if mean-inc.Low > mayShow*room {
			s.back(inc, inc.Good, "waits more, and would soon suffer")
			return
		}
		inc.Good, inc.Fails = inc.Share, 0
	}
	more := min(2*inc.Share, math.Sqrt(inc.Share*inc.Bad))
	switch {
	case more >= leastStep*inc.Share && s.v.TriedByOther(*inc.Round().Chosen, s.words.Policy) != "": // later
	case more >= leastStep*inc.Share:
		s.move(inc, more, "loosened", inc.VictimPath+" is well")
	case inc.Bad >= 1 && mean-inc.Low <= shows*room:
		s.close(inc, model.Recovered, fmt.Sprintf("loosened step by step to %.0f %% without that showing in how long %s waits: given back", 100*inc.Share, inc.VictimPath))
	case inc.Bad < 1 && (inc.Fails == 0 || inc.GoodRow >= s.p.LoosenAfter<<(settled+min(inc.Fails, 4)) || mean < inc.Low-shows*room): // last: it is other than it was
		inc.Bad = min(1, forget*inc.Bad)
		inc.GoodRow, inc.GoodSum = 0, 0
	}
}

// move claims another share of what the task took.
func (s *step) move(inc *Incident, share float64, word, why string) {
	inc.Share, inc.GoodRow, inc.GoodSum, inc.BadRow, inc.MovedNsec, s.moved = share, 0, 0, 0, s.v.NowNsec, true
	inc.Reason = fmt.Sprintf("%s: %s to %.0f %% of %s", why, word, 100*share, s.realm.Of(inc))
	r := inc.Round()
	r.Steps++
	r.Level = share
	s.say(inc, model.Decision{Kind: model.DecideStep, Task: *r.Chosen, Facts: []model.Fact{s.words.Share.Is(share)}, Reason: inc.Reason})
}
