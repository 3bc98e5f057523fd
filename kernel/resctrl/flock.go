package resctrl

// The lock that the kernel document asks for ("Locking"): whoever reads from several
// files holds flock(2) on the root of the file system shared, whoever changes it
// exclusive. pqos does so (goresctrl v0.14 does not); the kernel enforces nothing.
//
// Who holds it stands in /proc/locks: number, kind, how, access, pid, device (hexadecimal
// major and minor, inode), range. A second line of the same number with "->" is a waiter.
//
//	1: FLOCK  ADVISORY  WRITE 217 00:1a:1 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 218 00:1a:1 0 EOF
//
// The kernel leaves out locks of processes that the reader's pid namespace does not show.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	locksPath = "/proc/locks"

	// The lock is polled: a blocking flock cannot be bounded without signals. Polling is
	// not fair: against a process that takes the lock again and again a reader may wait
	// in vain. It is told so (ErrLocked, with the holder), and asks again in its next turn.
	firstPoll = time.Millisecond
	maxPoll   = 50 * time.Millisecond
)

// access is how the lock is taken.
type access int

const (
	toRead   access = unix.LOCK_SH
	toChange access = unix.LOCK_EX
)

// locked runs f with the lock held. Locks do not nest, not even within a process.
func (d *Driver) locked(how access, f func() error) error {
	if how == toChange {
		d.turn.Lock()
		defer d.turn.Unlock()
	} else {
		d.turn.RLock()
		defer d.turn.RUnlock()
	}
	dir, err := hostfs.OpenFolder(d.fs, d.at.Point)
	if err != nil {
		return fmt.Errorf("lock resctrl: %w", d.explainRoot(err))
	}
	defer dir.Close() //nolint:errcheck // a directory that was only opened
	if err := d.takeLock(dir, how); err != nil {
		return err
	}
	// Unlock in so many words: a process that is being started at this moment may
	// hold a copy of the descriptor until its exec.
	defer dir.Flock(unix.LOCK_UN) //nolint:errcheck // closing lets go too
	if err := d.sameMount(); err != nil {
		return err
	}
	return f()
}

func (d *Driver) takeLock(dir hostfs.Folder, how access) error {
	end := d.opt.Clock.Now().Add(d.opt.LockWait)
	for poll := firstPoll; ; poll = min(2*poll, maxPoll) {
		err := dir.Flock(int(how) | unix.LOCK_NB)
		left := end.Sub(d.opt.Clock.Now())
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock resctrl: flock %s: %w", d.at.Point, err)
		case left <= 0:
			return fmt.Errorf("lock resctrl: %w: %s, %s waited for: %w", ErrLocked, d.holders(), d.opt.LockWait, err)
		default:
			d.opt.Clock.Sleep(min(poll, left))
		}
	}
}

// sameMount checks that the mount is still the one that was opened.
func (d *Driver) sameMount() error {
	now, err := findMount(d.fs, d.at.Point)
	if err != nil {
		return err
	}
	if now.Options != d.at.Options {
		return fmt.Errorf("%s: %w: with %q, was %q", d.at.Point, ErrRemounted, now.Options, d.at.Options)
	}
	id, err := mountID(d.fs, d.at.Point)
	if err != nil {
		return d.explainRoot(err)
	}
	if id != d.mount {
		return fmt.Errorf("%s: %w: mount %d, was %d", d.at.Point, ErrRemounted, id, d.mount)
	}
	return nil
}

// mountID returns an id that no other mount of this boot has, 0 where it cannot be had.
// The ids of mountinfo are no such: the next mount is given one that is free again.
func mountID(fsys hostfs.FS, point string) (uint64, error) {
	m, ok := fsys.(hostfs.MountIdentifier)
	if !ok {
		return 0, nil
	}
	return m.MountID(point)
}

// holders names who may hold the lock, for people.
func (d *Driver) holders() string {
	inode, err := d.fs.Inode(d.at.Point)
	if err != nil {
		return "by whom cannot be told: " + err.Error()
	}
	data, err := d.fs.ReadFile(locksPath, nil)
	if err != nil {
		return "by whom cannot be told: " + err.Error()
	}
	var names []string
	for _, pid := range parseLocks(string(data), d.at.Device, inode) {
		name := "pid " + strconv.Itoa(pid)
		if comm, err := d.fs.ReadFile(fmt.Sprintf("/proc/%d/comm", pid), nil); err == nil {
			name += " (" + strings.TrimSpace(string(comm)) + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return "by a process that " + locksPath + " does not show here"
	}
	return strings.Join(names, ", ")
}

// parseLocks returns the processes that hold a flock on a file, ascending. Lines that do
// not read as documented are passed over: the answer is for people.
func parseLocks(text, device string, inode uint64) []int {
	major, minor, ok := strings.Cut(device, ":")
	maj, err1 := strconv.ParseUint(major, 10, 32)
	mnr, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return nil
	}
	where := fmt.Sprintf("%02x:%02x:%d", maj, mnr, inode)
	var pids []int
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != where {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
