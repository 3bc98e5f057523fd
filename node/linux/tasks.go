package linux

import (
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// maxTasks bounds what is watched; a node of the largest kind runs some hundred.
const maxTasks = 10_000

// watched is one task with its open descriptors and the thread groups that are followed.
type watched struct {
	task  model.Task
	group cgroup.Group
	perf  taskCounters
	stall pressure
	limit lack // why the task cannot be capped; of BE tasks only
	place lack // why the task cannot be placed

	listed [model.NumKnobs]listed
	pulse  model.Counter // usage at the last pulse

	// members are the thread groups that the cgroup held when it was last listed, by id;
	// membership (members.go) says when that is done again.
	members membership

	// Thread groups of the last reading, by id. Run and delay of the task are the sums of
	// their growth since they were first seen: a process that ends takes no time away.
	tgids     []int32
	lastRun   []uint64
	lastDelay []uint64
	runNsec   uint64
	delayNsec uint64
	gone      bool
	announced bool
}

func (w *watched) close() error {
	w.perf.drop("")
	w.stall.close()
	return w.group.Close()
}

func (h *Host) find(n model.TaskNum) *watched {
	i, ok := slices.BinarySearchFunc(h.tasks, n, func(w *watched, n model.TaskNum) int {
		return int(int64(w.task.Num) - int64(n))
	})
	if !ok {
		return nil
	}
	return h.tasks[i]
}

// discover lists the cgroups, opens those that became tasks and refreshes the rest.
func (h *Host) discover() error {
	paths, err := h.cg.List()
	if err != nil {
		return err
	}
	h.lookAtCPUs()
	for _, w := range h.tasks {
		if err := w.group.Refresh(); errors.Is(err, cgroup.ErrVanished) {
			w.gone = true
		}
		w.members.doubt = true
	}
	tasks, nested := h.opt.Rules.Select(paths, h.podNames())
	h.nested.tell(h.opt.Log, nested, func(task string) model.Class {
		i := slices.IndexFunc(tasks, func(m match.Match) bool { return m.Path == task })
		return tasks[i].Rule.Class
	})
	for i := range tasks {
		p, rule := tasks[i].Path, tasks[i].Rule
		if h.watching(p) {
			continue
		}
		if len(h.tasks) >= maxTasks {
			h.opt.Log.Warn("more cgroups match the rules than can be watched: this one and those after it are not", "limit", maxTasks, "path", p)
			break
		}
		g, err := h.cg.Open(p)
		if err != nil {
			if !errors.Is(err, cgroup.ErrVanished) {
				h.opt.Log.Warn("a cgroup that a rule matches cannot be watched", "path", p, "error", err)
			}
			continue
		}
		w := &watched{group: g, task: model.Task{
			Num: h.nextNum, Path: p, Inode: g.Identity().Inode, Job: rule.Job, Class: rule.Class,
			Importance: rule.Importance, Production: rule.Production, Eligible: rule.Eligible,
			Exclusive: rule.Exclusive, Cores: rule.Cores, CPUs: h.cpusOf(p),
		}}
		h.askLimit(w)
		h.nextNum++
		h.tasks = append(h.tasks, w)
	}
	h.provide()
	return nil
}

// provide looks after what single tasks may lack, and says for whom that changed.
func (h *Host) provide() {
	for _, w := range h.tasks {
		if w.gone {
			continue
		}
		if w.limit.why != "" {
			h.askLimit(w)
		}
		w.stall.open(h, w.task.Path)
		if !h.opt.CapsOnly {
			h.readSettings(w)
		}
	}
	h.tell(LackLimit, "these tasks' CPU cannot be limited", func(w *watched) *lack { return &w.limit })
	h.tell(LackPlace, "these tasks cannot be kept to CPUs of their own", func(w *watched) *lack { return &w.place })
	if h.perf != nil {
		h.perf.provide(h.tasks)
		h.tell(LackCounters, "no cycles per instruction are known of these tasks", func(w *watched) *lack { return &w.perf.lack })
	}
}

// askLimit notes whether a task has a CPU limit that could be lowered. On cgroup v2 it has
// none where the group above does not hand the cpu controller down. To change that for
// other people's groups is not for an agent: it would give all their siblings a weight.
func (h *Host) askLimit(w *watched) {
	if w.task.Class != model.BE {
		return
	}
	w.limit.why = ""
	_, err := h.cg.ReadCPUMax(w.task.Path)
	var absent *cgroup.AbsentControllerError
	switch {
	case !hasNoLimit(err):
	case errors.As(err, &absent) && absent.StopsAt != "":
		// In these words it is the same reason for all tasks that have it.
		w.limit.why = fmt.Sprintf("cgroup.subtree_control of %s lacks %s", absent.StopsAt, absent.Controller)
	case errors.As(err, &absent):
		w.limit.why = fmt.Sprintf("cgroup v2 has no %s controller here", absent.Controller)
	default:
		w.limit.why = "this kernel has no CPU bandwidth limits"
	}
}

// watching reports whether the cgroup that is now at a path is watched already.
func (h *Host) watching(path string) bool {
	return slices.ContainsFunc(h.tasks, func(w *watched) bool { return w.task.Path == path && !w.gone })
}

// cpusOf returns how many CPUs a task may use, 0 when that is not known.
func (h *Host) cpusOf(path string) int {
	list, err := h.cg.ReadEffectiveCPUs(path)
	if err != nil {
		return 0
	}
	set, err := model.ParseCPUSet(list)
	if err != nil {
		return 0
	}
	return set.Len()
}

// hasNoLimit reports whether an error means that the cgroup is there and has no CPU limit,
// neither set nor to be set: no cpu controller (v2), or a kernel without bandwidth limits.
func hasNoLimit(err error) bool {
	return errors.Is(err, cgroup.ErrNoController) || errors.Is(err, cgroup.ErrUnsupported)
}
