package linux

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// nested are the cgroups that a rule claims and that lie inside the task of another rule,
// where only Slice= or --cgroup-parent could put them (node/match). They are no tasks, and
// the person who wrote the rules must hear of it.
//
// A BE task with something inside that a rule calls LC is never confined: to hold it back
// would be to hold back the service. It stays a task, and a suspect that can be named.
type nested struct {
	told   map[string]bool
	shield map[string]string // BE task: what lies inside
	spared []uint64          // changes of the present batch that were turned into a release
}

// tell notes what a discovery found, and logs what is new, a line a cgroup up to a bound.
func (n *nested) tell(log *slog.Logger, list []match.Match, classOf func(task string) model.Class) {
	if len(list) == 0 && len(n.told) == 0 {
		return
	}
	now, shield := make(map[string]bool, len(list)), map[string]string{}
	fresh := 0
	for i := range list {
		m := &list[i]
		then := "its use counts as that task's"
		if (m.Rule.Class == model.LC || m.Rule.Eligible) && classOf(m.Inside) == model.BE {
			shield[m.Inside] = m.Path
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

// spare returns a change, or in place of one that would confine a service the release of
// what was held before the service came.
func (n *nested) spare(c *model.Change, t *model.Task) *model.Change {
	if t.Class != model.BE || n.shield[t.Path] == "" || c.Kind != model.Hold && c.Kind != model.Set {
		return c
	}
	n.spared = append(n.spared, c.Seq)
	release := *c
	release.Kind = model.Release
	return &release
}

// answer makes the result of a release that stood in for another change a refusal.
func (n *nested) answer(r *model.Result, t *model.Task) {
	if len(n.spared) == 0 || r.Kind != model.Applied || !slices.Contains(n.spared, r.Seq) {
		return
	}
	r.Kind = model.Refused
	r.Error = fmt.Sprintf("%s, which a rule protects, lies inside", n.shield[t.Path])
}
