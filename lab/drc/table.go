package drc

import (
	"fmt"
	"io"
	"slices"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Result is a whole run.
type Result struct {
	Seed  uint64   `json:"seed"`
	Quick bool     `json:"quick"`
	Mixes []Mix    `json:"mixes"`
	Arms  []ArmSum `json:"arms"`
	report.Judged
}

// ArmSum is one arm over all mixes; intervals are over the means of catalogues.
type ArmSum struct {
	Arm     string        `json:"arm"`
	Use     stat.Interval `json:"use"`
	Latency stat.Interval `json:"latency_nsec"`
	Slow    stat.Interval `json:"slow"`
	CPI     stat.Interval `json:"cpi_ratio"`
	Worst   float64       `json:"worst_cpi_ratio"`
	Worse   stat.Share    `json:"worse"` // mixes in which LC's CPI is more than margin above that under MBA 10 %
	Work    stat.Interval `json:"work_ratio"`
}

// The goals, with what the paper has.
const (
	leastWork    = 10.  // times the instructions of MBA 10 %: figure 18d, "an order of magnitude"
	margin       = 0.05 // of CPI: figure 18c, "no noticeable changes"
	leastUse     = 2.   // times the bandwidth: figure 18a, from 15 to 30 %
	mostLatency  = 1.4  // times the latency: figure 18b, from 100 to 140 ns
	mostWorse    = 0.05 // of mixes, of adaptive
	leastOfOther = 0.9  // of the heuristic's instructions, of adaptive
)

// sum sums the mixes up and judges them.
func (r *Result) sum() {
	for arm := range NumArms {
		s := ArmSum{Arm: arm.String()}
		worse := 0
		for i := range r.Mixes {
			a := &r.Mixes[i].Arms[arm]
			if s.Worst = max(s.Worst, a.CPI); a.CPI > 1+margin {
				worse++
			}
		}
		s.Worse = stat.ShareOf(worse, len(r.Mixes))
		s.Use, s.Latency = r.over(arm, func(o *Outcome) float64 { return o.Use }), r.over(arm, func(o *Outcome) float64 { return o.Latency })
		s.Slow, s.CPI = r.over(arm, func(o *Outcome) float64 { return o.Slow }), r.over(arm, func(o *Outcome) float64 { return o.CPI })
		s.Work = r.over(arm, func(o *Outcome) float64 { return o.Work })
		r.Arms = append(r.Arms, s)
	}
	r.judge()
}

// over is a figure's mean over catalogues.
func (r *Result) over(arm Arm, of func(*Outcome) float64) stat.Interval {
	var g stat.Groups
	for i := range r.Mixes {
		g.Add(r.Mixes[i].Seed, of(&r.Mixes[i].Arms[arm]))
	}
	return g.Interval()
}

func (r *Result) judge() {
	fixed, rule, own := &r.Arms[Level10], &r.Arms[Heuristic], &r.Arms[Adaptive]
	use, latency := stat.Ratio(rule.Use.Mean, fixed.Use.Mean), stat.Ratio(rule.Latency.Mean, fixed.Latency.Mean)
	of := stat.Ratio(own.Work.Mean, rule.Work.Mean)
	goal := func(what, want, format string, got float64, met bool) {
		r.Goals = append(r.Goals, report.Goal{What: what, Want: want, Got: fmt.Sprintf(format, got), Met: met})
	}
	goal("heuristic: BE's instructions, times MBA 10 %", fmt.Sprintf("at least %.0f", leastWork), "%.2f", rule.Work.Mean, rule.Work.Mean >= leastWork)
	goal("heuristic: LC's CPI, times MBA 10 %", fmt.Sprintf("at most %.2f", 1+margin), "%.3f", rule.CPI.Mean, rule.CPI.Mean <= 1+margin)
	goal("heuristic: bandwidth in use, times MBA 10 %", fmt.Sprintf("at least %.0f", leastUse), "%.2f", use, use >= leastUse)
	goal("heuristic: latency, times MBA 10 %", fmt.Sprintf("at most %.1f", mostLatency), "%.2f", latency, latency <= mostLatency)
	goal("adaptive: LC's CPI, times MBA 10 %", "at most the heuristic's", "%.3f", own.CPI.Mean, own.CPI.Mean <= rule.CPI.Mean)
	goal(fmt.Sprintf("adaptive: mixes in which LC's CPI is over %.0f %% above MBA 10 %%", 100*margin), fmt.Sprintf("at most %.0f %%", 100*mostWorse), "%.0f %%", 100*own.Worse.Value(), own.Worse.Value() <= mostWorse)
	goal("adaptive: of the heuristic's instructions", fmt.Sprintf("at least %.0f %%", 100*leastOfOther), "%.0f %%", 100*of, of >= leastOfOther)
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	arms := report.Table{Columns: report.Heads("batch work has", "bandwidth in use|%, median", "latency|ns, median", "over 200 ns|% of time", "LC's CPI|x MBA 10 %", "worst", "over 5 %|% of mixes", "BE instructions|x MBA 10 %")}
	for i := range r.Arms {
		a := &r.Arms[i]
		arms.Rows = append(arms.Rows, append(report.Cells(a.Arm, a.Use.Text(100, 0), a.Latency.Text(1, 0), a.Slow.Text(100, 0), a.CPI.Text(1, 3)),
			report.Figure("%.2f", a.Worst), report.Figure("%.0f", 100*a.Worse.Value()), report.Cells(a.Work.Text(1, 2))[0]))
	}
	arms.Notes = []string{"Means over catalogues with their 95 % intervals. The paper: bandwidth from 15 to 30 %, latency from 100 to 140 ns, CPI as before, instructions tenfold."}
	return report.Report{
		Title:   "Memory bandwidth for batch work",
		Summary: []string{fmt.Sprintf("%d drawn mixes on two simulated sockets of %d cores, ten minutes each; the last five count.", len(r.Mixes), cores)},
		Verdict: report.Judge(r.Goals),
		Sections: []report.Section{
			{Title: "Arms", Tables: []report.Table{arms}},
			{Title: "Goals", Tables: []report.Table{report.GoalTable("", []report.Column{{Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals)}},
			{Title: "Where services fare worst", Tables: []report.Table{r.lost()}},
		},
		Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
}

// lost are the mixes in which LC fares worst under a policy.
func (r *Result) lost() report.Table {
	t := report.Table{Columns: report.Heads("mix", "tasks", "off|x CPI", "heuristic|x CPI", "adaptive|x CPI", "heuristic|x BE", "adaptive|x BE")}
	list := slices.Clone(r.Mixes)
	worst := func(m *Mix) float64 { return max(m.Arms[Heuristic].CPI, m.Arms[Adaptive].CPI) }
	slices.SortStableFunc(list, func(a, b Mix) int {
		switch x, y := worst(&a), worst(&b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	for i := range list[:min(5, len(list))] {
		m := &list[i]
		t.Rows = append(t.Rows, append(report.Cells(fmt.Sprintf("%d/%d", m.Seed, m.Index), fmt.Sprint(m.Tasks)), report.Figure("%.2f", m.Arms[Off].CPI),
			report.Figure("%.2f", m.Arms[Heuristic].CPI), report.Figure("%.2f", m.Arms[Adaptive].CPI), report.Figure("%.2f", m.Arms[Heuristic].Work), report.Figure("%.2f", m.Arms[Adaptive].Work)))
	}
	return t
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
