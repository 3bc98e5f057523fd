package hardcap

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// Relief first, blame later (Params.First).
//
// Intuition. A victim in grave trouble should not wait until somebody is found. So all best-effort tasks are held back a little at
// once, each to a share of what it uses, for one window. That is relief and a question in one: where it
// helps nobody, no best-effort task is to blame, all are let go and left in peace, which spares them the nudges of a
// hopeless search. Where it helps, the search goes on: by turns where coded nudges are on (coded.go), so that
// innocents run freely in half of the windows, then all of the time; else one by one.
//
// Hard cases: a victim that is grave by its own doing costs all of them a part of one window: the share that they keep and the bounds of an
// experiment (Params.Coded: an incident, a day, once in a while for a victim) keep that small. Whom the limits do not let us
// hold is not held: then nothing is concluded from a window that did not help.

// First are the parameters of relief that comes before blame.
type First struct {
	Enabled bool `json:"enabled"`
	// Grave is from how many times its threshold on a victim's signal is grave trouble.
	Grave float64 `json:"grave"`
	// UsageShare is the share of its usage that each task keeps.
	UsageShare float64 `json:"usage_share"`
}

// Rows describes the parameters that the configuration sets.
func (f *First) Rows() []model.Param {
	return []model.Param{
		{Key: "enabled", At: &f.Enabled, Soak: [2]float64{0.6, 0.4}, Why: "beyond CPI²: in grave trouble all best-effort tasks are held back a little at once"},
		{Key: "grave", At: &f.Grave, Least: 1, Most: 100, Soak: [2]float64{1, 3}, Unit: "thresholds", Why: "signal from which on a victim is in grave trouble"},
		{Key: "usage_share", At: &f.UsageShare, Least: 0.1, Most: 0.9, Unit: "a share", Why: "share of its CPU that each task keeps"},
	}
}

// relieve holds all best-effort tasks back a little. It reports whether it did.
func (s *State) relieve(p *Params, in *policy.View, out *policy.Wishes, inc *Incident, r *model.Round) bool {
	signal, n := in.History.MeanSignal(inc.Victim, 0, 1)
	if in.Mode != model.ModeEnforce || n == 0 || !(signal >= p.First.Grave*inc.Threshold) {
		return false
	}
	period := max(in.History.PeriodNsec(), in.Window.LengthNsec)
	var list []model.Member
	all, taken := 0.0, 0.0
	for i := range s.analysis.Scores {
		sc := &s.analysis.Scores[i]
		t := in.Table.Get(sc.Num)
		if t == nil || t.Class != model.BE {
			continue
		}
		usage := in.History.RecentUsage(sc.Num, badBefore)
		all += usage
		limit := max(p.capOf(t), p.First.UsageShare*usage)
		if t.Importance == model.Critical || limit >= usage || in.Ledger.Exempt(sc.Num) != "" || in.Ledger.Held(sc.Num) || in.LeaveAlone(sc.Num, model.PolicyHardcap) != "" || len(list) >= antagonist.MaxCoded {
			continue
		}
		taken += usage - limit
		list = append(list, memberOf(in, t, &antagonist.GroupMember{Num: sc.Num, Score: sc.Value, Usage: usage}, limit))
	}
	if len(list) == 0 || all <= 0 {
		return false
	}
	lost := taken / all * float64(period) / 1e9
	if lost > s.mayLose(p, in, inc) {
		return false
	}
	slices.SortStableFunc(list, func(a, b model.Member) int { return s.byTaken(in, a.Task, b.Task) })
	s.begin(p, in, out, inc, r, list, lost, true, fmt.Sprintf("%s of %s is %.1f times its threshold: holds all %d best-effort tasks back a little for a window, and asks then who it was",
		inc.Source, inc.VictimPath, signal/inc.Threshold, len(list)))
	return true
}

// judgeFirst decides after the window in which all were held. It reports whether the experiment is over.
func (s *State) judgeFirst(p *Params, in *policy.View, out *policy.Wishes, inc *Incident) bool {
	x := inc.Experiment
	w := &x.Windows[0]
	whole := uint64(1)<<len(x.Suspects) - 1
	switch {
	case w.Held == whole && w.Fell < 1:
		s.endExperiment(p, in, out, inc, fmt.Sprintf("all were held back, and %s fell by %.1f standard errors: it is no best-effort task's doing", inc.Source, w.Fell), whole)
	case !p.Coded.Enabled || len(x.Suspects) < 2:
		x.Windows = x.Windows[:0]
		s.endExperiment(p, in, out, inc, fmt.Sprintf("all were held back, and %s fell by %.1f standard errors: the search goes on", inc.Source, w.Fell), 0)
		inc.Excluded = inc.Excluded[:len(inc.Excluded)-len(x.Suspects)] // nobody was tried by that
	default:
		x.narrow(p, in)
		return false
	}
	return true
}

// narrow lets those go who are the least likely, so that a design by turns holds the others.
func (x *Experiment) narrow(p *Params, in *policy.View) {
	n := min(len(x.Suspects), p.Coded.MaxSuspects)
	x.Suspects, x.Windows = x.Suspects[:n], x.Windows[:0]
	for j := range x.Suspects {
		if t := in.Table.Get(x.Suspects[j].Task); t != nil {
			x.Suspects[j].Cap = p.codedCap(t, x.Suspects[j].Usage)
		}
	}
	x.All, x.Well = false, 0
}
