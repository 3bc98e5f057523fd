package linux

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/commensal-io/commensal/model"
)

// What single tasks can do without, while others on the same machine have it.
const (
	LackCounters = "hardware counters" // no CPI
	LackLimit    = "CPU limit"         // cannot be capped
	LackPlace    = "cpuset"            // cannot be placed
	LackDelay    = "scheduler delay"   // no slowdown, at times
	LackNested   = "throttling inside" // of groups in the task; its own and that above count
	LackMonitor  = "count of its cache and memory traffic"
)

// Lack is something that one task does without, and why.
type Lack struct {
	Task model.TaskNum
	Path string
	What string // one of the above
	Why  string
}

// Lacks appends what tasks do without, in the tasks' order.
func (h *Host) Lacks(dst []Lack) []Lack {
	for _, w := range h.tasks {
		if w.gone {
			continue
		}
		for _, l := range [...]struct {
			what string
			lack *lack
		}{{LackCounters, &w.perf.lack}, {LackLimit, &w.limit}, {LackPlace, &w.place}, {LackNested, &w.inner}, {LackDelay, &w.unread}} {
			if l.lack.why != "" {
				dst = append(dst, Lack{w.task.Num, w.task.Path, l.what, l.lack.why})
			}
		}
		if h.opt.Monitor {
			if why := h.classes.uncounted(w.task.Num); why != "" {
				dst = append(dst, Lack{w.task.Num, w.task.Path, LackMonitor, why})
			}
		}
	}
	return dst
}

// lack is why one task does without something; "" when it does not.
type lack struct {
	why  string
	told string // the why that was logged last
}

// maxNames bounds the names in one line of the log; Lacks has them all.
const maxNames = 20

// tell logs which tasks began, or ceased, to do without something: a line a reason.
func (h *Host) tell(what, then string, of func(*watched) *lack) {
	names := map[string][]string{}
	var reasons []string // in order of appearance
	for _, w := range h.tasks {
		l := of(w)
		if w.gone || l.why == l.told {
			continue
		}
		if names[l.why] == nil {
			reasons = append(reasons, l.why)
		}
		l.told = l.why
		names[l.why] = append(names[l.why], w.task.Path)
	}
	for _, why := range reasons {
		list := names[why]
		tasks := strings.Join(list[:min(len(list), maxNames)], ", ")
		if n := len(list) - maxNames; n > 0 {
			tasks += fmt.Sprintf(" and %d more", n)
		}
		if why == "" {
			h.opt.Log.Info(what+" can be used again", slog.String("tasks", tasks))
			continue
		}
		h.opt.Log.Warn("no "+what+": "+then, slog.String("tasks", tasks), slog.String("why", why))
	}
}
