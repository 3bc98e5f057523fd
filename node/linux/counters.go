package linux

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/model"
)

// events are the counters of one task, in one group so that their ratios are of the same
// instants (CPI² §3.1). The two that every PMU has come first; of the others the
// last are left out where the machine refuses them, or has no room for all at once.
var events = [...]event{
	{perf.Cycles, model.CountCycles}, {perf.Instructions, model.CountInstructions},
	{perf.RefCycles, model.CountRefCycles}, {perf.LLCMisses, model.CountLLCMisses},
}

// event is what the kernel counts, and which counter that is.
type event struct {
	perf    perf.Event
	counter model.TaskCounter
}

// needed is how many of them CPI cannot do without. Where there are no reference cycles, it
// is of core cycles.
const needed = 2

// counters opens hardware counters on the cgroups of tasks. They count inside the
// sampling window only, so that other tools have the PMU for the rest of the time.
//
// A task takes (events + 2) × CPUs + 1 descriptors: 385 on 64 CPUs, of which a limit of
// 65,536 holds 127 tasks. So there is a budget. Within it the protected come first, whose CPI is
// judged; that of the others only makes specs better. Who has none is told by name, and
// tried again at each discovery.
//
// CPUs come and go. One that goes offline leaves what it had counted, and is counted
// again when it is back (kernel/perf sees to both). One that was never there before is
// counted from the next discovery on: a task's counters are opened anew then, and carry
// on what was counted before, so that figures never go backwards.
type counters struct {
	fs     hostfs.FS
	opener CounterOpener
	root   string // where the cgroup2 hierarchy is mounted
	inodes bool   // tasks are known by the inode of their directory there
	events []perf.Event
	cpus   []int // that were online at any discovery, sorted
}

// openCounters asks which events this machine has.
func openCounters(fs hostfs.FS, opener CounterOpener, m *cgroup.Mounts) (*counters, error) {
	c := &counters{fs: fs, opener: opener, root: m.Unified, inodes: m.Layout == cgroup.LayoutV2}
	if m.Unified == "" {
		return nil, errors.New("perf counts per cgroup only in the cgroup2 hierarchy, which is not mounted")
	}
	for i, e := range events {
		err := opener.Supported(e.perf)
		switch {
		case err == nil:
			c.events = append(c.events, e.perf)
		case i < needed:
			return nil, fmt.Errorf("%s: %w", e.perf, err)
		}
	}
	if err := c.look(); err != nil {
		return nil, err
	}
	for {
		err := opener.Fit(c.cpus[0], c.events)
		switch {
		case err == nil:
			return c, nil
		case !errors.Is(err, perf.ErrTooManyEvents) || len(c.events) == needed:
			return nil, err
		}
		c.events = c.events[:len(c.events)-1]
	}
}

// look notes the CPUs that are online.
func (c *counters) look() error {
	cpus, err := cputopology.ReadOnline(c.fs)
	if err != nil {
		return err
	}
	cpus = append(cpus, c.cpus...)
	slices.Sort(cpus)
	c.cpus = slices.Compact(cpus)
	return nil
}

// reserved is what counters leave of the descriptor limit: the agent itself needs some
// fifty and two to ten a task, so a quarter, and not less than this on a small limit.
const reserved = 256

// room returns how many tasks may have counters, and why not more.
func (c *counters) room() (tasks int, why string) {
	limit, err := c.opener.FileLimit()
	if err != nil {
		return 0, fmt.Sprintf("the descriptor limit cannot be read: %v", err)
	}
	each := perf.CgroupFiles(len(c.cpus), len(c.events))
	nofile := min(limit, 1<<30)
	tasks = int(nofile-min(nofile, max(reserved, nofile/4))) / each
	return tasks, fmt.Sprintf("the descriptor limit of %d (RLIMIT_NOFILE) has room for the counters of %d tasks: each takes %d (%d events and %d clocks on %d CPUs, and one), and a quarter is for other things",
		limit, tasks, each, len(c.events), perf.Clocks, len(c.cpus))
}

// provide gives as many tasks counters as there is room for, on the CPUs that are online
// now.
func (c *counters) provide(tasks []*watched) {
	// A list that cannot be read is no reason to stop counting on the CPUs of the last one.
	_ = c.look()
	order := slices.DeleteFunc(slices.Clone(tasks), func(w *watched) bool { return w.gone })
	slices.SortStableFunc(order, func(a, b *watched) int { return cmp.Compare(rank(&a.task), rank(&b.task)) })
	room, why := c.room()
	room = min(room, len(order))
	for _, w := range order[room:] {
		w.perf.drop(why)
	}
	var full error
	for _, w := range order[:room] {
		switch {
		case w.perf.group != nil && slices.Equal(w.perf.cpus, c.cpus):
		case full != nil:
			w.perf.drop(full.Error())
		default:
			if err := w.perf.open(c, &w.task); errors.Is(err, perf.ErrTooManyFiles) {
				full = err // whoever comes next would meet the same
			}
		}
	}
}

// rank orders tasks by how much their CPI is worth.
func rank(t *model.Task) int {
	switch {
	case t.Protected():
		return 0
	case t.Production:
		return 1
	}
	return 2
}

// taskCounters are one task's counters, or the reason why it has none. The zero value has
// neither yet.
type taskCounters struct {
	group  CgroupCounters // nil: none
	cpus   []int          // that group counts on
	counts []perf.Count
	before []uint64 // what the groups before this one had counted, by event
	lack   lack     // why there is no group
}

// open opens the task's counters, disabled, in the place of those that it has.
func (t *taskCounters) open(c *counters, task *model.Task) error {
	t.drop("")
	group, err := c.opener.OpenCgroup(c.root+task.Path, c.inode(task), c.cpus, c.events)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && !c.inodes {
			err = errors.New("perf counts per cgroup in the cgroup2 hierarchy, where it has no group")
		}
		t.lack.why = err.Error()
		return err
	}
	t.group = group
	if t.counts == nil {
		t.counts, t.before = make([]perf.Count, len(c.events)), make([]uint64, len(c.events))
	}
	t.cpus = slices.Clone(c.cpus)
	return nil
}

// inode returns what the directory that is counted must be, 0 where it is not known: on
// a hybrid host a task is known by its directory in another hierarchy.
func (c *counters) inode(t *model.Task) uint64 {
	if c.inodes {
		return t.Inode
	}
	return 0
}

// drop closes the task's counters, if it has any, and keeps what they counted.
func (t *taskCounters) drop(why string) {
	t.lack.why = why
	if t.group == nil {
		return
	}
	// Where this fails there are the counts of the last reading that did not.
	_ = t.group.Read(t.counts)
	for i := range t.counts {
		t.before[i] += t.counts[i].EstimateRaw
		t.counts[i] = perf.Count{}
	}
	_ = t.group.Close() // what cannot be closed cannot be closed again
	t.group = nil
}

// observe reads a task's counters at a window's edge. Before the first window and outside
// of windows they stand still. Counters that fail are given up until the next discovery.
func (c *counters) observe(w *watched, mark model.WindowMark, s *model.TaskSample) {
	t := &w.perf
	if t.group == nil {
		return
	}
	if mark&model.WindowStart == 0 {
		// Before they are read: what comes after would be the next window's.
		if err := t.group.Disable(); err != nil {
			t.drop(err.Error())
			return
		}
	}
	if err := t.group.Read(t.counts); err != nil {
		t.drop(err.Error())
		return
	}
	for i, e := range c.events {
		at := slices.IndexFunc(events[:], func(known event) bool { return known.perf == e })
		if v, ok := t.counts[i].Scaled(); ok && at >= 0 {
			s.C[events[at].counter] = model.Read(t.before[i] + v)
		}
	}
	if mark&model.WindowStart != 0 {
		if err := t.group.Enable(); err != nil {
			t.drop(err.Error())
		}
	}
}
