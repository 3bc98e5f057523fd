package hardcap

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Caps that follow the victim (Params.Feedback; section 9: "dynamically adjusting").
//
// Intuition. CPI²'s cap takes nearly all of a task's CPU, whatever the victim needs.
// Here a cap begins as CPI²'s and is loosened step by step while the victim is well,
// until the victim is not, and then tightened to the last level that was good. The level
// is one number for all that an incident holds: 0 is CPI²'s cap, 1 the greatest usage.
// It is linear in CPU, because that is what the work lost is linear in.
//
//   - Additive increase: two good windows are weak evidence, and the victim pays for a step
//     too far. After a failure back to the last good level, at once; where that level fails
//     too, half of it, and then CPI²'s cap.
//   - No oscillation: a failed level is not tried again for RetryWindows, twice as long after
//     each failure, and the steps become smaller. At most one change in LoosenAfter windows.
//   - A window says something in favour of a level only if the held task presses against
//     its cap: a pause of the antagonist proves nothing.
//   - Other victims: one that suffers from a task that is held loosely for another's sake
//     would find it "held already". Its complaint tightens the cap.
//   - The hold is renewed while it is needed, and ends after MaxDuration at the latest, with
//     the claim's own expiry: whatever happens here, a claim that nobody renews ends.

// Loose is how far an incident's caps are loosened, and what is known of it. The level
// itself stands in the round.
type Loose struct {
	Good        float64 `json:"good"` // the highest level known to be good
	Bad         float64 `json:"bad"`  // the lowest level known to be bad; 0: none
	GoodRow     int     `json:"good_row"`
	BadRow      int     `json:"bad_row"`
	Wait        int     `json:"wait"`  // good windows before the next attempt
	Fails       int     `json:"fails"` // levels that were too loose
	By          float64 `json:"by"`    // the next step
	ChangedNsec int64   `json:"changed_nsec"`
	StartNsec   int64   `json:"start_nsec"`
	Complaint   bool    `json:"complaint,omitempty"` // another victim suffers from a task we hold
}

// Bounds on what failures do: the step is halved so often, the wait doubled so often. A step
// that went well doubles the next one again, up to Step, unless a bad level is near.
const (
	maxHalved  = 2
	maxDoubled = 4
)

// pressing is the share of its cap from which on a task is taken to press against it. A
// task that runs in bursts shorter than a window is below its cap in the mean.
const pressing = 0.5

// mildShare is what a mild first cap leaves of the suspect's usage.
const mildShare = 0.5

// loosened is the cap at a level.
func loosened(floor, peak, level float64) float64 {
	return floor + level*max(0, peak-floor)
}

// firstLevel is 0, CPI²'s cap, or a milder one where the victim suffers but little.
func (s *State) firstLevel(p *Params, inc *Incident, floor, peak float64) float64 {
	f := &p.Feedback
	if !f.Enabled || f.MildExcess <= 0 || inc.LastSignal > inc.Threshold*(1+f.MildExcess) || mildShare*peak <= floor {
		return 0
	}
	return (mildShare*peak - floor) / (peak - floor)
}

// tightenMild goes from a mild first cap to CPI²'s when the victim does not recover. It
// reports whether it did.
func (s *State) tightenMild(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) bool {
	r := inc.round()
	if r.Level == 0 || inc.GoodInRow > 0 || r.WindowsJudged < p.Feedback.TightenAfter {
		return false
	}
	if !s.step(p, in, out, inc, 0, "the mild cap does not bring it back") {
		return false
	}
	r.AppliedNsec, r.WindowsJudged, inc.SignalSum = in.NowNsec, 0, 0
	return true
}

// follow moves the level after the victim. It reports whether a bad window is its own doing.
func (s *State) follow(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) bool {
	r, f := inc.round(), s.loose(p, inc)
	held := inForce(in, inc)
	if len(held) == 0 {
		return false
	}
	if in.Window.StartNsec < f.ChangedNsec-in.Window.LengthNsec/windowSlack {
		return true // the window began before the last change
	}
	once, twice := inc.hurtsHelped(in)
	f.Complaint = f.Complaint || twice
	switch {
	case v.Signal > allowed(p, v):
		f.BadRow++
		f.GoodRow = 0
	case once, inc.meddled(in, in.Window.StartNsec, heldIn(r)...) != "":
		f.GoodRow, f.BadRow = 0, 0
	case presses(in, r, held):
		f.GoodRow++
		f.BadRow = 0
	default:
		f.BadRow = 0
	}
	loose := r.Level > 0
	switch {
	case loose && (f.BadRow >= p.Feedback.TightenAfter || f.Complaint):
		s.tighten(p, in, out, inc)
	case f.GoodRow >= p.Feedback.LoosenAfter:
		s.loosen(p, in, out, inc, v, held)
	}
	f.Complaint = false
	return loose
}

// loose returns what is known of an incident's level.
func (s *State) loose(p *Params, inc *Incident) *Loose {
	if r := inc.round(); inc.Loose == nil {
		inc.Loose = &Loose{Good: r.Level, By: p.Feedback.Step, ChangedNsec: r.AppliedNsec, StartNsec: r.AppliedNsec}
	}
	return inc.Loose
}

// settleLoose starts the judgement of the present level afresh.
func (s *State) settleLoose(in *policy.View, inc *Incident) {
	if f := inc.Loose; f != nil {
		f.GoodRow, f.BadRow, f.ChangedNsec = 0, 0, in.NowNsec
	}
}

// allowed is the signal that the victim may have.
func allowed(p *Params, v *policy.Victim) float64 {
	k := p.Feedback.AllowedSigmas
	if k == 0 {
		return v.Threshold
	}
	limit := v.Spec.Mean + k*v.Spec.StdDev
	if v.Source.Row().MinRise > 0 {
		return max(limit, v.Threshold) // whose sigmas mean nothing below its least rise
	}
	return limit
}

// presses reports whether any of the held tasks used its cap in the last window.
func presses(in *policy.View, r *model.Round, held []holdOf) bool {
	for _, h := range held {
		if in.History.RecentUsage(h.task, 1) >= pressing*loosened(h.floor, h.peak, r.Level) {
			return true
		}
	}
	return false
}

// pressedLately reports whether any of the held tasks used its cap in a window within the last duration of a hold. One that works in a
// rhythm of minutes and pauses when the hold would end hurts again a minute later, and it takes an anomaly to hold it anew, while a cap costs
// it nothing as long as it pauses.
func pressedLately(p *Params, in *policy.View, r *model.Round, held []holdOf) bool {
	period := max(1, in.History.PeriodNsec(), in.Window.LengthNsec)
	n := int(min(p.DurationNsec, in.NowNsec-r.AppliedNsec) / period)
	for _, h := range held {
		if in.History.RecentPeak(h.task, n) >= pressing*loosened(h.floor, h.peak, r.Level) {
			return true
		}
	}
	return false
}

// tighten goes back to the last good level, or where that has failed to half of it.
func (s *State) tighten(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) {
	r, f := inc.round(), inc.Loose
	why := fmt.Sprintf("%s suffers at this level", inc.VictimPath)
	if f.Complaint && f.BadRow < p.Feedback.TightenAfter {
		why = "another victim suffers at this level"
	}
	next := f.Good
	if next >= r.Level {
		next = r.Level / 2
	}
	if next < p.Feedback.Step/(1<<maxHalved) {
		next = 0
	}
	f.Bad, f.Good = r.Level, next
	f.Wait = p.Feedback.RetryWindows << min(f.Fails, maxDoubled)
	f.Fails++
	f.By = max(f.By/2, p.Feedback.Step/(1<<maxHalved))
	if s.step(p, in, out, inc, next, why) {
		out.Forgiven = append(out.Forgiven, inc.Victim)
	}
}

// loosen takes the next step, or gives everything back where there is none left.
func (s *State) loosen(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim, held []holdOf) {
	r, f := inc.round(), inc.Loose
	f.Good = max(f.Good, r.Level)
	if f.Wait > 0 {
		f.Wait--
		return
	}
	if r.Level < 1 && slices.ContainsFunc(held, func(h holdOf) bool { return in.TriedByOther(h.task, model.PolicyHardcap) != "" }) {
		return
	}
	least := p.Feedback.Step / (1 << maxHalved)
	by := max(f.By, least)
	next := r.Level + by
	switch {
	case f.Bad == 0:
		f.By = min(2*by, p.Feedback.Step)
	case next < f.Bad:
	case (f.Bad-r.Level)/2 >= least/2:
		next = (r.Level + f.Bad) / 2
	default:
		f.Bad = 0 // too close to it, and it was long ago: times may have changed
	}
	if p.Confirm.Witnesses && inc.wouldSuffer(p, in, v, min(1, next)) || p.Feedback.Witnesses && inc.wouldHurt(p, in, min(1, next)) {
		return
	}
	if r.Level < 1 {
		s.step(p, in, out, inc, min(1, next), fmt.Sprintf("%s is well at this level", inc.VictimPath))
		return
	}
	why := fmt.Sprintf("loosened step by step without %s suffering: given back", inc.VictimPath)
	for _, h := range held {
		s.giveUp(out, h.task, inc.ID, why, model.CPUBandwidth)
	}
	if !r.Demoted { // else stepBack follows
		inc.WatchUntil = in.NowNsec
	}
	r.Verdict += "; " + why
	s.say(in, out, inc, model.Decision{Kind: model.DecideStep, Task: *r.Chosen, Path: heldNames(r), Facts: []model.Fact{model.FactLevel.Is(1)}, Reason: why})
}

// step renews every claim of the incident at a level. It reports whether it could.
func (s *State) step(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, level float64, why string) bool {
	r, f := inc.round(), s.loose(p, inc)
	until := min(in.NowNsec+p.DurationNsec, f.StartNsec+p.Feedback.MaxDurationNsec)
	held := inForce(in, inc)
	if until <= in.NowNsec || len(held) == 0 {
		return false
	}
	word := "loosened"
	switch {
	case level < r.Level:
		word = "tightened"
	case level == r.Level:
		word = "held on"
	}
	for _, h := range held {
		limit := loosened(h.floor, h.peak, level)
		reason := fmt.Sprintf("%s: %s to %.3g CPU of the %.3g it used at most", why, word, limit, h.peak)
		s.want(inc.claim(h.task, limit, h.usage, until, reason))
		s.say(in, out, inc, model.Decision{Kind: model.DecideStep, Task: h.task, Path: h.path, Facts: append(capped(limit, h.usage), model.FactLevel.Is(level)), Reason: reason})
	}
	if level != r.Level {
		r.Steps++
		s.settleLoose(in, inc)
		f.ChangedNsec = in.NowNsec
	}
	r.Level = level
	inc.WatchUntil = max(inc.WatchUntil, until)
	return true
}

// renewShare: a hold that is still needed is renewed in the last part of its time.
const renewShare = 3

// keepAlive renews a hold that would end while the held tasks press against it.
func (s *State) keepAlive(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) {
	r, f := inc.round(), s.loose(p, inc)
	if inc.WatchUntil-in.NowNsec > p.DurationNsec/renewShare || f.StartNsec+p.Feedback.MaxDurationNsec <= inc.WatchUntil {
		return
	}
	held := inForce(in, inc)
	if presses(in, r, held) || p.Feedback.ThroughPauses && pressedLately(p, in, r, held) {
		s.step(p, in, out, inc, r.Level, fmt.Sprintf("still needed by %s", inc.VictimPath))
	}
}

// complain is heard where a task is held loosely for the sake of another victim.
func (s *State) complain(by *Incident, task model.TaskNum) {
	for i := range s.Incidents {
		inc := &s.Incidents[i]
		if inc.ID == by.ID || inc.State != model.Recovered || inc.Loose == nil || inc.round().Level == 0 {
			continue
		}
		for k := range inc.Rounds {
			if inc.Rounds[k].Chosen == nil {
				continue
			}
			for _, n := range heldIn(&inc.Rounds[k]) {
				inc.Loose.Complaint = inc.Loose.Complaint || n == task
			}
		}
	}
}
