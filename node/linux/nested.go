package linux

import (
	"fmt"
	"log/slog"

	"github.com/commensal-io/commensal/node/match"
)

// nested are the cgroups that a rule claims and that lie inside the task of another rule,
// where only Slice= or --cgroup-parent could put them (node/match). They are no tasks, and
// the person who wrote the rules must hear of it: a cap on the outer one is one on them.
type nested map[string]bool // those that were told

// tell logs what is new, a line a cgroup up to a bound.
func (n *nested) tell(log *slog.Logger, list []match.Match) {
	if len(list) == 0 && len(*n) == 0 {
		return
	}
	now := make(nested, len(list))
	fresh := 0
	for i := range list {
		m := &list[i]
		now[m.Path] = true
		if (*n)[m.Path] {
			continue
		}
		if fresh++; fresh <= maxNames {
			log.Warn("no task: it lies inside one, and a task contains no other task",
				slog.String("path", m.Path), slog.String("rule", m.Rule.String()), slog.String("task", m.Inside))
		}
	}
	if fresh > maxNames {
		log.Warn(fmt.Sprintf("no tasks: %d more lie inside tasks of other rules", fresh-maxNames))
	}
	*n = now
}
