package burst

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/report"
)

// Result is a whole run: figure 14 and what follows from it.
type Result struct {
	Source      string  `json:"source"`
	Trace       *Facts  `json:"trace,omitempty"` // of a recorded one
	Seed        uint64  `json:"seed"`
	Points      []Point `json:"points"` // by utilisation, then by k
	Recommended float64 `json:"recommended_k"`
	Reason      string  `json:"reason"`
	// Notes are what to keep in mind with the recommendation.
	Notes []string `json:"notes,omitempty"`
	// PeriodMsec and Applications are what was simulated.
	PeriodMsec   int `json:"period_ms"`
	Applications int `json:"applications"`
	Draws        int `json:"draws"` // of the applications: what is printed is their mean
}

// The grid of figure 14: bucket sizes and utilisations.
var (
	gridK = []float64{0, 1, 2, 4, 10}
	gridU = []float64{0.20, 0.25, 0.30, 0.35, 0.40, 0.45, 0.50, 0.55, 0.60}
)

// paperRise is by how much U_max rose at most in Alibaba between no bucket and k = 10,
// within utilisations of 35 to 55 %.
const paperRise, paperFrom, paperTo = 0.038, 0.35, 0.55

// mayRise is by how much U_max may rise with a bucket that is recommended: what Alibaba called
// negligible. It took k = 10 by that. What is drawn here peaks more together, and the same bound lets
// only a small bucket pass; a looser one would be a bound that is chosen by what should come out.
const mayRise = paperRise

// nearBest is how close to the best bucket's mean delay a smaller one must come to be
// preferred.
const nearBest = 1.10

// Run plays the grid on all CPUs. The result does not depend on their number.
func Run(ctx context.Context, p Params, source string) (*Result, error) {
	r := &Result{Source: source, Seed: p.Seed, PeriodMsec: p.PeriodMsec, Applications: p.Applications, Draws: p.Draws}
	if t, ok := p.Source.(Trace); ok {
		f := t.Facts(p.PeriodMsec)
		r.Trace = &f
	}
	var err error
	r.Points, err = parallel.Map(ctx, 0, len(gridU)*len(gridK), func(i int) (Point, error) {
		return mean(&p, gridU[i/len(gridK)], gridK[i%len(gridK)]), nil
	})
	if err != nil {
		return nil, err
	}
	r.recommend()
	r.note()
	return r, nil
}

// note says what the recommendation depends on.
func (r *Result) note() {
	if f := r.Trace; f != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("At the mean use of %.3g CPU, a utilisation of %.0f %% is a quota of %.3g CPU, and this bucket lets the application save up %.3g CPU-seconds.",
			f.MeanCPU, tuned*100, f.MeanCPU/tuned, r.Recommended*f.MeanCPU/tuned*float64(r.PeriodMsec)/1000))
		if f.Seconds < shortTrace {
			r.Notes = append(r.Notes, fmt.Sprintf("The trace is of %.3g s only: what happens more seldom is not in it. Record %d s or more, at a busy time.", f.Seconds, 2*shortTrace))
		}
	}
	switch {
	case r.Recommended == 0:
		r.Notes = append(r.Notes, "No bucket is needed: a plain quota delays nothing worth the change.")
	case r.Recommended <= 1:
		r.Notes = append(r.Notes, fmt.Sprintf("Mainline Linux takes it as it is: cpu.max.burst (v1: cpu.cfs_burst_us) = %g times the quota.", r.Recommended))
	default:
		r.Notes = append(r.Notes, "Mainline Linux takes a burst of at most the quota (k = 1): the rest is what the agent's burst policy carries in user space (burst: bucket, user_space).")
	}
}

// tuned is the utilisation under which Alibaba keeps a pool (section 4.1).
const tuned = 0.45

func (r *Result) at(u, k int) *Point { return &r.Points[u*len(gridK)+k] }

// recommend picks the smallest bucket whose mean delay is close to the largest one's at
// every utilisation that a pool should have, as long as U_max does not rise much.
func (r *Result) recommend() {
	best := 0
	for j := range gridK {
		if r.rise(j) <= mayRise {
			best = j
		}
	}
	pick := best
	for j := best; j >= 0; j-- {
		for i, u := range gridU {
			if u >= paperFrom && u <= paperTo && r.at(i, j).DelayAvgMsec > nearBest*r.at(i, best).DelayAvgMsec {
				r.choose(pick)
				return
			}
		}
		pick = j
	}
	r.choose(pick)
}

func (r *Result) choose(k int) {
	r.Recommended = gridK[k]
	r.Reason = fmt.Sprintf("the smallest bucket whose mean delay is within %.0f %% of the best one's, of those that raise U_max by no more than Alibaba's %.1f points, at utilisations of %.0f to %.0f %%; it raises it by %.1f at most, k = %g by %.1f",
		(nearBest-1)*100, paperRise*100, paperFrom*100, paperTo*100, r.rise(k)*100, gridK[len(gridK)-1], r.rise(len(gridK)-1)*100)
}

// rise is by how much a bucket raises U_max against none, at most, where a pool should be.
func (r *Result) rise(k int) float64 {
	most := 0.0
	for i, u := range gridU {
		if u >= paperFrom && u <= paperTo {
			most = max(most, r.at(i, k).UMax-r.at(i, 0).UMax)
		}
	}
	return most
}

// WriteText prints figure 14.
func (r *Result) WriteText(w io.Writer) error {
	if err := r.writeHead(w); err != nil {
		return err
	}
	if err := report.WriteTables(w, r.Tables()...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Recommended: k = %g, %s.\n", r.Recommended, r.Reason)
	for _, n := range r.Notes {
		if err == nil {
			_, err = fmt.Fprintln(w, n)
		}
	}
	return err
}

// writeHead says what was simulated, and how to read the tables.
func (r *Result) writeHead(w io.Writer) error {
	what := fmt.Sprintf("%d bursty applications, drawn (seed %d, the mean of %d sets)", r.Applications, r.Seed, r.Draws)
	if f := r.Trace; f != nil {
		what = fmt.Sprintf("%d applications that each use what %s recorded, from another moment on and scaled to the utilisation\nThe trace: %.3g s, %.3g CPU on average, idle in %.0f %% of its milliseconds; its largest %d ms use %.1f times the average",
			r.Applications, r.Source, f.Seconds, f.MeanCPU, f.Idle*100, r.PeriodMsec, f.Largest)
	}
	_, err := fmt.Fprintf(w, "%s.\nThey share a pool of CPUs. A column is a bucket: what an application may save up of its quota, k times the quota of one\nperiod (k = 0: a plain quota). A row is the mean use as a share of the quotas.\n\n", what)
	return err
}

// Tables are the three panels of figure 14, and how often applications were throttled.
func (r *Result) Tables() []report.Table {
	panel := func(title, unit string, of func(*Point) float64, digits int) report.Table {
		t := report.Table{Title: title, Columns: []report.Column{report.Figures("utilisation", "%")}}
		for _, k := range gridK {
			t.Columns = append(t.Columns, report.Figures(fmt.Sprintf("k = %g", k), unit))
		}
		for i, u := range gridU {
			row := []string{strconv.FormatFloat(u*100, 'f', 0, 64)}
			for j := range gridK {
				row = append(row, strconv.FormatFloat(of(r.at(i, j)), 'f', digits, 64))
			}
			t.Rows = append(t.Rows, report.Cells(row...))
		}
		return t
	}
	return []report.Table{
		panel("U_max: largest mean utilisation of 5 consecutive periods (figure 14a)", "%", func(p *Point) float64 { return p.UMax * 100 }, 1),
		panel("Delay_avg: mean queueing delay (figure 14b)", "ms", func(p *Point) float64 { return p.DelayAvgMsec }, 2),
		panel("Delay_max: mean over applications of their largest delay (figure 14c)", "ms", func(p *Point) float64 { return p.DelayMaxMsec }, 0),
		panel("Periods in which an application ran out of quota", "%", func(p *Point) float64 { return p.Throttled * 100 }, 2),
	}
}
