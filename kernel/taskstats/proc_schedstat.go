package taskstats

// /proc/<tgid>/task/<tid>/schedstat: Documentation/scheduler/sched-stats.rst, fs/proc/base.c proc_pid_schedstat
//
//	3611067 1041820 43
//
// Time on a CPU in ns, time runnable without a CPU in ns, times given a CPU, of one thread. Present with
// CONFIG_SCHED_INFO, which CONFIG_SCHEDSTATS and CONFIG_TASK_DELAY_ACCT both bring (CONFIG_SCHEDSTATS itself is not
// needed); a kernel that does not gather the numbers prints "0 0 0".
//
// /proc/<tgid>/schedstat is the first thread alone, hence the sum over task/.

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// errMalformed means a schedstat that is not three decimal numbers.
var errMalformed = errors.New("want \"run-ns delay-ns count\"")

// Schedstat is the fallback Source where netlink is refused. It needs no privilege beyond reading /proc, but the
// sum loses a thread when it ends, and a query costs two to three system calls a thread and two a thread group, with
// allocations for the directory listing and the paths: threads come and go, so descriptors kept for
// each would have to be matched with a listing anyway, and one a thread would exhaust the descriptor limit on a
// large node. Not for concurrent use.
type Schedstat struct {
	fs  hostfs.FS
	buf []byte
}

var _ Source = (*Schedstat)(nil)

// NewSchedstat returns the fallback source on a host's files.
func NewSchedstat(fsys hostfs.FS) *Schedstat {
	return &Schedstat{fs: fsys, buf: make([]byte, 0, 128)} // three 64-bit numbers are at most 63 bytes
}

// Name returns "schedstat".
func (s *Schedstat) Name() string { return "schedstat" }

// KeepsDeadThreads is false: /proc lists living threads only.
func (s *Schedstat) KeepsDeadThreads() bool { return false }

// Close does nothing: no descriptor outlives a query.
func (s *Schedstat) Close() error { return nil }

// Query sums the living threads of each thread group. Gone: there is no such directory. Unavailable: the kernel
// does not gather the numbers, or we may not read them. A file that does not parse fails the source: every
// other would not parse either.
func (s *Schedstat) Query(tgids []int32, out []Stats) error {
	if len(out) < len(tgids) {
		return fmt.Errorf("schedstat: query: %d results for %d: %w", len(out), len(tgids), ErrShortOutput)
	}
	for i, tgid := range tgids {
		var err error
		if out[i], err = s.threadGroup(tgid); err != nil {
			return fmt.Errorf("schedstat: query: %w", err)
		}
	}
	return nil
}

// threadGroup sums one thread group.
func (s *Schedstat) threadGroup(tgid int32) (Stats, error) {
	dir := "/proc/" + strconv.Itoa(int(tgid)) + "/task"
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return Stats{Status: statusOf(err)}, nil
	}
	sum := Stats{Status: OK}
	counted := false
	for _, e := range entries {
		path := dir + "/" + e.Name + "/schedstat"
		if s.buf, err = s.fs.ReadFile(path, s.buf); err != nil {
			if status := statusOf(err); status != Gone {
				return Stats{Status: status}, nil
			}
			continue // the thread ended between the listing and the reading
		}
		thread, err := parseSchedstat(s.buf)
		if err != nil {
			return Stats{}, fmt.Errorf("%s: %w", path, err)
		}
		counted = true
		sum.RunNsec += thread.RunNsec
		sum.DelayNsec += thread.DelayNsec
		sum.DelayCount += thread.DelayCount
	}
	switch {
	case !counted && s.stillThere(tgid):
		return Stats{Status: Unavailable}, nil // threads, but no schedstat among them: CONFIG_SCHED_INFO is off
	case !counted:
		return Stats{Status: Gone}, nil
	case sum.RunNsec == 0 && sum.DelayCount == 0:
		return Stats{Status: Unavailable}, nil // "0 0 0", or never scheduled: no measured zero
	}
	return sum, nil
}

// stillThere tells a process that ended under our hands from one whose kernel has no schedstat files.
func (s *Schedstat) stillThere(tgid int32) bool {
	_, err := s.fs.Inode("/proc/" + strconv.Itoa(int(tgid)))
	return err == nil
}

// statusOf sorts an error on a file of one process.
func statusOf(err error) Status {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Gone
	}
	return Unavailable // EACCES or EPERM, as under hidepid
}

// parseSchedstat reads the three numbers of one thread.
func parseSchedstat(b []byte) (Stats, error) {
	var fields [3]uint64
	rest := b
	for i := range fields {
		var ok bool
		if fields[i], rest, ok = leadingUint(rest); !ok {
			return Stats{}, fmt.Errorf("%q: %w", b, errMalformed)
		}
		if i < len(fields)-1 {
			if len(rest) == 0 || rest[0] != ' ' {
				return Stats{}, fmt.Errorf("%q: %w", b, errMalformed)
			}
			rest = rest[1:]
		}
	}
	if len(rest) > 0 && string(rest) != "\n" {
		return Stats{}, fmt.Errorf("%q: %w", b, errMalformed)
	}
	return Stats{RunNsec: fields[0], DelayNsec: fields[1], DelayCount: fields[2], Status: OK}, nil
}

// leadingUint splits a decimal number off b; ok is false when there is none or it does not fit 64 bits.
func leadingUint(b []byte) (value uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		digit := uint64(b[i] - '0')
		if value > (^uint64(0)-digit)/10 {
			return 0, b, false
		}
		value = value*10 + digit
	}
	return value, b[i:], i > 0
}
