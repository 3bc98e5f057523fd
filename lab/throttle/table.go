package throttle

import (
	"fmt"
	"io"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// WriteText prints the run for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }

// Report is the run as text or as a page.
func (r *Result) Report() report.Report {
	rep := report.Report{
		Title: "Throttling: CFS quotas, the shared pool and burst (Alibaba §4.1 and 5.3)",
		Summary: []string{
			"Bursty latency-critical services, far below their quotas on average, under open-loop load; the same requests in every column.",
		},
		Verdict: r.Verdict(),
		Facts:   [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
	rep.Sections = append(rep.Sections, report.Section{Title: "Goals", Tables: []report.Table{report.GoalTable("", []report.Column{{Name: "where"}, {Name: "what"}, {Name: "Alibaba"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals)}})
	if r.Host != nil {
		rep.Sections = append(rep.Sections, r.Host.sections()...)
	}
	if r.Twin != nil {
		rep.Sections = append(rep.Sections, r.Twin.sections()...)
	}
	return rep
}

func percent(v float64, decimals int) string { return stat.Text(100*v, decimals) }

// fall prints a reduction as a change.
func fall(i stat.Interval) string {
	i.Mean, i.Low, i.High = -i.Mean, -i.High, -i.Low
	return i.Text(100, 0)
}

// columnsTable is figure 15 and what lies behind it.
func columnsTable(title string, list []Summary) report.Table {
	t := report.Table{Title: title, Columns: report.Heads("")}
	for i := range list {
		t.Columns = append(t.Columns, report.Figures(string(list[i].Column), ""))
	}
	row := func(name string, of func(s *Summary) string) {
		cells := []string{name}
		for i := range list {
			cells = append(cells, of(&list[i]))
		}
		t.Rows = append(t.Rows, report.Cells(cells...))
	}
	row("throttled in 5 s, % of instances", func(s *Summary) string { return s.ThrottledInstances.Percent(1) })
	row("  at any time, % of instances", func(s *Summary) string { return s.EverThrottled.Percent(0) })
	row("throttled periods, %", func(s *Summary) string { return s.ThrottledPeriods.Percent(2) })
	row("burstiest five: mean RT, ms", func(s *Summary) string { return s.BurstiestMsec.Text(1, 1) })
	row("  change, %", func(s *Summary) string {
		if s.Column == Default {
			return ""
		}
		return fall(s.Reduction)
	})
	row("all: mean RT, ms", func(s *Summary) string { return s.MeanMsec.Text(1, 1) })
	row("  p99 RT, mean of instances, ms", func(s *Summary) string { return s.P99Msec.Text(1, 1) })
	row("quota at the end / original", func(s *Summary) string { return fmt.Sprintf("%.2f", s.Quota) })
	row("burst at the end / original", func(s *Summary) string { return fmt.Sprintf("%.2f", s.BurstK) })
	row("CPUs used by others", func(s *Summary) string { return fmt.Sprintf("%.2f", s.Outside) })
	row("windows of 5 s", func(s *Summary) string { return fmt.Sprint(s.Windows) })
	row("requests unanswered", func(s *Summary) string { return fmt.Sprint(s.Unfinished) })
	return t
}

// useTable is figure 15b: the pool's utilisation.
func useTable(list []Summary) report.Table {
	t := report.Table{
		Title:   "Figure 15b: utilisation U of the pool",
		Columns: report.Heads("", "over 5 s: mean|%", "p95|%", "p99|%", "max|%", "over 5 periods: mean|%", "p95|%", "p99|%", "max|%"),
	}
	for i := range list {
		s := &list[i]
		row := []string{string(s.Column)}
		for _, u := range []Spread{s.U, s.Moments} {
			row = append(row, percent(u.Mean, 1), percent(u.P95, 1), percent(u.P99, 1), percent(u.Max, 1))
		}
		t.Rows = append(t.Rows, report.Cells(row...))
	}
	return t
}

func (s Spread) text() string {
	return strings.Join([]string{percent(s.Mean, 1), percent(s.P95, 1), percent(s.P99, 1), percent(s.Max, 1)}, " ")
}

func (h *Host) sections() []report.Section {
	fig15 := columnsTable("Figure 15 on this host", h.Columns)
	fig15.Notes = []string{
		fmt.Sprintf("%d instances of %.2g CPUs each on %d CPUs, %d of them without spikes; cgroups %s. The agent runs in every column.",
			h.Load.Instances, h.Load.PoolCPUs/float64(h.Load.Instances), h.CPUs, h.Load.Steady, h.Layout),
		"Brackets: 95 % (Student), over rounds in which the columns took turns with the same requests; one round has none.",
		"The burstiest are those whose requests ask for most in a period against their mean; what became of them has no part in it.",
	}
	f12 := report.Table{
		Title:   "Figure 12: CPU use of one bursty instance, by the second and by 50 ms",
		Columns: report.Heads("column", "instance", "mean|CPU", "quota|CPU", "max of 1 s|CPU", "max of 50 ms|CPU", "1 s above quota|%", "50 ms above quota|%"),
	}
	var charts []report.Chart
	for i := range h.Jitter {
		j := &h.Jitter[i]
		f12.Rows = append(f12.Rows, report.Cells(string(j.Column), j.Instance, fmt.Sprintf("%.3f", j.Mean), fmt.Sprintf("%.2f", j.QuotaCPUs),
			fmt.Sprintf("%.3f", j.CoarseMax), fmt.Sprintf("%.3f", j.FineMax), percent(j.CoarseAbove, 1), percent(j.FineAbove, 1)))
		charts = append(charts, j.Chart())
	}
	return []report.Section{
		{Title: "This host", Tables: []report.Table{fig15, useTable(h.Columns)}},
		{Title: "CPU jitters", Tables: []report.Table{f12}, Charts: charts},
		{Title: "Bucket sizes on this host", Tables: bucketTables("Figure 13 on this host", h.Buckets), Charts: []report.Chart{PeakChart("Figure 13b on this host", h.Buckets)}},
	}
}

// bucketTables are figure 13: what each bucket gives at the end, and step by step.
func bucketTables(title string, list []Bucket) []report.Table {
	t := report.Table{
		Title:   title,
		Columns: report.Heads("bucket / quota", "carried by", "peak|spikes/s", "use of the quota there|%", "periods throttled|%", "nr_throttled"),
		Notes: []string{
			fmt.Sprintf("Peak: the highest rate up to which at most %.0f %% of the periods were throttled and requests waited at most %.0f ms in the mean. The last two columns are over all rates.",
				throttleFree*100, delayFree),
		},
	}
	steps := report.Table{Title: title + ": periods throttled, %, and mean queueing delay, ms, by spikes a second", Columns: report.Heads("bucket / quota")}
	for i := range list {
		b := &list[i]
		k := fmt.Sprintf("%g", b.K)
		peak := fmt.Sprintf("%.2f", b.PeakPerSec)
		if b.PeakPerSec == 0 {
			peak = "below " + fmt.Sprintf("%.2f", b.Steps[0].PerSec)
		}
		t.Rows = append(t.Rows, report.Cells(k, b.How, peak, percent(b.PeakUse, 0), percent(stat.Ratio(float64(b.Throttled), float64(b.Periods)), 1), fmt.Sprint(b.Throttled)))
		row := []string{k}
		for n, s := range b.Steps {
			if n%stepEvery(len(b.Steps)) != stepEvery(len(b.Steps))-1 {
				continue
			}
			if i == 0 {
				steps.Columns = append(steps.Columns, report.Figures(fmt.Sprintf("%g", s.PerSec), ""))
			}
			row = append(row, fmt.Sprintf("%s %.0f", percent(s.Throttled, 1), s.DelayMsec))
		}
		steps.Rows = append(steps.Rows, report.Cells(row...))
	}
	return []report.Table{t, steps}
}

// stepEvery keeps a table narrow: so many steps apart.
func stepEvery(n int) int { return max(1, n/8) }

func (t *Twin) sections() []report.Section {
	var list []report.Section
	for i := range t.Kernels {
		k := &t.Kernels[i]
		table := columnsTable(fmt.Sprintf("Figure 15 on the twin, %d instances on %.0f cores, %s kernel", t.Load.Instances, t.Load.PoolCPUs, k.Kernel), k.Columns)
		if i == 0 {
			table.Notes = []string{"mainline: a burst of at most the quota. any-burst: Alibaba's kernel, a burst of ten times the quota."}
		}
		list = append(list, report.Section{Title: "The twin, " + k.Kernel + " kernel", Tables: []report.Table{table, useTable(k.Columns)}})
	}
	if len(t.Hard) > 0 {
		list = append(list, report.Section{Title: "Hard loads on the twin", Tables: []report.Table{hardTable(t.Hard)}})
	}
	list = append(list, report.Section{
		Title: "Bucket sizes on the twin", Tables: bucketTables("Figure 13 on the twin, Alibaba's kernel", t.Buckets),
		Charts: []report.Chart{PeakChart("Figure 13b on the twin, Alibaba's kernel", t.Buckets)},
	})
	if t.Surge != nil {
		list = append(list, t.Surge.section())
	}
	return list
}

func (s *Surge) section() report.Section {
	t := report.Table{
		Title:   fmt.Sprintf("A surge within %.0f s on %d machines of %d cores and %d instances each", surgeRamp.Seconds(), s.Machines, s.Cores, s.Instances),
		Columns: report.Heads("", "throttled before|%", "during|%", "peak|%", "U before: mean p95 p99 max|%", "U during: mean p95 p99 max|%"),
		Notes: []string{
			"Throttled: share of instances in a window of 5 s. Alibaba: 10 % on an ordinary day and 25.85 % in the surge without the pool, 1.74 % with it, U below 45 % on all machines.",
			"How many are throttled on an ordinary day was chosen to be about Alibaba's; what the surge makes of it was not.",
		},
	}
	for i := range s.Arms {
		a := &s.Arms[i]
		t.Rows = append(t.Rows, report.Cells(a.Name, percent(a.Before, 1), percent(a.During, 1), percent(a.Peak, 1), a.UBefore.text(), a.UDuring.text()))
	}
	return report.Section{Title: "The surge of section 5.3", Tables: []report.Table{t}, Charts: s.Charts()}
}
