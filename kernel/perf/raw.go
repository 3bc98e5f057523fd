package perf

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Raw is an event of any PMU that the kernel lists in /sys/bus/event_source/devices, encoded as the PMU's files there say
// (kernel/uncore).
type Raw struct {
	Name                     string // for errors
	Type                     uint32
	Config, Config1, Config2 uint64
}

// OpenRaw opens one group of events of one PMU, disabled, on a CPU. Of an uncore PMU they count for all CPUs of that CPU's
// die, and the kernel takes them to another one of these when the CPU goes offline. Errors wrap ErrNotSupported, ErrPermission,
// ErrTooManyFiles, ErrTooManyEvents or ErrOffline where they apply, and nothing is left open then.
func OpenRaw(cpu int, events []Raw) (*Group, error) {
	g := newGroup(cpu, len(events), false)
	for i := range events {
		if err := g.addRaw(&events[i]); err != nil {
			_ = g.Close()
			return nil, fmt.Errorf("perf: open %s on CPU %d: %w", events[i].Name, cpu, err)
		}
	}
	return &g, nil
}

// addRaw opens one more event. Only the leader is disabled: members follow it.
func (g *Group) addRaw(e *Raw) error {
	leader := g.leader()
	attr := unix.PerfEventAttr{Type: e.Type, Config: e.Config, Ext1: e.Config1, Ext2: e.Config2, Read_format: readFormat}
	fd, err := openAttr(&attr, -1, g.cpu, leader, 0, leader < 0)
	switch {
	case err == nil:
		g.fds = append(g.fds, fd)
		return nil
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: %w", ErrOffline, err)
	case errors.Is(err, unix.EINVAL) && leader >= 0: // the unit and the CPU were good enough for those before it
		return fmt.Errorf("%w: %w", ErrTooManyEvents, err)
	}
	return sorted(err)
}
