// Package scenario shows what came of a scenario on the simulated server: as text for a
// terminal and as a page with plots. Playing it is twin/scenario's business.
package scenario

import (
	"fmt"
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/scenario"
)

// row is what a reader sees of one task of the file: its count taken together.
type row struct {
	name  string
	count int
	class model.Class

	cpi, mpki, llc, traffic, cpu, slowdown, held, work, relative float64
	p50, p95, p99, mean                                          float64
	requests, lost                                               uint64
	violation, judged                                            float64
	serves, slo                                                  bool
	pressure                                                     scenario.PressureFigures
	resident, swapped, faults                                    float64
	remembers                                                    bool
}

// rowsOf takes the tasks of a window together, in the order of the file. Ratios are means
// over the tasks, percentiles those of the worst task, everything else is summed.
func rowsOf(w *scenario.WindowResult) []row {
	var rows []row
	for i := range w.Tasks {
		t := &w.Tasks[i]
		if len(rows) == 0 || rows[len(rows)-1].name != t.Entry {
			rows = append(rows, row{name: t.Entry, class: t.Class})
		}
		rows[len(rows)-1].add(t)
	}
	for i := range rows {
		rows[i].settle()
	}
	return rows
}

// add takes a task in.
func (r *row) add(t *scenario.TaskFigures) {
	r.count++
	r.addMemory(t)
	for _, f := range []struct {
		to *float64
		v  scenario.Number
	}{
		{&r.cpi, t.CPI}, {&r.mpki, t.MPKI}, {&r.slowdown, t.Slowdown}, {&r.llc, t.LLCBytes}, {&r.traffic, t.GBPerSec},
		{&r.cpu, t.CPU}, {&r.held, t.HeldSec}, {&r.work, t.Work},
	} {
		*f.to += float64(f.v)
	}
	if t.RelativeWork != nil {
		r.relative += float64(*t.RelativeWork)
	} else {
		r.relative = math.NaN()
	}
	l := t.Latency
	if l == nil {
		return
	}
	r.serves = true
	r.slo = r.slo || l.HasSLO
	r.requests += l.Requests
	r.lost += l.Lost
	r.p50, r.p95, r.p99 = math.Max(r.p50, float64(l.P50Ms)), math.Max(r.p95, float64(l.P95Ms)), math.Max(r.p99, float64(l.P99Ms))
	r.mean = math.Max(r.mean, float64(l.MeanMs))
	r.violation += float64(l.ViolationSec)
	r.judged += float64(l.JudgedSec)
}

// title is the name in the file, with its count.
func (r *row) title() string {
	if r.count > 1 {
		return fmt.Sprintf("%s x%d", r.name, r.count)
	}
	return r.name
}

// settle makes means of what was summed.
func (r *row) settle() {
	n := float64(r.count)
	r.cpi, r.mpki, r.slowdown, r.relative = r.cpi/n, r.mpki/n, r.slowdown/n, r.relative/n
}
