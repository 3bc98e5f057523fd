package headroom

import (
	"fmt"
	"io"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

func percent(n stat.Number, decimals int) string {
	if !n.Known() {
		return "-"
	}
	return stat.Text(100*float64(n), decimals)
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	out := report.Report{
		Title: "What best-effort work may be offered",
		Summary: []string{
			"Forecasters see the CPU use of each task of a node, five minutes a window, and say what all of them will use at most. Half of the time is to learn, half is judged.",
			"The same of memory: working sets in GiB, and what tasks may have.",
			"Where services used more than that, best-effort work would have had to give way. What it is offered is the rest of the machine, which is the sum of the tasks' quotas.",
		},
		Verdict: report.Judge(r.Goals),
		Facts:   [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"development seeds from", fmt.Sprint(developmentSeed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		s := report.Section{Title: p.Name, Text: []string{fmt.Sprintf("%d nodes, %d days each.", p.Nodes, p.Steps/perDay)}}
		for h := range horizons {
			s.Tables = append(s.Tables, p.table(h))
		}
		out.Sections = append(out.Sections, s)
	}
	heads := []report.Column{{Name: "where"}, {Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}
	out.Sections = append(out.Sections, report.Section{Title: "Goals", Tables: []report.Table{report.GoalTable("", heads, r.Goals)}})
	return out
}

func (p *Part) table(h int) report.Table {
	t := report.Table{Title: "through the " + horizons[h].name, Columns: report.Heads(
		"forecaster", "gave way|% of windows", "offered|% of the machine", "error|% of the peak", "covered|% of forecasts", "factor for 1 %", "gave way then|%", "offered then|%")}
	if h > 0 {
		t.Title = "through " + horizons[h].name
	}
	for i := range p.Arms {
		s := &p.Arms[i].Horizons[h]
		t.Rows = append(t.Rows, []report.Cell{
			report.Cells(p.Arms[i].Name)[0], report.Figure("%.2f", 100*s.Default.GaveWay.Value()), report.Cells(percent(s.Default.Offered, 1))[0], report.Cells(percent(s.Default.Error, 0))[0],
			report.Cells(percent(s.Default.Covered, 0))[0], report.Cells(s.Factor.Text(2))[0], report.Figure("%.2f", 100*s.Scaled.GaveWay.Value()), report.Cells(percent(s.Scaled.Offered, 1))[0],
		})
	}
	if len(p.Arms) > 0 {
		oracle := p.Arms[0].Horizons[h].Default.Oracle
		t.Rows = append(t.Rows, report.Cells("(knows the future)", "0.00", percent(oracle, 1), "0", "100", "1.00", "0.00", percent(oracle, 1)))
	}
	return t
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
