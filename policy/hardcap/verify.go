package hardcap

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/outlier"
)

// windowSlack is the share of a window by which it may have begun before the cap was
// read back: the snapshot that opens a window and the write that follows it belong to
// one tick.
const windowSlack = 10 // a tenth

// awaitHold waits for the kernel's answer to the cap.
func (s *State) awaitHold(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) {
	r := inc.round()
	h := standing(in, inc, r)
	switch {
	case h.State == policy.HoldAsked:
		return
	case inc.Experiment != nil: // what is not in force was not held, and is judged so
		r.AppliedNsec = max(h.SinceNsec, inc.Experiment.SinceNsec)
		inc.State = model.Verifying
		return
	}
	switch h.State {
	case policy.HoldInForce:
		r.AppliedNsec = h.SinceNsec
		inc.State, inc.GoodInRow, inc.SignalSum = model.Verifying, 0, 0
		change(out, inc)
	case policy.HoldGone:
		// The suspect left by itself, which is as good as a cap: see whether that helped.
		r.AppliedNsec = in.NowNsec
		inc.State, inc.GoodInRow, inc.SignalSum = model.Verifying, 0, 0
		r.Conclude(model.RoundSuspectGone, "the suspect's cgroup went away")
		change(out, inc)
	default:
		why := h.Why
		if why == "" {
			why = "the cap was not granted"
		}
		if r.Uncapped {
			s.capToo(p, in, out, inc, "it cannot be demoted: "+why)
			return
		}
		s.nextRound(p, in, out, inc, model.RoundEnded, why)
	}
}

// judged reports whether the window that just closed lies after the cap, and after what others did meanwhile.
func (inc *Incident) judged(in *policy.View) bool {
	return in.Window.Closed && in.Window.StartNsec >= max(inc.round().AppliedNsec, inc.FromNsec)-in.Window.LengthNsec/windowSlack
}

// under is how many windows were measured under a round's hold, also those in which the victim told nothing: it may fall silent because that helps.
func under(in *policy.View, r *model.Round) int {
	return max(windowsSince(in, r.AppliedNsec), r.WindowsJudged)
}

// windowsSince is how many of the windows that are remembered began after a time.
func windowsSince(in *policy.View, nsec int64) (n int) {
	from := nsec - in.Window.LengthNsec/windowSlack
	for n < in.History.Filled && in.History.EndedNsec(n)-in.Window.LengthNsec >= from {
		n++
	}
	return n
}

// verify watches the victim after the cap.
func (s *State) verify(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) {
	r := inc.round()
	if inc.Experiment != nil {
		s.judgeTurn(p, in, out, inc, v)
		return
	}
	h := standing(in, inc, r)
	if h.State == policy.HoldFailed && r.Uncapped {
		s.capToo(p, in, out, inc, "it is not demoted any more: "+h.Why)
		return
	}
	if h.State == policy.HoldFailed {
		s.nextRound(p, in, out, inc, model.RoundEnded, h.Why)
		return
	}
	if s.disturbed(in, out, inc, h) {
		return
	}
	if r.Nudge && !r.Confirmed {
		s.judgeNudge(p, in, out, inc, v, h)
		return
	}
	if h.State == policy.HoldNone && inc.FromNsec > r.AppliedNsec && in.NowNsec-r.AppliedNsec >= p.DurationNsec {
		r.Conclude(model.RoundUnjudged, "others interfered until the cap expired")
		s.end(in, out, inc, model.Dropped, "the trial says nothing: others interfered until the cap expired")
		return
	}
	if h.State == policy.HoldNone && in.NowNsec-r.AppliedNsec >= p.DurationNsec {
		r.Conclude(model.RoundUnjudged, "the cap expired before it could be judged")
		s.cannotFix(p, in, out, inc, "the cap expired before the victim gave enough evidence to judge it")
		return
	}
	if v == nil || !v.Verdict.Evidence() || !inc.judged(in) {
		return
	}
	inc.judge(r, v)
	switch {
	case inc.GoodInRow >= p.RecoveredWindows:
		s.recovered(p, in, inc)
		r.Conclude(model.RoundRecovered, "the victim recovered")
		out.Forgiven = append(out.Forgiven, inc.Victim)
		s.say(in, out, inc, model.Decision{
			Kind: model.DecideVerified, Task: inc.Victim, Facts: []model.Fact{model.FactSignal.Is(v.Signal), model.FactThreshold.Is(v.Threshold)},
			Reason: fmt.Sprintf("%s is back under its threshold for %d windows in a row with %s %s", inc.Source, inc.GoodInRow, heldNames(r), how(r)),
		})
	case r.Uncapped:
		s.tryDemotion(p, in, out, inc, v)
	case s.tightenMild(p, in, out, inc):
	case r.WindowsJudged >= p.VerifyWindows && inc.together(p) && s.keep(p, in, out, inc, v):
		inc.State, inc.Fresh, inc.SearchLeft = model.Searching, true, p.SearchWindows
	case r.WindowsJudged >= p.VerifyWindows:
		s.takeBack(p, in, out, inc, v)
		s.nextRound(p, in, out, inc, model.RoundNoHelp, "the victim did not recover")
	default:
		change(out, inc)
	}
}

// recovered closes an incident: the victim is watched until the hold ends.
func (s *State) recovered(p *Params, in *policy.View, inc *Incident) {
	inc.State, inc.ClosedNsec = model.Recovered, in.NowNsec
	inc.WatchUntil = inc.round().AppliedNsec + p.DurationNsec
	s.outlives(inc)
	if p.Confirm.Witnesses {
		inc.noteHelped(in)
	}
	inc.HurtSum, inc.HurtN = 0, 0
}

// judge takes a window in that was measured under the cap.
func (inc *Incident) judge(r *model.Round, v *policy.Victim) {
	inc.SignalSum += v.Signal
	r.WindowsJudged++
	r.SignalAfter = inc.SignalSum / float64(r.WindowsJudged)
	if v.Verdict == outlier.Good {
		inc.GoodInRow++
	} else {
		inc.GoodInRow = 0
	}
}

// watch looks after a recovered victim until the cap ends. The recovery may have been a
// coincidence: then the victim suffers again, as much as before.
func (s *State) watch(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) {
	r := inc.round()
	s.stepBack(in, out, inc)
	if p.Feedback.Enabled && p.Feedback.ThroughPauses && in.Window.Closed {
		s.keepAlive(p, in, out, inc) // also where the victim pauses
	}
	if v == nil || !v.Verdict.Evidence() || !inc.judged(in) {
		return
	}
	inc.SignalSum += v.Signal
	r.WindowsJudged++
	r.SignalAfter = inc.SignalSum / float64(r.WindowsJudged)
	if s.tend(p, in, out, inc, v) || v.Verdict != outlier.Outlier {
		return
	}
	inc.HurtSum += v.Signal
	inc.HurtN++
	if !v.Anomalous || s.peaceful(inc.Victim, in.NowNsec) {
		return
	}
	inc.State, inc.ClosedNsec, inc.WatchUntil = model.Searching, 0, 0
	inc.Trial, inc.Loose = nil, nil
	inc.Signal, inc.Violations, inc.SearchLeft, inc.Fresh = v.Signal, v.Violations, p.SearchWindows, true
	s.say(in, out, inc, model.Decision{
		Kind: model.DecideRelapse, Task: inc.Victim, Facts: []model.Fact{model.FactSignal.Is(v.Signal), model.FactThreshold.Is(v.Threshold)},
		Reason: fmt.Sprintf("suffers again while %s %s %s", heldNames(r), are(r), how(r)),
	})
	if r.Uncapped {
		r.Conclude(model.RoundHelped, "helped at first")
		if s.stepsAside(p, inc) { // else, where it is the one again, it is capped
			s.keepDemoted(in, out, inc)
		}
		return
	}
	if helped(p, inc, r) {
		r.Conclude(model.RoundHelped, "helped at first; somebody else hurts the victim now")
		return
	}
	if inc.together(p) && s.keep(p, in, out, inc, v) {
		return
	}
	if s.relieved(inc) {
		r.Conclude(model.RoundHelped, "helped: half of the waiting is gone, and what is left is sought elsewhere")
		return
	}
	if why, stays := inc.interfered(in); stays {
		s.leave(in, out, inc, why)
		return
	}
	r.Conclude(model.RoundCoincidence, "the recovery was a coincidence")
	s.takeBack(p, in, out, inc, v)
	s.exclude(p, in, out, inc)
}

// wellFactor: a victim that was well for so many times VerifyWindows was helped. A pause
// of the true antagonist that lasts longer than that is taken for recovery.
const wellFactor = 2

// helped asks whether the cap did the victim good before it suffered again: it was well
// for long, or where it suffers again it does at most half as much as before. Only its
// bad windows count for the latter: the good ones between them may be the pauses of an
// antagonist that was never held.
func helped(p *Params, inc *Incident, r *model.Round) bool {
	if r.WindowsJudged-inc.HurtN >= wellFactor*p.VerifyWindows {
		return true
	}
	return inc.HurtSum/float64(inc.HurtN)-inc.Threshold <= (r.SignalBefore-inc.Threshold)/2
}

// takeBack gives a cap back that did not help.
func (s *State) takeBack(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) {
	r := inc.round()
	s.dropRound(out, inc, r, "it did not help the victim")
	s.forgetPair(&p.Repeat, in.NowNsec, inc, in.Table.Get(*r.Chosen))
	s.say(in, out, inc, model.Decision{
		Kind: model.DecideTakenBack, Task: *r.Chosen, Path: r.ChosenPath, Facts: []model.Fact{model.FactSignal.Is(v.Signal), model.FactThreshold.Is(v.Threshold)},
		Reason: fmt.Sprintf("holding it did not bring %s of %s under its threshold", inc.Source, inc.VictimPath),
	})
}

// nextRound closes the round with a verdict and searches on without its suspect.
func (s *State) nextRound(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, is model.RoundState, verdict string) {
	r := inc.round()
	r.Conclude(is, verdict)
	if r.Demoted {
		s.dropRound(out, inc, r, verdict)
	}
	inc.State, inc.Fresh, inc.SearchLeft = model.Searching, true, p.SearchWindows
	s.exclude(p, in, out, inc)
	change(out, inc)
}

// exclude drops the held suspect out of the next round, or ends the incident when the
// rounds are used up.
func (s *State) exclude(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) {
	inc.Excluded = append(inc.Excluded, heldIn(inc.round())...)
	if n := inc.spent(); n >= p.MaxRounds {
		s.cannotFix(p, in, out, inc, fmt.Sprintf("%d suspects were held one after the other and the victim still suffers", n))
	}
}
