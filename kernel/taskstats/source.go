// Package taskstats tells how long a thread group ran and how long its threads stood in run queues, runnable
// but without a CPU. (run + delay) / run is the slowdown that carries detection where a machine has no
// performance counters.
//
// Two sources answer the same question. Netlink (the kernel's TASKSTATS family) sums a thread group inside the
// kernel, in one request, and keeps what threads that ended had gathered. Schedstat adds up small files, one a
// thread, and forgets a thread when it ends: its sums may go backwards, and a sum that went backwards gives no rate.
//
// What the delay means, on either source:
//   - It grows when a thread that waited gets a CPU (or leaves the queue). A thread that has been waiting for two
//     seconds and still waits shows nothing of it yet.
//   - It holds every wait: behind others, behind siblings of the same task, and while throttled by the task's own
//     quota. A window in which the task was throttled is no evidence of interference.
package taskstats

import "errors"

// Status says whether the numbers beside it may be used.
type Status uint8

// The outcomes of one thread group in one query. The zero value is Unavailable, so that a Stats nobody filled in
// is never taken for a measured zero.
const (
	Unavailable Status = iota // the source has no usable numbers for it; see each source
	OK                        // the numbers are good
	Gone                      // no such thread group (ESRCH): it ended and was reaped
)

// String returns the status as it is printed in reports.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Gone:
		return "gone"
	default:
		return "unavailable"
	}
}

// Stats are the counters of one thread group, cumulative since the process began.
type Stats struct {
	// RunNsec is time on a CPU, as the scheduler measures it (sum_exec_runtime), not sampled by ticks.
	RunNsec uint64
	// DelayNsec is time runnable in a run queue without a CPU.
	DelayNsec uint64
	// DelayCount is how often a thread was given a CPU (sched_info.pcount): DelayNsec / DelayCount is the mean wait.
	DelayCount uint64
	// IODelayNsec is time waiting for a block device (taskstats alone; 0 while the kernel does not account it, which the sysctl
	// kernel.task_delayacct says).
	IODelayNsec uint64
	// Status says whether those above may be used; they are zero unless it is OK.
	Status Status
}

// Source answers for many thread groups at once. A Source is for one goroutine at a time.
type Source interface {
	// Query fills out[i] for tgids[i]; len(out) must be at least len(tgids). What concerns one thread group is told
	// in its Status; an error means that the source itself failed, and out is then not to be used.
	Query(tgids []int32, out []Stats) error
	// Name is "taskstats" or "schedstat": specs are kept apart by it.
	Name() string
	// KeepsDeadThreads says whether a thread that ended stays in the sums of its thread group.
	KeepsDeadThreads() bool
	// Close gives back the descriptors.
	Close() error
}

// Sentinels for what callers branch on.
var (
	// ErrPermission means that a capability is missing; the text names it.
	ErrPermission = errors.New("permission denied")
	// ErrNotSupported means that this kernel does not offer the source, or speaks a version we cannot read.
	ErrNotSupported = errors.New("not supported by this kernel")
	// ErrShortOutput means that Query was given fewer results than questions.
	ErrShortOutput = errors.New("fewer results than thread groups")
)
