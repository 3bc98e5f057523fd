package partition

import (
	"fmt"

	"github.com/commensal-io/commensal/lab/report"
)

// Report is the run as a page or as text.
func (r *Result) Report() report.Report {
	rep := report.Report{
		Title:   "The cpuset partition under a load that swings tenfold",
		Verdict: r.verdict,
		Facts:   [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
	if r.Host != nil {
		rep.Sections = append(rep.Sections, r.Host.section())
		rep.Facts = append(rep.Facts, r.Host.Facts...)
	}
	if len(r.Twin) > 0 {
		rep.Sections = append(rep.Sections, r.sectionTwin())
	}
	goals := report.GoalTable("", []report.Column{{Name: "goal"}, {Name: "asked"}, {Name: "measured"}, {Name: ""}}, r.told())
	rep.Sections = append(rep.Sections, report.Section{Title: "Goals", Tables: []report.Table{goals}})
	return rep
}

// section is the host's part.
func (h *HostResult) section() report.Section {
	t := report.Table{
		Title:   "This host: real threads, the real agent",
		Columns: report.Heads("arm", "steps", "p50|ms", "p99|ms", "p99, 5 s after a step|ms", "median step's|ms", "LC|CPU", "BE|CPU", "used|%", "resizes"),
		Notes:   []string{"Latency is from when a request was meant to come. Used: by both, of all CPUs. Each step is from 0.14 to 1.4 CPU of two."},
	}
	for _, row := range h.Rows {
		t.Rows = append(t.Rows, report.Cells(string(row.Arm), fmt.Sprint(row.Steps), row.P50.Text(2), row.P99.Text(1), row.After99.Text(1),
			row.StepP99.P50.Text(1), row.Service.Text(2), row.Batch.Text(2), (100*row.Used).Text(0), fmt.Sprint(row.Resizes)))
	}
	b := report.Table{
		Title:   "Hand-back, from the step in the load",
		Columns: report.Heads("until", "n", "p50|ms", "p99|ms", "most|ms"),
		Notes:   []string{"With fewer than a hundred, p99 is the greatest or the one before it."},
	}
	for _, x := range []struct {
		what string
		s    Spread
	}{
		{"BE is written off the core", h.Freed}, {"LC is let onto it", h.Grown}, {"a thread of LC runs there", h.Ran},
	} {
		b.Rows = append(b.Rows, report.Cells(x.what, fmt.Sprint(x.s.N), x.s.P50.Text(1), x.s.P99.Text(1), x.s.Most.Text(1)))
	}
	return report.Section{Title: "On this host", Tables: []report.Table{t, b}, Charts: h.charts()}
}

// sectionTwin is the twin's part.
func (r *Result) sectionTwin() report.Section {
	s := report.Section{
		Title: "On the twin",
		Text: []string{fmt.Sprintf("Load of all services together: a tide of %.0f to %.0f CPUs over the day, which takes minutes, with noise of %.0f %% from second to second. Surges, where there are any, are to 1.5 to 3 times that, up to %.0f CPUs. Heavy tails: requests vary by %.0f, log-normal. Bursts: %.0f %% of them in bursts of %.0f ms. Fan-out: %d parts, answered with the last. The goals name the tables that are judged.",
			nightCPU, noonCPU, 100*noise, mostCPU, float64(tailVariation), 100*bursts.Share, bursts.Nsec/1e6, fanOut)},
	}
	for i := range r.Twin {
		s.Tables = append(s.Tables, r.Twin[i].table(), r.Twin[i].services())
	}
	s.Charts = append(s.Charts, r.Twin[0].Chart())
	return s
}

func (t *TwinTable) table() report.Table {
	table := report.Table{
		Title:   t.What,
		Columns: report.Heads("arm", "p99 of (a)|x", "after a surge|x", "utilisation|%", "of (b)|%", "BE|CPU", "BE work|1e9 instr/s", "lost", "resizes", "hand-back p99|ms"),
	}
	none := t.find(ArmNone)
	for _, row := range t.Rows {
		back := "-"
		if row.Arm.byAgent() {
			back = row.First.P99.Text(0)
		}
		table.Rows = append(table.Rows, report.Cells(string(row.Arm), row.Worst.Text(2), row.WorstAfter.Text(2), (100*row.Utilisation).Text(1),
			(100*row.Utilisation/none.Utilisation).Text(1), row.Batch.Text(1), (row.Work/1e9).Text(1), fmt.Sprint(row.Lost), fmt.Sprint(row.Resizes), back))
	}
	ours := t.find(ArmOurs)
	table.Notes = []string{
		"p99 is that of the service that suffers most, as a multiple of its p99 in (a); after a surge: of what was answered in the five seconds after one began.",
	}
	if ours.Surges > 0 {
		table.Notes = append(table.Notes, fmt.Sprintf("(e): %d of %d surges wanted more CPUs than the services had. The first were handed back after %s ms (p50), %s ms (p99); as many as were wanted after %s ms, %s ms, or %s, %s pulses.",
			ours.NeededMore, ours.Surges, ours.First.P50.Text(0), ours.First.P99.Text(0), ours.Enough.P50.Text(0), ours.Enough.P99.Text(0), ours.Pulses.P50.Text(1), ours.Pulses.P99.Text(1)))
	}
	if f := t.frontier(ours.Worst); f.Known() {
		table.Notes = append(table.Notes, fmt.Sprintf("The oracles know the load of each second. Between them, at the p99 of (e), utilisation is %s %%; at %.2f times that of (a) it is %s %%.",
			(100*f).Text(1), wantedTail, (100*t.frontier(wantedTail)).Text(1)))
	}
	return table
}

// services are the latencies behind the multiples.
func (t *TwinTable) services() report.Table {
	table := report.Table{Title: "p50 / p99 / p99 in the 5 s after a surge, ms", Columns: []report.Column{{Name: "arm"}}}
	for _, s := range t.Rows[0].Services {
		table.Columns = append(table.Columns, report.Figures(s.Service, ""))
	}
	for _, row := range t.Rows {
		cells := []string{string(row.Arm)}
		for _, s := range row.Services {
			cells = append(cells, s.P50.Text(1)+" / "+s.P99.Text(1)+" / "+s.After.Text(1))
		}
		table.Rows = append(table.Rows, report.Cells(cells...))
	}
	return table
}
