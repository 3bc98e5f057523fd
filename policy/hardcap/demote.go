package hardcap

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Demote are the parameters of the mildest hold, which comes first where the victim's harm is
// waiting for a CPU.
//
// Intuition. Who waits for a CPU needs the one who has it to step aside, not to stop. A demoted
// task (cpu.idle) steps aside whenever anybody else wants the CPU, and uses all that is left.
// Only where that does not do is it capped as well: first to a share of what it used, then to
// CPI²'s quota. Each step is judged on the victim before the next, and they are given back one by
// one: the cap ends first, and the task stays demoted for a while.
//
// Where demotion cannot help nothing is lost but two windows: work in the kernel on behalf of
// the task, a suspect that gives way already (then its cap comes first), contended caches.
type Demote struct {
	Enabled bool `json:"enabled"`
	Windows int  `json:"windows"` // judged, after which a demotion that does not help is not enough
	// CapShare is what the cap that follows leaves, as a share of the greatest usage.
	CapShare     float64 `json:"cap_share"`
	DurationNsec int64   `json:"duration_nsec"` // of a demotion, with the cap that may stand beside it
}

// Rows describes the parameters that the configuration sets.
func (d *Demote) Rows() []model.Param {
	return []model.Param{
		{Key: "enabled", At: &d.Enabled, Soak: [2]float64{0.4, 0.6}, Why: "beyond CPI²: where the harm is waiting for a CPU a suspect is first made to give way"},
		{Key: "windows", At: &d.Windows, Least: 1, Most: 100, Soak: [2]float64{1, 4}, Unit: "windows", Why: "windows in which a demotion must help, else a cap is added"},
		{Key: "cap_share", At: &d.CapShare, Most: 1, Unit: "a share", Why: "what the first cap then leaves of the greatest usage; the quota comes last"},
		{Key: "duration", At: model.Nsec(&d.DurationNsec), Most: model.Unbounded, Soak: [2]float64{60e9, 120e9}, Unit: "not below hard_capping_duration", Why: "of a demotion; a cap beside it ends before"},
	}
}

// firstRung decides how mildly a round begins.
func (s *State) firstRung(p *Params, in *policy.View, inc *Incident, r *model.Round) {
	peak := r.Peak
	if len(r.Members) > 0 {
		peak = r.Members[0].Peak
	}
	if !p.Demote.Enabled || !inc.Source.Row().Waits && !r.ByBlame {
		r.Level = s.firstLevel(p, inc, r.Cap, peak)
		return
	}
	for i := range inc.Rounds { // what it uses while it gives way is not in the history
		if o := &inc.Rounds[i]; o.Demoted && *o.Chosen == *r.Chosen {
			peak = max(peak, o.Peak)
		}
	}
	if len(r.Members) == 0 {
		r.Peak = peak
	}
	if left := p.Demote.CapShare * peak; left > r.Cap {
		r.Level = (left - r.Cap) / (peak - r.Cap)
	}
	for _, task := range heldIn(r) {
		demoted := in.Ledger.Ours(task, model.CPUWeight)
		r.Uncapped = r.Uncapped || !demoted
		r.Demoted = r.Demoted || !demoted || inc.demoted(in, task).State == policy.HoldInForce // renewed with the cap
	}
}

// demoted returns where the incident's demotion of a task stands.
func (inc *Incident) demoted(in *policy.View, task model.TaskNum) policy.Hold {
	c := inc.demotion(task, 0, "")
	return in.Ledger.Hold(model.PolicyHardcap, &c)
}

func (inc *Incident) demotion(task model.TaskNum, expires int64, reason string) model.Claim {
	return model.Claim{
		Target: model.OfTask(task), Kind: model.ClaimCap, Value: model.Ask(model.CPUWeight), Cap: model.WeightIdle,
		Incident: inc.ID, Reason: reason, ExpiresNsec: expires,
	}
}

// ask wants what a round begins with of one task.
func (s *State) ask(p *Params, in *policy.View, inc *Incident, r *model.Round, task model.TaskNum, limit, usage float64, reason string) {
	if r.Demoted {
		s.want(inc.demotion(task, in.NowNsec+p.Demote.DurationNsec, reason))
	}
	if !r.Uncapped {
		s.want(inc.claim(task, limit, usage, in.NowNsec+p.DurationNsec, reason))
	}
}

// does words what a round begins with.
func does(in *policy.View, r *model.Round, path string, limit float64) (model.DecisionKind, string) {
	would := ""
	if in.Mode != model.ModeEnforce {
		would = "would "
	}
	verb := func(word string) string {
		if would == "" {
			return word + "s"
		}
		return would + word
	}
	if r.Uncapped {
		return model.DecideDemote, fmt.Sprintf("%s %s", verb("demote"), path)
	}
	return model.DecideCap, fmt.Sprintf("%s %s to %.3g CPU", verb("hold"), path, limit)
}

// capToo adds a cap where demotion is not enough, or cannot be had.
func (s *State) capToo(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, why string) {
	r := inc.round()
	r.Uncapped, r.Kept, r.WindowsJudged, r.AppliedNsec = false, false, 0, 0
	inc.State = model.Holding
	for _, h := range holdsOf(r) {
		limit := loosened(h.floor, h.peak, r.Level)
		reason := fmt.Sprintf("%s; holds %s to %.3g CPU of the %.3g it used at most, for the sake of %s", why, h.path, limit, h.peak, inc.VictimPath)
		s.want(inc.claim(h.task, limit, h.usage, in.NowNsec+p.DurationNsec, reason))
		if inc.demoted(in, h.task).State == policy.HoldInForce { // and is to outlive the cap
			s.want(inc.demotion(h.task, in.NowNsec+p.Demote.DurationNsec, reason))
		}
		s.say(in, out, inc, model.Decision{
			Kind: model.DecideCap, Task: h.task, Path: h.path, Facts: append(capped(limit, h.usage), model.FactLevel.Is(r.Level)), Reason: reason,
		})
	}
}

// tryDemotion judges a window in which the round's tasks are demoted and not capped.
func (s *State) tryDemotion(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) {
	r := inc.round()
	switch {
	case inc.GoodInRow > 0 || r.WindowsJudged < p.Demote.Windows:
		change(out, inc)
	case !s.stepsAside(p, inc) && leftAlone(in, r) != "": // what comes of another's step first
		change(out, inc)
	case !s.stepsAside(p, inc):
		s.capToo(p, in, out, inc, fmt.Sprintf("%s of %s is %.3g while %s gives way to everybody, above %.3g", inc.Source, inc.VictimPath, v.Signal, heldNames(r), v.Threshold))
	case r.WindowsJudged >= p.VerifyWindows:
		s.keepDemoted(in, out, inc)
		inc.State, inc.Fresh, inc.SearchLeft = model.Searching, true, p.SearchWindows
	default:
		change(out, inc)
	}
}

// stepsAside reports whether a demotion did its part: at least half of what the victim waited for others
// more than usual is gone, and for its bad windows the tasks answer less than is asked of a suspect. A cap
// would take their work and help nobody.
func (s *State) stepsAside(p *Params, inc *Incident) bool {
	harm, left, theirs, ok := s.underHold(inc)
	return ok && left <= harm/2 && theirs < p.Blame.Share*harm
}

// relieved reports whether at least half of what the victim waited for others more than usual is gone under the hold,
// over good windows and bad ones. A few bad ones say of a tail that it is back, and of the hold nothing.
func (s *State) relieved(inc *Incident) bool {
	harm, left, _, ok := s.underHold(inc)
	return ok && left <= harm/2
}

// underHold is what the victim waited for others more than usual before the round's hold, what it waits so since, and what
// the held tasks answer for in the latest bad windows, in nanoseconds a second; not ok where that is not known.
func (s *State) underHold(inc *Incident) (harm, left, theirs float64, ok bool) {
	r, of := inc.round(), s.waiter(inc.Victim)
	harm = r.WaitedNsec - r.UsualNsec
	if !r.ByBlame || of == nil || harm <= 0 {
		return 0, 0, 0, false
	}
	now, bad := &side{}, &side{}
	for i := range slices.Backward(of.Windows) {
		w := &of.Windows[i]
		if w.AtNsec <= r.AppliedNsec {
			break
		}
		if now.add(w); w.Bad && len(bad.at) < recentBad {
			bad.add(w)
		}
	}
	if len(bad.at) == 0 {
		return 0, 0, 0, false
	}
	left, _ = excess(now.mean().charged, of.good().forAsMany(now).charged)
	bad.mean()
	for _, task := range heldIn(r) {
		if k, ok := find(bad.charged, task); ok {
			theirs += bad.charged[k].Nsec
		}
	}
	return harm, left, theirs, true
}

// keepDemoted lets a demotion stand that did its part although the victim suffers.
func (s *State) keepDemoted(in *policy.View, out *policy.Wishes, inc *Incident) {
	r := inc.round()
	if r.Kept {
		return
	}
	r.Kept = true
	r.Conclude(model.RoundKept, "helped, and is not capped for what is left")
	s.say(in, out, inc, model.Decision{
		Kind: model.DecideKept, Task: *r.Chosen, Path: heldNames(r), Facts: []model.Fact{model.FactSignal.Is(inc.LastSignal), model.FactThreshold.Is(inc.Threshold)},
		Reason: fmt.Sprintf("%s gives way to everybody, and hardly answers for what %s still waits: not capped, and the next one is sought", heldNames(r), inc.VictimPath),
	})
}

// leaveDemoted ends a search that found nobody else while a demotion stands that did its part: the victim
// is watched until that ends. It reports whether that is so.
func (s *State) leaveDemoted(p *Params, in *policy.View, inc *Incident) bool {
	r := inc.round()
	if r == nil || !r.Kept || !r.Uncapped || standing(in, inc, r).State != policy.HoldInForce {
		return false
	}
	s.recovered(p, in, inc)
	s.leaveInPeace(inc.Victim, in.NowNsec+p.RetryAfterNsec)
	return true
}

// outlives extends the watch over a recovered victim to the end of the demotions.
func (s *State) outlives(inc *Incident) {
	for i := range s.Claims {
		if c := &s.Claims[i]; c.Incident == inc.ID && c.Value == model.Ask(model.CPUWeight) {
			inc.WatchUntil = max(inc.WatchUntil, c.ExpiresNsec)
		}
	}
}

// stepBack notes that the cap is over and the demotion is what is left.
func (s *State) stepBack(in *policy.View, out *policy.Wishes, inc *Incident) {
	r := inc.round()
	if !r.Demoted || r.Uncapped || standing(in, inc, r).State != policy.HoldNone {
		return
	}
	r.Uncapped = true
	if standing(in, inc, r).State != policy.HoldInForce {
		r.Uncapped = false
		return
	}
	s.say(in, out, inc, model.Decision{Kind: model.DecideStep, Task: *r.Chosen, Path: heldNames(r), Reason: "the cap is over; for now it still gives way to everybody"})
}

// how is what a round does to its tasks, in a word.
func how(r *model.Round) string {
	if r.Uncapped {
		return "demoted"
	}
	return "held"
}
