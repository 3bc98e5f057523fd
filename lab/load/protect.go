package load

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fifoPriority is above everything that is not real-time and below what the kernel runs
// at 50 and more.
const fifoPriority = 10

const bestNice = -20

// protectedEnv marks the image that Protect started; its value says what was refused on
// the way there.
const protectedEnv = "COMMENSAL_LOAD_PROTECTED"

// gcLimitBytes is when garbage collection begins in a protected process. A run's own
// memory is its histograms and queues, far below; the limit is for a server that stalls.
const gcLimitBytes = 512 << 20

// Protect keeps the load process from measuring itself: it asks for SCHED_FIFO 10, or else
// for nice -20, turns garbage collection off below 512 MiB and provides the Ps (GOMAXPROCS
// 8) with which Run's threads can wait cheaply. Call it first in main, on
// the main goroutine, before anything is opened or started: a process's threads inherit
// scheduling when they are created, so Protect sets it on one thread and executes the
// program anew in place (same process id, arguments and environment, and descriptors that
// are not close-on-exec). It then returns in the new image. Children inherit too.
//
// It returns what holds: "SCHED_FIFO 10", "nice -20 (why not SCHED_FIFO)" or "none: why".
// The error is for what went wrong beyond a refusal; the process is then as it was.
//
// SCHED_FIFO needs CAP_SYS_NICE and, on kernels with CONFIG_RT_GROUP_SCHED and cgroup v1,
// a cpu cgroup with a cpu.rt_runtime_us, which as a rule is only the root. nice counts
// only among the tasks of the same cgroup, or of the same session under autogroup.
func Protect() (string, error) {
	if refused, again := os.LookupEnv(protectedEnv); again {
		if err := os.Unsetenv(protectedEnv); err != nil {
			return "", fmt.Errorf("load: unset %s: %w", protectedEnv, err)
		}
		runtime.GOMAXPROCS(max(protectProcs, runtime.GOMAXPROCS(0)))
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(gcLimitBytes)
		got := observeProtection("")
		if refused != "" && got != fifoName {
			got += " (" + refused + ")"
		}
		return got, nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return "", fmt.Errorf("load: sched_getattr: %w", err)
	}
	wish := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: fifoPriority}
	refused := ""
	if err := unix.SchedSetAttr(0, wish, 0); err != nil {
		refused = fmt.Sprintf("SCHED_FIFO refused: %v%s", err, fifoHint(err))
		wish = &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: bestNice}
		if err := unix.SchedSetAttr(0, wish, 0); err != nil {
			return fmt.Sprintf("none: %s; nice %d refused: %v", refused, bestNice, err), nil
		}
	}
	err = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), protectedEnv+"="+refused))
	// Still here: give the thread back as it was, so that not one alone is privileged.
	return "none: the program could not be started anew", errors.Join(
		fmt.Errorf("load: exec /proc/self/exe: %w", err), unix.SchedSetAttr(0, before, 0))
}

// fifoHint names the cgroup when it, rather than a capability, is the likely reason.
func fifoHint(err error) string {
	if !errors.Is(err, unix.EPERM) {
		return ""
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		// 1:cpu,cpuacct:/path
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || parts[2] == "/" {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			if controller == "cpu" {
				return fmt.Sprintf(" in cpu cgroup %s", parts[2])
			}
		}
	}
	return ""
}

var fifoName = fmt.Sprintf("SCHED_FIFO %d", fifoPriority)

// observeProtection says how the kernel schedules the calling thread; claimed is what to
// say when it is not protected.
func observeProtection(claimed string) string {
	a, err := unix.SchedGetAttr(0, 0)
	switch {
	case err != nil:
		return fmt.Sprintf("none: sched_getattr: %v", err)
	case a.Policy == unix.SCHED_FIFO:
		return fmt.Sprintf("SCHED_FIFO %d", a.Priority)
	case a.Policy == unix.SCHED_RR:
		return fmt.Sprintf("SCHED_RR %d", a.Priority)
	case a.Nice < 0:
		return fmt.Sprintf("nice %d", a.Nice)
	case strings.HasPrefix(claimed, "none: "):
		return claimed
	}
	return "none: Protect was not called"
}
