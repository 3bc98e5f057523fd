package cpi2

import (
	"math"
	"slices"

	"github.com/commensal-io/commensal/lab/stat"
)

// band is CPI²'s split of its workload.
type band uint8

const (
	bandProduction band = iota
	bandNonProduction
	numBands
)

func (b band) String() string {
	if b == bandProduction {
		return "production"
	}
	return "non-production"
}

func bandOf(production bool) band {
	if production {
		return bandProduction
	}
	return bandNonProduction
}

// Rates are judged trials.
type Rates struct {
	Trials int        `json:"trials"`
	True   stat.Share `json:"true_positive"`
	False  stat.Share `json:"false_positive"`
	Noise  stat.Share `json:"noise"`
	// RelativeTrue is the median relative CPI of the true positives, Relative that of all.
	RelativeTrue float64 `json:"median_relative_cpi_true"`
	Relative     float64 `json:"median_relative_cpi"`
	// Placebo is what the judge would have called true without any cap.
	Placebo stat.Share `json:"placebo_true"`
	// Precision is the share of those named who truly hurt the victim.
	Precision stat.Share `json:"precision"`
}

func ratesOf(ts []*capTrial) Rates {
	var n [4]int
	var placebo, right, known int
	var all, good []float64
	for _, t := range ts {
		n[t.Outcome]++
		known++
		if t.Antagonist {
			right++
		}
		if t.Outcome == noEvidence {
			continue
		}
		all = append(all, t.RelativeCPI)
		if t.Outcome == truePositive {
			good = append(good, t.RelativeCPI)
		}
		if t.Placebo == truePositive {
			placebo++
		}
	}
	of := len(all)
	return Rates{
		Trials: of, True: stat.ShareOf(n[truePositive], of), False: stat.ShareOf(n[falsePositive], of), Noise: stat.ShareOf(n[noise], of),
		RelativeTrue: zeroNaN(stat.Median(good)), Relative: zeroNaN(stat.Median(all)),
		Placebo: stat.ShareOf(placebo, of), Precision: stat.ShareOf(right, known),
	}
}

// SweepRow is one threshold of figures 15a and 16a.
type SweepRow struct {
	Threshold float64         `json:"threshold"`
	Bands     [numBands]Rates `json:"bands"`
	// Recall is the share of the anomalies with a culprit that may be held in which one was
	// named.
	Recall [numBands]stat.Share `json:"recall"`
}

// trials returns the trials, in order.
func (r *Result) trials() []*Trial {
	var list []*Trial
	for _, p := range r.Plays {
		if p.Trial != nil {
			list = append(list, p.Trial)
		}
	}
	return list
}

// atThreshold returns what the detector of a threshold tried.
func atThreshold(ts []*Trial, d int, keep func(*Trial, *capTrial) bool) []*capTrial {
	var list []*capTrial
	for _, t := range ts {
		if c := t.Sweep[d]; c != nil && keep(t, c) {
			list = append(list, c)
		}
	}
	return list
}

func (r *Result) summarise() {
	ts := r.trials()
	for d, threshold := range thresholds() {
		row := SweepRow{Threshold: threshold}
		for b := range numBands {
			row.Bands[b] = ratesOf(atThreshold(ts, d, func(t *Trial, _ *capTrial) bool { return bandOf(t.Production) == b }))
			found, culprits := 0, 0
			for _, t := range ts {
				if bandOf(t.Production) != b || !t.culprit() {
					continue
				}
				culprits++
				if c := t.Sweep[d]; c != nil && c.Antagonist {
					found++
				}
			}
			row.Recall[b] = stat.ShareOf(found, culprits)
		}
		r.Sweep = append(r.Sweep, row)
	}
	for i := range r.ArmsKnown {
		r.Arms = append(r.Arms, armSummary(ts, i, r.ArmsKnown[i].Name))
	}
	if best := slices.IndexFunc(r.ArmsKnown, func(a Arm) bool { return a.Best }); best >= 0 {
		r.Goals = goals(&r.Arms[best])
	}
}

// ArmSummary is what an arm did over all trials.
type ArmSummary struct {
	Arm    string          `json:"arm"`
	Trials int             `json:"trials"`
	Bands  [numBands]Rates `json:"bands"` // of all its caps, judged as CPI² judges
	// Kept are the production rates of the caps that were not taken back.
	Kept Rates `json:"production_kept"`
	// Accused are the rates of accusations: of the caps of a suspect for a victim the first, so
	// that a hold that is renewed counts as much as one that is made again.
	Accused [numBands]Rates `json:"accusations"`
	// Well is the share of the victims' windows under a cap in which they were under their
	// threshold.
	Well    stat.Share `json:"well_while_held"`
	Nudges  float64    `json:"nudges_per_trial"`
	Refuted float64    `json:"refuted_nudges_per_trial"`
	// Suffering is the victims' bad windows as a share of those without control, AllSuffering
	// that of all protected tasks.
	Suffering float64 `json:"suffering"`
	// Left is Suffering by why the windows are left.
	Left           [numLeft]float64 `json:"left"`
	AllSuffering   float64          `json:"all_suffering"`
	Recovered      stat.Share       `json:"recovered_in_10_min"` // of the trials with a culprit
	InnocentLost   float64          `json:"innocent_lost"`       // means over the trials
	InnocentHeld   float64          `json:"innocent_held"`
	AntagonistLost float64          `json:"antagonist_lost"`
	NamedIn        float64          `json:"named_in_seconds"` // median, of those named; 0: none
	Named          stat.Share       `json:"named"`            // of the trials with a culprit
	PerTrial       float64          `json:"caps_per_trial"`
}

// culprits reports whether there is anybody or any group to be held.
func (t *Trial) culprits() bool { return t.culprit() || t.GroupHarm > t.Spec.StdDev }

// ofOracle is the share of the oracle's relief, in the victims' bad windows, that an arm brought; NaN where it brought none
// or nothing was tried.
func ofOracle(arms []ArmSummary, a *ArmSummary) float64 {
	i := slices.IndexFunc(arms, func(o ArmSummary) bool { return o.Arm == oracleArm })
	if i < 0 || arms[i].Trials == 0 || arms[i].Suffering >= 1 {
		return math.NaN()
	}
	return (1 - a.Suffering) / (1 - arms[i].Suffering)
}

func armSummary(ts []*Trial, i int, name string) ArmSummary {
	s := ArmSummary{Arm: name, Trials: len(ts)}
	var caps, accused [numBands][]*capTrial
	var kept []*capTrial
	var bad, badFree, all, allFree, caught, recovered, culprits, well, under int
	var named, lost, held, anta []float64
	for _, t := range ts {
		a, free := &t.Arms[i], &t.Arms[0]
		s.Nudges, s.Refuted = s.Nudges+float64(a.Nudges), s.Refuted+float64(a.Refuted)
		bad, badFree = bad+a.Bad, badFree+free.Bad
		for c, n := range a.Left {
			s.Left[c] += float64(n)
		}
		all, allFree = all+a.AllBad, allFree+free.AllBad
		lost, held = append(lost, a.InnocentLost), append(held, a.InnocentHeld)
		if t.culprits() {
			culprits++
			anta = append(anta, a.AntagonistLost)
			if a.RecoveredAfter >= 0 && a.RecoveredAfter <= 10 {
				recovered++
			}
			if a.NamedAfter >= 0 {
				caught++
				named = append(named, a.NamedAfter)
			}
		}
		for k := range a.Caps {
			c := &a.Caps[k]
			ct := &capTrial{Before: c.Before, During: c.During, Outcome: c.Outcome, RelativeCPI: c.RelativeCPI, Antagonist: c.Antagonist}
			s.PerTrial++
			b := bandOf(c.Production)
			caps[b] = append(caps[b], ct)
			if c.First {
				accused[b] = append(accused[b], ct)
			}
			well, under = well+c.Well, under+c.Held
			if c.Production && c.Kept {
				kept = append(kept, ct)
			}
		}
	}
	for b := range numBands {
		s.Bands[b], s.Accused[b] = ratesOf(caps[b]), ratesOf(accused[b])
	}
	s.Kept = ratesOf(kept)
	s.Suffering, s.AllSuffering = stat.Ratio(float64(bad), float64(badFree)), stat.Ratio(float64(all), float64(allFree))
	for c := range s.Left {
		s.Left[c] = stat.Ratio(s.Left[c], float64(badFree))
	}
	s.Recovered, s.Named, s.NamedIn = stat.ShareOf(recovered, culprits), stat.ShareOf(caught, culprits), zeroNaN(stat.Median(named))
	s.InnocentLost, s.InnocentHeld, s.AntagonistLost = zeroNaN(stat.Mean(lost)), zeroNaN(stat.Mean(held)), zeroNaN(stat.Mean(anta))
	n := float64(len(ts))
	s.Well, s.PerTrial, s.Nudges, s.Refuted = stat.ShareOf(well, under), stat.Ratio(s.PerTrial, n), stat.Ratio(s.Nudges, n), stat.Ratio(s.Refuted, n)
	return s
}

// Goal is one of what the best combination is to reach on production victims.
type Goal struct {
	What string  `json:"what"`
	Want float64 `json:"want"`
	Got  float64 `json:"got"`
	// Least: at least Want; otherwise at most.
	Least bool `json:"least"`
	Met   bool `json:"met"`
	Arm   string
}

// goals asks the goals of one arm, which was chosen beforehand; nil when it made no cap for a
// production victim.
func goals(a *ArmSummary) []Goal {
	p := &a.Bands[bandProduction]
	if p.Trials == 0 {
		return nil
	}
	list := []Goal{
		{What: "true positives", Want: 0.90, Got: p.True.Value(), Least: true},
		{What: "false positives", Want: 0.05, Got: p.False.Value()},
		{What: "median relative CPI", Want: 0.55, Got: p.Relative},
		{What: "innocent work lost", Want: 0.01, Got: a.InnocentHeld},
	}
	for k := range list {
		g := &list[k]
		g.Arm = a.Arm
		g.Met = g.Got <= g.Want
		if g.Least {
			g.Met = g.Got >= g.Want
		}
	}
	return list
}

// anomalies returns those of all plays.
func (r *Result) anomalies() []Anomaly {
	var list []Anomaly
	for _, p := range r.Plays {
		list = append(list, p.Anomalies...)
	}
	return list
}

// bySigmas is figure 16b: production trials at CPI²'s threshold by the increase in CPI.
func (r *Result) bySigmas(low, high float64) Rates {
	return ratesOf(atThreshold(r.trials(), paperDetector(), func(t *Trial, _ *capTrial) bool {
		return t.Production && t.increase() >= low && t.increase() < high
	}))
}

// byDegradation is figure 16c.
func (r *Result) byDegradation(low, high float64) Rates {
	return ratesOf(atThreshold(r.trials(), paperDetector(), func(t *Trial, _ *capTrial) bool {
		return t.Production && t.degradation() >= low && t.degradation() < high
	}))
}

// byCorrelation are the trials whose suspect scored in a range, at the lowest threshold that
// named it: the sweep's rows hold the same trials again and again.
func (r *Result) byCorrelation(b band, low, high float64) Rates {
	return ratesOf(atThreshold(r.trials(), 0, func(t *Trial, c *capTrial) bool {
		return bandOf(t.Production) == b && c.Score >= low && c.Score < high
	}))
}

// relativeL3 is figure 15c: misses per instruction against CPI, both relative, of the true
// positives at a threshold.
func (r *Result) relativeL3(d int) (l3, cpi []float64) {
	for _, c := range atThreshold(r.trials(), d, func(_ *Trial, c *capTrial) bool { return c.Outcome == truePositive && c.RelativeL3 > 0 }) {
		l3, cpi = append(l3, c.RelativeL3), append(cpi, c.RelativeCPI)
	}
	return l3, cpi
}
