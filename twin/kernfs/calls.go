package kernfs

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/node/linux"
)

// Taskstats returns the TASKSTATS family: run time and delay of thread groups. It is never
// closed.
func (k *Kernel) Taskstats() taskstats.Source { return delays{k} }

// delays implements taskstats.Source.
type delays struct{ k *Kernel }

func (delays) Name() string           { return "taskstats" }
func (delays) KeepsDeadThreads() bool { return true }
func (delays) Close() error           { return nil }

// Query implements taskstats.Source. Delay counts throttling too, as Linux counts it.
func (d delays) Query(tgids []int32, out []taskstats.Stats) error {
	if len(out) < len(tgids) {
		return fmt.Errorf("kernfs: taskstats: %w", taskstats.ErrShortOutput)
	}
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	for i, id := range tgids {
		p := d.k.procs[id]
		if p == nil {
			out[i] = taskstats.Stats{Status: taskstats.Gone}
			continue
		}
		u := d.k.used(p)
		out[i] = taskstats.Stats{RunNsec: u.UsageNsec, DelayNsec: u.DelayNsec, DelayCount: switches(u), IODelayNsec: uint64(u.disk.WaitedNsec), Status: taskstats.OK}
	}
	return nil
}

// Counters returns perf_event_open's counters per cgroup.
func (k *Kernel) Counters() linux.CounterOpener { return opener{k} }

// opener implements linux.CounterOpener.
type opener struct{ k *Kernel }

// value returns an event's count; false for what a machine without it would refuse.
func value(e perf.Event, u usage) (uint64, bool) {
	switch e {
	case perf.Cycles:
		return u.Cycles, true
	case perf.RefCycles:
		return u.RefCycles, true
	case perf.Instructions:
		return u.Instructions, true
	case perf.LLCReferences:
		return u.LLCReferences, true
	case perf.LLCMisses:
		return u.LLCMisses, true
	case perf.TaskClock:
		return u.UsageNsec, true
	}
	return 0, false
}

func (o opener) Supported(e perf.Event) error {
	if _, ok := value(e, usage{}); !ok || e.Hardware() && !o.k.opt.PMU {
		return fmt.Errorf("perf: open %v on this process: %w: %w", e, perf.ErrNotSupported, unix.ENOENT)
	}
	return nil
}

func (o opener) Fit(cpu int, events []perf.Event) error {
	for _, e := range events {
		if err := o.Supported(e); err != nil {
			return err
		}
	}
	o.k.mu.Lock()
	defer o.k.mu.Unlock()
	if online := o.k.m.Online(); !online.Has(cpu) {
		return fmt.Errorf("perf: open %v on CPU %d: %w: %w", events, cpu, perf.ErrOffline, unix.ENODEV)
	}
	return nil
}

func (o opener) FileLimit() (uint64, error) { return o.k.opt.FileLimit, nil }

func (o opener) OpenCgroup(dir string, inode uint64, _ []int, events []perf.Event) (linux.CgroupCounters, error) {
	for _, e := range events {
		if err := o.Supported(e); err != nil {
			return nil, err
		}
	}
	o.k.mu.Lock()
	defer o.k.mu.Unlock()
	n, err := o.k.find("open", dir)
	switch {
	case err != nil:
		return nil, err
	case inode != 0 && n.ino != inode:
		return nil, fmt.Errorf("%s was made anew: %w", dir, cgroup.ErrVanished)
	}
	g := o.k.groupOf(n)
	if g == nil || !g.h.v2 {
		return nil, fmt.Errorf("perf: open %v of %s: %w: %w", events, dir, perf.ErrNotCgroup2, unix.EBADF)
	}
	return &counters{k: o.k, g: g, events: slices.Clone(events), counts: make([]perf.Count, len(events))}, nil
}

// groupOf returns the group that a directory is, nil for none.
func (k *Kernel) groupOf(n *node) *group {
	for _, h := range k.hiers {
		var found *group
		h.top.each(func(g *group) {
			if g.dir == n {
				found = g
			}
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// counters are a group's, on all CPUs.
type counters struct {
	k       *Kernel
	g       *group
	events  []perf.Event
	counts  []perf.Count // as of seen
	seen    usage
	enabled bool
	closed  bool
}

func (c *counters) Enable() error {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	if c.closed {
		return fmt.Errorf("perf: enable: %w", unix.EBADF)
	}
	c.count()
	c.enabled, c.seen = true, c.k.sum(c.g)
	return nil
}

func (c *counters) Disable() error {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	if c.closed {
		return fmt.Errorf("perf: disable: %w", unix.EBADF)
	}
	c.count()
	c.enabled = false
	return nil
}

// count takes what was used since it was last asked.
func (c *counters) count() {
	if !c.enabled || c.g.dir.gone {
		return
	}
	now := c.k.sum(c.g)
	for i, e := range c.events {
		n := &c.counts[i]
		v, _ := value(e, now)
		before, _ := value(e, c.seen)
		n.Raw += v - before
		n.EstimateRaw += v - before
		n.EnabledNsec += now.UsageNsec - c.seen.UsageNsec
		n.RunningNsec = n.EnabledNsec
	}
	c.seen = now
}

func (c *counters) Read(out []perf.Count) error {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	switch {
	case c.closed:
		return fmt.Errorf("perf: read: %w", unix.EBADF)
	case len(out) < len(c.counts):
		return fmt.Errorf("perf: read: %d results for %d events: %w", len(out), len(c.counts), unix.EINVAL)
	}
	c.count()
	status := perf.OK
	if c.g.dir.gone {
		status = perf.Gone
	}
	for i := range c.counts {
		out[i] = perf.Count{Status: perf.Gone}
		if status == perf.OK {
			out[i] = c.counts[i]
			out[i].Status = perf.OK
		}
	}
	return nil
}

func (c *counters) Close() error {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	if c.closed {
		return fmt.Errorf("perf: close: %w", unix.EBADF)
	}
	c.closed = true
	return nil
}

// Ender returns what ends processes.
func (k *Kernel) Ender() cgroup.Ender { return ender{k} }

// ender implements cgroup.Ender.
type ender struct{ k *Kernel }

// End implements cgroup.Ender.
func (e ender) End(pid int32, meant func() bool) error {
	if !meant() {
		return nil
	}
	if err := e.k.Kill(int(pid)); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
