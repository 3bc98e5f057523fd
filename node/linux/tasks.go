package linux

import (
	"errors"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/model"
)

// maxTasks bounds what is watched; a node of the largest kind runs some hundred.
const maxTasks = 10_000

// watched is one task with its open descriptors and the thread groups that are followed.
type watched struct {
	task  model.Task
	group cgroup.Group
	perf  *taskCounters // nil: none

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
	err := w.group.Close()
	if w.perf != nil {
		err = errors.Join(err, w.perf.close())
	}
	return err
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
	for _, w := range h.tasks {
		if err := w.group.Refresh(); errors.Is(err, cgroup.ErrVanished) {
			w.gone = true
		}
		w.members.doubt = true
	}
	for _, p := range paths {
		rule := h.opt.Rules.Find(p)
		if rule == nil || h.watching(p) {
			continue
		}
		if len(h.tasks) >= maxTasks {
			h.opt.Log.Warn("too many tasks: the rest is not watched", "limit", maxTasks, "path", p)
			break
		}
		g, err := h.cg.Open(p)
		if err != nil {
			if !errors.Is(err, cgroup.ErrVanished) {
				h.opt.Log.Warn("task cannot be watched", "path", p, "error", err)
			}
			continue
		}
		w := &watched{group: g, task: model.Task{
			Num: h.nextNum, Path: p, Inode: g.Identity().Inode, Job: rule.Job, Class: rule.Class,
			Importance: rule.Importance, Production: rule.Production, Eligible: rule.Eligible, CPUs: h.cpusOf(p),
		}}
		if h.perf != nil {
			if w.perf, err = h.perf.open(p); err != nil {
				h.opt.Log.Debug("no hardware counters for this task", "path", p, "error", err)
			}
		}
		h.nextNum++
		h.tasks = append(h.tasks, w)
	}
	return nil
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
	ids, err := cputopology.ParseList(list)
	if err != nil {
		return 0
	}
	return len(ids)
}
