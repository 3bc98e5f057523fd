package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
)

// restoreWait is how long a restorer waits for the journal's lock: far longer than a
// dying agent holds it.
const restoreWait = 10 * time.Second

// ErrUnkillable: an agent does not die of SIGKILL, because it is in an uninterruptible wait inside
// the kernel.
var ErrUnkillable = errors.New("the agent does not die of SIGKILL")

// RestoreNow puts back what a dead agent left in its run directory, and what one of an older
// version left in its state directory, where the journal was then. ErrRunning, at once, while
// an agent is running; with force its process, and a restore that hangs, is ended first, by the pid
// of its lock. ErrUnkillable: it did not die of that, and everything was put back beside it.
func RestoreNow(runDir, stateDir string, force bool) (node.Report, error) {
	var all node.Report
	for _, dir := range []string{runDir, stateDir} {
		if dir == stateDir && !oldJournal(runDir, stateDir) {
			continue
		}
		rep, err := restoreDead(dir, force)
		all.Items = append(all.Items, rep.Items...)
		all.Unreadable += rep.Unreadable
		all.Rebooted = all.Rebooted || rep.Rebooted
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// restoreDead is RestoreNow for one directory.
func restoreDead(dir string, force bool) (node.Report, error) {
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return node.Report{}, nil // no agent ever ran here
	}
	l, err := lock(dir, agentLock, 0)
	if force && errors.Is(err, ErrRunning) {
		if l, err = lockByForce(dir, agentLock, err); errors.Is(err, ErrUnkillable) {
			rep, problem := restoreBeside(dir)
			if problem != nil {
				err = fmt.Errorf("%w; beside it: %w", err, problem)
			}
			return rep, err
		}
	}
	if err != nil {
		return node.Report{}, err
	}
	if err := l.Close(); err != nil {
		return node.Report{}, fmt.Errorf("restore: %w", err)
	}
	rep, err := restoreInTurn(dir)
	if force && errors.Is(err, ErrRunning) { // a restore that hangs
		if l, err = lockByForce(dir, journalLock, err); err == nil {
			defer l.Close() //nolint:errcheck // closing is unlocking
			return restoreLocked(dir)
		}
	}
	return rep, err
}

// lockByForce ends whoever holds a lock, and takes it.
func lockByForce(dir, name string, running error) (*os.File, error) {
	var r *runningError
	if !errors.As(running, &r) || r.pid <= 1 || r.pid == os.Getpid() {
		return nil, running
	}
	if err := unix.Kill(r.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("restore: end pid %d: %w", r.pid, err)
	}
	l, err := lock(dir, name, obeyWait)
	if errors.Is(err, ErrRunning) {
		return nil, fmt.Errorf("%w: pid %d", ErrUnkillable, r.pid)
	}
	return l, err
}

// oldJournal reports whether an agent of an older version left a journal in its state directory.
func oldJournal(runDir, stateDir string) bool {
	if stateDir == "" || filepath.Clean(stateDir) == filepath.Clean(runDir) {
		return false
	}
	_, err := os.Lstat(JournalPath(stateDir))
	return err == nil
}

// restoreOld puts back what an agent of an older version left in the state directory, and
// removes that journal and its locks when nothing of it is left to do. It returns what people
// should be warned of.
func restoreOld(runDir, stateDir string, log *slog.Logger) (warning string, err error) {
	if !oldJournal(runDir, stateDir) {
		return "", nil
	}
	rep, err := restoreDead(stateDir, false)
	if errors.Is(err, ErrRunning) {
		return "", err
	}
	path := JournalPath(stateDir)
	if err != nil {
		return fmt.Sprintf("what an older agent left could not be put back from %s: %v", path, err), nil
	}
	LogReport(log, &rep)
	if !rep.Complete() {
		return fmt.Sprintf("not all that an older agent left could be put back from %s; `commensal restore` tries again", path), nil
	}
	for _, name := range []string{journalFile, journalLock, agentLock} {
		if err := os.Remove(filepath.Join(stateDir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Sprintf("the journal of an older agent was restored and cannot be removed: %v", err), nil
		}
	}
	return "", nil
}

// restoreInTurn takes the journal's lock and puts back what is outstanding.
func restoreInTurn(dir string) (node.Report, error) {
	l, err := lock(dir, journalLock, restoreWait)
	if err != nil {
		return node.Report{}, err
	}
	defer l.Close() //nolint:errcheck // closing is unlocking
	return restoreLocked(dir)
}

// restoreBeside puts back what is outstanding while an agent that cannot be ended still holds the
// locks. It leaves the journal as it is, so that what the agent was just about to write is put back
// by a restore in turn when it is gone.
func restoreBeside(dir string) (node.Report, error) {
	return restore(dir, untouched{journal.RealDisk()})
}

// untouched is a disk that nothing is written to.
type untouched struct{ journal.Disk }

func (untouched) Create(string) (journal.File, error) { return nil, errUntouched }

func (untouched) Rename(string, string) error { return errUntouched }

func (untouched) Remove(string) error { return errUntouched }

var errUntouched = errors.New("an agent still has this journal")

// restoreLocked is restoreInTurn for whoever holds the lock already.
func restoreLocked(dir string) (node.Report, error) { return restore(dir, journal.RealDisk()) }

func restore(dir string, disk journal.Disk) (node.Report, error) {
	fs := hostfs.NewRoot("/")
	boot, err := procstat.ReadBootID(fs)
	if err != nil {
		return node.Report{}, fmt.Errorf("restore: %w", err)
	}
	return linux.Restoring{FS: fs, Journal: JournalPath(dir), Boot: boot, Disk: disk}.Run()
}

// restoreText says what became of a cgroup's setting.
func restoreText(k node.RestoreKind) string {
	switch k {
	case node.Restored:
		return "the value found before the agent changed it was put back"
	case node.AsFound:
		return "the value found before the agent changed it was there already"
	case node.LeftForeign:
		return "somebody else has written another value: it was left alone"
	case node.LeftGone:
		return "the cgroup that the agent had changed is gone"
	}
	return "the kernel refused to put the value back that was found: the agent's own may still be in force"
}

// LogReport says what a restore did, and nothing when there was nothing to do.
func LogReport(log *slog.Logger, rep *node.Report) {
	for _, it := range rep.Items {
		level := slog.LevelInfo
		if it.Kind == node.NotRestored || it.Kind == node.LeftForeign {
			level = slog.LevelWarn
		}
		log.Log(nil, level, restoreText(it.Kind), "cgroup", it.Path, "outcome", string(it.Kind), "now", it.Now, "found", it.Found, "error", it.Error) //nolint:staticcheck // no context here
	}
	if rep.Rebooted {
		log.Info("nothing to put back: the journal is of an earlier boot, and a boot ends every setting")
	}
	if rep.Unreadable != "" {
		log.Error("part of the journal could not be read: some setting of the agent may still be in force", "why", rep.Unreadable)
	}
}
