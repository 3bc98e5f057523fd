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
	ways, named, blame, profile, cast := o.waysTable(r.order), o.namedTable(), o.blameTable(), profileTable(), r.castTable()
	o.tables = []report.Table{profile, cast, ways, blame, named}
	o.page = report.Report{
		Title:   "Commensal: first light",
		Summary: []string{"One latency-critical service, six honest batch jobs and one noisy neighbour on this host: who was named, what that changed for the service's clients, and what it cost the batch work."},
		Verdict: report.Verdict{Outcome: o.outcome, Text: o.Why + "."},
		Facts:   r.facts(),
		Sections: []report.Section{
			{Title: "What the clients saw", Tables: []report.Table{ways}},
			{Title: "The victim and its suspects", Text: []string{
				"Above: the signal by which the victim was judged, with its outlier threshold. Below: the CPU that each best-effort task used. Times in which a task was held are shaded.",
			}, Charts: []report.Chart{r.overview(t, victim), r.closeUp(t, victim)}},
			{Title: "Who made memcached wait", Tables: []report.Table{blame}},
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
		Columns: report.Heads("control", "p50|ms", "p99|ms", "p99.9|ms", "p99 with lead-in|ms", "client late p99|ms", "waits for others|ms/s", "BE work|CPU", "bystanders|CPU"),
		Notes: []string{
			fmt.Sprintf("Blocks of %.0f s in the order: %s. The first %.0f s of each are its lead-in (the next burst, detection, the hold), left out for all alike. Before and after: %.0f s without the antagonist.",
				blockTime.Seconds(), strings.Join(order, ", "), leadIn.Seconds(), quietTime.Seconds()),
			"Latency is measured from the time a request was meant to be sent. Waits: for how long another had the CPU while a thread of memcached waited, over its threads. BE work is CPU-seconds per second of all seven BE tasks.",
		},
	}
	for _, row := range o.Rows {
		cells := []report.Cell{{Text: row.Way}, report.Some("%.2f", row.P50), report.Some("%.2f", row.P99), report.Some("%.2f", row.P999), report.Some("%.2f", row.WholeP99),
			report.Some("%.2f", row.Lateness), waitCell(&row.Waits), report.Some("%.2f", row.BEWork), report.Some("%.2f", row.Innocent)}
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

func waitCell(w *Waits) report.Cell {
	if w.Seconds == 0 {
		return report.Cell{Text: "-"}
	}
	return report.Some("%.0f", w.Foreign)
}

// blameTable says of every BE task, and of what is outside of all rules, how much of the victim's waiting was
// its doing, held or not.
func (o *Outcome) blameTable() report.Table {
	none, ours := o.find(wayNone), o.find(wayOurs)
	t := report.Table{
		Title: "Who had the CPU while memcached waited for others",
		Columns: []report.Column{{Name: "who"}, {Name: "is"}, report.Figures("no control", "%"), report.Figures("commensal", "%"), report.Figures("uses", "CPU"),
			report.Figures("score", ""), report.Figures("asked for", ""), {Name: "what the agent made of it"}},
		Notes: []string{
			"Shares of the waiting, from the scheduler's own events. A score is the best in any analysis: the share of what memcached waited for others more than usual that it answers for, by having had the CPU and by having taken the last free ones.",
			"Other programs are what no rule covers; steal is another guest's; soft interrupts are packets, mostly memcached's own. None of them can be held.",
			"Of the time of unmanaged programs, which is one figure, as much is taken for the load generator's and the agent's as of their CPU time.",
		},
	}
	for i := range o.Blame {
		b := &o.Blame[i]
		is := report.Cell{Text: "a bystander"}
		if b.Antagonist {
			is = report.Cell{Text: "the antagonist", Emphasis: report.Bad}
		}
		score, asked := report.Cell{Text: "-"}, report.Cell{Text: "-"}
		if b.Weighed {
			score, asked = report.Cell{Text: fmt.Sprintf("%.2f", b.Score)}, report.Cell{Text: fmt.Sprintf("%.2f", b.Asked)}
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: filepath.Base(b.Task)}, is, {Text: percent(&none.Waits, none.Waits.Foreign*b.None)},
			{Text: percent(&ours.Waits, ours.Waits.Foreign*b.Ours)}, report.Some("%.2f", b.CPU), score, asked, {Text: b.Verdict}})
	}
	for _, e := range elsewhere(&none.Waits, &ours.Waits) {
		t.Rows = append(t.Rows, report.Cells(e[0], "no task", e[1], e[2], "-", "-", "-", ""))
	}
	if none.Waits.Seconds == 0 {
		t.Notes = append(t.Notes, "This kernel does not say who delays whom (commensal doctor says what it lacks): no shares.")
	}
	return t
}

func (o *Outcome) namedTable() report.Table {
	t := report.Table{
		Title: "Who was held",
		Columns: []report.Column{{Name: "task"}, {Name: "is"}, {Name: "by"}, report.Figures("at", "s"), report.Figures("to name", "s"),
			report.Figures("score", ""), report.Figures("asked for", ""), report.Figures("held", "s"), {Name: "what followed"}},
		Notes: []string{"\"to name\" counts from the moment policies were switched on."},
	}
	for _, h := range o.Holds {
		is := report.Cell{Text: "a bystander", Emphasis: report.Bad}
		if h.Antagonist {
			is = report.Cell{Text: "the antagonist", Emphasis: report.Good}
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: filepath.Base(h.Task)}, is, {Text: h.By}, report.Some("%.0f", h.At), report.Some("%.1f", h.ToName),
			report.Some("%.2f", h.Score), report.Some("%.2f", h.Asked), report.Some("%.0f", h.For), {Text: h.Verdict}})
	}
	if len(o.Holds) == 0 {
		t.Rows = append(t.Rows, []report.Cell{{Text: "nobody"}})
		t.Notes = []string{"Why nobody: " + o.Nobody + "."}
	}
	return t
}

func (r *run) castTable() report.Table {
	t := report.Table{
		Title: "The cast", Columns: []report.Column{{Name: "task"}, {Name: "class"}, {Name: "what it does"}},
		Notes: []string{r.weights()},
	}
	t.Rows = append(t.Rows, report.Cells("memcached", "LC", fmt.Sprintf("serves %d requests/s", r.opt.Rate)))
	for i, p := range r.scene.BE {
		class := "BE"
		if p == r.scene.Antagonist {
			class = "BE, the antagonist"
		}
		t.Rows = append(t.Rows, report.Cells(filepath.Base(p), class, r.scene.Rhythms[i]))
	}
	return t
}

// weights says what entitles whom to CPU.
func (r *run) weights() string {
	if r.opt.Favour > 1 {
		return fmt.Sprintf("The antagonist has %d times the weight of everybody else.", r.opt.Favour)
	}
	return "Everybody has the same weight: the kernel's default."
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
	c.Title, c.Subtitle = "The first hold", "after CPI² figure 9: the time in which a task was held is shaded"
	return c
}

// leastDrawn is what a signal is drawn at that is 0: the axis is logarithmic.
const leastDrawn = 0.01

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
	src, limit := t.Spec("memcached")
	x, signal, _ := t.Signal(victim, src, r.load.StartNsec, math.NaN())
	for i, v := range signal {
		signal[i] = max(v, leastDrawn)
	}
	vx, vy := cut(x, signal)
	c := report.Chart{YLabel: src.Row().Title + " of memcached", LogY: true, Series: []report.Series{{Name: "memcached", Role: report.Victim, X: vx, Y: vy}}}
	if limit > 0 {
		c.Threshold, c.ThresholdLabel = &limit, "outlier threshold"
	}
	c.Lower = &report.Panel{YLabel: "CPU usage (CPU-sec/sec)"}
	for _, p := range r.scene.BE {
		x, _, cpu := t.Signal(taskAt(t, p), src, r.load.StartNsec, math.NaN())
		cx, cy := cut(x, cpu)
		role := report.Bystander
		if p == r.scene.Antagonist {
			role = report.Antagonist
		}
		c.Lower.Series = append(c.Lower.Series, report.Series{Name: filepath.Base(p), Role: role, X: cx, Y: cy})
	}
	for _, h := range t.Holds {
		s := report.Shade{From: r.seconds(h.FromNsec), To: math.Inf(1), Role: report.Capped, Label: filepath.Base(h.Path) + " held"}
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
func Length(brief bool) time.Duration {
	return learnTime + quietTime + calmTime + quietTime + time.Duration(len(order(cgroup.LayoutNone, brief)))*blockTime + scene.LargestWindow
}
