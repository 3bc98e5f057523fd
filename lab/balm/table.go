package balm

import (
	"fmt"
	"io"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Result is a whole run.
type Result struct {
	Seed        uint64    `json:"seed"`
	Quick       bool      `json:"quick"`
	Repetitions int       `json:"repetitions"`
	Services    []Service `json:"services"`
	Cells       []Cell    `json:"cells"`
	Arms        []ArmSum  `json:"arms"` // by place
	Across      []Across  `json:"figure_1"`
	Moves       []Move    `json:"moves"`
	MoveSums    []MoveSum `json:"move_sums"`
	report.Judged
}

// ArmSum is one arm over the cells of one place in trouble: those in which the target is missed where nothing is done; intervals are over cells.
type ArmSum struct {
	Place  string        `json:"place"`
	Arm    string        `json:"arm"`
	Cells  int           `json:"cells"`
	Missed stat.Interval `json:"missed"`   // share of the time
	Found  stat.Interval `json:"of_found"` // the heavy task's work beside that as it is found
	MBA    stat.Interval `json:"of_mba"`   // and beside that under MBA by balm
	Most   float64       `json:"most_of_mba"`
}

const (
	trouble    = 0.05 // of the time in which the target is missed as found: a cell that counts
	mostMissed = 0.05
	leastOfMBA = 1.3
	paperOfMBA = 1.87
)

// mean is a figure's mean over repetitions.
func (c *Cell) mean(arm Arm, of func(*At) float64) float64 {
	sum := 0.0
	for i := range c.Arms[arm] {
		sum += of(&c.Arms[arm][i])
	}
	return sum / float64(max(1, len(c.Arms[arm])))
}

func work(a *At) float64   { return a.Work }
func missed(a *At) float64 { return a.Missed }
func p99(a *At) float64    { return a.P99 }

// sum sums the cells up and judges them.
func (r *Result) sum() {
	for place := range NumPlaces {
		r.sumAt(place)
	}
}

func (r *Result) sumAt(place Place) {
	var both *ArmSum
	for arm := range NumArms {
		s := ArmSum{Place: place.String(), Arm: arm.String()}
		var gone, found, mba []float64
		for i := range r.Cells {
			c := &r.Cells[i]
			if c.Place != place || c.mean(Home, missed) < trouble {
				continue
			}
			ofMBA := stat.Ratio(c.mean(arm, work), c.mean(MBA, work))
			gone, found, mba = append(gone, c.mean(arm, missed)), append(found, stat.Ratio(c.mean(arm, work), c.mean(Home, work))), append(mba, ofMBA)
			s.Most = max(s.Most, ofMBA)
		}
		s.Cells, s.Missed, s.Found, s.MBA = len(gone), stat.IntervalOf(gone), stat.IntervalOf(found), stat.IntervalOf(mba)
		if r.Arms = append(r.Arms, s); arm == Both {
			both = &s
		}
	}
	goal := func(what, want, got string, met bool) {
		r.Goals = append(r.Goals, report.Goal{Where: place.String(), What: what, Want: want, Got: got, Met: met && both.Cells > 0})
	}
	goal("time in which the target is missed under MBA and pages", fmt.Sprintf("at most %.0f %%", 100*mostMissed), fmt.Sprintf("%.1f %%", 100*both.Missed.Mean), both.Missed.Mean <= mostMissed)
	goal("work under it, times MBA alone, mean over cells", fmt.Sprintf("at least %.1f", leastOfMBA), fmt.Sprintf("%.2f", both.MBA.Mean), both.MBA.Mean >= leastOfMBA)
	goal("the same, in the best cell (the paper's)", fmt.Sprintf("at least %.2f", paperOfMBA), fmt.Sprintf("%.2f", both.Most), both.Most >= paperOfMBA)
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	out := report.Report{Title: "Memory bandwidth and pages", Verdict: report.Judge(r.Goals), Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}, {"repetitions", fmt.Sprint(r.Repetitions)}}}
	add := func(title string, t report.Table) {
		out.Sections = append(out.Sections, report.Section{Title: title, Tables: []report.Table{t}})
	}
	if len(r.Cells) > 0 {
		out.Summary = []string{fmt.Sprintf("%d cells of one heavy batch task at one place beside one load of a key-value store, on two simulated sockets; %d seconds count.", len(r.Cells), end-start)}
		add("Arms", r.armTable())
	}
	add("Goals", report.GoalTable("", []report.Column{{Name: "on"}, {Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals))
	if len(r.Across) > 0 {
		add("Pages across (figure 1)", r.acrossTable())
	}
	if len(r.Moves) > 0 {
		add("While pages move", r.moveTable())
	}
	if len(r.Cells) > 0 {
		add("Cells", r.cellTable())
		add("Services alone", r.aloneTable())
	}
	return out
}

func (r *Result) armTable() report.Table {
	arms := report.Table{Columns: report.Heads("heavy task on", "batch work has", "target missed|% of time", "heavy task's work|x as found", "its work|x MBA, balm", "at most|x MBA, balm")}
	for i := range r.Arms {
		a := &r.Arms[i]
		arms.Rows = append(arms.Rows, append(report.Cells(a.Place, a.Arm, a.Missed.Text(100, 1), a.Found.Text(1, 2), a.MBA.Text(1, 2)), report.Figure("%.2f", a.Most)))
	}
	arms.Notes = []string{fmt.Sprintf("Means over the cells in which a target is missed in at least %.0f %% of the time as found (%d on the same socket, %d on opposite ones, of %d each), with their 95 %% intervals.", 100*trouble, r.Arms[Home].Cells, r.Arms[NumArms].Cells, len(r.Cells)/int(NumPlaces))}
	return arms
}

func (r *Result) cellTable() report.Table {
	cells := report.Table{Columns: report.Heads("batch", "on", "load|%", "batch work has", "target missed|% of time", "p99|ms", "work|G instructions/s", "times|MBA, balm")}
	for i := range r.Cells {
		c := &r.Cells[i]
		for arm := range NumArms {
			cells.Rows = append(cells.Rows, append(report.Cells(c.Batch, c.Place.String(), fmt.Sprintf("%.0f", 100*c.Load), arm.String()),
				report.Figure("%.1f", 100*c.mean(arm, missed)), report.Figure("%.1f", c.mean(arm, p99)), report.Figure("%.2f", c.mean(arm, work)/1e9), report.Figure("%.2f", stat.Ratio(c.mean(arm, work), c.mean(MBA, work)))))
		}
	}
	return cells
}

func (r *Result) aloneTable() report.Table {
	alone := report.Table{Columns: report.Heads("service", "target|ms", "full load|requests/s", "p99 alone, at a twentieth of what its CPUs could do, two, and so on|ms")}
	for i := range r.Services {
		s := &r.Services[i]
		alone.Rows = append(alone.Rows, append(report.Cells(s.Name), report.Figure("%.1f", s.Target), report.Figure("%.0f", s.Full), report.Cells(fmt.Sprintf("%.0f", s.P99))[0]))
	}
	return alone
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
