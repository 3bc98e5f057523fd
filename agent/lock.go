package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning: another agent holds the state directory.
var ErrRunning = errors.New("another agent is running")

// The two locks of a state directory. The agent holds both while it runs; whoever
// restores holds the journal's, so that a guardian and the next agent take turns.
const (
	agentLock   = "agent.lock"
	journalLock = "journal.lock"
	journalFile = "journal"
)

// JournalPath returns where the journal of a state directory is.
func JournalPath(stateDir string) string { return filepath.Join(stateDir, journalFile) }

// lock takes an exclusive lock on a file of the state directory and writes our pid into
// it for people. It waits up to the given time; the kernel lets go of it with the process.
func lock(stateDir, name string, wait time.Duration) (*os.File, error) {
	path := filepath.Join(stateDir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		pid, _ := os.ReadFile(path)
		f.Close() //nolint:errcheck // the first error counts
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (pid %s holds %s)", ErrRunning, strings.TrimSpace(string(pid)), path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	_ = f.Truncate(0) // the pid is for people only
	_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	return f, nil
}
