package blockio

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
	// minor is the part of what a task does on a device up to which a direction is not limited.
	minor = 0.05
	// maxHalved is how often a limit that helps, and not enough, is halved.
	maxHalved = 2
	// windowSlack: a window that began so much of its length before a change is judged as one after it.
	windowSlack = 10
)

// search looks for who makes the victim wait, and holds the best suspect.
func (s *State) search(p *Params, in Input, v *policy.View, w *policy.Wishes, inc *Incident, x *policy.Victim) {
	d, why := s.diskOf(inc.Victim), ""
	r := model.Round{MonoNsec: v.NowNsec, SignalBefore: x.Signal}
	pick := -1
	if d == nil {
		why = "it waits for I/O, and uses no device that is counted"
	} else {
		inc.Device = d.Device
		d.Uses.Correlate(in.Correlation, inc.Victim, inc.Threshold, &s.analysis)
		r.Considered, r.Median, r.Steady = len(s.analysis.Scores), s.analysis.Median, s.analysis.Steady
		bad, good, some := others(d.Uses, inc.Victim, inc.Threshold)
		pick = s.choose(p, in.Correlation, v, inc, &r, bad)
		if !some {
			pick, why = -1, fmt.Sprintf("it was well in none of the last %d windows: with nothing to compare nobody is held", d.Uses.Filled)
		} else if bad <= good*(1+p.Rise) {
			pick, why = -1, fmt.Sprintf("others do no more on device %s than while it was well (%.3g MB/s, %.3g then, operations included): the device itself is slow, and nobody is held", d.Device, bad/1e6, good/1e6)
		}
	}
	var o *model.IOObservation
	if pick >= 0 {
		if o = did(v, s.analysis.Scores[pick].Num, d.Device); o == nil || p.use(o) <= 0 {
			pick, why = -1, fmt.Sprintf("%s would be held, and does nothing just now", v.Table.Name(s.analysis.Scores[pick].Num))
		}
	}
	if pick >= 0 {
		s.hold(p, v, w, inc, &r, s.analysis.Scores[pick], o)
		return
	}
	if why == "" {
		why = "no suspect reaches the correlation that is asked for"
		if len(r.Suspects) > 0 && r.Suspects[0].Score >= r.Threshold {
			why = fmt.Sprintf("nobody may be held: the top suspect %s scores %.2f (%.2f asked for): %s", r.Suspects[0].Path, r.Suspects[0].Score, r.Threshold, r.Suspects[0].Verdict)
		}
	}
	if inc.SearchLeft--; inc.SearchLeft > 0 {
		say(v, w, inc, model.Decision{Kind: model.DecideSearch, Task: inc.Victim, Facts: inc.facts(x.Signal), Reason: why})
		return
	}
	r.Conclude(model.RoundNobody, "nobody was held")
	inc.Rounds = append(inc.Rounds, r)
	s.cannotFix(p, v, w, inc, why)
}

// diskOf is the device that a task used most in the windows that are remembered; nil: none.
func (s *State) diskOf(num model.TaskNum) (most *Disk) {
	best := 0.0
	for i := range s.Disks {
		if used := s.Disks[i].Uses.RecentUsage(num, s.Disks[i].Uses.Cap); used > best {
			best, most = used, &s.Disks[i]
		}
	}
	return most
}

// others is what all but the victim did on a device in its bad windows and in its good ones, in the mean; some: there are both.
func others(h *antagonist.History, victim model.TaskNum, threshold float64) (bad, good float64, some bool) {
	at := slices.IndexFunc(h.Rows, func(r antagonist.Row) bool { return r.Num == victim })
	nBad, nGood := 0, 0
	for k, signal := range h.Rows[at].Signal[:h.Filled] {
		if signal == antagonist.NoEvidence {
			continue
		}
		sum := 0.0
		for i := range h.Rows {
			if i != at {
				sum += h.Rows[i].Usage[k]
			}
		}
		if signal > threshold {
			bad, nBad = bad+sum, nBad+1
		} else {
			good, nGood = good+sum, nGood+1
		}
	}
	return bad / float64(max(1, nBad)), good / float64(max(1, nGood)), nBad > 0 && nGood > 0
}

// choose fills in the round's suspects and returns the index of the one to hold, or -1. most is what all others did in bad windows.
func (s *State) choose(p *Params, ap *antagonist.Params, v *policy.View, inc *Incident, r *model.Round, most float64) int {
	needed, byMargin := ap.Needed(&s.analysis)
	if r.Threshold = needed; byMargin {
		r.Margin = ap.Margin
	}
	choice, untouchable := antagonist.NewChoice(), -2.0
	for i, sc := range s.analysis.Scores {
		sus := model.Suspect{Task: sc.Num, Path: v.Table.Name(sc.Num), Score: sc.Value, Usage: sc.Usage}
		may := s.weigh(p, v, inc, &sus, needed, most)
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
		choice.Take(r, i, sus, may, may && v.Table.Get(sc.Num).Importance == model.Critical)
	}
	return choice.Made(r)
}

// weigh says what stands for or against one suspect, and whether it can be held.
func (s *State) weigh(p *Params, v *policy.View, inc *Incident, sus *model.Suspect, needed, most float64) bool {
	t := v.Task(sus.Task)
	if t != nil {
		sus.Job, sus.Class = t.Task.Job, t.Task.Class
	}
	switch {
	case t == nil:
		sus.Judge(model.SuspectGone, "")
	case sus.Score < needed:
		sus.Judge(model.SuspectBelow, "")
	case sus.Usage < p.MinShare*most:
		sus.Judge(model.SuspectIdle, "")
	case t.Task.Class != model.BE:
		sus.Judge(model.SuspectLeftAlone, t.Task.Class.String()+" is never held")
	case slices.Contains(inc.Excluded, sus.Task):
		sus.Judge(model.SuspectTried, "")
	case slices.ContainsFunc(s.Incidents, func(o Incident) bool { return o.Share > 0 && *o.round().Chosen == sus.Task }):
		sus.Judge(model.SuspectHeldAlready, "")
	default:
		if _, why := t.Closed(model.IOMaxKnob); why != "" {
			sus.Judge(model.SuspectLeftAlone, why)
			return false
		}
		return true
	}
	return false
}

// hold limits one suspect, or notes that it would be limited. What it did in this window is taken as what it does while the victim
// suffers, but at the mean of all bad windows.
func (s *State) hold(p *Params, v *policy.View, w *policy.Wishes, inc *Incident, r *model.Round, chosen antagonist.Score, o *model.IOObservation) {
	num, path := chosen.Num, v.Table.Name(chosen.Num)
	scale := chosen.Usage / p.use(o)
	inc.Was = model.IOObservation{Num: num, Device: inc.Device, Read: scale * o.Read, Wrote: scale * o.Wrote, Reads: scale * o.Reads, Writes: scale * o.Writes}
	r.Chosen, r.ChosenPath, r.Cap = &num, path, p.Share
	inc.Reason = fmt.Sprintf("score %.2f of %.2f asked for; it may do %.0f %% of its %.3g MB and %.3g operations a second on device %s, for the sake of %s",
		chosen.Value, r.Threshold, 100*p.Share, (inc.Was.Read+inc.Was.Wrote)/1e6, inc.Was.Reads+inc.Was.Writes, inc.Device, inc.VictimPath)
	d := model.Decision{Kind: model.DecideCap, Task: num, Reason: inc.Reason, Facts: []model.Fact{
		model.FactCorrelation.Is(chosen.Value), model.FactAsked.Is(r.Threshold), model.FactIOShare.Is(p.Share),
		model.FactIOBytes.Is(inc.Was.Read + inc.Was.Wrote), model.FactIOOps.Is(inc.Was.Reads + inc.Was.Writes),
	}}
	inc.Rounds = append(inc.Rounds, *r)
	if !v.Enforced() {
		inc.round().Conclude(model.RoundObserved, "observed only: nothing was written")
		inc.State, inc.ClosedNsec = model.Observed, v.NowNsec
		s.rest(p, v, inc)
		say(v, w, inc, d)
		return
	}
	inc.State, inc.Share, inc.GoodRow, inc.GoodSum, inc.BadRow, inc.Sum, inc.Enough, inc.HeldNsec = model.Holding, p.Share, 0, 0, 0, 0, 0, v.NowNsec
	s.moved = true
	say(v, w, inc, d)
}

// claim is the limit that stands for an incident.
func (inc *Incident) claim(p *Params) model.Claim {
	l, all := model.IOLimit{Device: inc.Device}, p.use(&inc.Was)
	limit := func(bps, iops *uint64, bytes, ops float64) {
		if bytes+float64(p.OpBytes)*ops >= minor*all {
			*bps, *iops = uint64(max(inc.Share*bytes, float64(p.LeastBytes))), uint64(max(inc.Share*ops, float64(p.LeastOps)))
		}
	}
	limit(&l.ReadBPS, &l.ReadIOPS, inc.Was.Read, inc.Was.Reads)
	limit(&l.WriteBPS, &l.WriteIOPS, inc.Was.Wrote, inc.Was.Writes)
	return model.Claim{
		Target: model.OfTask(inc.Was.Num), Kind: model.ClaimCap, Value: model.LimitIO(model.IOMaxOf([]model.IOLimit{l})), Cap: inc.Share,
		Reason: inc.Reason, Incident: inc.ID, HoldNsec: p.HoldNsec,
	}
}

// follow looks what became of a limit, and what it does to the victim.
func (s *State) follow(p *Params, v *policy.View, w *policy.Wishes, inc *Incident, x *policy.Victim) {
	c, r := inc.claim(p), inc.round()
	switch h := v.Ledger.Hold(model.PolicyIO, &c); {
	case h.State == policy.HoldInForce && inc.State == model.Holding:
		inc.State, inc.MovedNsec, r.AppliedNsec = model.Verifying, h.SinceNsec, h.SinceNsec
	case h.State == policy.HoldFailed || h.State == policy.HoldGone:
		st, why := model.RoundEnded, "it could not be held: "+h.Why
		if h.State == policy.HoldGone {
			st, why = model.RoundSuspectGone, "its cgroup is gone"
			say(v, w, inc, model.Decision{Kind: model.DecideGone, Task: *r.Chosen, Path: r.ChosenPath, Reason: "held for " + inc.VictimPath + ": " + why})
		}
		s.next(p, v, w, inc, st, why)
		return
	case h.State == policy.HoldNone && !s.moved && inc.HeldNsec != v.NowNsec:
		s.close(v, w, inc, model.Dropped, "the limit is no longer there: an operator or the kill switch took it away")
		return
	}
	if inc.State == model.Holding || !v.Window.Closed || x == nil || !x.Verdict.Evidence() || v.Window.StartNsec < inc.MovedNsec-v.Window.LengthNsec/windowSlack {
		return
	}
	r.WindowsJudged++
	inc.Sum += x.Signal
	r.SignalAfter = inc.Sum / float64(r.WindowsJudged)
	if x.Verdict == outlier.Outlier && x.Signal > inc.Enough {
		inc.GoodRow, inc.GoodSum, inc.BadRow = 0, 0, inc.BadRow+1
	} else {
		inc.GoodRow, inc.GoodSum, inc.BadRow = inc.GoodRow+1, inc.GoodSum+x.Signal, 0
	}
	if inc.State == model.Recovered {
		s.giveBack(p, v, w, inc, x)
		return
	}
	switch {
	case inc.GoodRow >= p.RecoveredWindows:
		s.recovered(v, w, inc, x, "the victim recovered", "")
	case r.WindowsJudged < p.VerifyWindows || inc.GoodRow > 0:
	case inc.helps(r.SignalAfter) && s.halve(p, v, w, inc):
		r.WindowsJudged, inc.Sum = 0, 0
	case inc.helps(r.SignalAfter) && r.SignalAfter+inc.margin() < r.SignalBefore:
		inc.Enough = r.SignalAfter + inc.margin()
		s.recovered(v, w, inc, x, "the victim waits less, if more than it should", fmt.Sprintf(", above its threshold of %.3g", inc.Threshold))
	default:
		say(v, w, inc, model.Decision{
			Kind: model.DecideTakenBack, Task: *r.Chosen, Facts: inc.facts(x.Signal),
			Reason: fmt.Sprintf("holding it did not bring the time that %s waits for I/O under its threshold", inc.VictimPath),
		})
		s.next(p, v, w, inc, model.RoundNoHelp, "it did not help the victim")
	}
}

// recovered begins the way back.
func (s *State) recovered(v *policy.View, w *policy.Wishes, inc *Incident, x *policy.Victim, why, above string) {
	r := inc.round()
	inc.State, inc.GoodRow, inc.GoodSum, inc.BadRow = model.Recovered, 0, 0, 0
	inc.Floor, inc.Good, inc.Bad, inc.Fails = inc.Share, inc.Share, 1, 0
	r.Conclude(model.RoundRecovered, why)
	inc.Evidence = fmt.Sprintf("holding %s brought the time that it waits for I/O from %.3g to %.3g%s", r.ChosenPath, r.SignalBefore, x.Signal, above)
	w.ForgivenBeside = append(w.ForgivenBeside, inc.Victim)
	say(v, w, inc, model.Decision{Kind: model.DecideVerified, Task: inc.Victim, Facts: inc.facts(x.Signal), Reason: inc.Evidence})
}

// margin is by how much a signal must be above what is usual to be an outlier.
func (inc *Incident) margin() float64 { return max(0, inc.Threshold-inc.Spec.Mean) }

// helps reports whether half of what the victim waited too long is gone, or as much as makes an outlier: a share of the time that was nearly all
// of it falls little when what the victim waits falls much.
func (inc *Incident) helps(signal float64) bool {
	before := inc.round().SignalBefore
	return signal <= max((before+inc.Threshold)/2, before-inc.margin())
}

// halve tightens a limit that helps, and not enough, and reports whether it could.
func (s *State) halve(p *Params, v *policy.View, w *policy.Wishes, inc *Incident) bool {
	if inc.Share/2 < p.Share/(1<<maxHalved) {
		return false
	}
	s.step(v, w, inc, inc.Share/2, "tightened", fmt.Sprintf("%s waits less, but still more than it should", inc.VictimPath))
	return true
}

// next takes back what is held, and searches on without that suspect.
func (s *State) next(p *Params, v *policy.View, w *policy.Wishes, inc *Incident, st model.RoundState, why string) {
	r := inc.round()
	s.letGo(w, inc, why)
	r.Conclude(st, why)
	inc.Excluded = append(inc.Excluded, *r.Chosen)
	inc.State, inc.SearchLeft = model.Searching, p.SearchWindows
	if len(inc.Rounds) >= p.MaxRounds {
		s.cannotFix(p, v, w, inc, fmt.Sprintf("%d suspects were held one after the other and the victim still waits", len(inc.Rounds)))
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
func (s *State) giveBack(p *Params, v *policy.View, w *policy.Wishes, inc *Incident, x *policy.Victim) {
	tried := inc.Share > inc.Good
	switch {
	case inc.BadRow > 0 && tried:
		s.back(v, w, inc, inc.Good, "waits again")
	case inc.BadRow >= p.TightenAfter && inc.Share > inc.Floor:
		s.back(v, w, inc, max(inc.Floor, inc.Share/2), "waits again")
	case inc.BadRow >= p.TightenAfter && x.Anomalous && inc.helps(x.Signal):
		if s.halve(p, v, w, inc) { // else it is as tight as may be, and stays: it helps
			inc.Good, inc.Floor = inc.Share, inc.Share
			w.ForgivenBeside = append(w.ForgivenBeside, inc.Victim)
		}
	case inc.BadRow >= p.TightenAfter && x.Anomalous:
		say(v, w, inc, model.Decision{
			Kind: model.DecideRelapse, Task: inc.Victim, Facts: inc.facts(x.Signal), Reason: "suffers again while " + inc.round().ChosenPath + " is held",
		})
		s.next(p, v, w, inc, model.RoundCoincidence, "the recovery was a coincidence")
	case inc.GoodRow >= p.LoosenAfter:
		s.loosen(p, v, w, inc, inc.GoodSum/float64(inc.GoodRow))
	}
}

// back takes a share back that was too much.
func (s *State) back(v *policy.View, w *policy.Wishes, inc *Incident, share float64, why string) {
	inc.Bad, inc.Good, inc.Fails = inc.Share, share, inc.Fails+1
	w.ForgivenBeside = append(w.ForgivenBeside, inc.Victim)
	s.step(v, w, inc, share, "tightened", inc.VictimPath+" "+why)
}

// loosen decides what comes after windows in which the victim was well, at such a signal in the mean.
func (s *State) loosen(p *Params, v *policy.View, w *policy.Wishes, inc *Incident, mean float64) {
	if inc.Share <= inc.Floor {
		inc.Low = mean
	}
	room := max(0, max(inc.Threshold, inc.Enough)-inc.Low)
	if inc.Share > inc.Good {
		if mean-inc.Low > mayShow*room {
			s.back(v, w, inc, inc.Good, "waits more, and would soon suffer")
			return
		}
		inc.Good, inc.Fails = inc.Share, 0
	}
	more := min(2*inc.Share, math.Sqrt(inc.Share*inc.Bad))
	switch {
	case more >= leastStep*inc.Share:
		s.step(v, w, inc, more, "loosened", inc.VictimPath+" is well")
	case inc.Bad >= 1 && mean-inc.Low <= shows*room:
		s.close(v, w, inc, model.Recovered, fmt.Sprintf("loosened step by step to %.0f %% without that showing in how long %s waits: given back", 100*inc.Share, inc.VictimPath))
	case inc.Bad < 1 && (inc.Fails == 0 || inc.GoodRow >= p.LoosenAfter<<(settled+min(inc.Fails, 4)) || mean < inc.Low-shows*room): // last: it is other than it was
		inc.Bad = min(1, forget*inc.Bad)
		inc.GoodRow, inc.GoodSum = 0, 0
	}
}

// step claims another share of what the task did.
func (s *State) step(v *policy.View, w *policy.Wishes, inc *Incident, share float64, word, why string) {
	inc.Share, inc.GoodRow, inc.GoodSum, inc.BadRow, inc.MovedNsec, s.moved = share, 0, 0, 0, v.NowNsec, true
	inc.Reason = fmt.Sprintf("%s: %s to %.0f %% of what it did on device %s", why, word, 100*share, inc.Device)
	r := inc.round()
	r.Steps++
	r.Level = share
	say(v, w, inc, model.Decision{Kind: model.DecideStep, Task: *r.Chosen, Facts: []model.Fact{model.FactIOShare.Is(share)}, Reason: inc.Reason})
}
