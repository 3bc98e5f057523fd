package rdt

import (
	"fmt"
	"io"
	"math"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Result is a whole run.
type Result struct {
	Seed      uint64     `json:"seed"`
	Quick     bool       `json:"quick"`
	Instances int        `json:"instances"` // of each workload, in each arm
	Steps     int        `json:"steps"`
	Workloads []Workload `json:"workloads"`
	Sums      []Sum      `json:"sums"`
	report.Judged
}

// Sum is a workload under an arm. Intervals are over blocks of instances.
type Sum struct {
	Workload string        `json:"workload"`
	Arm      string        `json:"arm"`
	P99      float64       `json:"p99_ms"`         // median over steps, all instances
	Mean     float64       `json:"fluctuation"`    // mean over steps, all instances
	Worst    float64       `json:"fluctuation_95"` // which one step in twenty exceeds
	Blocks   stat.Interval `json:"of_blocks"`      // the mean in blocks of instances
	OfAlone  float64       `json:"of_alone"`       // the mean beside that alone
}

// The goals, for those that gain and for the one that does not.
const (
	leastBeside = 1.5
	mostTwoWays = 1.2
	mostChange  = 0.1
	gaining     = 2 // workloads
)

// fluctuations are the paper's, of a series.
func fluctuations(p99 []float64) (list []float64) {
	for t := 1; t < len(p99); t++ {
		list = append(list, math.Abs(p99[t]-p99[t-1])/p99[t])
	}
	return list
}

// sum sums the workloads up and judges them.
func (r *Result) sum() {
	for i := range r.Workloads {
		w := &r.Workloads[i]
		first := len(r.Sums)
		for arm := range NumArms {
			n := len(w.P99[arm]) - 1
			all := fluctuations(w.P99[arm][n])
			var means []float64
			for _, of := range w.P99[arm][:n] {
				means = append(means, stat.Mean(fluctuations(of)))
			}
			s := Sum{Workload: w.Name, Arm: arm.String(), P99: stat.Median(w.P99[arm][n]), Mean: stat.Mean(all), Worst: stat.Quantile(0.95, all), Blocks: stat.IntervalOf(means)}
			r.Sums = append(r.Sums, s)
			r.Sums[len(r.Sums)-1].OfAlone = stat.Ratio(s.Mean, r.Sums[first].Mean)
		}
		r.judge(i, r.Sums[first:])
	}
}

func (r *Result) judge(i int, of []Sum) {
	name := of[Alone].Workload
	goal := func(what, want string, got float64, met bool) {
		r.Goals = append(r.Goals, report.Goal{What: name + ": " + what, Want: want, Got: fmt.Sprintf("%.2f", got), Met: met})
	}
	if i >= gaining {
		got := stat.Ratio(of[TwoWays].Mean, of[Beside].Mean)
		goal("two ways, times without", fmt.Sprintf("%.1f to %.1f", 1-mostChange, 1+mostChange), got, math.Abs(got-1) <= mostChange)
		return
	}
	goal("beside batch work, times alone", fmt.Sprintf("at least %.1f", leastBeside), of[Beside].OfAlone, of[Beside].OfAlone >= leastBeside)
	goal("in two ways, times alone", fmt.Sprintf("at most %.1f", mostTwoWays), of[TwoWays].OfAlone, of[TwoWays].OfAlone <= mostTwoWays)
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	t := report.Table{Columns: report.Heads("service", "", "p99|ms, median", "fluctuation|%, mean", "one step in 20|%, over", "in blocks|%, mean", "times alone")}
	for i := range r.Sums {
		s := &r.Sums[i]
		t.Rows = append(t.Rows, append(report.Cells(s.Workload, s.Arm), report.Figure("%.2f", s.P99), report.Figure("%.1f", 100*s.Mean), report.Figure("%.1f", 100*s.Worst),
			report.Cells(s.Blocks.Text(100, 1))[0], report.Figure("%.2f", s.OfAlone)))
	}
	t.Notes = []string{fmt.Sprintf("Fluctuation: |p99(t) - p99(t-1)| / p99(t) of the p99 over all %d instances of a workload; blocks: of a quarter of them, with 95 %% intervals.", r.Instances)}
	return report.Report{
		Title:   "How tail latency fluctuates",
		Summary: []string{fmt.Sprintf("%d instances of each of %d services in each of three clusters, %d steps of ten minutes, of which two seconds are played.", r.Instances, len(r.Workloads), r.Steps)},
		Verdict: report.Judge(r.Goals),
		Sections: []report.Section{
			{Title: "Fluctuation", Tables: []report.Table{t}},
			{Title: "Goals", Tables: []report.Table{report.GoalTable("", []report.Column{{Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals)}},
		},
		Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
