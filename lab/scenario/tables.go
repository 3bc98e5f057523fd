package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/scenario"
)

// share is a part of what would have been, nothing without a comparison.
func share(v float64) report.Cell {
	return report.Figure("%.1f %%", 100*v)
}

// rate writes a number a second so that it can be read.
func rate(v float64) report.Cell {
	switch {
	case math.IsNaN(v):
		return report.Dash()
	case v >= 1e9:
		return report.Cell{Text: fmt.Sprintf("%.2fG", v/1e9)}
	case v >= 1e6:
		return report.Cell{Text: fmt.Sprintf("%.2fM", v/1e6)}
	}
	return report.Cell{Text: fmt.Sprintf("%.0f", v)}
}

// maxRows bounds the rows of a table: what is left out is said.
const maxRows = 24

// taskTable shows a window's tasks.
func taskTable(w *scenario.WindowResult, baseline bool) report.Table {
	t := report.Table{
		Title: fmt.Sprintf("%s: %s to %s", w.Name, clock(w.FromSec), clock(w.ToSec)),
		Columns: []report.Column{
			{Name: "task"}, {Name: "class"}, report.Figures("CPI", ""), report.Figures("MPKI", ""), report.Figures("LLC", "MiB"), report.Figures("memory", "GB/s"), report.Figures("CPU", ""),
			report.Figures("slowdown", ""), report.Figures("p50", "ms"), report.Figures("p95", "ms"), report.Figures("p99", "ms"), report.Figures("SLO broken", ""), report.Figures("work", "/s"), report.Figures("held", "s"),
		},
		Notes: []string{nodeLine(&w.Node), pressureLine(&w.Node.Pressure)},
	}
	if baseline {
		t.Columns = append(t.Columns, report.Figures("work as without us", ""))
	}
	rows := rowsOf(w)
	for i, r := range rows {
		if i >= maxRows {
			t.Notes = append(t.Notes, fmt.Sprintf("%d more tasks are in --json.", len(rows)-maxRows))
			break
		}
		t.Rows = append(t.Rows, r.cells(baseline))
	}
	return t
}

func (r *row) cells(baseline bool) []report.Cell {
	cells := []report.Cell{
		{Text: r.title()}, {Text: r.class.String()}, report.Figure("%.2f", r.cpi), report.Figure("%.2f", r.mpki), report.Figure("%.1f", r.llc/(1<<20)), report.Figure("%.2f", r.traffic),
		report.Figure("%.2f", r.cpu), report.Figure("%.2f", r.slowdown),
	}
	if r.serves {
		cells = append(cells, report.Figure("%.2f", r.p50), report.Figure("%.2f", r.p95), report.Figure("%.2f", r.p99), r.broken())
	} else {
		cells = append(cells, report.Dash(), report.Dash(), report.Dash(), report.Dash())
	}
	cells = append(cells, rate(r.work), report.Some("%.0f", r.held))
	if baseline {
		cells = append(cells, share(r.relative))
	}
	return cells
}

// broken is the share of the time in which the latency objective was not met.
func (r *row) broken() report.Cell {
	if !r.slo || r.judged == 0 {
		return report.Dash()
	}
	c := report.Cell{Text: fmt.Sprintf("%.1f %%", 100*r.violation/r.judged), Emphasis: report.Good}
	if r.violation > 0 {
		c.Emphasis = report.Bad
	}
	return c
}

func nodeLine(n *scenario.NodeFigures) string {
	var memory []string
	for i := range n.GBPerSec {
		memory = append(memory, fmt.Sprintf("node %d %.1f GB/s at %.0f ns", i, float64(n.GBPerSec[i]), float64(n.LatencyNsec[i])))
	}
	return fmt.Sprintf("CPUs %.0f %% busy (LC %.1f, BE %.1f); memory: %s.", 100*float64(n.Utilisation), float64(n.LCCPU), float64(n.BECPU), strings.Join(memory, ", "))
}

// sweepTable shows every run of a sweep in a row a task.
func sweepTable(res *scenario.Result, w int) report.Table {
	first := &res.Runs[0].Windows[w]
	t := report.Table{Title: fmt.Sprintf("%s: %s to %s", first.Name, clock(first.FromSec), clock(first.ToSec))}
	for _, s := range res.Runs[0].Settings {
		t.Columns = append(t.Columns, report.Figures(s.Key, ""))
	}
	t.Columns = append(t.Columns, report.Column{Name: "task"}, report.Figures("CPI", ""), report.Figures("MPKI", ""), report.Figures("LLC", "MiB"), report.Figures("memory", "GB/s"),
		report.Figures("CPU", ""), report.Figures("p99", "ms"), report.Figures("work", "/s"))
	for i := range res.Runs {
		for k, r := range rowsOf(&res.Runs[i].Windows[w]) {
			var cells []report.Cell
			for _, s := range res.Runs[i].Settings {
				text := s.Value
				if k > 0 {
					text = ""
				}
				cells = append(cells, report.Cell{Text: text})
			}
			p99 := math.NaN()
			if r.serves {
				p99 = r.p99
			}
			t.Rows = append(t.Rows, append(cells, report.Cell{Text: r.name}, report.Figure("%.3f", r.cpi), report.Figure("%.2f", r.mpki), report.Figure("%.1f", r.llc/(1<<20)),
				report.Figure("%.2f", r.traffic), report.Figure("%.2f", r.cpu), report.Figure("%.2f", p99), rate(r.work)))
		}
	}
	return t
}

// incidentTable shows what was tried for whom.
func incidentTable(run *scenario.Run) report.Table {
	t := report.Table{
		Title:   "Incidents",
		Columns: []report.Column{{Name: "at"}, {Name: "victim"}, report.Figures("signal", ""), report.Figures("over", ""), {Name: "named"}, report.Figures("score", ""), report.Figures("asked for", ""), report.Figures("then", ""), {Name: "what followed"}},
	}
	for i, inc := range run.Incidents {
		if i >= maxRows {
			t.Notes = append(t.Notes, fmt.Sprintf("%d more incidents are in --json.", len(run.Incidents)-maxRows))
			break
		}
		t.Rows = append(t.Rows, incidentRows(inc)...)
	}
	return t
}

func incidentRows(inc *model.Incident) [][]report.Cell {
	head := []report.Cell{
		{Text: clock(float64(inc.OpenedNsec) / 1e9)}, {Text: inc.VictimPath},
		report.Figure(fmt.Sprintf("%s %%.2f", inc.Source), inc.Signal), report.Figure("%.2f", inc.Threshold),
	}
	if len(inc.Rounds) == 0 {
		return [][]report.Cell{append(head, report.Cell{Text: "nobody", Emphasis: report.Muted}, report.Dash(), report.Dash(), report.Dash(), report.Cell{Text: outcomeOf(inc)})}
	}
	var rows [][]report.Cell
	for k := range inc.Rounds {
		r := &inc.Rounds[k]
		if k > 0 {
			head = report.Cells("", "", "", "")
		}
		named, score := "nobody", math.NaN()
		for _, s := range r.Suspects {
			if s.Path == r.ChosenPath || r.ChosenPath == "" && math.IsNaN(score) {
				score = s.Score
			}
		}
		if r.ChosenPath != "" {
			named = r.ChosenPath
			for _, m := range r.Members {
				if m.Path != r.ChosenPath {
					named += " + " + m.Path
				}
			}
		}
		verdict := r.Verdict
		if k == len(inc.Rounds)-1 {
			verdict += " (" + inc.State.String() + ")"
		}
		rows = append(rows, append(slices.Clone(head), report.Cell{Text: named}, report.Figure("%.2f", score), report.Figure("%.2f", r.Threshold), report.Some("%.2f", r.SignalAfter), report.Cell{Text: verdict}))
	}
	return rows
}

// outcomeOf says how an incident without a round ended.
func outcomeOf(inc *model.Incident) string {
	if inc.Evidence != "" {
		return inc.Evidence + " (" + inc.State.String() + ")"
	}
	return inc.State.String()
}

// quiet are decisions that the table of incidents tells too, or that a reader of one
// screen does not miss.
func quiet(kind model.DecisionKind) bool {
	return slices.Contains([]model.DecisionKind{model.DecideSpec, model.DecideSearch, model.DecideAnomaly, model.DecideCannotFix}, kind)
}

const maxDecisions = 25

// decisionTable shows what was decided and what happened, in order.
func decisionTable(run *scenario.Run) report.Table {
	t := report.Table{Title: "Decisions", Columns: []report.Column{{Name: "at"}, {Name: "what"}, {Name: "task"}, {Name: "why"}}}
	events := run.Events
	event := func(before float64) {
		for len(events) > 0 && events[0].AtSec < before {
			t.Rows = append(t.Rows, report.Cells(clock(events[0].AtSec), "(happens)", "", events[0].What))
			events = events[1:]
		}
	}
	left := run.Left
	for i := range run.Decisions {
		d := &run.Decisions[i]
		if quiet(d.Kind) {
			continue
		}
		if len(t.Rows) >= maxDecisions {
			left++
			continue
		}
		event(float64(d.MonoNsec) / 1e9)
		t.Rows = append(t.Rows, report.Cells(clock(float64(d.MonoNsec)/1e9), d.Kind.String(), d.Path, d.Reason))
	}
	event(math.Inf(1))
	if left > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d more decisions are in --json.", left))
	}
	return t
}

// checkTable shows what was expected. passes are left out when there are many.
func checkTable(checks []scenario.Check) report.Table {
	t := report.Table{Title: "Expected", Columns: []report.Column{{Name: ""}, {Name: "what"}, {Name: "got"}}}
	for _, c := range checks {
		cell := report.Cell{Text: "ok", Emphasis: report.Good}
		if !c.Passed {
			cell = report.Cell{Text: "FAILED", Emphasis: report.Bad}
		}
		t.Rows = append(t.Rows, []report.Cell{cell, {Text: c.What}, {Text: c.Got}})
	}
	return t
}

// clock writes a time of a scenario: 1:05, 2:03:00.
func clock(sec float64) string {
	d := time.Duration(sec * float64(time.Second)).Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	if h > 0 {
		return fmt.Sprintf("%d:%02d:%02d", h, m, s)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}
