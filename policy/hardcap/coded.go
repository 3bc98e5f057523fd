package hardcap

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Coded nudges (Params.Coded): all suspects of a victim in one experiment.
//
// Intuition. Where several tasks hurt a victim a little each, a nudge of one helps by less than noise, is refuted, and so is the next
// one. So all plausible suspects are held back at the same time, in patterns of on and off over the windows that have nothing to do with each other, and the signals of all services
// are regressed on the patterns (policy/antagonist, coded.go): each suspect's effect with an interval, in one pass, whatever
// the suspects' own rhythms are. At equal cost this finds as much as nudges one by one, in a quarter of the time.
//
// A window of an experiment is a whole sampling window: a minute in the profile relief, a second in single-node. Looks are taken after 1, 3, 7 ...
// windows. Cells whose effect is beyond the bound are held, as a group where there are several, which is then verified, loosened and given back
// on trial like any other: at once where the victim was well in a window in which nobody else was held, at the end where it takes more of them.
// At the end of the design who did nothing is cleared, and nobody has it nudged for a while.
//
// What bounds the harm:
//   - the chance that an experiment among innocents convicts anybody is at most Doubt: each look and cell has its share of it;
//   - who was picked because it suffers gets better of itself, and services swing together: both are taken off as for evidence
//     that lasts (repeat.go);
//   - what an experiment may take is reckoned beforehand, in seconds of all best-effort work of the node, an incident and a day; the least likely suspects
//     are left out until it fits;
//   - only while the victim suffers, once in a while for a victim, never a critical task, never who cannot be held.

// CodedNudges are the parameters of coded experiments.
type CodedNudges struct {
	Enabled bool `json:"enabled"`
	// After so many nudges in vain for a victim it takes the place of the next one.
	After int `json:"after"`
	// Share is as that of Confirm: the least score of a suspect.
	Share float64 `json:"share"`
	// MinVictims is how many services must suffer: what one alone suffers is more often its own doing.
	MinVictims int `json:"min_victims"`
	// MaxSuspects bounds a design, and so its length.
	MaxSuspects int `json:"max_suspects"`
	// UsageShare is the share of its usage that a held suspect keeps; 0: CPI²'s quota.
	UsageShare float64 `json:"usage_share"`
	// Doubt is the chance that an experiment among innocents convicts anybody.
	Doubt float64 `json:"doubt"`
	// MaxLostNsec and MaxLostDayNsec are what one experiment, and all of a day, may take, as time in which all BE work stood still.
	MaxLostNsec    int64 `json:"max_lost_nsec"`
	MaxLostDayNsec int64 `json:"max_lost_day_nsec"`
}

// Rows describes the parameters that the configuration sets.
func (c *CodedNudges) Rows() []model.Param {
	const work = "time of all best-effort work"
	return []model.Param{
		{Key: "enabled", At: &c.Enabled, Soak: [2]float64{0.6, 0.4}, Why: "beyond CPI²: all suspects in one experiment, by orthogonal patterns"},
		{Key: "after", At: &c.After, Most: 10, Soak: [2]float64{0, 2}, Unit: "nudges", Why: "nudges in vain for a victim before it"},
		{Key: "share", At: &c.Share, Most: 1, Unit: "a share", Why: "of the way from what a steady suspect scores to what the perfect one does, from where on one takes part"},
		{Key: "min_victims", At: &c.MinVictims, Least: 1, Most: 100, Soak: [2]float64{1, 3}, Unit: "tasks", Why: "protected tasks that must suffer"},
		{Key: "max_suspects", At: &c.MaxSuspects, Least: 2, Most: antagonist.MaxCoded, Soak: [2]float64{2, 15}, Unit: "tasks", Why: "tasks in one experiment"},
		{Key: "usage_share", At: &c.UsageShare, Most: 0.9, Unit: "a share", Why: "share of its CPU that a held one keeps; 0: the quota of a cap"},
		{Key: "doubt", At: &c.Doubt, Least: 1e-6, Most: 0.5, Unit: "a probability", Why: "that an experiment among innocents convicts anybody"},
		{Key: "max_lost", At: model.Nsec(&c.MaxLostNsec), Most: model.Unbounded, Soak: [2]float64{1e9, 60e9}, Unit: work, Why: "what one experiment may take"},
		{Key: "max_lost_day", At: model.Nsec(&c.MaxLostDayNsec), Most: model.Unbounded, Soak: [2]float64{10e9, 600e9}, Unit: work, Why: "what all of a day may take"},
	}
}

// Experiment is a coded experiment that runs.
type Experiment struct {
	Suspects  []model.Member     `json:"suspects"`
	All       bool               `json:"all,omitempty"` // in this window all are held (first.go)
	Before    []Before           `json:"before"`        // of all services
	Noise     float64            `json:"noise"`         // how far they swing of themselves, in standard errors
	Windows   []antagonist.Coded `json:"windows"`
	Well      uint64             `json:"well"` // the windows in which the victim was well, a bit each
	Held      uint64             `json:"held"` // the pattern that is asked for
	SinceNsec int64              `json:"since_nsec"`
	HeldNsec  int64              `json:"held_nsec"`
	Lost      float64            `json:"lost"` // CPU-seconds
}

// Before is a service's mean signal before an experiment, and the standard deviation of a window.
type Before struct {
	Num   model.TaskNum `json:"num"`
	Mean  float64       `json:"mean"`
	Noise float64       `json:"noise"`
}

// Encoded is an experiment of the last day.
type Encoded struct {
	Victim model.TaskNum `json:"victim"`
	AtNsec int64         `json:"at_nsec"`
	Lost   float64       `json:"lost"` // seconds of all best-effort work
}

const dayNsec = 24 * hourNsec

// maxEncoded bounds the experiments of a day, one in a quarter of an hour.
const maxEncoded = 100

// encode starts an experiment with all suspects of a victim. It reports whether it did.
func (s *State) encode(p *Params, ap *antagonist.Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round) bool {
	c := &p.Coded
	if in.Mode != model.ModeEnforce || s.inVain(inc.Victim) < c.After || sufferers(in, inc.Source) < c.MinVictims {
		return false
	}
	if signal, n := in.History.MeanSignal(inc.Victim, 0, 1); n == 0 || signal <= inc.Threshold {
		return false
	}
	period := max(in.History.PeriodNsec(), in.Window.LengthNsec)
	suspects, lost := s.affordable(p, in, inc, s.plausible(p, ap, in, inc), period)
	if len(suspects) < 2 {
		return false
	}
	s.begin(p, in, out, inc, r, suspects, lost, false, fmt.Sprintf("%d nudges did not help %s: holds %d suspects by turns, half of them at a time, for up to %d windows, to see which of them do",
		s.inVain(inc.Victim), inc.VictimPath, len(suspects), antagonist.Design{Suspects: len(suspects)}.Windows()))
	return true
}

// begin starts an experiment.
func (s *State) begin(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round, suspects []model.Member, lost float64, all bool, reason string) {
	x := &Experiment{Suspects: suspects, All: all, Noise: s.swing(in, inc.Source, "", 1), SinceNsec: in.NowNsec}
	for i := range in.Window.Victims {
		v := &in.Window.Victims[i]
		if mean, n := in.History.MeanSignal(v.Num, 0, badBefore); v.Source == inc.Source && n > 0 && v.Spec != nil && v.Spec.Mean > 0 && v.Spec.StdDev > 0 {
			x.Before = append(x.Before, Before{v.Num, mean, v.Spec.StdDev * max(1, mean/v.Spec.Mean)})
		}
	}
	s.Encoded = append(s.Encoded, Encoded{inc.Victim, in.NowNsec, lost})
	inc.Experiment = x
	num := suspects[0].Task
	r.Chosen, r.ChosenPath, r.Cap, r.Nudge, r.Members = &num, suspects[0].Path, suspects[0].Cap, true, slices.Clone(suspects)
	r.MeanBefore, _ = in.History.RecentSignal(inc.Victim, badBefore, inc.Threshold)
	for i := range r.Suspects {
		if slices.Contains(heldIn(r), r.Suspects[i].Task) {
			r.Suspects[i].State, r.Suspects[i].Verdict = model.SuspectNudged, "one of those that are held in an experiment, to see which of them hurt"
		}
	}
	inc.Rounds = append(inc.Rounds, *r)
	s.renewKept(p, in, out, inc)
	s.say(in, out, inc, model.Decision{Kind: model.DecideNudge, Task: num, Path: heldNames(inc.round()), Facts: []model.Fact{model.FactSignal.Is(inc.LastSignal), model.FactThreshold.Is(inc.Threshold)}, Reason: reason})
	s.turn(p, in, out, inc)
}

// sufferers counts the protected tasks that have an anomaly.
func sufferers(in *policy.View, src model.Source) (n int) {
	for i := range in.Window.Victims {
		if v := &in.Window.Victims[i]; v.Source == src && v.Protected && v.Anomalous {
			n++
		}
	}
	return n
}

// plausible gathers who takes part, the likeliest first: also whom a single nudge did not convict.
func (s *State) plausible(p *Params, ap *antagonist.Params, in *policy.View, inc *Incident) (list []model.Member) {
	least := s.analysis.Steady + p.Coded.Share*(s.analysis.Perfect-s.analysis.Steady)
	order := make([]int, 0, len(s.analysis.Scores))
	for i := range s.analysis.Scores {
		sc := &s.analysis.Scores[i]
		sus, may := s.weigh(ap, in, inc, sc, least)
		if !may && (sus.State != model.SuspectTried || !s.refuted(inc.Victim, sc.Num)) || s.tested(sc.Num, false) || in.Table.Get(sc.Num).Importance == model.Critical {
			continue
		}
		if sc.Usage >= 2*p.codedCap(in.Table.Get(sc.Num), sc.Usage) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &s.analysis.Scores[i], &s.analysis.Scores[j]
		switch {
		case s.likelier(in, a, b):
			return -1
		case s.likelier(in, b, a):
			return 1
		}
		return 0
	})
	for _, i := range order[:min(len(order), p.Coded.MaxSuspects)] {
		sc := &s.analysis.Scores[i]
		task := in.Table.Get(sc.Num)
		m := antagonist.GroupMember{Num: sc.Num, Score: sc.Value, Usage: sc.Usage}
		list = append(list, memberOf(in, task, &m, p.codedCap(task, sc.Usage)))
	}
	return list
}

func (p *Params) codedCap(t *model.Task, usage float64) float64 {
	return max(p.capOf(t), p.Coded.UsageShare*usage)
}

// affordable leaves out the least likely until the bounds allow what is left: half of them are held at a time. lost is what they would lose, in
// seconds of all best-effort work.
func (s *State) affordable(p *Params, in *policy.View, inc *Incident, list []model.Member, periodNsec int64) (rest []model.Member, lost float64) {
	left, all := s.mayLose(p, in, inc), 0.0
	for i := range in.Table.Tasks {
		if t := &in.Table.Tasks[i]; t.Class == model.BE {
			all += in.History.RecentUsage(t.Num, badBefore)
		}
	}
	if all <= 0 {
		return nil, 0
	}
	for n := len(list); n > 1; n-- {
		taken := 0.0
		for _, m := range list[:n] {
			taken += max(0, m.Usage-m.Cap)
		}
		windows := float64(antagonist.Design{Suspects: n}.Windows()+1) / 2
		if lost = taken / all * windows * float64(periodNsec) / 1e9; lost <= left {
			return list[:n], lost
		}
	}
	return nil, 0
}

// mayLose is what an experiment for a victim may take now, in seconds of all best-effort work.
func (s *State) mayLose(p *Params, in *policy.View, inc *Incident) float64 {
	s.Encoded = slices.DeleteFunc(s.Encoded, func(e Encoded) bool { return in.NowNsec-e.AtNsec >= dayNsec })
	left := float64(p.Coded.MaxLostDayNsec) / 1e9
	for _, e := range s.Encoded {
		left -= e.Lost
		if e.Victim == inc.Victim && in.NowNsec-e.AtNsec < testedFactor*p.DurationNsec {
			return 0
		}
	}
	if len(s.Encoded) >= maxEncoded {
		return 0
	}
	return min(left, float64(p.Coded.MaxLostNsec)/1e9)
}

// turn asks for the pattern of the next window.
func (s *State) turn(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) {
	x := inc.Experiment
	x.Held, x.SinceNsec = antagonist.Design{Suspects: len(x.Suspects)}.Held(len(x.Windows)), in.NowNsec
	if x.All {
		x.Held = 1<<len(x.Suspects) - 1
	}
	inc.State = model.Holding
	period := max(in.History.PeriodNsec(), in.Window.LengthNsec)
	expires := in.NowNsec + min(p.DurationNsec, (1+nudgeSlack)*period)
	for j := range x.Suspects {
		m := &x.Suspects[j]
		if x.Held>>j&1 == 0 {
			if inc.hold(in, m.Task).State != policy.HoldNone {
				s.letGo(out, m.Task, inc.ID, "its turn to run freely")
			}
			continue
		}
		s.want(inc.claim(m.Task, m.Cap, m.Usage, expires, fmt.Sprintf("window %d of an experiment with %d suspects for the sake of %s", len(x.Windows)+1, len(x.Suspects), inc.VictimPath)))
	}
}

// judgeTurn takes in a window of an experiment, and looks or goes on.
func (s *State) judgeTurn(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, v *policy.Victim) {
	x, r := inc.Experiment, inc.round()
	if in.NowNsec-x.SinceNsec > p.DurationNsec {
		s.endExperiment(p, in, out, inc, "ended without enough evidence of the victim", 0)
		return
	}
	if why, _ := in.Disturbed(model.PolicyHardcap, r.MonoNsec, append(tasksOf(x.Suspects), inc.Victim)...); why != "" {
		inc.Experiment, r.Members = nil, slices.Clone(x.Suspects)
		s.settle(x, r)
		s.letNudgedGo(in, out, inc, model.RoundUnjudged, "the trial says nothing: "+why, false)
		return
	}
	slack := in.Window.LengthNsec / windowSlack
	if v == nil || !v.Verdict.Evidence() || !inc.judged(in) || in.Window.StartNsec < x.SinceNsec-slack {
		return
	}
	w := antagonist.Coded{Fell: x.fell(in)}
	for j := range x.Suspects {
		m := &x.Suspects[j]
		if x.Held>>j&1 == 1 && inc.hold(in, m.Task).State == policy.HoldInForce {
			w.Held |= 1 << j
			x.Lost += max(0, m.Usage-m.Cap) * float64(in.NowNsec-x.SinceNsec) / 1e9
		}
	}
	x.HeldNsec += in.NowNsec - x.SinceNsec
	if v.Verdict == outlier.Good {
		x.Well |= 1 << len(x.Windows)
	}
	x.Windows = append(x.Windows, w)
	inc.judge(r, v)
	if x.All {
		all := x.Suspects
		if s.judgeFirst(p, in, out, inc) {
			return
		}
		for j := len(x.Suspects); j < len(all); j++ {
			s.letGo(out, all[j].Task, inc.ID, "others are likelier")
		}
		s.turn(p, in, out, inc)
		change(out, inc)
		return
	}
	d := antagonist.Design{Suspects: len(x.Suspects)}
	n := len(x.Windows)
	last := n >= d.Windows()
	if d.Look(n) || last {
		if s.look(p, in, out, inc, d, last) {
			return
		}
	}
	s.turn(p, in, out, inc)
	change(out, inc)
}

// fell is by how much all services together were better in the window that closed than before the experiment.
func (x *Experiment) fell(in *policy.View) float64 {
	sum, n := 0.0, 0
	for _, b := range x.Before {
		if now, got := in.History.MeanSignal(b.Num, 0, 1); got > 0 {
			sum += (b.Mean - now) / b.Noise
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return (sum - picked) / math.Sqrt(float64(n)) / x.Noise
}

// look convicts whose effect is beyond the bound. It reports whether the experiment is over.
func (s *State) look(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, d antagonist.Design, last bool) bool {
	x := inc.Experiment
	effects, ok := antagonist.Effects(x.Windows, badBefore)
	guilty, sigmas := uint64(0), 0.0
	bound := antagonist.Beyond(p.Coded.Doubt, len(effects), d.Looks())
	for _, e := range effects {
		if e.Fell >= bound*e.Error {
			guilty |= e.Cell
			sigmas = max(sigmas, e.Fell/e.Error)
		}
	}
	switch {
	case guilty != 0 && (last || bits.OnesCount64(guilty) <= p.Groups.MaxMembers && x.enough(guilty)):
		s.convict(p, in, out, inc, effects, guilty, sigmas, bound)
	case !last:
		return false
	case !ok:
		s.endExperiment(p, in, out, inc, "the holds could not be had: nothing is known", 0)
	default:
		done := uint64(0)
		for _, e := range effects {
			if e.Fell < e.Error {
				done |= e.Cell
			}
		}
		s.endExperiment(p, in, out, inc, fmt.Sprintf("after %d windows nobody's effect is beyond %.1f standard errors", len(x.Windows), bound), done)
	}
	return true
}

// enough reports whether the victim was well in a window in which nobody else was held: else there are more to be found.
func (x *Experiment) enough(guilty uint64) bool {
	for i, w := range x.Windows {
		if x.Well>>i&1 == 1 && w.Held&^guilty == 0 {
			return true
		}
	}
	return false
}

// endExperiment lets everybody go; those in clear are left in peace for a while.
func (s *State) endExperiment(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, why string, clear uint64) {
	x, r, is := inc.Experiment, inc.round(), model.RoundUnjudged
	for j := range x.Suspects {
		if clear>>j&1 == 1 {
			is = model.RoundRefuted
			s.clear(p, in, x.Suspects[j].Task)
		}
	}
	inc.Experiment, r.Members = nil, slices.Clone(x.Suspects)
	s.settle(x, r)
	s.letNudgedGo(in, out, inc, is, why, true)
}

// settle counts what an experiment took.
func (s *State) settle(x *Experiment, r *model.Round) {
	r.HeldNsec, r.LostCPUSec = x.HeldNsec, x.Lost
	s.NudgedNsec += x.HeldNsec
	s.NudgedLost += x.Lost
}

// convict turns an experiment into a cap of those whom it shows to hurt.
func (s *State) convict(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, effects []antagonist.Effect, guilty uint64, sigmas, bound float64) {
	x, r := inc.Experiment, inc.round()
	r.Members = nil
	for j := range x.Suspects {
		m := x.Suspects[j]
		if guilty>>j&1 == 1 {
			r.Members = append(r.Members, m)
		} else {
			s.letGo(out, m.Task, inc.ID, "the experiment is over: others did it")
		}
	}
	for _, e := range effects {
		if bits.OnesCount64(e.Cell) == 1 && p.Repeat.Enabled {
			if t := in.Table.Get(x.Suspects[bits.TrailingZeros64(e.Cell)].Task); t != nil {
				s.addUp(&p.Repeat, in.NowNsec, "", jobOf(t), e.Fell/e.Error)
			}
		}
	}
	num := r.Members[0].Task
	r.Chosen, r.ChosenPath = &num, r.Members[0].Path
	if len(r.Members) == 1 {
		r.Members = nil
	}
	inc.Experiment = nil
	r.AppliedNsec, r.WindowsJudged, inc.SignalSum, inc.GoodInRow = in.NowNsec, 0, 0, 0
	s.confirm(p, in, out, inc, fmt.Sprintf("after %d windows by turns their effect is %.1f standard errors, beyond %.1f", len(x.Windows), sigmas, bound))
	inc.State = model.Holding
	s.settle(x, r)
}
