package perf

// perf_event_open(2) with PERF_FLAG_PID_CGROUP: the cgroup's directory stands where a process id would, and a
// CPU must be named. What read(2) on a leader returns with PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING,
// all u64 in the machine's byte order, here for task-clock and context-switches of a spinner on one CPU:
//
//	nr            2
//	time_enabled  500,227,386 ns: the group was enabled and the cgroup was on this CPU
//	time_running  500,227,386 ns: of these, the group was on the counters
//	value[0]      500,228,478 ns of task-clock, read a moment later
//	value[1]      2
//
// On a CPU where the cgroup did not run all but nr stay 0 while the group is enabled (measured on Linux 6.18).
// running < enabled when more groups want counters than the unit has: the kernel takes turns, and the rest is an
// estimate.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Status says whether the numbers beside it may be used.
type Status uint8

// The outcomes of one reading. The zero value is Unavailable.
const (
	Unavailable Status = iota // the cgroup ran, but nowhere did its group get onto the counters since the last reading
	OK                        // the numbers are good; an idle cgroup's stand still
	Gone                      // the cgroup was removed
	Backwards                 // a counter fell since the last reading, which starts it anew: this window gives no rate
)

// String returns the status as it is printed in reports.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Gone:
		return "gone"
	case Backwards:
		return "went backwards"
	default:
		return "unavailable"
	}
}

// Count is one event of a cgroup over all its CPUs, cumulative since the counters were opened.
type Count struct {
	// Raw is the sum of the values read: what was counted while the group was on the counters.
	Raw uint64
	// EnabledNsec is time that the cgroup was on a CPU while the group was enabled, summed over CPUs.
	EnabledNsec uint64
	// RunningNsec is the part of EnabledNsec in which the group was on the counters.
	RunningNsec uint64
	// EstimateRaw is Raw as it would be, had the group been on the counters all the time: each reading adds what each
	// CPU counted since the last one, times enabled/running of that CPU and that while. Scaling the
	// totals instead would let a late change of the ratio rewrite the past, and differences go backwards.
	EstimateRaw uint64
	// Status says whether the above may be used; they are zero when it is Gone.
	Status Status
}

// Scaled returns the estimate for the whole enabled time, and whether it may be used.
func (c Count) Scaled() (uint64, bool) { return c.EstimateRaw, c.Status == OK }

// Counters are the groups of one cgroup, one a CPU. They pin the cgroup's memory in the kernel after it
// is removed: close them when a reading says Gone. Not for concurrent use.
type Counters struct {
	dir    int // the cgroup's directory, to notice its removal
	events []Event
	groups []cpuGroup
	sums   []Count
	buf    []byte
	values []uint64
}

// cpuGroup is the group on one CPU and where its last scaled reading ended.
type cpuGroup struct {
	cpu     int
	fds     []int // leader first
	enabled uint64
	running uint64
	values  []uint64
}

// cgroupProcs is there in every cgroup that is, of v1 and v2; NUL-terminated for the bare call.
const cgroupProcs = "cgroup.procs\x00"

const readFormat = unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING

// OpenCgroup opens one group of events, disabled, on each CPU (all must be online) for the cgroup whose directory
// cgroupDirFD is open on; the descriptor stays the caller's. The cgroup's descendants are counted with it. The
// first event leads. Errors wrap ErrNotSupported, ErrNotCgroup2, ErrGone, ErrPermission or ErrTooManyFiles
// where they apply, and nothing is left open then.
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
		sums:   make([]Count, len(events)),
		buf:    make([]byte, 8*(3+len(events))),
		values: make([]uint64, len(events)),
	}
	for _, cpu := range cpus {
		g := cpuGroup{cpu: cpu, values: make([]uint64, len(events))}
		err := c.openGroup(&g)
		c.groups = append(c.groups, g) // also when it failed, so that Close finds what was opened
		if err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	return c, nil
}

// openGroup opens the leader and its members on one CPU. Only the leader is disabled: members follow it.
func (c *Counters) openGroup(g *cpuGroup) error {
	leader := -1
	for _, e := range c.events {
		fd, err := open(e, c.dir, g.cpu, leader, unix.PERF_FLAG_PID_CGROUP, readFormat, leader < 0)
		if err != nil {
			return fmt.Errorf("perf: open %v of the cgroup on CPU %d: %w", e, g.cpu, c.sorted(e, err))
		}
		g.fds = append(g.fds, fd)
		leader = g.fds[0]
	}
	return nil
}

// sorted tells apart what the kernel says with ENOENT alike: no such event, a directory of the wrong hierarchy,
// a cgroup that is gone.
func (c *Counters) sorted(e Event, err error) error {
	switch {
	case errors.Is(err, unix.EBADF):
		return fmt.Errorf("%w: %w", ErrNotCgroup2, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV):
	default:
		return sorted(err)
	}
	if supported := Supported(e); supported != nil {
		return supported
	}
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("CPU is offline: %w", err)
	case errors.Is(err, unix.EINVAL):
		return err
	case c.gone():
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return fmt.Errorf("%w: %w", ErrNotCgroup2, err)
}

// gone says whether the cgroup was removed: nothing can be looked up in a dead directory. x/sys copies
// the path to the heap at each call, hence the bare one.
func (c *Counters) gone() bool {
	path := unsafe.Pointer(unsafe.StringData(cgroupProcs))
	_, _, errno := unix.Syscall6(unix.SYS_FACCESSAT, uintptr(c.dir), uintptr(path), unix.F_OK, 0, 0, 0)
	return errno == unix.ENOENT || errno == unix.ENODEV
}

// Enable starts counting on every CPU. If one refuses, those before it are stopped again.
func (c *Counters) Enable() error {
	if err := c.control(unix.PERF_EVENT_IOC_ENABLE); err != nil {
		_ = c.control(unix.PERF_EVENT_IOC_DISABLE)
		return fmt.Errorf("perf: enable: %w", err)
	}
	return nil
}

// Disable stops counting on every CPU. What was counted stays.
func (c *Counters) Disable() error {
	if err := c.control(unix.PERF_EVENT_IOC_DISABLE); err != nil {
		return fmt.Errorf("perf: disable: %w", err)
	}
	return nil
}

// control tries every CPU and returns the first error.
func (c *Counters) control(request uint) error {
	var first error
	for i := range c.groups {
		g := &c.groups[i]
		if err := unix.IoctlSetInt(g.fds[0], request, unix.PERF_IOC_FLAG_GROUP); err != nil && first == nil {
			first = fmt.Errorf("CPU %d: %w", g.cpu, err)
		}
	}
	return first
}

// Read fills out[i] with the i-th event given to OpenCgroup, in two system calls and one a CPU; it does not
// allocate unless it fails. A CPU on which the cgroup never ran adds nothing and is no error. A CPU
// on which it ran and the group waited for counters adds nothing now; what it counts later is scaled over that while
// too. Only when that was so on every CPU where it ran is the status Unavailable.
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
	for i := range c.sums { // totals are read anew; the estimate grows from reading to reading
		c.sums[i] = Count{EstimateRaw: c.sums[i].EstimateRaw}
	}
	status := OK
	ran, waited := false, false
	for i := range c.groups {
		g := &c.groups[i]
		outcome, err := c.readGroup(g)
		if err != nil {
			return fmt.Errorf("perf: read on CPU %d: %w", g.cpu, err)
		}
		switch outcome {
		case counted:
			ran = true
		case starved:
			waited = true
		case fell:
			status = Backwards
		}
	}
	if waited && !ran && status == OK {
		status = Unavailable
	}
	for i := range out {
		out[i] = c.sums[i]
		out[i].Status = status
	}
	return nil
}

// outcome is what one CPU's group did since its last scaled reading.
type outcome uint8

const (
	idle    outcome = iota // the cgroup did not run here, or the group was disabled
	counted                // it ran, and was counted at least in part
	starved                // it ran, and the group did not get onto the counters
	fell                   // a number went backwards
)

// readGroup reads one CPU and adds it to the sums.
func (c *Counters) readGroup(g *cpuGroup) (outcome, error) {
	n, err := unix.Read(g.fds[0], c.buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(g.fds[0], c.buf)
	}
	if err != nil {
		return idle, err
	}
	if n == 0 { // end of file: the group could not be put onto the counters and is in error (perf_event_open(2))
		return starved, nil
	}
	enabled, running, err := parseGroup(c.buf[:n], c.values)
	if err != nil {
		return idle, err
	}
	result := g.advance(enabled, running, c.values, c.sums)
	for i, v := range c.values {
		c.sums[i].Raw += v
		c.sums[i].EnabledNsec += enabled
		c.sums[i].RunningNsec += running
	}
	return result, nil
}

// advance scales what was counted since the last scaled reading into the sums.
func (g *cpuGroup) advance(enabled, running uint64, values []uint64, sums []Count) outcome {
	result := counted
	switch {
	case enabled < g.enabled || running < g.running || anyLess(values, g.values):
		result = fell
	case enabled == g.enabled && running == g.running:
		return idle
	case running == g.running:
		return starved // keeps the place: the next reading that counted covers this while too
	}
	if result == counted {
		for i, v := range values {
			sums[i].EstimateRaw += scale(v-g.values[i], enabled-g.enabled, running-g.running)
		}
	}
	g.enabled, g.running = enabled, running
	copy(g.values, values)
	return result
}

// anyLess says whether a value is below the one before.
func anyLess(now, before []uint64) bool {
	for i, v := range now {
		if v < before[i] {
			return true
		}
	}
	return false
}

// scale returns value × enabled / running, rounded down, in 128 bits between; it stays at the largest number
// when the result has no room. running is not zero.
func scale(value, enabled, running uint64) uint64 {
	if enabled <= running { // never less than was counted: the two clocks are read a moment apart
		return value
	}
	hi, lo := bits.Mul64(value, enabled)
	if hi >= running {
		return ^uint64(0)
	}
	quotient, _ := bits.Div64(hi, lo, running)
	return quotient
}

// errReading means a reading that is not the group which was opened.
var errReading = errors.New("unexpected group reading")

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
func (c *Counters) Close() error {
	var first error
	for i := range c.groups {
		g := &c.groups[i]
		for k := len(g.fds) - 1; k >= 0; k-- { // members before their leader, which would make groups of them
			if err := unix.Close(g.fds[k]); err != nil && first == nil {
				first = err
			}
		}
		g.fds = nil
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
