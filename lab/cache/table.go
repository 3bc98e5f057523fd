package cache

import (
	"fmt"
	"io"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Result is a whole run.
type Result struct {
	Seed  uint64      `json:"seed"`
	Quick bool        `json:"quick"`
	Mixes []Mix       `json:"mixes"`
	Arms  []ArmSum    `json:"arms"`
	Kept  stat.Number `json:"kept"` // of what the better of "off" and "two ways" gains, by ours
	report.Judged
}

// ArmSum is one arm over all mixes.
type ArmSum struct {
	Arm     string        `json:"arm"`
	Better  stat.Share    `json:"better"` // mixes in which LC's CPI is lower by more than margin
	Worse   stat.Share    `json:"worse"`
	CPI     stat.Interval `json:"cpi_ratio"` // mean over mixes
	Worst   float64       `json:"worst_cpi_ratio"`
	Work    stat.Interval `json:"work_ratio"`
	Divided int           `json:"divided"`
	Apart   int           `json:"apart"`
}

const (
	margin    = 0.03 // of CPI: below it nobody is better or worse off
	mostWorse = 0.05 // of mixes
	leastKept = 0.9
	mostOver  = 0.01 // of CPI, or of work, beside ways that overlap
)

// sum sums the mixes up and judges them.
func (r *Result) sum() {
	of := len(r.Mixes)
	for arm := range NumArms {
		s := ArmSum{Arm: arm.String()}
		var cpi, work []float64
		better, worse := 0, 0
		for i := range r.Mixes {
			m := &r.Mixes[i]
			cpi, work = append(cpi, m.CPI[arm]), append(work, m.Work[arm])
			s.Worst = max(s.Worst, m.CPI[arm])
			switch {
			case m.CPI[arm] < 1-margin:
				better++
			case m.CPI[arm] > 1+margin:
				worse++
			}
			if m.Divided[arm] {
				s.Divided++
			}
			if m.Apart[arm] {
				s.Apart++
			}
		}
		s.Better, s.Worse = stat.ShareOf(better, of), stat.ShareOf(worse, of)
		s.CPI, s.Work = stat.IntervalOf(cpi), stat.IntervalOf(work)
		r.Arms = append(r.Arms, s)
	}
	best, ours := 0.0, 0.0
	for i := range r.Mixes {
		m := &r.Mixes[i]
		best, ours = best+1-min(m.CPI[Off], m.CPI[TwoWays]), ours+1-m.CPI[Ours]
	}
	r.Kept = stat.Number(stat.Ratio(ours, best))
	harm := func(arm Arm) report.Goal {
		worse := r.Arms[arm].Worse
		return report.Goal{
			What: fmt.Sprintf("%s: mixes in which LC's CPI is more than %.0f %% above that without", arm, 100*margin), Want: fmt.Sprintf("at most %.0f %%", 100*mostWorse),
			Got: fmt.Sprintf("%.0f %%", 100*worse.Value()), Met: worse.Value() <= mostWorse,
		}
	}
	over, work := r.Arms[OursApart].CPI.Mean-r.Arms[Ours].CPI.Mean, r.Arms[OursApart].Work.Mean-r.Arms[Ours].Work.Mean
	r.Goals = []report.Goal{
		harm(Ours),
		{What: "of what the better of \"off\" and \"two ways\" gains, mix by mix", Want: fmt.Sprintf("at least %.0f %%", 100*leastKept),
			Got: fmt.Sprintf("%.0f %%", 100*float64(r.Kept)), Met: float64(r.Kept) >= leastKept},
		harm(OursApart),
		{What: fmt.Sprintf("%s beside %s: LC's CPI, BE work", OursApart, Ours), Want: fmt.Sprintf("at most %.2f more, at most %.2f less", mostOver, mostOver),
			Got: fmt.Sprintf("%+.3f, %+.3f", over, work), Met: over <= mostOver && work >= -mostOver},
	}
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	t := report.Table{Columns: report.Heads("batch work has", "LC better|% of mixes", "LC worse|% of mixes", "LC's CPI|mean", "worst", "BE work|mean", "divided at the end|mixes", "services apart|mixes")}
	for i := range r.Arms {
		a := &r.Arms[i]
		t.Rows = append(t.Rows, append(report.Cells(a.Arm), report.Figure("%.0f", 100*a.Better.Value()), report.Figure("%.0f", 100*a.Worse.Value()),
			report.Figure("%.3f", a.CPI.Mean), report.Figure("%.2f", a.Worst), report.Figure("%.2f", a.Work.Mean), report.Figure("%.0f", float64(a.Divided)), report.Figure("%.0f", float64(a.Apart))))
	}
	t.Notes = []string{fmt.Sprintf("Each beside the same mix with all ways for everybody. Better and worse: by more than %.0f %% of CPI. CPI and work within ±%.3f and ±%.2f (95 %%, ours, over mixes).",
		100*margin, r.Arms[Ours].CPI.High-r.Arms[Ours].CPI.Mean, r.Arms[Ours].Work.High-r.Arms[Ours].Work.Mean)}
	return report.Report{
		Title:   "Two ways of the cache for batch work",
		Summary: []string{fmt.Sprintf("%d drawn mixes of services and batch work on one simulated socket of 16 cores and 11 ways, six minutes each; the last two count.", len(r.Mixes))},
		Verdict: report.Judge(r.Goals),
		Sections: []report.Section{
			{Title: "Arms", Tables: []report.Table{t}},
			{Title: "Goals", Tables: []report.Table{report.GoalTable("", []report.Column{{Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals)}},
		},
		Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
