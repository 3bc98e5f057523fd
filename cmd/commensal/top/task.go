package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Sort is the order of tasks.
type Sort byte

// The orders, by the key that asks for them.
const (
	SortCPU       Sort = 'c' // greatest first
	SortSignal    Sort = 's' // nearest to its threshold, or farthest above it, first
	SortThrottled Sort = 't' // most first
	SortName      Sort = 'n'
	SortIdle      Sort = 'i' // most memory that may be given back by its age first
)

// Sorts are all orders.
var Sorts = [...]Sort{SortCPU, SortSignal, SortThrottled, SortName, SortIdle}

// String returns what is sorted by.
func (s Sort) String() string {
	switch s {
	case SortSignal:
		return "signal"
	case SortThrottled:
		return "throttled"
	case SortName:
		return "name"
	case SortIdle:
		return "idle"
	}
	return "cpu"
}

// row is a task with what is held of it.
type row struct {
	*agent.TaskStatus
	held  []*agent.HeldStatus
	pages model.PageKind // of the view of ages: file, or else anonymous
}

// rows are the tasks in an order. The status is left as it is.
func rows(st *agent.Status, by Sort) []row {
	held := map[string][]*agent.HeldStatus{}
	for i := range st.Held {
		h := &st.Held[i]
		held[h.Path] = append(held[h.Path], h)
	}
	list := make([]row, len(st.Tasks))
	for i := range st.Tasks {
		list[i] = row{TaskStatus: &st.Tasks[i], held: held[st.Tasks[i].Path]}
	}
	key := func(r *row) float64 {
		switch by {
		case SortSignal:
			return r.distress()
		case SortThrottled:
			return known(r.Throttled)
		case SortIdle:
			if r.Idle == nil {
				return -1
			}
			return float64(r.Idle.Anon + r.Idle.File)
		case SortName:
			return 0
		}
		return known(r.CPU)
	}
	slices.SortStableFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(key(&b), key(&a)), cmp.Compare(a.Path, b.Path))
	})
	return list
}

// known returns a value that sorts below all others where there is none.
func known(v model.Value) float64 {
	if v.Outcome != model.OK {
		return math.Inf(-1)
	}
	return v.V
}

// distress is the signal in thresholds; a task without a threshold comes after all that
// have one.
func (r *row) distress() float64 {
	switch {
	case r.Signal.Outcome != model.OK:
		return math.Inf(-1)
	case r.Threshold <= 0:
		return -1 / max(r.Signal.V, 1e-9)
	}
	return r.Signal.V / r.Threshold
}

// column is one column of the table; the task's path, which gets what the others leave, is
// none.
type column struct {
	name  string
	width int
	right bool
	need  int // width of the screen from which on it is shown
	cell  func(*row) (string, Style)
}

// columns are ordered as they stand; all with need 80 or less fit into 80 with 24 for paths.
var columns = slices.Concat([]column{
	{"CLASS", 7, false, 34, func(r *row) (string, Style) { return class(&r.Task), Plain }},
	{"CPU", 6, true, 26, func(r *row) (string, Style) { return number(r.CPU, 2, ""), Plain }},
}, measures(), []column{
	{"THROT", 5, true, 58, throttled},
	{"SIGNAL/LIMIT", 15, true, 50, signal},
	{"STATE", 10, false, 72, state},
	{"CPUS", 10, false, 100, cpus},
	{cacheColumn, 7, true, 108, func(r *row) (string, Style) {
		occupancy, _ := r.Taken()
		return scaled(occupancy, 1<<20), Plain
	}},
	{memoryColumn, 8, true, 117, func(r *row) (string, Style) {
		_, moved := r.Taken()
		return scaled(moved, 1e6), Plain
	}},
	{"IDLE MiB", 8, true, 150, idle},
})

// idle is the memory that the task could give back by its age.
func idle(r *row) (string, Style) {
	if r.Idle == nil {
		return "-", Plain
	}
	return strconv.FormatInt((r.Idle.Anon+r.Idle.File)>>20, 10), Plain
}

// scaled is a number of bytes in a larger unit.
func scaled(v model.Value, unit float64) string {
	v.V /= unit
	return number(v, 1, "")
}

// measures are the columns of signals that every task has, whatever its own signal is: one on
// a screen of 66, each further one where there is more room than all others need.
func measures() (list []column) {
	need := 66
	for src := range model.NumSources {
		signal := src.Row()
		if signal.Column == "" {
			continue
		}
		list = append(list, column{signal.Column, 6, true, need, func(r *row) (string, Style) {
			v := r.Raw[src]
			v.V *= signal.Times
			return number(v, 2, signal.Suffix), Plain
		}})
		need = max(need, 100) + 10
	}
	return list
}

// The columns of what is counted in monitoring groups of resctrl, which are shown where any task is.
const (
	cacheColumn  = "LLC MiB"
	memoryColumn = "MEM MB/s"
)

// visible returns the columns of a screen, and what is left for paths.
func (v *View) visible(screen int) (list []column, path int) {
	counted := v.Status != nil && slices.ContainsFunc(v.Status.Tasks, func(t agent.TaskStatus) bool { return len(t.Domains) > 0 })
	all := columns
	if path = screen; v.Ages {
		all = ageColumns
	}
	for _, c := range all {
		if screen >= c.need && (counted || c.name != cacheColumn && c.name != memoryColumn) {
			list = append(list, c)
			path -= c.width + 1
		}
	}
	return list, max(path, 0)
}

func class(t *model.Task) string {
	switch {
	case t.Class == model.LC && t.Exclusive:
		return "LC excl"
	case t.Class == model.LC:
		return "LC"
	case t.Class == model.BE && t.Importance == model.BestEffort:
		return "BE low"
	case t.Class == model.BE && t.Importance == model.Critical:
		return "BE crit"
	case t.Class == model.BE:
		return "BE"
	}
	return "system"
}

// number prints a value with so many decimals, fewer where it would become long.
func number(v model.Value, decimals int, unit string) string {
	switch {
	case v.Outcome == model.Fresh:
		return "new"
	case v.Outcome != model.OK || math.IsNaN(v.V):
		return "-"
	case v.V >= 1e6:
		return fmt.Sprintf("%.0e", v.V) + unit
	case v.V >= 1000:
		decimals = 0
	case v.V >= 100:
		decimals = min(decimals, 1)
	}
	return strconv.FormatFloat(v.V, 'f', decimals, 64) + unit
}

func throttled(r *row) (string, Style) {
	if r.Throttled.Outcome != model.OK {
		return number(r.Throttled, 0, ""), Plain
	}
	switch share := r.Throttled.V * 100; {
	case share == 0:
		return "0", Dim
	case share < 1:
		return "<1%", Held
	default:
		return fmt.Sprintf("%.0f%%", share), Held
	}
}

func signal(r *row) (string, Style) {
	if r.Signal.Outcome != model.OK {
		return number(r.Signal, 2, ""), Plain
	}
	limit := "-"
	if r.Threshold > 0 {
		limit = number(model.Known(r.Threshold), 2, "")
	}
	style := Plain
	if r.Threshold > 0 && r.Signal.V > r.Threshold {
		style = Bad
	}
	return r.Source.Row().Short + " " + number(r.Signal, 2, "") + "/" + limit, style
}

func state(r *row) (string, Style) {
	if r.Verdict == outlier.Outlier {
		return r.Verdict.Short(), Bad
	}
	return r.Verdict.Short(), Plain
}

// cpus says where a task is placed by us.
func cpus(r *row) (string, Style) {
	for _, h := range r.held {
		if h.Knob.Spec().Owned() && h.State != engine.KnobIdle && !h.Written.CPUs.Empty() {
			return h.Written.CPUs.String(), Held
		}
	}
	return "", Plain
}

// claims says in a line each what is held of a task, and why. That it is placed is in a
// column and, for all tasks alike, in the policies' line.
func (r *row) claims() []string {
	var list []string
	for _, h := range r.held {
		if h.Why != "" {
			what := "REFUSED"
			if h.State == engine.KnobVoid {
				what = "VOID, a stranger wrote"
			}
			list = append(list, fmt.Sprintf("%s %s: %s", what, h.Knob, h.Why))
		}
		for i := range h.Claims {
			if c := &h.Claims[i]; c.Kind != model.ClaimPlace {
				list = append(list, claimText(h, c))
			}
		}
	}
	return list
}

func claimText(h *agent.HeldStatus, c *model.Claim) string {
	text := ""
	switch {
	case c.Kind == model.ClaimRaise:
		text = "raise" + h.Knob.Spec().Raised(h.Found, c.Value)
	case h.Knob.Spec().Cap == nil:
		text = c.Value.Brief()
	case h.Knob.Spec().CPUs == nil:
		text = h.Knob.Spec().Cap(c.Cap, 0).Brief()
	case h.Found.QuotaUsec >= 0 && h.Found.PeriodUsec > 0:
		text = fmt.Sprintf("cap %.3g CPU, found %.3g", c.Cap, h.Found.Ratio())
	default:
		text = fmt.Sprintf("cap %.3g CPU", c.Cap)
	}
	if h.State == engine.KnobAsked {
		text = "asked: " + text
	}
	who := c.Policy
	if c.Owner == model.OwnerOperator {
		who = "operator"
	}
	text += fmt.Sprintf(", %.0f s left, by %s: %s", max(0, h.Left(c)), who, c.Reason)
	if c.Incident != "" {
		text += " [" + c.Incident + "]"
	}
	return text
}
