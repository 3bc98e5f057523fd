// Package reclaim reads how much memory groups hold and how long it has lain idle, and
// takes idle memory back in bounded steps.
//
// Two kernel interfaces answer "how long idle", neither of them everywhere: the
// multi-generational LRU (lru_gen.go) and DAMON (damon.go). Ages (ages.go) asks what there
// is, in order, and says who answered. Two more are left alone: idle page tracking, which no
// kernel that this project was run on has built, and /proc/PID/clear_refs, which makes
// whatever reclaim comes next find all pages of the process unused, the hot ones too. Two take memory back: memory.reclaim (memory_reclaim.go) and the
// eviction command of the multi-generational LRU (lru_gen_evict.go).
//
// Groups are named by their path below the memory controller's hierarchy, as in package
// cgroup, whose sentinels (cgroup.ErrVanished, cgroup.ErrUnsupported,
// cgroup.ErrMalformed, cgroup.ErrRootGroup) this package's errors wrap where they fit.
//
// # Why memory.high is no means of reclaim
//
// Before memory.reclaim, senpai reclaimed by lowering memory.high and raising it again.
// That is not offered, not even as a fallback for v2 kernels before 5.19: memory.high (memory_high.go) is there to
// hold who takes memory from others, for that alone. While the limit
// is in force, every thread of the group that allocates above it is put to sleep, up to
// two seconds at a time: the victim pays for our errors of judgement, and this project is
// there to spare it. The limit outlives whoever wrote it. And orchestrators own the file
// (Kubernetes' memory QoS writes it). Such kernels answer ErrNoReclaim.
package reclaim

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// What callers branch on, beside package cgroup's sentinels.
var (
	// ErrNoReclaim: there is no memory.reclaim: cgroup v1, or Linux before 5.19.
	ErrNoReclaim = errors.New("no memory.reclaim")
	// ErrNoSwappiness: memory.reclaim takes no "swappiness=" (before Linux 6.9), so
	// the kernel, and not the caller, chooses between anonymous and file memory.
	ErrNoSwappiness = errors.New("memory.reclaim takes no swappiness")
	// ErrShort: the kernel found less to reclaim than was asked for (EAGAIN).
	ErrShort = errors.New("less was reclaimed than asked for")
	// ErrNoRoom: anonymous memory was asked for, and there is no swap for it. The
	// kernel would have taken file memory instead. Nothing was written.
	ErrNoRoom = errors.New("no room for anonymous memory")
	// ErrBadAsk: the request is out of its bounds. Nothing was written.
	ErrBadAsk = errors.New("request out of bounds")
	// ErrNoMGLRU: the kernel has no multi-generational LRU, it is switched off, or
	// debugfs is not mounted.
	ErrNoMGLRU = errors.New("no multi-generational LRU")
	// ErrAmbiguous: two groups of one path stand in the file, and nothing tells which
	// is the living one.
	ErrAmbiguous = errors.New("two groups of one path")
	// ErrNotListed: the file does not list the group.
	ErrNotListed = errors.New("group is not listed")
	// ErrImpossible: the ages that the file tells cannot be.
	ErrImpossible = errors.New("ages that cannot be")
	// ErrNoDAMON: the kernel has no DAMON, or not its sysfs interface.
	ErrNoDAMON = errors.New("no DAMON")
	// ErrOwned: somebody else uses it; nothing of theirs was touched.
	ErrOwned = errors.New("owned by another")
	// ErrNotWatching: no process of the group is being watched.
	ErrNotWatching = errors.New("not being watched")
	// ErrNoSource: no source can tell ages here.
	ErrNoSource = errors.New("no source of ages")
)

// Memory is the host's memory controller. It keeps nothing open. It is safe for
// concurrent use.
type Memory struct {
	fs    hostfs.FS
	v2    bool
	mount string
}

// Open finds the memory controller among a host's cgroup mounts. Without one the error
// wraps cgroup.ErrUnsupported.
func Open(fsys hostfs.FS, m *cgroup.Mounts) (*Memory, error) {
	if mount, ok := m.V1[cgroup.Memory]; ok {
		return &Memory{fs: fsys, mount: mount}, nil
	}
	if m.Unified != "" && slices.Contains(m.UnifiedControllers, cgroup.Memory) {
		return &Memory{fs: fsys, v2: true, mount: m.Unified}, nil
	}
	return nil, fmt.Errorf("open memory controller: %w: no hierarchy has it", cgroup.ErrUnsupported)
}

// V2 says whether the controller is on cgroup v2.
func (m *Memory) V2() bool { return m.v2 }

// dir is a group's directory as it was when first looked at.
type dir struct {
	m     *Memory
	path  string // below the hierarchy's root
	abs   string
	inode uint64
}

// open looks at a group's directory.
func (m *Memory) open(path string) (dir, error) {
	d := dir{m: m, path: path, abs: m.mount + path}
	if err := cgroup.CheckPath(path); err != nil {
		return d, err
	}
	inode, err := m.fs.Inode(d.abs)
	if err != nil {
		return d, d.wrap("open", "", err)
	}
	d.inode = inode
	return d, nil
}

// same fails when the directory is not the one that was first looked at: what was opened
// by path since may belong to another group.
func (d *dir) same() error {
	inode, err := d.m.fs.Inode(d.abs)
	if err != nil {
		return d.wrap("identify", "", err)
	}
	if inode != d.inode {
		return fmt.Errorf("cgroup %s: %w: replaced meanwhile", d.path, cgroup.ErrVanished)
	}
	return nil
}

// openFile opens one of the group's files; optional ones that are not there give nil.
func (d *dir) openFile(name string, optional bool) (hostfs.File, error) {
	f, err := d.m.fs.Open(d.abs + "/" + name)
	if err == nil {
		return f, nil
	}
	err = d.wrap("open", name, err)
	if optional && errors.Is(err, cgroup.ErrUnsupported) {
		return nil, nil
	}
	return nil, err
}

// wrap gives a failed operation its sentinel: ENODEV is a descriptor whose group was
// removed; ENOENT is the group or, if its directory is still the same, the file.
func (d *dir) wrap(op, name string, err error) error {
	what := op + " cgroup " + d.path
	if name != "" {
		what = op + " " + name + " of cgroup " + d.path
	}
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%s: %w: %w", what, cgroup.ErrVanished, err)
	case errors.Is(err, fs.ErrNotExist):
		kind := cgroup.ErrVanished
		if now, statErr := d.m.fs.Inode(d.abs); name != "" && statErr == nil && now == d.inode {
			kind = cgroup.ErrUnsupported
		}
		return fmt.Errorf("%s: %w: %w", what, kind, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// within says whether path is group or lies below it.
func within(path []byte, group string) bool {
	return len(path) >= len(group) && string(path[:len(group)]) == group && (len(path) == len(group) || path[len(group)] == '/')
}
