package linux

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/model"
)

// events are the counters of one task, in one group so that their ratios are of the same
// instants (CPI2 section 3.1). The two that every PMU has come first; LLC misses and
// reference cycles are left out where the machine refuses them.
var events = []perf.Event{perf.Cycles, perf.Instructions, perf.RefCycles, perf.LLCMisses}

// counters opens hardware counters on the cgroups of tasks. They count inside the
// sampling window only, so that other tools have the PMU for the rest of the time.
type counters struct {
	fs     hostfs.FS
	root   string // where the cgroup2 hierarchy is mounted
	cpus   []int
	events []perf.Event
}

// openCounters asks which events this machine has.
func openCounters(fs hostfs.FS, m *cgroup.Mounts) (*counters, error) {
	c := &counters{fs: fs, root: m.Unified}
	if m.Unified == "" {
		return nil, errors.New("perf counts per cgroup only in the cgroup2 hierarchy, which is not mounted")
	}
	for i, e := range events {
		err := perf.Supported(e)
		switch {
		case err == nil:
			c.events = append(c.events, e)
		case i < 2:
			return nil, fmt.Errorf("%s: %w", e, err)
		}
	}
	var err error
	if c.cpus, err = cputopology.ReadOnline(fs); err != nil {
		return nil, err
	}
	return c, nil
}

// taskCounters are one task's counters.
type taskCounters struct {
	group  *perf.Counters
	events []perf.Event
	counts []perf.Count
}

// open opens a task's counters, disabled.
func (c *counters) open(path string) (*taskCounters, error) {
	fd, done, err := c.fs.OpenDir(c.root + path)
	if err != nil {
		return nil, err
	}
	g, err := perf.OpenCgroup(fd, c.cpus, c.events)
	if err = errors.Join(err, done()); err != nil {
		return nil, err
	}
	return &taskCounters{group: g, events: c.events, counts: make([]perf.Count, len(c.events))}, nil
}

// read reads the counters at a window's edge. Before the first window and outside of
// windows they stand still.
func (t *taskCounters) read(mark model.WindowMark, s *model.TaskSample) {
	if err := t.group.Read(t.counts); err == nil {
		for i, e := range t.events {
			v, ok := t.counts[i].Scaled()
			if !ok {
				continue
			}
			switch e {
			case perf.Cycles:
				s.Cycles = model.Read(v)
			case perf.Instructions:
				s.Instructions = model.Read(v)
			case perf.RefCycles:
				s.RefCycles = model.Read(v)
			case perf.LLCMisses:
				s.LLCMisses = model.Read(v)
			}
		}
	}
	// A counter that cannot be switched reads as it did, and yields no rate.
	if mark&model.WindowStart != 0 {
		_ = t.group.Enable()
	} else {
		_ = t.group.Disable()
	}
}

func (t *taskCounters) close() error { return t.group.Close() }
