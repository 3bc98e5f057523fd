// Package perf counts hardware and software events of a cgroup, in counting mode: no samples, no buffers, no overhead
// while a task runs beyond saving and restoring a few registers at a switch of cgroups.
//
// A cgroup is counted per CPU: one group of events (a leader and its members, scheduled together or not at
// all, so that ratios such as cycles per instruction are of the same instant) on each CPU. A task costs
//
//	(events + 2) × CPUs + 1 descriptors
//
// (two clocks a CPU because the kernel's own times are not to be trusted, see group.go, one of them only beside hardware
// events; and one to watch whether the cgroup still exists): 4 events on 64 CPUs are 385, and 52 such tasks exhaust a
// limit of 20,000. Whoever opens counters has to keep that account; see ErrTooManyFiles
// (docs/COUNTERS.md has the figures, and what BPF would need instead).
package perf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Event is something that can be counted.
type Event uint8

// The events. The hardware ones need a performance monitoring unit, which most virtual machines do not have.
const (
	Cycles       Event = iota // core cycles not halted: count less at a lower frequency
	RefCycles                 // cycles not halted at the reference frequency; some CPUs have none
	Instructions              // instructions retired
	// LLCReferences is PERF_COUNT_HW_CACHE_REFERENCES: accesses to the last-level cache on Intel, see LLCMisses.
	LLCReferences
	// LLCMisses is PERF_COUNT_HW_CACHE_MISSES: misses of the last-level cache on Intel. AMD's core counters end
	// at the second level, and the kernel maps the event to misses of L2 there: compare within a CPU type only.
	LLCMisses
	TaskClock       // ns on a CPU
	ContextSwitches // switches away from a thread
	CPUMigrations   // moves of a thread to another CPU
	PageFaults      // minor and major
)

// events in the order of the constants: name as perf(1) spells it, type and config of struct perf_event_attr.
var events = [...]struct {
	name   string
	kind   uint32
	config uint64
}{
	Cycles:          {"cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	RefCycles:       {"ref-cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_REF_CPU_CYCLES},
	Instructions:    {"instructions", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
	LLCReferences:   {"cache-references", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_REFERENCES},
	LLCMisses:       {"cache-misses", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES},
	TaskClock:       {"task-clock", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK},
	ContextSwitches: {"context-switches", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	CPUMigrations:   {"cpu-migrations", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_MIGRATIONS},
	PageFaults:      {"page-faults", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS},
}

// String returns the event's name as perf(1) spells it.
func (e Event) String() string {
	if int(e) < len(events) {
		return events[e].name
	}
	return fmt.Sprintf("event(%d)", uint8(e))
}

// Hardware says whether the event needs a performance monitoring unit.
func (e Event) Hardware() bool {
	return int(e) < len(events) && events[e].kind == unix.PERF_TYPE_HARDWARE
}

// Sentinels for what callers branch on.
var (
	// ErrNotSupported means that this machine cannot count the event: no PMU, or a PMU without it.
	ErrNotSupported = errors.New("event not supported by this machine")
	// ErrNotCgroup2 means that the directory is not in the hierarchy which carries the perf_event controller. That
	// is cgroup2, unless somebody mounted perf_event as a v1 hierarchy of its own; the other v1 directories never are.
	ErrNotCgroup2 = errors.New("directory is not in the cgroup hierarchy that carries perf_event")
	// ErrGone means that the cgroup was removed before its counters were opened.
	ErrGone = errors.New("cgroup is gone")
	// ErrPermission means that CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8) is missing, or that a seccomp filter
	// forbids the call; the text has the value of perf_event_paranoid.
	ErrPermission = errors.New("permission denied")
	// ErrTooManyFiles means that the descriptor limit of the process or of the machine is reached.
	ErrTooManyFiles = errors.New("too many open files")
)

// paranoidFile limits who may count what: Documentation/admin-guide/sysctl/kernel.rst, perf_event_paranoid.
const paranoidFile = "/proc/sys/kernel/perf_event_paranoid"

// open opens one counter of an event.
func open(e Event, pid, cpu, group, flags int, readFormat uint64, disabled bool) (int, error) {
	if int(e) >= len(events) {
		return -1, fmt.Errorf("perf: %v: %w", e, ErrNotSupported)
	}
	attr := unix.PerfEventAttr{Type: events[e].kind, Config: events[e].config, Read_format: readFormat}
	return openAttr(&attr, pid, cpu, group, flags, disabled)
}

// openAttr opens one counter: perf_event_open(2).
func openAttr(attr *unix.PerfEventAttr, pid, cpu, group, flags int, disabled bool) (int, error) {
	attr.Size = uint32(unsafe.Sizeof(*attr))
	if disabled {
		attr.Bits = unix.PerfBitDisabled
	}
	for {
		fd, err := unix.PerfEventOpen(attr, pid, cpu, group, flags|unix.PERF_FLAG_FD_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// Supported tries the event on the calling thread. It returns nil, or an error that wraps ErrNotSupported,
// ErrPermission or ErrTooManyFiles. Some hypervisors let a hardware event be opened and never count it:
// the thread works a little, and a unit that says it ran and counted nothing is not supported either (cache references
// and misses excepted, which may truly be none).
func Supported(e Event) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const format = unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING
	fd, err := open(e, 0, -1, -1, 0, format, false)
	if err != nil {
		return fmt.Errorf("perf: open %v on this process: %w", e, sorted(err))
	}
	defer func() { _ = unix.Close(fd) }()
	if !e.Hardware() || e == LLCReferences || e == LLCMisses {
		return nil
	}
	var spent uint64
	for i := range uint64(200_000) {
		spent += i * i
	}
	runtime.KeepAlive(spent)
	count := make([]uint64, 3) // value, enabled, running
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&count[0])), 24)
	if n, err := unix.Read(fd, raw); err != nil || n != len(raw) {
		return fmt.Errorf("perf: read %v of this process (%d bytes): %w", e, n, errors.Join(ErrNotSupported, err))
	}
	if count[0] == 0 && count[2] > 0 {
		return fmt.Errorf("perf: %v opened, ran for %d ns and counted nothing: %w", e, count[2], ErrNotSupported)
	}
	return nil
}

// sorted wraps an errno of perf_event_open on a process, where ENOENT can only mean the event.
func sorted(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS),
		errors.Is(err, unix.ENODEV), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("needs CAP_PERFMON, %s is %s: %w: %w", paranoidFile, paranoid(), ErrPermission, err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: %w", ErrTooManyFiles, err)
	}
	return err
}

// paranoid reads the setting for an error's text.
func paranoid() string {
	b, err := os.ReadFile(paranoidFile)
	if err != nil {
		return "unreadable"
	}
	return strings.TrimSpace(string(b))
}
