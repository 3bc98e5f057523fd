// Package resctrl reads and writes the kernel's resource control file system: cache ways,
// memory bandwidth and their monitoring, on CPUs with Intel RDT, AMD PQoS or Arm MPAM.
//
// https://docs.kernel.org/filesystems/resctrl.html
//
// What hardware has of it is few and shared by all: a machine has 4 to 32 CLOSIDs (control
// groups) and some hundred RMIDs (what is counted apart), and other tools use them too. So
// the driver keeps to itself:
//
//   - It makes, changes and removes only groups whose name begins with its prefix, and
//     knows each by its inode, so that one that was made anew is not taken for its own.
//     The root group is read, and gets its tasks and CPUs back; it is never written
//     otherwise.
//   - A thread that somebody else put into a group stays there.
//   - Before it makes a group it counts what is left, and leaves a reserve to others. No
//     reserve is enough for pqos with its OS interface: it wants to make every control
//     group itself (COS1 to the last), and fails, monitoring included, where one of them is
//     another's; the attempt takes those that were left. So control groups are nothing to
//     make where pqos -I is in use; monitoring groups do not disturb it.
//   - It takes the lock that the kernel document asks for (flock.go), shared for what is
//     read from several files, exclusive for changes, and waits for it a bounded time.
//   - It writes a group's schemata in one write, only what differs, and reads it back: the
//     kernel rounds, and a stranger may have written meanwhile.
//   - It mounts nothing by itself; Mount is there for an operator's explicit wish.
//
// What a ledger must know to put things back: the Identity of each group that was made
// (Made), and the Schemata that stood there after each write (Change.Now). To put back is
// to Remove the group: its tasks and CPUs fall to the root group (those of a monitoring
// group to its control group), which is where they came from, because a thread is taken
// from no other place. Remove is idempotent. Identities are worth as long as the mount:
// unmounting removes all groups, and a new mount may number its inodes from the start. The
// driver tells a new mount by its options and, since Linux 6.8, by its id. Kernels that
// have no such id and number from the start (none is known; 6.1 goes on numbering) would
// hide a new mount with the same options.
package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// What callers branch on. Each is wrapped with the operation and path, and stands beside
// the errno where there was one.
var (
	// ErrUnsupported: this kernel or CPU has no such file, resource or operation.
	ErrUnsupported = errors.New("not supported by this kernel or CPU")
	// ErrNotMounted: the kernel has resctrl, and it is not mounted (any more).
	ErrNotMounted = errors.New("resctrl is not mounted")
	// ErrRemounted: resctrl was mounted anew since Open: all groups went with the old
	// mount, and inodes and options may mean something else now.
	ErrRemounted = errors.New("resctrl was mounted anew")
	// ErrMalformed: a kernel file does not read as its documentation says.
	ErrMalformed = errors.New("malformed")
	// ErrBadName: a group's name is not one that the driver would give.
	ErrBadName = errors.New("bad group name")
	// ErrVanished: the group is gone. A new one of the same name is another group.
	ErrVanished = errors.New("resctrl group is gone")
	// ErrForeign: the group, or what would go with it, is not ours to change.
	ErrForeign = errors.New("not ours")
	// ErrLocked: another process held the lock on the file system for too long.
	ErrLocked = errors.New("resctrl is locked by another process")
	// ErrExhausted: no CLOSID or no RMID is left (ENOSPC, or our budget said so
	// before the kernel was asked). Waiting does not help.
	ErrExhausted = errors.New("none left")
	// ErrLimbo: every RMID that no group holds still counts cache lines of a group
	// that was removed (EBUSY). The kernel looks once a second; waiting helps.
	ErrLimbo = errors.New("the free RMIDs are in limbo")
	// ErrNoRoom: no cache ways are left for a group that may not overlap others.
	ErrNoRoom = errors.New("no room in the cache")
	// ErrDomainGone: a domain went offline between reading and writing; nothing of
	// the caches was written.
	ErrDomainGone = errors.New("a domain went offline meanwhile")
	// ErrReadBack: the kernel took a write, and shows something else afterwards.
	ErrReadBack = errors.New("reads back otherwise than it was written")
	// ErrStillGrowing: tasks were still appearing when the passes of a move ran out.
	ErrStillGrowing = errors.New("new threads kept appearing")
)

const (
	// DefaultPrefix begins the names of our groups; kernel/probe knows it.
	DefaultPrefix = "commensal-"
	// DefaultLockWait bounds the wait for the lock: other tools hold it for a few
	// writes, and the agent's cycle is no longer than seconds.
	DefaultLockWait = 2 * time.Second
	// DefaultReserveCLOSIDs leaves one control group to an operator with an emergency.
	DefaultReserveCLOSIDs = 1
	// DefaultReserveRMIDs leaves a handful of monitoring groups to other tools; the
	// smallest machines have some 32 RMIDs.
	DefaultReserveRMIDs = 4

	// DefaultQuiet is how long a group that had tasks must look empty before it is
	// removed; see rmdir.go. A CFS period is 100 ms.
	DefaultQuiet = 200 * time.Millisecond

	maxGroups = 4096 // what a listing stops at: CLOSIDs are at most 32, RMIDs at most 1024 so far
)

// Options say how the driver behaves towards others.
type Options struct {
	// Prefix begins the name of each group that the driver makes, and tells ours from
	// others'.
	Prefix string
	// LockWait is how long the lock is waited for at most; 0 asks once.
	LockWait time.Duration
	// ReserveCLOSIDs and ReserveRMIDs are left free for others: a creation that would
	// go below fails with ErrExhausted.
	ReserveCLOSIDs, ReserveRMIDs int
	// Quiet is how long a group that had tasks must look empty before it is removed.
	Quiet time.Duration
	// Clock is the time that waits are measured with; nil is the running machine's. A
	// simulated kernel has its own.
	Clock Clock
}

// Clock is a time that can be waited for.
type Clock interface {
	Now() time.Time
	Sleep(d time.Duration)
}

// wallClock is the running machine's.
type wallClock struct{}

func (wallClock) Now() time.Time        { return time.Now() }
func (wallClock) Sleep(d time.Duration) { time.Sleep(d) }

// DefaultOptions returns the constants above.
func DefaultOptions() Options {
	return Options{
		Prefix: DefaultPrefix, LockWait: DefaultLockWait,
		ReserveCLOSIDs: DefaultReserveCLOSIDs, ReserveRMIDs: DefaultReserveRMIDs,
		Quiet: DefaultQuiet,
	}
}

// Driver reads and writes one mounted resctrl. It is safe for concurrent use: changes
// take turns.
type Driver struct {
	fs    hostfs.FS
	at    MountInfo
	mount uint64 // its mount's id, 0 where the kernel tells none
	opt   Options
	turn  sync.RWMutex // within the process; the lock on the file system keeps others out

	limboMu sync.Mutex
	limbo   limbo
}

// Open returns the driver of a mount that Discover found. It reads, and writes nothing.
func Open(fsys hostfs.FS, at MountInfo, o Options) (*Driver, error) {
	if err := checkOwnName(o.Prefix); err != nil {
		return nil, fmt.Errorf("open resctrl: prefix: %w", err)
	}
	if o.ReserveCLOSIDs < 0 || o.ReserveRMIDs < 0 || o.LockWait < 0 || o.Quiet < 0 {
		return nil, fmt.Errorf("open resctrl: negative option in %+v: %w", o, unix.EINVAL)
	}
	if o.Clock == nil {
		o.Clock = wallClock{}
	}
	d := &Driver{fs: fsys, at: at, opt: o}
	if _, err := fsys.Inode(at.Point + statusFile); err != nil {
		return nil, fmt.Errorf("open resctrl: %w", d.explainRoot(err))
	}
	var err error
	if d.mount, err = mountID(fsys, at.Point); err != nil {
		return nil, fmt.Errorf("open resctrl: %w", err)
	}
	return d, nil
}

// Mounted returns the mount that the driver was opened on.
func (d *Driver) Mounted() MountInfo { return d.at }

// Root returns the root group, which threads may be moved back to.
func (d *Driver) Root() (Identity, error) {
	inode, err := d.fs.Inode(d.at.Point)
	if err != nil {
		return Identity{}, fmt.Errorf("find the root group: %w", d.explainRoot(err))
	}
	return Identity{Inode: inode}, nil
}

// path returns where a group is.
func (d *Driver) path(n Name) string {
	p := d.at.Point
	if n.Ctrl != "" {
		p += "/" + n.Ctrl
	}
	if n.Mon != "" {
		p += "/" + monGroupsDir + "/" + n.Mon
	}
	return p
}

// ours says whether the driver's prefix is on the last part of a group's name.
func (d *Driver) ours(n Name) bool {
	last := n.Ctrl
	if n.Mon != "" {
		last = n.Mon
	}
	return len(last) > len(d.opt.Prefix) && last[:len(d.opt.Prefix)] == d.opt.Prefix
}

// explain adds what the errno of reading a group's file means: its files are gone with
// the group, and all with the mount; otherwise this kernel has no such file.
func (d *Driver) explain(n Name, err error) error {
	if !gone(err) {
		return err
	}
	if err := d.explainRoot(err); errors.Is(err, ErrNotMounted) {
		return err
	}
	if d.lacks(n, err) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return fmt.Errorf("%w: %w", ErrVanished, err)
}

// lacks says whether the group that is there now has no file of the name that err is of.
// One that has it was made anew after err, and the group that was meant is gone.
func (d *Driver) lacks(n Name, err error) bool {
	before, e1 := d.fs.Inode(d.path(n))
	var file *fs.PathError
	if !errors.As(err, &file) {
		return e1 == nil
	}
	_, missing := d.fs.Inode(file.Path)
	after, e2 := d.fs.Inode(d.path(n))
	return e1 == nil && e2 == nil && before == after && gone(missing)
}

// explainRoot adds to the errno of a file outside groups that resctrl is not mounted.
func (d *Driver) explainRoot(err error) error {
	if gone(err) {
		if _, e := d.fs.Inode(d.at.Point + statusFile); gone(e) {
			return fmt.Errorf("%w: %w", ErrNotMounted, err)
		}
	}
	return err
}

// gone says whether an error means that the file is not there (any more).
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOTDIR)
}

// verify checks that a group is still the one that is meant.
func (d *Driver) verify(id Identity) error {
	inode, err := d.fs.Inode(d.path(id.Name))
	if err != nil {
		return d.explain(id.Name, err)
	}
	if inode != id.Inode {
		return fmt.Errorf("%s: %w: inode %d is there now, not %d", id.Name, ErrVanished, inode, id.Inode)
	}
	return nil
}

// verifyOurs checks that a group is ours, and still the one that is meant.
func (d *Driver) verifyOurs(id Identity) error {
	if !d.ours(id.Name) {
		return fmt.Errorf("%s: %w: the name does not begin with %q", id.Name, ErrForeign, d.opt.Prefix)
	}
	return d.verify(id)
}
