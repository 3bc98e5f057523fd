package coldpages

import (
	"fmt"
	"io"
	"math"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// Result is a whole run. Shares are of 1.
type Result struct {
	Seed  uint64   `json:"seed"`
	Quick bool     `json:"quick"`
	Hours int      `json:"hours"`
	Mixes []Mix    `json:"mixes"`
	Ages  []AgeSum `json:"figure_6"`
	Arms  []ArmSum `json:"arms"`
	report.Judged
}

// AgeSum is figure 6 at one age: the share of the services' memory that is older, by machine.
type AgeSum struct {
	Nsec int64          `json:"age_nsec"`
	Anon [3]stat.Number `json:"anon"` // quarter, median, three quarters
	File [3]stat.Number `json:"file"`
}

// ArmSum is one arm over all mixes. Ratios are to the same service, or machine, with nothing done.
type ArmSum struct {
	Arm   string        `json:"arm"`
	Anon  stat.Number   `json:"anon"` // median over services, of the limit
	File  stat.Number   `json:"file"`
	RT    stat.Interval `json:"response"` // of services, by machine
	Most  float64       `json:"response_most"`
	Worst stat.Interval `json:"worst_minute"`
	CPI   stat.Interval `json:"cpi"`
	// Faults are pages a second and machine, Stalled the share of the time in which services waited for memory, Saved the share of all tasks' memory that is not there.
	Faults  stat.Interval `json:"faults"`
	Stalled stat.Interval `json:"stalled"`
	Saved   stat.Interval `json:"saved_gib"`
	Rests   float64       `json:"rests"` // a machine
}

func (r *Result) sum() {
	for k, edge := range model.AgeEdges {
		var anon, file []float64
		for i := range r.Mixes {
			anon, file = append(anon, r.Mixes[i].Figure6.Anon[k]), append(file, r.Mixes[i].Figure6.File[k])
		}
		a := AgeSum{Nsec: edge}
		for q, of := range [...]float64{0.25, 0.5, 0.75} {
			a.Anon[q], a.File[q] = stat.Number(stat.Quantile(of, stat.Sorted(anon))), stat.Number(stat.Quantile(of, stat.Sorted(file)))
		}
		r.Ages = append(r.Ages, a)
	}
	for arm := range arms {
		r.Arms = append(r.Arms, r.armSum(arm))
	}
	r.judge()
}

// armSum sums an arm up, beside the same machines with nothing done.
func (r *Result) armSum(arm int) ArmSum {
	s := ArmSum{Arm: arms[arm].name}
	var anon, file, rt, worst, cpi, faults, stalled, saved []float64
	for i := range r.Mixes {
		o, none := &r.Mixes[i].Arms[arm], &r.Mixes[i].Arms[nothing]
		anon, file = append(anon, o.Anon...), append(file, o.File...)
		var x, y, z []float64
		for k := range o.RT {
			x, y, z = append(x, o.RT[k]/none.RT[k]-1), append(y, o.Worst[k]/none.Worst[k]), append(z, o.CPI[k]/none.CPI[k]-1)
			s.Most = max(s.Most, x[k])
		}
		rt, worst, cpi = append(rt, stat.Mean(x)), append(worst, stat.Mean(y)), append(cpi, stat.Mean(z))
		faults, stalled, saved = append(faults, o.Faults), append(stalled, o.Stalled), append(saved, o.Saved/gib)
		s.Rests += float64(o.Rests) / float64(len(r.Mixes))
	}
	s.Anon, s.File = stat.Number(stat.Median(anon)), stat.Number(stat.Median(file))
	s.RT, s.Worst, s.CPI = stat.IntervalOf(rt), stat.IntervalOf(worst), stat.IntervalOf(cpi)
	s.Faults, s.Stalled, s.Saved = stat.IntervalOf(faults), stat.IntervalOf(stalled), stat.IntervalOf(saved)
	return s
}

// The paper's figures, and how far from them is a failure.
const (
	paperAnon, paperFile = 0.07, 0.09 // of the limit, figure 8
	likePoints           = 0.03
	paperRT, mostCPI     = 0.0126, 0.01
	mostOne              = 0.05
	mixPoints            = 0.04
	leastFaults          = 5.0
)

func (r *Result) judge() {
	goal := func(what, want, got string, met bool) {
		r.Goals = append(r.Goals, report.Goal{What: what, Want: want, Got: got, Met: met})
	}
	per := func(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }
	none, us, tmo := &r.Arms[nothing], &r.Arms[ours], &r.Arms[pressured]
	fell := func(what string, before, after stat.Number, paper float64) {
		d := float64(before - after)
		goal(what+" of services, median, of the limit: falls by", fmt.Sprintf("%.0f to %.0f points (paper: %.0f)", 100*(paper-likePoints), 100*(paper+likePoints), 100*paper),
			fmt.Sprintf("%.1f, from %.1f %% to %.1f %%", 100*d, 100*float64(before), 100*float64(after)), math.Abs(d-paper) <= likePoints)
	}
	fell("anonymous memory", none.Anon, us.Anon, paperAnon)
	fell("file memory", none.File, us.File, paperFile)
	goal("response time of services, mean", "rises by at most 1.26 % (paper)", per(us.RT.Mean), us.RT.Mean <= paperRT)
	goal("the same of the service that it rises most of", "at most 5 %", per(us.Most), us.Most <= mostOne)
	goal("CPI of services", "rises by at most 1 %", per(us.CPI.Mean), us.CPI.Mean <= mostCPI)
	goal("given back, beside by pressure", "as much", fmt.Sprintf("%.1f of %.1f GiB a machine", us.Saved.Mean, tmo.Saved.Mean), us.Saved.Mean >= tmo.Saved.Mean)
	goal("response time, beside by pressure", "rises no more", per(us.RT.Mean)+", by pressure "+per(tmo.RT.Mean), us.RT.Mean <= tmo.RT.Mean)
	like := func(what string, of func(*AgeSum) stat.Number, nsec int64, paper float64) {
		v := float64(of(&r.Ages[model.AgeEdge(nsec)]))
		goal("the mix: "+what, fmt.Sprintf("%.1f %% ± %.0f points (figure 6)", 100*paper, 100*mixPoints), per(v), math.Abs(v-paper) <= mixPoints)
	}
	like("anonymous, older than the longest threshold", func(a *AgeSum) stat.Number { return a.Anon[1] }, arms[longest].anon, 0.147)
	like("anonymous, older than the shortest", func(a *AgeSum) stat.Number { return a.Anon[1] }, arms[shortest].anon, 0.298)
	like("file, older than the longest", func(a *AgeSum) stat.Number { return a.File[1] }, arms[longest].file, 0.022)
	like("file, older than the shortest", func(a *AgeSum) stat.Number { return a.File[1] }, arms[shortest].file, 0.126)
	rises := true
	for arm := longest; arm < shortest; arm++ {
		rises = rises && r.Arms[arm+1].Faults.Mean > r.Arms[arm].Faults.Mean
	}
	times := stat.Ratio(r.Arms[shortest].Faults.Mean, r.Arms[longest].Faults.Mean)
	goal("page faults with shorter thresholds", "more at each, 5 times in all (paper: 15.3)", fmt.Sprintf("%.1f times", times), rises && times >= leastFaults)
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	table := report.Table{Columns: report.Heads("what is done, anonymous / file", "anonymous|% of limit", "file|% of limit", "given back|GiB a machine", "page faults|a second", "services wait for memory|% of the time",
		"response time|+%", "most of a service|+%", "worst minute|times", "CPI|+%", "rests|a machine")}
	for i := range r.Arms {
		a := &r.Arms[i]
		table.Rows = append(table.Rows, report.Cells(a.Arm, fmt.Sprintf("%.1f", 100*float64(a.Anon)), fmt.Sprintf("%.1f", 100*float64(a.File)), a.Saved.Text(1, 1), a.Faults.Text(1, 0), a.Stalled.Text(100, 3),
			a.RT.Text(100, 2), fmt.Sprintf("%.1f", 100*a.Most), a.Worst.Text(1, 2), a.CPI.Text(100, 2), fmt.Sprintf("%.1f", a.Rests)))
	}
	ages := report.Table{Columns: report.Heads("not used for", "anonymous|%, median of machines", "|quarters", "file|%, median of machines", "|quarters")}
	for i := range r.Ages {
		a := &r.Ages[i]
		quarters := func(v *[3]stat.Number) string {
			return fmt.Sprintf("%.1f to %.1f", 100*float64(v[0]), 100*float64(v[2]))
		}
		ages.Rows = append(ages.Rows, report.Cells(age(a.Nsec), fmt.Sprintf("%.1f", 100*float64(a.Anon[1])), quarters(&a.Anon), fmt.Sprintf("%.1f", 100*float64(a.File[1])), quarters(&a.File)))
	}
	return report.Report{
		Title:   "What giving idle memory back saves and costs",
		Summary: []string{fmt.Sprintf("%d drawn machines, %d hours each, of which the second half is measured beside the same hours with nothing done.", len(r.Mixes), r.Hours)},
		Verdict: report.Judge(r.Goals),
		Sections: []report.Section{
			{Title: "Arms (figures 7 to 9)", Tables: []report.Table{table}},
			{Title: "Ages of the services' pages, of their memory (figure 6)", Tables: []report.Table{ages}},
			{Title: "Goals", Tables: []report.Table{report.GoalTable("", []report.Column{{Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals)}},
		},
		Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
}

// age is an age in words.
func age(nsec int64) string {
	switch {
	case nsec < minute:
		return fmt.Sprintf("%d s", nsec/1e9)
	case nsec < hour:
		return fmt.Sprintf("%d min", nsec/minute)
	}
	return fmt.Sprintf("%g h", float64(nsec)/float64(hour))
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
