package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
)

// ErrRunning: another agent holds the run directory, or the host.
var ErrRunning = errors.New("another agent is running")

// The two locks of a run directory. The agent holds both while it runs; whoever
// restores holds the journal's, so that a guardian and the next agent take turns.
const (
	agentLock   = "agent.lock"
	journalLock = "journal.lock"
	journalFile = "journal"
)

// JournalPath returns where the journal of a run directory is.
func JournalPath(runDir string) string { return filepath.Join(runDir, journalFile) }

// runningError is ErrRunning with who it is.
type runningError struct {
	pid  int // 0: nobody can tell
	path string
}

func (e *runningError) Error() string {
	who := "somebody whom this PID namespace does not show"
	if e.pid > 0 {
		who = fmt.Sprintf("pid %d", e.pid)
	}
	return fmt.Sprintf("%v (%s holds %s)", ErrRunning, who, e.path)
}

// Is makes it an ErrRunning.
func (e *runningError) Is(target error) bool { return target == ErrRunning }

// lock takes an exclusive lock on a file of a run directory and writes our pid into it. It waits
// up to the given time; the kernel lets go of it with the process.
func lock(dir, name string, wait time.Duration) (*os.File, error) {
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, unix.EROFS) {
		f, err = os.Open(path) // whoever puts limits back needs the lock, and not to write
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = flock(f, wait)
	if errors.Is(err, ErrRunning) {
		text, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if pids := holders(f); len(pids) > 0 && !slices.Contains(pids, pid) {
			pid = pids[0] // it has not come to write it
		}
		err = &runningError{pid, path}
	}
	if err != nil {
		f.Close() //nolint:errcheck // the first error counts
		return nil, err
	}
	_ = f.Truncate(0) // the pid is for people, and for whoever ends a hung agent
	_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	return f, nil
}

// flock waits up to the given time for an exclusive lock; ErrRunning where another has it.
func flock(f *os.File, wait time.Duration) error {
	for deadline := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		case time.Now().After(deadline):
			return ErrRunning
		}
	}
}

// holders returns the processes that took the lock on a file, as far as that can be told.
func holders(f *os.File) []int {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil
	}
	pids, _ := procstat.FlockHolders(hostfs.NewRoot("/"), &st)
	return pids
}

// lockHost takes the lock that keeps two agents off one host, whatever their directories are:
// each would take the other's values for what it found. It is on the root directory of the cgroup
// hierarchy with the cpu controller, the one thing that all of them share. Any user may open and
// lock that directory, so a holder that is not root's keeps nobody out: that is said, and the lock
// is done without (nil).
func lockHost(root string, log *slog.Logger) (*os.File, error) {
	f, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = flock(f, startWait)
	if err == nil {
		return f, nil
	}
	pids := holders(f)
	f.Close() //nolint:errcheck // the first error counts
	if !errors.Is(err, ErrRunning) {
		return nil, err
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("%w; --beside-another allows that", &runningError{0, root})
	}
	for _, pid := range pids {
		if isRoots(pid) {
			return nil, fmt.Errorf("%w; --beside-another allows that", &runningError{pid, root})
		}
	}
	log.Warn("somebody who is not root has locked the directory by which a second agent on this host is noticed: none would be", "directory", root, "pid", pids[0])
	return nil, nil
}

// isRoots reports whether a process runs as root. One that is gone does not.
func isRoots(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, uids, _ := strings.Cut(string(status), "\nUid:")
	f := strings.Fields(uids) // real, effective, saved, of files
	return len(f) > 1 && f[1] == "0"
}

// stillThere reports whether a lock that we hold is still the file at its path: beside one that was
// removed another agent would start, and no guardian finds the journal.
func stillThere(f *os.File) bool {
	var ours, now unix.Stat_t
	return unix.Fstat(int(f.Fd()), &ours) == nil && unix.Stat(f.Name(), &now) == nil && ours.Dev == now.Dev && ours.Ino == now.Ino
}
