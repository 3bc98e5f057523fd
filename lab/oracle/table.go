package oracle

import (
	"fmt"
	"io"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Result is a whole run.
type Result struct {
	Seed  uint64 `json:"seed"`
	Quick bool   `json:"quick"`
	// Sockets is how many the machines have.
	Sockets int      `json:"sockets"`
	Mixes   []Mix    `json:"mixes"`
	Arms    []ArmSum `json:"arms"`
	report.Judged
}

// ArmSum is one arm over the mixes in which some division misses no target; intervals are over the means of catalogues.
type ArmSum struct {
	Arm      string        `json:"arm"`
	Work     stat.Interval `json:"work"`      // beside that with nothing done
	OfOracle stat.Interval `json:"of_oracle"` // beside the oracle's
	Missed   stat.Interval `json:"missed"`    // share of the time
	Mixes    int           `json:"mixes"`     // in which it misses a target in more of the time than the oracle may
}

const (
	leastWork = 0.95
	mostMore  = 0.01
)

func (r *Result) sum() {
	for arm := range r.best() + 1 {
		s := ArmSum{Arm: arm.String()}
		for i := range r.Mixes {
			if m := &r.Mixes[i]; m.Feasible && m.Arms[arm].Missed > mostMissed {
				s.Mixes++
			}
		}
		s.Work = r.over(func(m *Mix) float64 { return m.Arms[arm].Work })
		s.OfOracle = r.over(func(m *Mix) float64 { return stat.Ratio(m.Arms[arm].Work, m.Arms[r.best()].Work) })
		s.Missed = r.over(func(m *Mix) float64 { return m.Arms[arm].Missed })
		r.Arms = append(r.Arms, s)
	}
	ours, best := &r.Arms[Remedy], &r.Arms[r.best()]
	more := ours.Missed.Mean - best.Missed.Mean
	r.Goals = append(r.Goals,
		report.Goal{What: "remedy: of the oracle's batch work", Want: fmt.Sprintf("at least %.0f %%", 100*leastWork), Got: fmt.Sprintf("%.0f %%", 100*ours.OfOracle.Mean), Met: ours.OfOracle.Mean >= leastWork},
		report.Goal{What: "remedy: time in which a target is missed, more than the oracle", Want: fmt.Sprintf("at most %.0f %%", 100*mostMore), Got: fmt.Sprintf("%.1f %%", 100*more), Met: more <= mostMore})
}

// best is the oracle that the others are beside.
func (r *Result) best() Arm {
	if r.Sockets > 1 {
		return Placed
	}
	return Oracle
}

// feasible counts the mixes that count.
func (r *Result) feasible() (n int) {
	for i := range r.Mixes {
		if r.Mixes[i].Feasible {
			n++
		}
	}
	return n
}

// over is a figure's mean over catalogues, of the mixes that count.
func (r *Result) over(of func(*Mix) float64) stat.Interval {
	var g stat.Groups
	for i := range r.Mixes {
		if m := &r.Mixes[i]; m.Feasible {
			g.Add(m.Seed, of(m))
		}
	}
	return g.Interval()
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	arms := report.Table{Columns: report.Heads("batch work has", "work|% of undivided", "of the oracle's|%", "target missed|% of time", "in more than 2 %|mixes")}
	for i := range r.Arms {
		a := &r.Arms[i]
		arms.Rows = append(arms.Rows, append(report.Cells(a.Arm, a.Work.Text(100, 0), a.OfOracle.Text(100, 0), a.Missed.Text(100, 1)), report.Figure("%.0f", float64(a.Mixes))))
	}
	arms.Notes = []string{fmt.Sprintf("Of %d mixes %d count: in the others no division misses no target. Means over catalogues with their 95 %% intervals.", len(r.Mixes), r.feasible())}
	each := report.Table{Columns: report.Heads("mix", "tasks", "off|missed, %", "remedy|missed, %", "remedy|work, %", "oracle|work, %", "its division|ways, level, CPUs")}
	for i := range r.Mixes {
		m := &r.Mixes[i]
		each.Rows = append(each.Rows, append(report.Cells(fmt.Sprintf("%d/%d", m.Seed, m.Index), fmt.Sprint(m.Tasks)), report.Figure("%.0f", 100*m.Arms[Off].Missed), report.Figure("%.0f", 100*m.Arms[Remedy].Missed),
			report.Figure("%.0f", 100*m.Arms[Remedy].Work), report.Figure("%.0f", 100*m.Arms[r.best()].Work), report.Cells(m.division())[0]))
	}
	return report.Report{
		Title:   "Beside the best fixed division",
		Summary: []string{fmt.Sprintf("%d drawn mixes on %d simulated socket(s) of %d cores; of five minutes the last three count.", len(r.Mixes), r.Sockets, cores)},
		Verdict: report.Judge(r.Goals),
		Sections: []report.Section{
			{Title: "Arms", Tables: []report.Table{arms}},
			{Title: "Goals", Tables: []report.Table{report.GoalTable("", []report.Column{{Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals)}},
			{Title: "Mixes", Tables: []report.Table{each}},
		},
		Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
}

// division is the oracle's, for people.
func (m *Mix) division() string {
	if len(m.Places) == 0 {
		return fmt.Sprint(m.Best)
	}
	text := ""
	for k, p := range m.Places {
		where := map[bool]string{false: "home", true: "away"}[p.Away]
		text += fmt.Sprintf("%v %s, %.0f %% of pages away; ", m.Best[k], where, 100*p.Pages)
	}
	return text
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
