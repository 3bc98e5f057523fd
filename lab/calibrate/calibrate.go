// Package calibrate holds the twin's physics against the published curves that it was
// fitted to, and against points that no fit has seen. Each point is an experiment on a simulated machine: tasks run, their counters
// are read, and what these say is set beside what was published. No function of the
// machine's own curves is asked.
//
// Not verified: measurements that no public source has, such as how a given service fares
// beside a given batch program.
package calibrate

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Use is what a published value was to the twin.
type Use string

// The uses of a point.
const (
	Input  Use = "input"  // it is in the twin as it is: that it comes back shows that experiments are played right
	Fitted Use = "fitted" // numbers of the twin were chosen by it: that it comes back shows that their form can say it
	Judged Use = "judged" // nothing was chosen by it: only this one could refuse the twin
)

// Point is one published value and the twin's.
type Point struct {
	At        string  `json:"at"`
	Published float64 `json:"published"`
	Twin      float64 `json:"twin"`
	Use       Use     `json:"use"`
}

// Error returns by how much the twin is over the published value, as a share of it.
func (p *Point) Error() float64 { return p.Twin/p.Published - 1 }

// Curve is points of one source.
type Curve struct {
	Name   string  `json:"name"`
	Source string  `json:"source"`
	X      string  `json:"x"` // what Point.At says
	Unit   string  `json:"unit"`
	Bound  float64 `json:"error_bound"` // that no point's error may pass
	Points []Point `json:"points"`
}

// Errors returns the median and the worst absolute error.
func (c *Curve) Errors() (median, worst float64) {
	s := spread(c.Points, Input, Fitted, Judged)
	return s.Median, s.Worst
}

// Spread is the absolute errors of some points; of none they are not there.
type Spread struct {
	Points int     `json:"points"`
	Median float64 `json:"median_error"`
	Worst  float64 `json:"worst_error"`
}

func spread(points []Point, uses ...Use) Spread {
	var all []float64
	for i := range points {
		if slices.Contains(uses, points[i].Use) {
			all = append(all, math.Abs(points[i].Error()))
		}
	}
	return Spread{len(all), stat.Median(all), stat.Quantile(1, all)}
}

// row is a line of the summary: how many points are what, and how far off those are that the twin was told and those that
// judge it.
func row(name string, points []Point) string {
	cell := func(s Spread) string {
		if s.Points == 0 {
			return "-\t-"
		}
		return fmt.Sprintf("%.1f %%\t%.1f %%", 100*s.Median, 100*s.Worst)
	}
	n := func(u Use) int { return spread(points, u).Points }
	judged := cell(spread(points, Judged))
	if n(Judged) == 0 {
		judged = "inputs, not judged"
		if n(Fitted) > 0 {
			judged = "fitted, not judged"
		}
	}
	return fmt.Sprintf("%s\t%d, %d, %d\t%s\t%s", name, n(Input), n(Fitted), n(Judged), cell(spread(points, Input, Fitted)), judged)
}

// Claim is a published finding without numbers of its own, and whether it holds on the
// twin, by a criterion that is ours.
type Claim struct {
	Finding   string `json:"finding"`
	Criterion string `json:"criterion"`
	Twin      string `json:"twin"`
	Holds     bool   `json:"holds"`
}

// Result is all of it.
type Result struct {
	Curves []Curve `json:"curves"`
	Claims []Claim `json:"claims"`
	Told   Spread  `json:"told"`   // inputs and fitted
	Judged Spread  `json:"judged"` // what no fit has seen
}

// Run plays all experiments. It takes seconds.
func Run() (*Result, error) {
	r := &Result{}
	for _, part := range []func() ([]Curve, error){loaded, missesByWays, levels, shapes} {
		curves, err := part()
		if err != nil {
			return nil, err
		}
		r.Curves = append(r.Curves, curves...)
	}
	var err error
	if r.Claims, err = claims(); err != nil {
		return nil, err
	}
	all := r.points()
	r.Told, r.Judged = spread(all, Input, Fitted), spread(all, Judged)
	return r, nil
}

func (r *Result) points() (all []Point) {
	for i := range r.Curves {
		all = append(all, r.Curves[i].Points...)
	}
	return all
}

// Failures says which curves are further off than their bounds, and which findings do not
// hold.
func (r *Result) Failures() []string {
	var out []string
	for i := range r.Curves {
		c := &r.Curves[i]
		if _, worst := c.Errors(); !(worst <= c.Bound) { // so that NaN fails
			out = append(out, fmt.Sprintf("%s: an error of %.1f %%, the bound is %.0f %%", c.Name, 100*worst, 100*c.Bound))
		}
	}
	for _, c := range r.Claims {
		if !c.Holds {
			out = append(out, "does not hold: "+c.Finding+" (twin: "+c.Twin+")")
		}
	}
	return out
}

// Goals are the headlines: how far off the twin is from what it was told, and from what it was not.
func (r *Result) Goals() []report.Goal {
	var list []report.Goal
	for _, g := range []struct {
		what string
		s    Spread
		most float64
	}{{"median error of inputs and fitted points", r.Told, mostTold}, {"median error of points that no fit has seen", r.Judged, mostJudged}} {
		list = append(list, report.Goal{What: g.what, Want: fmt.Sprintf("at most %.0f %%", 100*g.most), Got: fmt.Sprintf("%.2f %%", 100*g.s.Median), Met: g.s.Median <= g.most})
	}
	return list
}

const mostTold, mostJudged = 0.02, 0.01

// Outcome says whether there are failures.
func (r *Result) Outcome() report.Outcome {
	if len(r.Failures()) > 0 {
		return report.Fail
	}
	return report.Pass
}

// WriteText writes the tables for people.
func (r *Result) WriteText(w io.Writer) error {
	for i := range r.Curves {
		c := &r.Curves[i]
		median, worst := c.Errors()
		fmt.Fprintf(w, "%s\n%s\nmedian error %.1f %%, worst %.1f %% (bound %.0f %%)\n", c.Name, c.Source, 100*median, 100*worst, 100*c.Bound)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "%s\tpublished %s\ttwin\terror\tuse\t\n", c.X, c.Unit)
		for j := range c.Points {
			p := &c.Points[j]
			fmt.Fprintf(t, "%s\t%.4g\t%.4g\t%+.1f %%\t%s\t\n", p.At, p.Published, p.Twin, 100*p.Error(), p.Use)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "Findings")
	for _, c := range r.Claims {
		verdict := "holds"
		if !c.Holds {
			verdict = "does not hold"
		}
		fmt.Fprintf(w, "  %s.\n    %s, held to: %s\n    twin: %s\n", c.Finding, verdict, c.Criterion, c.Twin)
	}
	fmt.Fprintln(w, "\nSummary")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "curve\tpoints: input, fitted, judged\ttold: median\tworst\tjudged: median\tworst")
	for i := range r.Curves {
		fmt.Fprintln(t, row(r.Curves[i].Name, r.Curves[i].Points))
	}
	fmt.Fprintln(t, row("all", r.points()))
	return t.Flush()
}

// bench is a machine with tasks on it.
type bench struct {
	m   *machine.Machine
	err error // the first
}

func newBench(c machine.Config) (*bench, error) {
	m, err := machine.New(c, 1)
	if err != nil {
		return nil, err
	}
	return &bench{m: m}, nil
}

func (b *bench) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

// add starts a task in a class of its own.
func (b *bench) add(c machine.TaskConfig) (task, class int) {
	task, err := b.m.Add(c)
	if err != nil {
		b.note(err)
		return 0, 0
	}
	class = b.m.AddCLOS()
	b.note(b.m.SetCLOS(task, class))
	return task, class
}

// rates is what a task does in a second.
type rates struct{ cycles, refCycles, instructions, references, misses, bytes float64 }

func (r *rates) cpi() float64  { return r.cycles / r.instructions }
func (r *rates) mpki() float64 { return r.misses / r.instructions * 1000 }

// over lets caches settle and then counts.
func (b *bench) over(settle, nsec int64, tasks ...int) []rates {
	b.m.Advance(settle)
	read := func() []machine.Counters {
		var list []machine.Counters
		for _, n := range tasks {
			c, err := b.m.Counters(n)
			b.note(err)
			list = append(list, c)
		}
		return list
	}
	before := read()
	b.m.Advance(nsec)
	var out []rates
	for i, c := range read() {
		per := func(from, to uint64) float64 { return float64(to-from) / float64(nsec) * 1e9 }
		a := &before[i]
		out = append(out, rates{
			per(a.Cycles, c.Cycles), per(a.RefCycles, c.RefCycles), per(a.Instructions, c.Instructions), per(a.LLCReferences, c.LLCReferences),
			per(a.LLCMisses, c.LLCMisses), per(a.MemBytes, c.MemBytes),
		})
	}
	return out
}

func cpus(from, to int) model.CPUSet {
	var s model.CPUSet
	for i := from; i < to; i++ {
		s.Add(i)
	}
	return s
}
