// Package cgroup reads and writes Linux control groups. Discover finds what is mounted
// where; Open returns the Driver for that layout. The v1 driver (type V1) serves pure v1
// and hybrid hosts; a v2 driver fills the same interfaces.
//
// A group is named by its path below the hierarchy's root ("/batch/job-7"), which on v1
// is the same path in every hierarchy that holds it. The root group is "/"; it is read,
// never written.
//
// https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html
// https://docs.kernel.org/scheduler/sched-bwc.html
package cgroup

import (
	"errors"
	"fmt"

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
	// ErrTooManyGroups: a walk met more groups than maxGroups and stopped.
	ErrTooManyGroups = errors.New("too many cgroups")
	// ErrRootGroup: the root group was named where a write was asked for.
	ErrRootGroup = errors.New("the root cgroup is never written")
)

// maxGroups bounds a walk. The memory controller numbers its groups with 16 bits, and
// hosts that keep a group in one hierarchy keep it in all, so a longer list means a fault
// (or someone who leaks groups), not a big host.
const maxGroups = 65536

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
}

// Driver gives access to the groups of one host. It is safe for concurrent use, except
// that writes to one group must come from one goroutine at a time.
type Driver interface {
	// Layout returns the layout that the driver was opened on.
	Layout() Layout
	// List returns the paths of all groups that the cpu controller knows, sorted,
	// without the root. Groups that vanish during the walk are left out.
	List() ([]string, error)
	// Open opens a group for repeated reading. It takes 2 descriptors and one more
	// for each descendant and each ancestor below the root.
	Open(path string) (Group, error)
	// Inode returns the inode number of the group's cpu directory.
	Inode(path string) (uint64, error)
	// ReadCPUMax reads the group's bandwidth limit, uncached.
	ReadCPUMax(path string) (CPUMax, error)
	// WriteCPUMax sets the group's bandwidth limit. The error is a *CPUMaxError,
	// which says what had been written when it failed.
	WriteCPUMax(path string, v CPUMax) error
	// Descendants returns the paths of all groups below path, sorted.
	Descendants(path string) ([]string, error)
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
	// Procs appends to dst[:0] the thread-group ids with a thread in the group or
	// its descendants, sorted, each once. It does not allocate when dst is large
	// enough. Ids are those of the caller's pid namespace; tasks outside it are
	// missing (v1) or 0 (v2).
	Procs(dst []int32) ([]int32, error)
	// Refresh lists the descendants anew, opens those that are new and lets go of
	// those that are gone.
	Refresh() error
	// Close lets go of all descriptors.
	Close() error
}

// Open returns the driver for the layout that Discover found.
func Open(fs hostfs.FS, m *Mounts) (Driver, error) {
	d, err := OpenV1(fs, m)
	if err != nil {
		return nil, err // and not a Driver that holds a nil *V1
	}
	return d, nil
}

// OpenV1 returns the driver of v1 and hybrid hosts, with the v1 files that Driver
// does not speak of.
func OpenV1(fs hostfs.FS, m *Mounts) (*V1, error) {
	switch m.Layout {
	case LayoutV1, LayoutHybrid:
		d := &V1{fs: fs, layout: m.Layout, mounts: make(map[Controller]string, len(m.V1))}
		for c, dir := range m.V1 {
			d.mounts[c] = dir
		}
		return d, nil
	case LayoutV2:
		return nil, fmt.Errorf("open cgroups: %w: pure cgroup v2 (%s): this build drives v1 and hybrid only",
			ErrUnsupportedLayout, m.Unified)
	default:
		return nil, fmt.Errorf("open cgroups: %w: %s", ErrUnsupportedLayout, m.Layout)
	}
}
