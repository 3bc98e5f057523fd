// Package hardcap deals with antagonists (CPI² §5): it picks the suspect to hold
// back, asks for a cap on its CPU, verifies that the victim recovered, and tries the
// next suspect when it did not.
//
// Intuition. Capping is CPI²'s way of asking "was it you?". The answer is the
// victim's signal afterwards: under its outlier threshold for two windows in a row means
// recovered; anything else means the pick was poor, the cap is taken back and the suspect
// is left out of the next round. The rounds are few, because each wrong one costs an
// innocent its work.
//
// Hard cases, and what is done about them:
//
//   - The evidence is too young: the victim suffers but nobody stands out yet. The
//     incident searches for some windows before it gives up.
//   - A bursty antagonist pauses just after an innocent was capped, and the victim
//     "recovers". The incident is therefore watched until the cap expires; when the
//     victim suffers again and is no better than before, the cap is taken back and the
//     next round begins without that suspect.
//   - The victim goes idle while it is watched: windows without evidence are not judged,
//     either way. A cap never outlives its duration for want of a verdict.
//   - The top suspect is LC, unmanaged CPU or steal: it is reported and left alone. A BE
//     suspect further down may still be held (case 4 holds the last of nine), unless
//     something that nobody can hold explains the victim clearly better than it does.
//   - A `critical` BE suspect is passed over as long as another one qualifies.
//   - Nothing can be done (case 4): CannotFix, with what was tried and why it failed; the
//     victim is left in peace for RetryAfter, so that a hopeless case does not flood.
//
// Several policies go beyond CPI², each with its own switch (params.go) and file: groups of
// suspects (group.go, sibling.go, trial.go), caps that follow the victim (feedback.go), nudges that
// settle split evidence (confirm.go, witness.go) in the order of what the victim lacks (lack.go), evidence that is added up over incidents (repeat.go),
// suspects held by turns (coded.go), and relief that comes before blame (first.go). While one of the first and the last is on, incidents
// wait for each other's verification: what one tries may cure the others' victims too.
//
// In observe mode the pick is recorded as it would be done and nothing is concluded from
// an effect that did not happen: no verification, no second round.
package hardcap

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Params are the policy's parameters.
type Params struct {
	Quota            float64 `json:"quota"`             // table 2: 0.1 CPU-sec/sec
	QuotaBestEffort  float64 `json:"quota_best_effort"` // section 5: 0.01
	DurationNsec     int64   `json:"duration_nsec"`     // table 2: 5 min
	RecoveredWindows int     `json:"recovered_windows"` // DESIGN.md, decision 12: two in a row
	VerifyWindows    int     `json:"verify_windows"`    // judged windows before a cap has failed
	SearchWindows    int     `json:"search_windows"`    // analyses before a search gives up
	MaxRounds        int     `json:"max_rounds"`        // suspects tried per incident
	RetryAfterNsec   int64   `json:"retry_after_nsec"`  // peace after an incident that led nowhere
	// AnalysisEveryNsec: section 4.2, at most one attempt each second on a machine.
	AnalysisEveryNsec int64 `json:"analysis_every_nsec"`
	// IDPrefix keeps the incidents of different starts of the agent apart.
	IDPrefix string `json:"id_prefix"`
	// Correlation parameters by signal source.
	Antagonist [model.NumSources]antagonist.Params `json:"antagonist"`
	// Beyond CPI², each with its own switch.
	Groups   Groups      `json:"groups"`
	Feedback Feedback    `json:"feedback"`
	Confirm  Confirm     `json:"confirm"`
	Blame    Blame       `json:"blame"`
	Demote   Demote      `json:"demote"`
	Repeat   Repeat      `json:"repeat,omitzero"`
	Coded    CodedNudges `json:"coded,omitzero"`
	First    First       `json:"first,omitzero"`
}

// Incident is an incident with what the policy needs to remember beside the record.
type Incident struct {
	model.Incident
	Excluded   []model.TaskNum `json:"excluded,omitempty"` // tried without effect
	GoodInRow  int             `json:"good_in_row"`
	SignalSum  float64         `json:"signal_sum"` // over the windows judged in this round
	HurtSum    float64         `json:"hurt_sum"`   // over the outliers since it recovered
	HurtN      int             `json:"hurt_n"`
	SearchLeft int             `json:"search_left"`
	Fresh      bool            `json:"fresh"`       // has a window that was not analysed yet
	LastSignal float64         `json:"last_signal"` // the latest outlier's
	WatchUntil int64           `json:"watch_until"` // a recovered incident is watched until its cap ends

	Trial *Trial `json:"trial,omitempty"` // a member of a group that is released to see
	Loose *Loose `json:"loose,omitempty"` // how far the caps are loosened
	// Helped are other victims that were well again when this one was, in order.
	Helped []model.TaskNum `json:"helped,omitempty"`
	// HelpedBy are they and those who came later, and how bad each was, with Feedback.Witnesses.
	HelpedBy []Helped `json:"helped_by,omitempty"`
	// Early: it began before there was an anomaly, for the sake of one who is known for guilty.
	Early bool `json:"early,omitempty"`
	// Experiment is a coded one that runs.
	Experiment *Experiment `json:"experiment,omitempty"`
	// FromNsec is from when on windows are judged, where somebody else interfered with a hold.
	FromNsec int64 `json:"from_nsec,omitempty"`
}

// Peace keeps a victim from being analysed again too soon.
type Peace struct {
	Victim    model.TaskNum `json:"victim"`
	UntilNsec int64         `json:"until_nsec"`
}

// State is what the policy remembers. It is bounded: one incident a victim.
type State struct {
	NextID       uint64     `json:"next_id"`
	Incidents    []Incident `json:"incidents"` // open or watched, in order of opening
	Peace        []Peace    `json:"peace"`
	LastAnalysis int64      `json:"last_analysis"`
	// Claims are the caps that are wanted: what is asked for or in force.
	Claims []model.Claim `json:"claims,omitempty"`
	moved  bool          // Claims are other than in the step before

	Tested  []Tested  `json:"tested,omitempty"`  // what trials and nudges have shown
	Refuted []Refuted `json:"refuted,omitempty"` // nudges in vain

	NudgedAt   []int64 `json:"nudged_at,omitempty"`   // nudges of the last hour
	NudgedNsec int64   `json:"nudged_nsec,omitempty"` // time that suspects were nudged, in all
	NudgedLost float64 `json:"nudged_lost,omitempty"` // CPU-seconds that they lost by it

	Encoded []Encoded `json:"encoded,omitempty"` // experiments of the last day
	Pairs   []Pair    `json:"pairs,omitempty"`   // what experiments have shown of jobs, ordered (repeat.go)

	Waiters []Waiter `json:"waiters,omitempty"` // who ran while victims waited

	analysis   antagonist.Analysis // scratch
	correlated []antagonist.Score  // of it, where blame took its place
	lacks      lacking             // what the victim of it lacks
	answers    []Answer
	group      antagonist.Group
	may        []antagonist.Candidate
}

// Step advances every incident by one tick.
func (s *State) Step(p *Params, in *policy.View, out *policy.Wishes) {
	// What ended by itself, was refused, or an operator took away is not asked for again.
	s.moved = false
	s.Claims = slices.DeleteFunc(s.Claims, func(c model.Claim) bool {
		h := in.Ledger.Hold(model.PolicyHardcap, &c).State
		return h != policy.HoldAsked && h != policy.HoldInForce
	})
	if len(s.Incidents) > 0 {
		s.advance(p, in, out)
	}
	if in.Mode != model.ModeOff {
		if in.Window.Closed {
			s.remember(p, in)
			s.open(p, in, out)
		}
		s.analyse(p, in, out)
	}
	s.sweep(in)
	if out.AsBefore = !s.moved; s.moved {
		out.Claims = append(out.Claims, s.Claims...)
	}
}

// want asks for a cap, or for another one in place of that of the same task and incident.
func (s *State) want(c model.Claim) {
	s.moved = true
	if i := slices.IndexFunc(s.Claims, func(o model.Claim) bool { return o.Is(&c) }); i >= 0 {
		s.Claims[i] = c
		return
	}
	s.Claims = append(s.Claims, c)
}

// letGo gives what is held of a task back, if that is anything for the incident.
func (s *State) letGo(out *policy.Wishes, task model.TaskNum, incident, why string) {
	s.giveUp(out, task, incident, why, model.CPUBandwidth, model.CPUWeight)
}

// giveUp gives one knob or both back.
func (s *State) giveUp(out *policy.Wishes, task model.TaskNum, incident, why string, knobs ...model.KnobKind) {
	s.moved = true
	for _, kind := range knobs {
		c := model.Claim{Target: model.OfTask(task), Value: model.Ask(kind), Incident: incident}
		s.Claims = slices.DeleteFunc(s.Claims, func(o model.Claim) bool { return o.Is(&c) })
		out.End(c, why)
	}
}

// hold returns where the incident's cap on a task's CPU stands.
func (inc *Incident) hold(in *policy.View, task model.TaskNum) policy.Hold {
	return in.Ledger.Hold(model.PolicyHardcap, &model.Claim{Target: model.OfTask(task), Incident: inc.ID})
}

// advance moves the incidents that exist.
func (s *State) advance(p *Params, in *policy.View, out *policy.Wishes) {
	for i := range s.Incidents {
		inc := &s.Incidents[i]
		switch {
		case in.Table.Get(inc.Victim) == nil:
			s.end(in, out, inc, model.VictimGone, "the victim's cgroup is gone")
			continue
		case inc.State.Open() && (in.Mode != model.ModeEnforce && inc.State != model.Searching):
			s.end(in, out, inc, model.Dropped, "the policy is no longer enforced")
			continue
		case inc.State == model.Recovered && in.Mode != model.ModeEnforce:
			inc.WatchUntil = 0 // its cap was given back with the mode: nothing left to watch
			continue
		}
		v := findVictim(in.Window.Victims, inc.Victim)
		if in.Window.Closed && v != nil && !v.Protected {
			s.end(in, out, inc, model.Dropped, "protection was turned off for its job")
			continue
		}
		if v != nil && v.Source.Row().Targeted != inc.Source.Row().Targeted {
			s.end(in, out, inc, model.Dropped, fmt.Sprintf("the victim is judged by %s now, not by %s", v.Source, inc.Source))
			continue
		}
		if in.Window.Closed && v != nil && v.Verdict == outlier.Outlier {
			inc.LastSignal = v.Signal
		}
		switch inc.State {
		case model.Searching:
			inc.Fresh = inc.Fresh || (in.Window.Closed && v != nil && v.Verdict.Evidence())
			if in.ForCPU && len(inc.Rounds) == 0 {
				s.close(in, out, inc, model.Dropped, "policy remedy is about what is milder for who waits for a CPU")
			} else if in.Window.Closed && v != nil && v.Violations == 0 {
				// A cap of an earlier round that helped stays until its time is over.
				s.close(in, out, inc, model.Dropped, "the victim recovered by itself before anybody was held")
			}
		case model.Holding:
			s.awaitHold(p, in, out, inc)
		case model.Verifying:
			s.verify(p, in, out, inc, v)
		case model.Recovered:
			s.watch(p, in, out, inc, v)
		}
	}
}

// open starts an incident for every victim that suffers and has none; none begins while policy remedy is about what is milder.
func (s *State) open(p *Params, in *policy.View, out *policy.Wishes) {
	if in.ForCPU {
		return
	}
	for i := range in.Window.Victims {
		v := &in.Window.Victims[i]
		if !v.Anomalous || !v.Protected || v.Verdict != outlier.Outlier || s.busy(v.Num, in.NowNsec) {
			s.openKnown(p, in, out, v)
			continue
		}
		s.Incidents = append(s.Incidents, s.incidentOf(p, in, v))
		s.NextID++
		inc := &s.Incidents[len(s.Incidents)-1]
		s.say(in, out, inc, model.Decision{
			Kind: model.DecideAnomaly, Task: v.Num, Facts: []model.Fact{model.FactSignal.Is(v.Signal), model.FactThreshold.Is(v.Threshold)},
			Reason: fmt.Sprintf("%s %.3g is above %.3g; %d violations in the window", v.Source, v.Signal, v.Threshold, v.Violations),
		})
	}
}

// incidentOf is the incident that the next number is for.
func (s *State) incidentOf(p *Params, in *policy.View, v *policy.Victim) Incident {
	task := in.Table.Get(v.Num)
	return Incident{
		Incident: model.Incident{
			ID: fmt.Sprintf("i%s-%d", p.IDPrefix, s.NextID+1), Victim: v.Num, VictimPath: task.Path, VictimJob: task.Job,
			Source: v.Source, Signal: v.Signal, Threshold: v.Threshold, Spec: *v.Spec,
			Violations: v.Violations, OpenedNsec: in.NowNsec, OpenedWall: in.WallNsec, State: model.Searching,
		},
		SearchLeft: p.SearchWindows, Fresh: true, LastSignal: v.Signal,
	}
}

// busy reports whether a victim has an incident already or is to be left in peace.
func (s *State) busy(victim model.TaskNum, nowNsec int64) bool {
	return s.peaceful(victim, nowNsec) || slices.ContainsFunc(s.Incidents, func(inc Incident) bool { return inc.Victim == victim })
}

// peaceful reports whether a victim is to be left in peace.
func (s *State) peaceful(victim model.TaskNum, nowNsec int64) bool {
	return slices.ContainsFunc(s.Peace, func(p Peace) bool { return p.Victim == victim && nowNsec < p.UntilNsec })
}

// Wake ends every victim's peace: protection was turned on, so look again now.
func (s *State) Wake() { s.Peace = s.Peace[:0] }

// say records a decision of an incident and marks the incident as changed.
func (s *State) say(in *policy.View, out *policy.Wishes, inc *Incident, d model.Decision) {
	d.Incident = inc.ID
	if d.Path == "" {
		d.Path = in.Table.Name(d.Task)
	}
	inc.Cite(&d)
	out.Decisions = append(out.Decisions, d)
	change(out, inc)
}

// change marks an incident as changed.
func change(out *policy.Wishes, inc *Incident) {
	for _, c := range out.Incidents {
		if c.ID == inc.ID {
			*c = snapshotOf(inc)
			return
		}
	}
	c := snapshotOf(inc)
	out.Incidents = append(out.Incidents, &c)
}

// snapshotOf copies an incident so that a reader may keep it.
func snapshotOf(inc *Incident) model.Incident {
	c := inc.Incident
	c.Rounds = append([]model.Round(nil), inc.Rounds...)
	for i := range c.Rounds {
		c.Rounds[i].Members = append([]model.Member(nil), c.Rounds[i].Members...)
	}
	c.Tried = append([]string(nil), inc.Tried...)
	return c
}

// giveBack drops the claims of every round: beside the present one a cap that helped
// before a relapse may still be in force.
func (s *State) giveBack(out *policy.Wishes, inc *Incident, why string) {
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		if r.Chosen == nil {
			continue
		}
		s.dropRound(out, inc, r, why)
		if r.State == model.RoundOpen {
			r.Conclude(model.RoundEnded, why)
		}
	}
}

// end closes an incident and gives its claims back.
func (s *State) end(in *policy.View, out *policy.Wishes, inc *Incident, st model.IncidentState, why string) {
	s.giveBack(out, inc, why)
	s.close(in, out, inc, st, why)
}

// close closes an incident.
func (s *State) close(in *policy.View, out *policy.Wishes, inc *Incident, st model.IncidentState, why string) {
	inc.State, inc.ClosedNsec, inc.WatchUntil = st, in.NowNsec, 0
	if inc.Evidence == "" {
		inc.Evidence = why
	}
	kind := model.DecideGone
	if st == model.Dropped {
		kind = model.DecideRelease
	}
	s.say(in, out, inc, model.Decision{Kind: kind, Task: inc.Victim, Reason: why})
}

// cannotFix ends an incident for which nothing more can be done.
func (s *State) cannotFix(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, why string) {
	inc.State, inc.ClosedNsec, inc.Evidence = model.CannotFix, in.NowNsec, why
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		if r.Demoted && !r.Kept {
			s.dropRound(out, inc, r, why)
		}
		if r.ChosenPath != "" {
			inc.Tried = append(inc.Tried, fmt.Sprintf("%s: %s", r.ChosenPath, r.Verdict))
		}
	}
	s.leaveInPeace(inc.Victim, in.NowNsec+p.RetryAfterNsec)
	s.say(in, out, inc, model.Decision{
		Kind: model.DecideCannotFix, Task: inc.Victim, Facts: []model.Fact{model.FactSignal.Is(inc.LastSignal), model.FactThreshold.Is(inc.Threshold)}, Reason: why,
	})
}

func (s *State) leaveInPeace(victim model.TaskNum, untilNsec int64) {
	for i := range s.Peace {
		if s.Peace[i].Victim == victim {
			s.Peace[i].UntilNsec = untilNsec
			return
		}
	}
	s.Peace = append(s.Peace, Peace{victim, untilNsec})
}

// sweep forgets what is over.
func (s *State) sweep(in *policy.View) {
	kept := s.Incidents[:0]
	for _, inc := range s.Incidents {
		if inc.State.Open() || (inc.State == model.Recovered && in.NowNsec < inc.WatchUntil) {
			kept = append(kept, inc)
		}
	}
	s.Incidents = kept
	peace := s.Peace[:0]
	for _, p := range s.Peace {
		if in.NowNsec < p.UntilNsec && in.Table.Get(p.Victim) != nil {
			peace = append(peace, p)
		}
	}
	s.Peace = peace
	s.Tested = slices.DeleteFunc(s.Tested, func(c Tested) bool {
		return in.NowNsec >= c.UntilNsec || in.Table.Get(c.Task) == nil
	})
	s.Refuted = slices.DeleteFunc(s.Refuted, func(c Refuted) bool {
		return in.NowNsec >= c.UntilNsec || in.Table.Get(c.Victim) == nil
	})
}

// round returns the current round, nil before the first.
func (inc *Incident) round() *model.Round {
	if len(inc.Rounds) == 0 {
		return nil
	}
	return &inc.Rounds[len(inc.Rounds)-1]
}

func findVictim(vs []policy.Victim, n model.TaskNum) *policy.Victim {
	for i := range vs {
		if vs[i].Num == n {
			return &vs[i]
		}
	}
	return nil
}
