// Package cgroup reads and writes Linux control groups. Discover finds what is mounted
// where; Open returns the Driver for that layout: V1 on pure v1 and hybrid hosts, V2 on
// pure v2 ones. OpenUnified gives V2 wherever there is a cgroup2 mount, and with it what
// v1 does not know: partitions, events, kill, delegation. Memory is package reclaim's.
//
// A group is named by its path below the hierarchy's root ("/batch/job-7"), which on v1
// is the same path in every hierarchy that holds it. The root group is "/"; it is read,
// never written.
//
// The layouts differ in more than file names, and Driver does not hide what a caller must
// know:
//
//   - On v1 a group has a file because the kernel has it; on v2 only where the group above
//     hands the controller down, else the error is an *AbsentControllerError. CPU time and
//     processes are there in every group of either.
//   - On v1 a child's quota may not exceed its parent's, and a limit is written in up to
//     four steps; on v2 it may (the lesser binds), and quota and period are one write. What
//     a write that was cut off leaves is an IsIntermediate state, or on v1 no quota.
//   - On v2 processes live in groups that hand no controllers down (ErrInnerGroup), and a
//     threaded group lists none (ErrThreaded).
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html
// https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html
// https://docs.kernel.org/scheduler/sched-bwc.html
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// What callers branch on. Each is wrapped with the operation and path, beside the errno.
var (
	// ErrVanished: the group's directory is gone. A new group at the same path is
	// another group, and does not make this error go away.
	ErrVanished = errors.New("cgroup is gone")
	// ErrUnsupported: the group exists, and this kernel or layout has no such file.
	ErrUnsupported = errors.New("not supported by this kernel")
	// ErrUnsupportedLayout: no driver for the way this host mounts its cgroups.
	ErrUnsupportedLayout = errors.New("unsupported cgroup layout")
	// ErrTooManyGroups: a walk left groups out because of maxGroups, maxWidth or maxDepth.
	ErrTooManyGroups = errors.New("too many cgroups")
	// ErrTooManyProcs: a group holds more thread groups than maxProcs, which are not listed.
	ErrTooManyProcs = errors.New("too many processes")
	// ErrInnerGroup: a v2 group that hands controllers to its children takes no processes.
	ErrInnerGroup = errors.New("cgroup hands controllers to its children and takes no processes")
	// ErrOutsideNamespace: a process or group outside of our cgroup namespace was named.
	ErrOutsideNamespace = errors.New("outside of this cgroup namespace")
	// ErrRootGroup: the root group was named where a write was asked for.
	ErrRootGroup = errors.New("the root cgroup is never written")
)

// Bounds of a walk.
const (
	// maxGroups bounds the list. The memory controller numbers its groups with 16 bits, and
	// hosts that keep a group in one hierarchy keep it in all, so a longer list means a fault
	// (or someone who leaks groups), not a big host.
	maxGroups = 65536
	// maxWidth bounds what one group holds, so that one leak does not use up the list: a
	// quarter of it, and more than the tasks of any host.
	maxWidth = maxGroups / 4
	// maxDepth bounds nesting. Containers in containers in pods are some fifteen deep.
	maxDepth = 32
)

// PartialError says that a list of groups lacks what some of them hold, which could not be
// listed or is beyond the bounds of a walk. The list is good for all others.
type PartialError struct {
	Skipped int    // groups that were not looked into
	Path    string // of the first of them
	Err     error  // why
}

func (e *PartialError) Error() string {
	path := e.Path
	if len(path) > 200 { // some are 4 KiB long
		path = path[:200] + "..."
	}
	why := e.Err
	var pe *fs.PathError
	if errors.As(why, &pe) {
		why = pe.Err // without the path once more
	}
	if e.Skipped == 1 {
		return fmt.Sprintf("what cgroup %q holds is not listed: %v", path, why)
	}
	return fmt.Sprintf("what %d cgroups hold is not listed, of which one is %q: %v", e.Skipped, path, why)
}

// Unwrap returns why the first was left out.
func (e *PartialError) Unwrap() error { return e.Err }

// Listed passes over that a list lacks what some groups hold.
func Listed(groups []string, err error) ([]string, error) {
	if _, ok := errors.AsType[*PartialError](err); ok {
		return groups, nil
	}
	return groups, err
}

// orNil returns nil as an error that is nil.
func (e *PartialError) orNil() error {
	if e == nil {
		return nil
	}
	return e
}

// add notes one more group that was not looked into; e may be nil.
func (e *PartialError) add(path string, err error) *PartialError {
	if e == nil {
		e = &PartialError{Path: path, Err: err}
	}
	e.Skipped++
	return e
}

// Identity tells one group from another that is later made at the same path.
type Identity struct {
	Path  string // below the hierarchy's root, "/a/b"
	Inode uint64 // of the directory in the hierarchy of the cpu controller
}

// Throttling says how often quotas stopped a group.
type Throttling struct {
	Own CPUStat // of the group itself
	// NrThrottledAround is the sum of nr_throttled over the group, its descendants
	// and its ancestors below the root. It never falls: a descendant that is gone
	// keeps its last count in the sum. A rise means that some quota on the group's
	// own path or below stopped tasks of it, so that the window's scheduler delay
	// says nothing about neighbours. Groups made since the last Refresh are missing.
	NrThrottledAround uint64
	// NotFollowed: descendants are too many to be counted (64). Whoever used OpenAlone knows
	// that they are not.
	NotFollowed bool
}

// Driver gives access to the groups of one host, whatever the version. It is safe for
// concurrent use, except that writes to one group must come from one goroutine at a time.
type Driver interface {
	// Layout returns the layout that the driver was opened on.
	Layout() Layout
	// List returns the paths of all groups that the cpu controller knows, sorted,
	// without the root. Groups that vanish during the walk are left out. With a
	// *PartialError the list is good for all groups but those that it speaks of.
	List() ([]string, error)
	// Open opens a group for repeated reading. It takes 2 descriptors (1 on v2) and
	// one more for each ancestor below the root and each descendant, of which 64 at most are
	// followed.
	Open(path string) (Group, error)
	// OpenAlone is Open without the descendants' descriptors: NrThrottledAround is of the
	// group and those above it.
	OpenAlone(path string) (Group, error)
	// OpenRootUsage opens the CPU time of the whole machine. On v2 it is as coarse as
	// /proc/stat.
	OpenRootUsage() (RootUsage, error)
	// Inode returns the inode number of the group's cpu directory.
	Inode(path string) (uint64, error)
	// Owner returns the user id that the group's directory belongs to.
	Owner(path string) (uint32, error)
	// Descendants returns the paths of all groups below path, sorted. With a *PartialError
	// the list is good for all groups but those that it speaks of.
	Descendants(path string) ([]string, error)

	Limiter
	Placer
	Maker
}

// Limiter reads and writes what a group may use of the CPU.
type Limiter interface {
	// ReadCPUMax reads the group's bandwidth limit, uncached.
	ReadCPUMax(path string) (CPUMax, error)
	// WriteCPUMax sets the group's bandwidth limit. The error is a *CPUMaxError,
	// which says what had been written when it failed.
	WriteCPUMax(path string, v CPUMax) error
	// ChangeCPUMax is WriteCPUMax for who has just read what is there: it reads nothing
	// where it need not. Who was wrong about from may meet a refusal half way.
	ChangeCPUMax(path string, from, to CPUMax) error
	// OpenCPUMax opens the limit of ReadCPUMax for repeated reading. It takes 3 descriptors
	// (2 on v2).
	OpenCPUMax(path string) (CPUMaxReader, error)
	// CapAbove returns the least limit among the groups above, which bounds what the
	// group may use, and whose it is; no quota and "" when there is none. On v1 the
	// kernel refuses a greater limit than that, on v2 it has no effect.
	CapAbove(path string) (at string, v CPUMax, err error)
	// Delegated says whether the group was handed to somebody else to manage.
	Delegated(path string) (bool, error)
	// ReadShares returns the group's weight on v1's scale, where 1024 is the default.
	ReadShares(path string) (uint64, error)
	// WriteShares sets the group's weight on v1's scale. The kernel clamps on v1
	// (2 to 262144); on v2 the nearest cpu.weight is written (1 to 10000, 100 = 1024).
	WriteShares(path string, shares uint64) error
	// ReadIdle says whether the group is SCHED_IDLE; ErrUnsupported before Linux 5.15.
	ReadIdle(path string) (bool, error)
	// WriteIdle makes the group SCHED_IDLE, or normal again with the default weight.
	WriteIdle(path string, idle bool) error
	// ReadFreezer returns whether the group is frozen, or on its way.
	ReadFreezer(path string) (FreezerState, error)
	// ReadFreezeAsked and WriteFreezeAsked are the group's own wish to be frozen, whatever those above it wish, and
	// whether or not its tasks have stopped: nothing is waited for. FreezerInode identifies the group in the hierarchy
	// that has it.
	ReadFreezeAsked(path string) (bool, error)
	WriteFreezeAsked(path string, frozen bool) error
	FreezerInode(path string) (uint64, error)
	// WriteFreezer writes Frozen or Thawed and waits until it is reached, at most
	// within. On ErrFreezerTimeout the write stands: who gives up freezing must thaw.
	WriteFreezer(path string, want FreezerState, within time.Duration) error
}

// Placer reads and writes where a group may run. Lists are the kernel's
// list format ("0-3,8"), without the newline.
type Placer interface {
	// ReadCPUs returns the CPUs that were asked for; "" on v2 when none were.
	ReadCPUs(path string) (string, error)
	// ReadEffectiveCPUs returns the CPUs that the group's processes may in fact use.
	ReadEffectiveCPUs(path string) (string, error)
	// WriteCPUs sets the CPUs that the group asks for.
	WriteCPUs(path, list string) error
	// PlaceInode returns the inode number of the group's directory in the hierarchy of
	// the cpuset controller. ErrUnsupported: the group has none there (v1).
	PlaceInode(path string) (uint64, error)
	// PlacesBelow returns the paths of all groups below path in the hierarchy of the
	// cpuset controller, sorted; with a *PartialError as Descendants.
	PlacesBelow(path string) ([]string, error)
	// OpenCPUs opens the list of ReadCPUs for repeated reading. It takes a descriptor.
	OpenCPUs(path string) (CPUList, error)
}

// CPUMaxReader is one group's bandwidth limit. It stays bound to the directory that it was
// opened on: when that is gone every read returns ErrVanished. To read it is a tenth of the
// cost of ReadCPUMax. It is not safe for concurrent use.
type CPUMaxReader interface {
	// Inode returns the inode number of that directory.
	Inode() uint64
	// Read returns the limit. The files are read one after the other.
	Read() (CPUMax, error)
	// Close lets go of the descriptors.
	Close() error
}

// CPUList is one group's cpuset.cpus. It stays bound to the directory that it was opened
// on: when that is gone every read returns ErrVanished. To read it is a tenth of the cost of
// ReadCPUs. It is not safe for concurrent use.
type CPUList interface {
	// Inode returns the inode number of that directory.
	Inode() uint64
	// Read returns the list in the kernel's format, without the newline.
	Read() (string, error)
	// Close lets go of the descriptor.
	Close() error
}

// Maker makes groups and fills them: for labs and tests, on groups and processes of
// their own. The agent makes no groups and moves no process.
type Maker interface {
	// Mkdir makes a group with every controller that this package drives. A group
	// that exists already is an error.
	Mkdir(path string) error
	// Rmdir removes a group. It must have neither processes nor children (EBUSY).
	// A group that is not there is ErrVanished.
	Rmdir(path string) error
	// MovePID moves the process with thread-group id pid into the group.
	MovePID(path string, pid int) error
	// Procs returns the thread-group ids of the group itself as the kernel lists
	// them, without its descendants'.
	Procs(path string) ([]int32, error)
}

// RootUsage is the CPU time of the whole machine, from the root group.
type RootUsage interface {
	// UsageNsec returns the CPU time in nanoseconds since boot. It does not allocate.
	UsageNsec() (uint64, error)
	// Close lets go of the descriptor.
	Close() error
}

// Group is one open group. It stays bound to the directory it was opened on: when that
// is gone, every call returns ErrVanished. It is not safe for concurrent use.
type Group interface {
	// Identity returns the path and inode that the group was opened with.
	Identity() Identity
	// UsageNsec returns the CPU time in nanoseconds that the group and its
	// descendants have used since they were made. It does not allocate.
	UsageNsec() (uint64, error)
	// Throttling reads the throttling counters. It does not allocate.
	Throttling() (Throttling, error)
	// UsageAndStat reads UsageNsec and the group's own cpu.stat, on v2 from one reading.
	// Where only the latter is not to be had it is zero (HasQuota). It does not allocate.
	UsageAndStat() (usageNsec uint64, own CPUStat, err error)
	// Procs appends to dst[:0] the thread-group ids with a thread in the group or
	// its descendants, sorted, each once. It does not allocate when dst is large
	// enough. Ids are those of the caller's pid namespace; tasks outside it are
	// missing (v1) or 0 (v2). Of a group that holds too many it is an error that wraps
	// ErrTooManyProcs, or ErrTooManyGroups.
	Procs(dst []int32) ([]int32, error)
	// Refresh lists the descendants anew, opens those that are new and lets go of
	// those that are gone.
	Refresh() error
	// Close lets go of all descriptors.
	Close() error
}

// Open returns the driver for the layout that Discover found: *V1 or *V2.
func Open(fsys hostfs.FS, m *Mounts) (Driver, error) {
	switch m.Layout {
	case LayoutV1, LayoutHybrid:
		return openV1(fsys, m), nil
	case LayoutV2:
		return openV2(fsys, m)
	default:
		return nil, fmt.Errorf("open cgroups: %w: %s", ErrUnsupportedLayout, m.Layout)
	}
}

// Find is Open for what Discover finds.
func Find(fsys hostfs.FS) (Driver, error) {
	m, err := Discover(fsys)
	if err != nil {
		return nil, err
	}
	return Open(fsys, m)
}

func openV1(fsys hostfs.FS, m *Mounts) *V1 {
	d := &V1{fs: fsys, layout: m.Layout, mounts: make(map[Controller]string, len(m.V1)), cpu: newTree(fsys, m.V1[CPU])}
	for c, dir := range m.V1 {
		d.mounts[c] = dir
	}
	return d
}
