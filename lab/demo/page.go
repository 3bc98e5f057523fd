package demo

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/scene"
	"github.com/commensal-io/commensal/lab/trace"
	"github.com/commensal-io/commensal/model"
)

// page fills the report and the tables that the terminal shows.
func (r *run) page(t *trace.Trace, o *Outcome, victim model.TaskNum) {
	ways, named, profile, cast := o.waysTable(r.order), o.namedTable(), profileTable(), r.castTable()
	o.tables = []report.Table{profile, cast, ways, named}
	o.page = report.Report{
		Title:   "Commensal: first light",
		Summary: []string{"One latency-critical service, six honest batch jobs and one noisy neighbour on this host: who was named, what that changed for the service's clients, and what it cost the batch work."},
		Verdict: report.Verdict{Outcome: o.outcome, Text: o.Why + "."},
		Facts:   r.facts(),
		Sections: []report.Section{
			{Title: "What the clients saw", Tables: []report.Table{ways}},
			{Title: "The victim and its suspects", Text: []string{
				"Above: the victim's slowdown, (cpu + run-queue delay) / cpu, with its outlier threshold. Below: the CPU that each best-effort task used. Times in which a task was capped are shaded.",
			}, Charts: []report.Chart{r.overview(t, victim), r.closeUp(t, victim)}},
			{Title: "Who was named", Tables: []report.Table{named}},
			{Title: "The cast", Tables: []report.Table{cast}},
			{Title: "The profile", Text: []string{"Windows, floors and counts are shortened from CPI²'s so that a person can wait for the result."}, Tables: []report.Table{profile}},
			{Title: "Replay", Text: []string{o.Replay + "."}},
		},
	}
}

// WriteText prints the outcome for a terminal.
func (o *Outcome) WriteText(w io.Writer) error {
	if err := report.WriteTables(w, o.tables...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s\nreport: %s\n\n%s: %s\n", o.Replay, o.Report, o.Verdict, o.Why)
	return err
}

func (o *Outcome) waysTable(order []string) report.Table {
	t := report.Table{
		Title:   "Latency of the victim and work of the others, by way of control",
		Columns: report.Heads("control", "p50|ms", "p99|ms", "p99.9|ms", "p99 with lead-in|ms", "client late p99|ms", "slowdown", "BE work|CPU", "bystanders|CPU"),
		Notes: []string{
			fmt.Sprintf("Blocks of %.0f s in the order: %s. The first %.0f s of each are its lead-in (the next burst, detection, the cap), left out for all alike.",
				blockTime.Seconds(), strings.Join(order, ", "), leadIn.Seconds()),
			"Latency is measured from the time a request was meant to be sent. BE work is CPU-seconds per second of all seven BE tasks.",
		},
	}
	for _, row := range o.Rows {
		cells := []report.Cell{{Text: row.Way}, report.Some("%.2f", row.P50), report.Some("%.2f", row.P99), report.Some("%.2f", row.P999), report.Some("%.2f", row.WholeP99),
			report.Some("%.2f", row.Lateness), report.Some("%.2f", row.Slowdown), report.Some("%.2f", row.BEWork), report.Some("%.2f", row.Innocent)}
		if row.Way == wayOurs {
			cells[2].Emphasis = report.Bad
			if row.P99 < wanted*o.find(wayNone).P99 {
				cells[2].Emphasis = report.Good
			}
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func (o *Outcome) namedTable() report.Table {
	t := report.Table{
		Title: "Who was held",
		Columns: []report.Column{{Name: "task"}, {Name: "is"}, report.Figures("at", "s"), report.Figures("to name", "s"),
			report.Figures("score", ""), report.Figures("asked for", ""), report.Figures("held", "s"), {Name: "what followed"}},
		Notes: []string{"\"to name\" counts from the moment policies were switched on."},
	}
	for _, h := range o.Holds {
		is := report.Cell{Text: "a bystander", Emphasis: report.Bad}
		if h.Antagonist {
			is = report.Cell{Text: "the antagonist", Emphasis: report.Good}
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: filepath.Base(h.Task)}, is, report.Some("%.0f", h.At), report.Some("%.1f", h.ToName),
			report.Some("%.2f", h.Score), report.Some("%.2f", h.Asked), report.Some("%.0f", h.For), {Text: h.Verdict}})
	}
	if len(o.Holds) == 0 {
		t.Rows = append(t.Rows, []report.Cell{{Text: "nobody was held"}})
	}
	return t
}

func (r *run) castTable() report.Table {
	t := report.Table{
		Title: "The cast", Columns: []report.Column{{Name: "task"}, {Name: "class"}, {Name: "what it does"}},
		Notes: []string{"Weights follow the CPU that each task would request: cpu.shares of 1024 for memcached, 512 for a bystander, 8192 for the antagonist (cpu.weight of 100, 50 and 800 on cgroup v2)."},
	}
	t.Rows = append(t.Rows, report.Cells("memcached", "LC", fmt.Sprintf("serves %d requests/s", scene.Rate)))
	for i, p := range r.scene.BE {
		class := "BE"
		if p == r.scene.Antagonist {
			class = "BE, the antagonist"
		}
		t.Rows = append(t.Rows, report.Cells(filepath.Base(p), class, r.scene.Rhythms[i]))
	}
	return t
}

// profileTable shows the single-node profile beside CPI²'s own values.
func profileTable() report.Table {
	seed, _ := config.Defaults(config.ProfileCPI2)
	here, _ := config.Defaults(config.ProfileSingleNode)
	t := report.Table{Title: "The single-node profile, where it differs", Columns: report.Heads("parameter", "cpi2 (CPI²)", "single-node")}
	rows := here.Rows()
	for i, row := range seed.Rows() {
		if a, b := row.Text(), rows[i].Text(); a != b {
			t.Rows = append(t.Rows, report.Cells(row.Key, a, b))
		}
	}
	return t
}

// overview is figure 8(b) of CPI² over the whole run.
func (r *run) overview(t *trace.Trace, victim model.TaskNum) report.Chart {
	c := r.chart(t, victim, 0, math.Inf(1))
	c.Title, c.Subtitle = "The whole run", "after CPI² figure 8(b): the victim's signal and its suspects' CPU usage"
	for i := range r.blocks {
		b := &r.blocks[i]
		role := report.ControlOff
		switch b.Way {
		case wayQuiet:
			role = report.Quiet
		case wayOurs:
			role = report.ControlOn
		}
		label := ""
		if role == report.ControlOff && b.Way != wayNone {
			label = b.Way
		}
		c.Shades = append(c.Shades, report.Shade{From: r.seconds(b.StartNsec), To: r.seconds(b.EndNsec), Role: role, Label: label})
	}
	return c
}

// closeUp is figure 9: one block with the cap, and what lies around it.
func (r *run) closeUp(t *trace.Trace, victim model.TaskNum) report.Chart {
	from, to := 0.0, math.Inf(1)
	for i := range r.blocks {
		if b := &r.blocks[i]; b.Way == wayOurs {
			around := blockTime.Seconds()
			from, to = r.seconds(b.StartNsec)-around, r.seconds(b.EndNsec)+around
			break
		}
	}
	c := r.chart(t, victim, from, to)
	c.Title, c.Subtitle = "The first cap", "after CPI² figure 9: the hard-capped time is shaded"
	return c
}

// chart draws the victim above its suspects between two times.
func (r *run) chart(t *trace.Trace, victim model.TaskNum, from, to float64) report.Chart {
	cut := func(x, y []float64) ([]float64, []float64) {
		var cx, cy []float64
		for i := range x {
			if x[i] >= from && x[i] <= to {
				cx, cy = append(cx, x[i]), append(cy, y[i])
			}
		}
		return cx, cy
	}
	x, slowdown, _ := t.Slowdown(victim, r.load.StartNsec, math.NaN())
	vx, vy := cut(x, slowdown)
	c := report.Chart{YLabel: "slowdown of memcached", LogY: true, Series: []report.Series{{Name: "memcached", Role: report.Victim, X: vx, Y: vy}}}
	if limit := t.Threshold("memcached"); limit > 0 {
		c.Threshold, c.ThresholdLabel = &limit, "outlier threshold"
	}
	c.Lower = &report.Panel{YLabel: "CPU usage (CPU-sec/sec)"}
	for _, p := range r.scene.BE {
		x, _, cpu := t.Slowdown(taskAt(t, p), r.load.StartNsec, math.NaN())
		cx, cy := cut(x, cpu)
		role := report.Bystander
		if p == r.scene.Antagonist {
			role = report.Antagonist
		}
		c.Lower.Series = append(c.Lower.Series, report.Series{Name: filepath.Base(p), Role: role, X: cx, Y: cy})
	}
	for _, h := range t.Holds {
		s := report.Shade{From: r.seconds(h.FromNsec), To: math.Inf(1), Role: report.Capped, Label: filepath.Base(h.Path) + " capped"}
		if h.ToNsec > 0 {
			s.To = r.seconds(h.ToNsec)
		}
		if s.To >= from && s.From <= to {
			s.From, s.To = max(s.From, from), min(s.To, to)
			c.Shades = append(c.Shades, s)
		}
	}
	return c
}

// Chart returns the picture of the first cap, for the README.
func (o *Outcome) Chart() (report.Chart, bool) {
	for _, s := range o.page.Sections {
		if len(s.Charts) > 1 {
			return s.Charts[1], true
		}
	}
	return report.Chart{}, false
}

// Length is how long a demo takes, without its setting up.
func Length() time.Duration {
	return learnTime + quietTime + time.Duration(len(order(cgroup.LayoutNone)))*blockTime + largestWindow
}
