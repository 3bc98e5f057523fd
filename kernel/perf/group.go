package perf

// read(2) on a leader with PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING returns u64s in the machine's
// byte order (perf_event_open(2), "Reading results"), here of cycles, instructions and task-clock of a spinner on one CPU:
//
//	nr            3
//	time_enabled  205,347,151 ns: the group was enabled and the cgroup was on this CPU
//	time_running  205,347,151 ns: of these, the group was on the counters
//	value[0]      410,007,322 cycles
//	value[1]      410,016,060 instructions, read a moment later
//	value[2]      205,393,167 ns of task-clock
//
// The two times are true of events that count a whole CPU. Of a cgroup's events they are not, on real kernels:
//
//   - 6.12: enabled while the cgroup is on the CPU, both stay 0 until the CPU next switches to another cgroup, though the
//     values grow; they then jump, once by all the time since boot (11,606,729,802 ns after 0.2 s).
//   - 6.1 and 6.12: disabled while the cgroup is on the CPU and enabled again when it is elsewhere, time_enabled grows
//     as if it still ran there, until it does. Each window would inflate the estimate, and an idle cgroup look starved.
//
// What a task-clock event counts is right in both cases. So a cgroup's group has one as its last member, whose
// value is the time that the group ran, and beside it another one of its own, which needs no counter and so always runs:
// its value is the time that the cgroup did.
//
// running < enabled when more groups want counters than the unit has: the kernel takes turns, and the rest is an
// estimate.
//
// When the CPU goes offline the kernel takes its events off and breaks the group up (DETACH_GROUP): the leader then reads nr
// 1, each event still reads what it had counted, and none counts again when the CPU comes back.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Group is a group of events on one CPU: a leader and its members, scheduled together or not at all. Not for
// concurrent use.
type Group struct {
	cpu     int
	fds     []int // leader first
	values  []uint64
	buf     []byte
	clocked bool // it counts a cgroup: the last member is a clock
	clock   int  // the clock beside a group that may have to wait, or −1
}

// newGroup makes a group that is yet to be opened. members has room for the clock.
func newGroup(cpu, members int, clocked bool) Group {
	return Group{cpu: cpu, fds: make([]int, 0, members), values: make([]uint64, members), buf: make([]byte, 8*(3+members)), clocked: clocked, clock: -1}
}

const readFormat = unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING

// ErrOffline means that the CPU is not online.
var ErrOffline = errors.New("CPU is offline")

// ErrTooManyEvents means that the machine counts each of the events, but not all of them at once.
var ErrTooManyEvents = errors.New("events do not fit onto the counters together")

// OpenCPU opens one group of events, disabled, that counts all that runs on the CPU. The first event leads. Errors wrap
// ErrNotSupported, ErrPermission, ErrTooManyFiles, ErrTooManyEvents or ErrOffline where they apply.
func OpenCPU(cpu int, events []Event) (*Group, error) {
	g := newGroup(cpu, len(events), false)
	for _, e := range events {
		if err := g.add(e, -1, 0); err != nil {
			_ = g.Close()
			return nil, fmt.Errorf("perf: open %v on CPU %d: %w", e, cpu, g.sorted(e, err))
		}
	}
	return &g, nil
}

// add opens one more event. Only the leader is disabled: members follow it.
func (g *Group) add(e Event, pid, flags int) error {
	leader := g.leader()
	fd, err := open(e, pid, g.cpu, leader, flags, readFormat, leader < 0)
	if err == nil {
		g.fds = append(g.fds, fd)
	}
	return err
}

// leader is the descriptor of the first event, -1: there is none yet.
func (g *Group) leader() int {
	if len(g.fds) == 0 {
		return -1
	}
	return g.fds[0]
}

// sorted names what perf_event_open said of an event on a CPU.
func (g *Group) sorted(e Event, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV):
	default:
		return sorted(err)
	}
	if supported := Supported(e); supported != nil {
		return supported
	}
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: %w", ErrOffline, err)
	case errors.Is(err, unix.EINVAL) && len(g.fds) > 0: // the CPU was good enough for those before it
		return fmt.Errorf("%w: %w", ErrTooManyEvents, err)
	}
	return err
}

// Enable starts the group. The clock beside it starts last and stops first: without turns it shows no more than the
// group's own, and nothing is scaled that was counted all the time.
func (g *Group) Enable() error {
	err := g.control(g.fds[0], unix.PERF_EVENT_IOC_ENABLE)
	if err == nil && g.clock >= 0 {
		err = g.control(g.clock, unix.PERF_EVENT_IOC_ENABLE)
	}
	return err
}

// Disable stops the group. What was counted stays.
func (g *Group) Disable() error {
	var err error
	if g.clock >= 0 {
		err = g.control(g.clock, unix.PERF_EVENT_IOC_DISABLE)
	}
	return errors.Join(err, g.control(g.fds[0], unix.PERF_EVENT_IOC_DISABLE))
}

// control switches one event, not the group's members (PERF_IOC_FLAG_GROUP), which are always enabled and follow their leader:
// one interrupt a CPU instead of one an event, and 6.12 does not start members again that were disabled and whose PMU is not
// their leader's (task-clock leading context-switches).
func (g *Group) control(fd int, request uint) error {
	if err := unix.IoctlSetInt(fd, request, 0); err != nil {
		return fmt.Errorf("CPU %d: %w", g.cpu, err)
	}
	return nil
}

// What a reading may say of a group.
var (
	// ErrStarved means that the group is in error: it could not be put onto the counters.
	ErrStarved = errors.New("group could not be put onto the counters")
	// errReading means a reading that is not the group which was opened.
	errReading = errors.New("unexpected group reading")
)

// Read returns the group's times in ns and fills values, one an event. ended says that the CPU went offline since the
// group was opened: the numbers are the last ones, and only a new group counts there again. (A group of one event of
// OpenCPU cannot be told to have ended; the kernel gives no sign of it.) The error is ErrStarved or wraps an errno.
func (g *Group) Read(values []uint64) (enabled, running uint64, ended bool, err error) {
	if g.clock >= 0 { // first, see Enable
		if enabled, err = g.readClock(); err != nil {
			return 0, 0, false, err
		}
	}
	timeEnabled, running, ended, err := g.readGroup()
	if err != nil {
		return 0, 0, ended, err
	}
	copy(values, g.values)
	if !g.clocked {
		return timeEnabled, running, ended, nil
	}
	running = g.values[len(g.values)-1]
	return max(enabled, running), running, ended, nil
}

// readClock reads the clock beside the group.
func (g *Group) readClock() (nsec uint64, err error) {
	n, err := g.readEvent(g.clock)
	if err == nil {
		_, _, err = parseGroup(g.buf[:n], g.values[:1])
	}
	return g.values[0], err
}

// readGroup reads all members into g.values.
func (g *Group) readGroup() (enabled, running uint64, ended bool, err error) {
	n, err := g.readEvent(g.fds[0])
	if err != nil {
		return 0, 0, false, err
	}
	if len(g.fds) == 1 || n < 8 || binary.NativeEndian.Uint64(g.buf) != 1 {
		enabled, running, err = parseGroup(g.buf[:n], g.values)
		return enabled, running, false, err
	}
	for i, fd := range g.fds {
		if n, err = g.readEvent(fd); err != nil {
			return 0, 0, true, err
		}
		if enabled, running, err = parseGroup(g.buf[:n], g.values[i:i+1]); err != nil {
			return 0, 0, true, err
		}
	}
	return enabled, running, true, nil
}

// readEvent reads one event into the buffer.
func (g *Group) readEvent(fd int) (int, error) {
	n, err := unix.Read(fd, g.buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, g.buf)
	}
	if err == nil && n == 0 { // end of file: the group is in error (perf_event_open(2))
		return 0, ErrStarved
	}
	return n, err
}

// parseGroup reads what a leader returned; values has one place an event.
func parseGroup(b []byte, values []uint64) (enabled, running uint64, err error) {
	if len(b) < 24 {
		return 0, 0, fmt.Errorf("%d bytes: %w", len(b), errReading)
	}
	if nr := binary.NativeEndian.Uint64(b); nr != uint64(len(values)) || len(b) != 8*(3+len(values)) {
		return 0, 0, fmt.Errorf("%d bytes with %d values, want %d: %w", len(b), nr, len(values), errReading)
	}
	for i := range values {
		values[i] = binary.NativeEndian.Uint64(b[24+8*i:])
	}
	return binary.NativeEndian.Uint64(b[8:]), binary.NativeEndian.Uint64(b[16:]), nil
}

// Close closes every descriptor and returns the first error.
func (g *Group) Close() error {
	var first error
	for i := len(g.fds) - 1; i >= 0; i-- { // members before their leader, which would make groups of them
		if err := unix.Close(g.fds[i]); err != nil && first == nil {
			first = fmt.Errorf("CPU %d: %w", g.cpu, err)
		}
	}
	if g.clock >= 0 {
		if err := unix.Close(g.clock); err != nil && first == nil {
			first = fmt.Errorf("CPU %d: %w", g.cpu, err)
		}
	}
	g.fds, g.clock = g.fds[:0], -1
	return first
}
