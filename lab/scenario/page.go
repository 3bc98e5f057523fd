package scenario

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/scenario"
)

// WriteSVG writes the picture of a result's first run: what policies did to the service, and to the work of everybody else.
func WriteSVG(w io.Writer, res *scenario.Result) error { return workChart(&res.Runs[0]).WriteSVG(w) }

// WriteHTML writes a result as one page with plots that loads nothing from anywhere.
func WriteHTML(w io.Writer, res *scenario.Result) error { return page(res).WriteHTML(w) }

func page(res *scenario.Result) report.Report {
	p := report.Report{
		Title:   "Commensal: " + res.Scenario,
		Summary: []string{headline(res) + "."},
		Verdict: report.Verdict{Outcome: outcome(res), Text: verdict(res)},
		Facts: [][2]string{
			{"scenario", res.Scenario}, {"seed", fmt.Sprint(res.Seed)}, {"profile", res.Profile}, {"policies", res.Mode},
			{"machine", fmt.Sprintf("%s, %d sockets, %d CPUs (simulated)", res.Platform, res.Sockets, res.CPUs)},
		},
	}
	if res.About != "" {
		p.Summary = append(p.Summary, res.About)
	}
	if len(res.Runs) > 1 {
		p.Sections = append(p.Sections, sweepSection(res))
		return p
	}
	run := &res.Runs[0]
	p.Sections = append(p.Sections,
		report.Section{Title: "Victims and suspects", Charts: victimCharts(run), Text: []string{
			"Above: the signal of a latency-critical task, with its outlier threshold. Below: the CPU that the suspects used. Times under a cap, and those in which a task was demoted, are shaded."}},
		report.Section{Title: "What was done, and the work of all", Charts: []report.Chart{workChart(run)}},
		report.Section{Title: "Latency and the machine", Charts: []report.Chart{latencyChart(run), nodeChart(run)}},
		report.Section{Title: "Figures", Tables: tablesOf(res)})
	return p
}

func outcome(res *scenario.Result) report.Outcome {
	switch {
	case res.Passed == nil:
		return report.CouldNotTell
	case *res.Passed:
		return report.Pass
	}
	return report.Fail
}

func floats(list []scenario.Number) []float64 {
	out := make([]float64, len(list))
	for i, v := range list {
		out[i] = float64(v)
	}
	return out
}

// cast says which part each task plays: victims are the tasks that incidents are about or,
// without any, those with latencies; the antagonists are those that were named.
type cast struct{ victims, named []string }

func castOf(run *scenario.Run) cast {
	var c cast
	path := map[string]string{}
	for i := range run.Windows[0].Tasks {
		path[run.Windows[0].Tasks[i].Path] = run.Windows[0].Tasks[i].Task
	}
	for _, inc := range run.Incidents {
		if name := path[inc.VictimPath]; name != "" && !slices.Contains(c.victims, name) {
			c.victims = append(c.victims, name)
		}
	}
	for _, n := range run.Named {
		if !slices.Contains(c.named, n.Task) {
			c.named = append(c.named, n.Task)
		}
	}
	if len(c.victims) == 0 {
		for i := range run.Windows[0].Tasks {
			if t := &run.Windows[0].Tasks[i]; t.Class == model.LC {
				c.victims = append(c.victims, t.Task)
			}
		}
	}
	c.victims = c.victims[:min(maxVictims, len(c.victims))]
	return c
}

// maxVictims bounds the charts of victims, maxSuspects the lines below each.
const maxVictims, maxSuspects = 3, 6

// victimCharts are figures 8(b) and 9 of CPI² for each victim.
func victimCharts(run *scenario.Run) []report.Chart {
	c := castOf(run)
	suspects, shades := suspectPanel(run, &c)
	var charts []report.Chart
	for _, name := range c.victims {
		t := seriesOf(run, name)
		if t == nil {
			continue
		}
		source := model.SourceCPI
		for _, inc := range run.Incidents {
			if inc.VictimPath == figuresOf(run, name).Path {
				source = inc.Source
			}
		}
		y, label := t.Of(source), source.Row().Title+" of "+name
		chart := report.Chart{
			Title: name, Subtitle: "after CPI² figures 8(b) and 9", YLabel: label, Lower: suspects, Shades: shades,
			Series: []report.Series{{Name: name, Role: report.Victim, X: floats(run.Series.AtSec), Y: floats(y)}},
		}
		if limit, ok := run.Thresholds[figuresOf(run, name).Job]; ok {
			v := float64(limit)
			chart.Threshold, chart.ThresholdLabel = &v, "outlier threshold"
		}
		charts = append(charts, chart)
	}
	return charts
}

// suspectPanel draws the CPU of the tasks that are no victims: the named ones, then those
// that use most.
func suspectPanel(run *scenario.Run, c *cast) (*report.Panel, []report.Shade) {
	panel := &report.Panel{YLabel: "CPU usage (CPU-sec/sec)"}
	var list []*scenario.TaskSeries
	for i := range run.Series.Tasks {
		if t := &run.Series.Tasks[i]; !slices.Contains(c.victims, t.Task) {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b *scenario.TaskSeries) int {
		if x, y := slices.Contains(c.named, a.Task), slices.Contains(c.named, b.Task); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(sum(b.CPU), sum(a.CPU))
	})
	var shades []report.Shade
	for i, t := range list {
		for _, h := range t.Held {
			shades = append(shades, report.Shade{From: h[0], To: h[1], Role: report.Capped, Label: t.Task + " capped"})
		}
		for _, h := range t.Demoted {
			shades = append(shades, report.Shade{From: h[0], To: h[1], Role: report.Capped, Label: t.Task + " demoted"})
		}
		if i >= maxSuspects {
			continue
		}
		role := report.Bystander
		if slices.Contains(c.named, t.Task) {
			role = report.Antagonist
		}
		panel.Series = append(panel.Series, report.Series{Name: t.Task, Role: role, X: floats(run.Series.AtSec), Y: floats(t.CPU)})
	}
	return panel, shades
}

func sum(list []scenario.Number) float64 {
	s := 0.0
	for _, v := range list {
		if v.Known() {
			s += float64(v)
		}
	}
	return s
}

func seriesOf(run *scenario.Run, task string) *scenario.TaskSeries {
	for i := range run.Series.Tasks {
		if run.Series.Tasks[i].Task == task {
			return &run.Series.Tasks[i]
		}
	}
	return nil
}

// figuresOf returns the figures of a task in the first window, zero when it is not there.
func figuresOf(run *scenario.Run, task string) scenario.TaskFigures {
	for i := range run.Windows[0].Tasks {
		if t := &run.Windows[0].Tasks[i]; t.Task == task {
			return *t
		}
	}
	return scenario.TaskFigures{}
}

// latencyChart draws the 99th percentiles.
func latencyChart(run *scenario.Run) report.Chart {
	c := castOf(run)
	_, shades := suspectPanel(run, &c)
	chart := report.Chart{Title: "Latency of requests", YLabel: "p99 (ms)", LogY: true, Shades: shades}
	for i := range run.Series.Tasks {
		t := &run.Series.Tasks[i]
		if len(t.P99Ms) == 0 || len(chart.Series) >= maxSuspects {
			continue
		}
		role := report.Bystander
		if slices.Contains(c.victims, t.Task) {
			role = report.Victim
		}
		chart.Series = append(chart.Series, report.Series{Name: t.Task, Role: role, X: floats(run.Series.AtSec), Y: floats(t.P99Ms)})
	}
	return chart
}

// workChart draws the services' latency, or their CPI where they serve no requests, above the work of the others; a mark is a decision to
// hold somebody, or to let go.
func workChart(run *scenario.Run) report.Chart {
	c := castOf(run)
	points := max(1, len(run.Series.AtSec)/smooth)
	chart := report.Chart{YLabel: fmt.Sprintf("p99 of requests, median of %.0f s (ms)", float64(points)*run.Series.EverySec), Lower: &report.Panel{YLabel: "work (10⁹ instructions/s)"}}
	at := floats(run.Series.AtSec)
	serves := slices.ContainsFunc(run.Series.Tasks, func(t scenario.TaskSeries) bool { return len(t.P99Ms) > 0 })
	if !serves {
		chart.YLabel = "CPI"
	}
	for i := range run.Series.Tasks {
		t := &run.Series.Tasks[i]
		role := report.Bystander
		switch {
		case serves && len(t.P99Ms) > 0:
			chart.Series = append(chart.Series, report.Series{Name: t.Task, Role: report.Victim, X: at, Y: medians(floats(t.P99Ms), points)})
			continue
		case slices.Contains(c.victims, t.Task):
			if !serves {
				chart.Series = append(chart.Series, report.Series{Name: t.Task, Role: report.Victim, X: at, Y: floats(t.CPI)})
			}
			continue
		case slices.Contains(c.named, t.Task):
			role = report.Antagonist
		}
		chart.Lower.Series = append(chart.Lower.Series, report.Series{Name: t.Task, Role: role, X: at, Y: floats(t.GIPS)})
	}
	for i := range run.Decisions {
		if d := &run.Decisions[i]; d.Kind.Acts() || d.Kind == model.DecideRelease {
			from := float64(d.MonoNsec) / 1e9
			chart.Shades = append(chart.Shades, report.Shade{From: from, To: from + run.Series.EverySec, Role: report.Capped, Label: d.Kind.String()})
		}
	}
	return chart
}

// smooth is how many points of a latency a picture can show apart.
const smooth = 60

// medians are those of so many points around each.
func medians(list []float64, points int) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		var known []float64
		for _, v := range list[max(0, i-points/2):min(len(list), i+points/2+1)] {
			if !math.IsNaN(v) {
				known = append(known, v)
			}
		}
		if out[i] = math.NaN(); len(known) > 0 {
			out[i] = stat.Median(known)
		}
	}
	return out
}

// nodeChart draws the machine: how busy its CPUs are, and how long its memory takes.
func nodeChart(run *scenario.Run) report.Chart {
	n := &run.Series.Node
	busy := floats(n.Utilisation)
	for i := range busy {
		busy[i] *= 100
	}
	chart := report.Chart{
		Title: "The machine", YLabel: "CPUs busy (%)", Lower: &report.Panel{YLabel: "memory latency (ns)"},
		Series: []report.Series{{Name: "all CPUs", Role: report.Other, X: floats(run.Series.AtSec), Y: busy}},
	}
	for i := range n.LatencyNsec {
		chart.Lower.Series = append(chart.Lower.Series, report.Series{Name: fmt.Sprintf("node %d", i), Role: report.Other, X: floats(run.Series.AtSec), Y: floats(n.LatencyNsec[i])})
	}
	return chart
}

// sweepSection draws the CPI of latency-critical tasks against the values of the last
// sweep, a line for each combination of the others, and the tables.
func sweepSection(res *scenario.Result) report.Section {
	s := report.Section{Title: "The sweep", Tables: tablesOf(res)}
	first := res.Runs[0].Settings
	last := first[len(first)-1].Key
	for w := range res.Runs[0].Windows {
		chart := report.Chart{Title: res.Runs[0].Windows[w].Name, XLabel: last, YLabel: "CPI of latency-critical tasks"}
		for i := range res.Runs {
			settings := res.Runs[i].Settings
			x, ok := valueOf(settings[len(settings)-1].Value)
			if !ok {
				x, chart.XLabel = float64(i+1), "run"
			}
			others := settingText(settings[:len(settings)-1])
			for _, r := range rowsOf(&res.Runs[i].Windows[w]) {
				if r.class != model.LC {
					continue
				}
				line := lineOf(&chart, strings.TrimSpace(r.name+" "+others))
				line.X, line.Y = append(line.X, x), append(line.Y, r.cpi)
			}
		}
		s.Charts = append(s.Charts, chart)
	}
	return s
}

// valueOf reads a value of a sweep as a number.
func valueOf(text string) (float64, bool) {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return float64(n), true
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// lineOf finds a line by its name, or begins it.
func lineOf(c *report.Chart, name string) *report.Series {
	for i := range c.Series {
		if c.Series[i].Name == name {
			return &c.Series[i]
		}
	}
	c.Series = append(c.Series, report.Series{Name: name, Role: report.Victim})
	return &c.Series[len(c.Series)-1]
}
