package perf

// perf_event_open(2) with PERF_FLAG_PID_CGROUP: the cgroup's directory stands where a process id would, and a
// CPU must be named. The descendants of the cgroup are counted with it, tasks that move in and out are followed, and a
// cgroup that is removed while its counters are open stays in the kernel's memory until they are closed.

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Counters are the groups of one cgroup, one a CPU. They pin the cgroup's memory in the kernel after it
// is removed: close them when a reading says Gone. Not for concurrent use.
type Counters struct {
	dir     int // the cgroup's directory, to notice its removal
	events  []Event
	groups  []Group
	enabled bool
	tally   *Tally
	values  []uint64
}

// cgroupProcs is there in every cgroup that is, of v1 and v2; NUL-terminated for the bare call.
const cgroupProcs = "cgroup.procs\x00"

// Clocks are the descriptors that a cgroup's counters take on each CPU beside those of the events.
const Clocks = 2

// CgroupFiles returns how many descriptors the counters of one cgroup take, on so many CPUs and of so many hardware
// events.
func CgroupFiles(cpus, events int) int { return (events+Clocks)*cpus + 1 }

// OpenCgroup opens one group of events, disabled, on each CPU for the cgroup whose directory
// cgroupDirFD is open on; the descriptor stays the caller's. The cgroup's descendants are counted with it. The
// first event leads. A CPU that is offline is taken up by the first Enable that finds it online; one at least must be
// online. Errors wrap ErrNotSupported, ErrNotCgroup2, ErrGone, ErrPermission, ErrTooManyFiles, ErrTooManyEvents or
// ErrOffline where they apply, and nothing is left open then.
func OpenCgroup(cgroupDirFD int, cpus []int, events []Event) (*Counters, error) {
	if len(cpus) == 0 || len(events) == 0 {
		return nil, fmt.Errorf("perf: open %d events on %d CPUs: %w", len(events), len(cpus), unix.EINVAL)
	}
	dir, err := unix.FcntlInt(uintptr(cgroupDirFD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.EBADF) {
			return nil, fmt.Errorf("perf: cgroup descriptor %d: %w: %w", cgroupDirFD, ErrNotCgroup2, err)
		}
		return nil, fmt.Errorf("perf: duplicate cgroup descriptor: %w", sorted(err))
	}
	c := &Counters{
		dir:    dir,
		events: append([]Event(nil), events...),
		groups: make([]Group, len(cpus)),
		tally:  NewTally(len(cpus), len(events)),
		values: make([]uint64, len(events)),
	}
	for i, cpu := range cpus {
		c.groups[i] = newGroup(cpu, len(events)+1, true)
	}
	err = ErrOffline
	for i := range c.groups {
		switch opened := c.openGroup(&c.groups[i]); {
		case opened == nil && errors.Is(err, ErrOffline):
			err = nil
		case opened != nil && !errors.Is(opened, ErrOffline):
			_ = c.Close()
			return nil, opened
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("perf: open on %d CPUs: %w", len(cpus), err)
	}
	return c, nil
}

// openGroup opens the group on one CPU with its clocks, all or none.
func (c *Counters) openGroup(g *Group) error {
	add := func(e Event) error {
		err := g.add(e, c.dir, unix.PERF_FLAG_PID_CGROUP)
		if err != nil {
			err = fmt.Errorf("perf: open %v of the cgroup on CPU %d: %w", e, g.cpu, c.sorted(g, e, err))
		}
		return err
	}
	waits := false // a group of software events never does
	for _, e := range c.events {
		if err := add(e); err != nil {
			return errors.Join(err, g.Close())
		}
		waits = waits || e.Hardware()
	}
	if err := add(TaskClock); err != nil {
		return errors.Join(err, g.Close())
	}
	if !waits {
		return nil
	}
	clock := newGroup(g.cpu, 1, false)
	if err := clock.add(TaskClock, c.dir, unix.PERF_FLAG_PID_CGROUP); err != nil {
		err = fmt.Errorf("perf: open a clock of the cgroup on CPU %d: %w", g.cpu, c.sorted(&clock, TaskClock, err))
		return errors.Join(err, g.Close())
	}
	g.clock = clock.fds[0]
	return nil
}

// sorted tells apart what the kernel says with ENOENT alike: no such event, a directory of the wrong hierarchy,
// a cgroup that is gone.
func (c *Counters) sorted(g *Group, e Event, err error) error {
	if errors.Is(err, unix.EBADF) {
		return fmt.Errorf("%w: %w", ErrNotCgroup2, err)
	}
	err = g.sorted(e, err)
	switch {
	case !errors.Is(err, unix.ENOENT) || errors.Is(err, ErrNotSupported):
		return err
	case c.gone():
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return fmt.Errorf("%w: %w", ErrNotCgroup2, err)
}

// gone says whether the cgroup was removed.
func (c *Counters) gone() bool { return Removed(c.dir) }

// Removed says whether the cgroup whose directory the descriptor is open on was removed: nothing can be looked up in a
// dead directory. It does not allocate: x/sys copies the path to the heap at each call, hence the bare one.
func Removed(cgroupDirFD int) bool {
	path := unsafe.Pointer(unsafe.StringData(cgroupProcs))
	_, _, errno := unix.Syscall6(unix.SYS_FACCESSAT, uintptr(cgroupDirFD), uintptr(path), unix.F_OK, 0, 0, 0)
	return errno == unix.ENOENT || errno == unix.ENODEV
}

// Enable starts counting on every CPU that is online, also on those that came online since. If one refuses, all are
// stopped again.
func (c *Counters) Enable() error {
	for i := range c.groups {
		g := &c.groups[i]
		err := c.revive(i)
		if err == nil && len(g.fds) > 0 {
			err = g.Enable()
		}
		if err != nil {
			_ = c.Disable()
			return fmt.Errorf("perf: enable: %w", err)
		}
	}
	c.enabled = true
	return nil
}

// revive opens a group where there is none: because the CPU was offline, or because Read found that it went away. A
// cgroup that is gone is for Read to tell.
func (c *Counters) revive(i int) error {
	g := &c.groups[i]
	if len(g.fds) > 0 {
		return nil
	}
	err := c.openGroup(g)
	if errors.Is(err, ErrOffline) || errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// Disable stops counting on every CPU. What was counted stays. It tries all and returns the first error.
func (c *Counters) Disable() error {
	c.enabled = false
	var first error
	for i := range c.groups {
		if len(c.groups[i].fds) == 0 {
			continue
		}
		if err := c.groups[i].Disable(); err != nil && first == nil {
			first = fmt.Errorf("perf: disable: %w", err)
		}
	}
	return first
}

// Read fills out[i] with the i-th event given to OpenCgroup, in one system call and two a CPU; it does not
// allocate unless it fails. A CPU on which the cgroup never ran adds nothing and is no error, nor is one that went offline:
// it adds what it had counted. A CPU on which the cgroup ran and the group waited for counters adds nothing now (see
// Tally). Only when that was so on every CPU where it ran is the status Unavailable. At the end of a window Disable
// first and Read then: what the cgroup did between the two would else be the next window's.
func (c *Counters) Read(out []Count) error {
	if len(out) < len(c.events) {
		return fmt.Errorf("perf: read: %d results for %d events: %w", len(out), len(c.events), unix.EINVAL)
	}
	out = out[:len(c.events)]
	if c.gone() {
		for i := range out {
			out[i] = Count{Status: Gone}
		}
		return nil
	}
	for i := range c.groups {
		if err := c.readGroup(i); err != nil {
			return fmt.Errorf("perf: read on CPU %d: %w", c.groups[i].cpu, err)
		}
	}
	c.tally.Finish(out, !c.enabled)
	return nil
}

// readGroup reads one CPU into the tally. A group that ended with its CPU is closed.
func (c *Counters) readGroup(i int) error {
	g := &c.groups[i]
	if len(g.fds) == 0 {
		return nil
	}
	enabled, running, ended, err := g.Read(c.values)
	if errors.Is(err, ErrStarved) {
		c.tally.Starved(i)
		return nil
	}
	if err != nil {
		return err
	}
	c.tally.Add(i, enabled, running, c.values)
	if !ended {
		return nil
	}
	clear(c.values)
	c.tally.Rebase(i, 0, 0, c.values) // where the next group on this CPU begins
	return g.Close()
}

// Close closes every descriptor and returns the first error.
func (c *Counters) Close() error {
	var first error
	for i := range c.groups {
		if err := c.groups[i].Close(); err != nil && first == nil {
			first = err
		}
	}
	if err := unix.Close(c.dir); err != nil && first == nil {
		first = err
	}
	c.groups, c.dir = nil, -1
	if first != nil {
		return fmt.Errorf("perf: close: %w", first)
	}
	return nil
}
