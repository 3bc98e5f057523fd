package scenario

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/twin/scenario"
)

// hasMemory says whether any task of a window has memory of its own.
func hasMemory(w *scenario.WindowResult) bool {
	return slices.ContainsFunc(w.Tasks, func(t scenario.TaskFigures) bool { return t.Memory != nil })
}

// memoryTable shows a window's memory, and who waited for it. Of a count of tasks memory is
// summed and pressure that of the worst.
func memoryTable(w *scenario.WindowResult) report.Table {
	t := report.Table{
		Title:   w.Name + ": memory and pressure (PSI)",
		Columns: report.Heads("task", "resident|GiB", "swapped|GiB", "faults|/s", "CPU some", "CPU full", "memory some", "memory full"),
	}
	rows := rowsOf(w)
	for i := range rows {
		if i >= maxRows {
			t.Notes = append(t.Notes, fmt.Sprintf("%d more tasks are in --json.", len(rows)-maxRows))
			break
		}
		r := &rows[i]
		name := r.title()
		cells := []report.Cell{{Text: name}, report.Dash(), report.Dash(), report.Dash()}
		if r.remembers {
			cells = []report.Cell{{Text: name}, report.Figure("%.2f", r.resident/(1<<30)), report.Figure("%.2f", r.swapped/(1<<30)), report.Figure("%.0f", r.faults)}
		}
		p := &r.pressure
		t.Rows = append(t.Rows, append(cells, share(float64(p.CPUSome)), share(float64(p.CPUFull)), share(float64(p.MemorySome)), share(float64(p.MemoryFull))))
	}
	return t
}

// addMemory takes a task's memory and pressure in.
func (r *row) addMemory(t *scenario.TaskFigures) {
	for _, f := range []struct {
		to *scenario.Number
		v  scenario.Number
	}{
		{&r.pressure.CPUSome, t.Pressure.CPUSome}, {&r.pressure.CPUFull, t.Pressure.CPUFull},
		{&r.pressure.MemorySome, t.Pressure.MemorySome}, {&r.pressure.MemoryFull, t.Pressure.MemoryFull},
	} {
		if r.count == 1 || f.v > *f.to || !f.to.Known() {
			*f.to = f.v
		}
	}
	if m := t.Memory; m != nil {
		r.remembers = true
		r.resident += float64(m.ResidentBytes)
		r.swapped += float64(m.SwappedBytes)
		r.faults += float64(m.Faults)
	}
}

// pressureLine is the machine's part of it.
func pressureLine(p *scenario.PressureFigures) string {
	return fmt.Sprintf("Waiting (PSI): for a CPU %.1f %% of the time, for memory %.1f %%, all of them %.1f %%.", 100*float64(p.CPUSome), 100*float64(p.MemorySome), 100*float64(p.MemoryFull))
}
