package linux

import (
	"fmt"
	"log/slog"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// nested are the cgroups that a rule claims and that lie inside the task of another rule,
// where only Slice= or --cgroup-parent could put them (node/match). They are no tasks, and
// the person who wrote the rules must hear of it.
//
// A BE task with something inside that a rule calls LC is never confined: to hold it back
// would be to hold back the service. It stays a task, and a suspect that can be named; snapshots
// tell the engine (model.Shield), which ends what was held before the service came.
type nested struct {
	told   map[string]bool
	shield map[string]string // task: why it cannot be held
}

// tell notes what a discovery found, and logs what is new, a line a cgroup up to a bound.
func (n *nested) tell(log *slog.Logger, sel *match.Selection) {
	classOf := map[string]model.Class{} // of tasks, where one holds another
	now, shield := make(map[string]bool, len(sel.Nested)), map[string]string{}
	for i := range sel.Tasks {
		m := &sel.Tasks[i]
		if len(sel.Nested) > 0 {
			classOf[m.Path] = m.Rule.Class
		}
		if m.Vital != "" { // it may be watched since before the agent or PID 1 came
			shield[m.Path] = "the agent or PID 1 runs in " + m.Vital
		}
	}
	fresh := 0
	for i := range sel.Nested {
		m := &sel.Nested[i]
		then := "its use counts as that task's"
		if (m.Rule.Class == model.LC || m.Rule.Eligible) && classOf[m.Inside] == model.BE {
			shield[m.Inside] = m.Path + ", which is not to be held back, lies inside"
			then = "and that task is not held back as long as the service is in it"
		}
		now[m.Path] = true
		if n.told[m.Path] {
			continue
		}
		if fresh++; fresh <= maxNames {
			log.Warn("this cgroup matches a rule but lies inside a task: it is not a task of its own, "+then,
				slog.String("path", m.Path), slog.String("rule", m.Rule.String()), slog.String("task", m.Inside))
		}
	}
	if fresh > maxNames {
		log.Warn(fmt.Sprintf("%d more cgroups match a rule but lie inside tasks of other rules: they are not tasks of their own", fresh-maxNames))
	}
	n.told, n.shield = now, shield
}

// list appends of which tasks it changed whether they can be held.
func (n *nested) list(w *watched, dst []model.Shield) []model.Shield {
	why := n.shield[w.task.Path]
	if w.task.Class != model.BE || why == w.shield {
		return dst
	}
	w.shield = why
	return append(dst, model.Shield{Task: w.task.Num, Why: why})
}
