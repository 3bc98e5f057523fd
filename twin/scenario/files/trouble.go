package files

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// troubles are what stands between the agent and the kernel at the moment.
type troubles struct {
	mounts  *cgroup.Mounts
	refused map[string]error // writes of a task's limit, by path
	lost    map[string]bool  // a task's hardware counters
}

// guarded is the kernel with refusals. What is not about writing is the kernel's own.
type guarded struct {
	*kernfs.Kernel
	t *troubles
}

// WriteFile writes a file, or is refused; see hostfs.FS.
func (g guarded) WriteFile(name string, data []byte) error {
	if err := g.t.refuses(name); err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	return g.Kernel.WriteFile(name, data)
}

// refuses returns why a file cannot be written, nil when it can.
func (t *troubles) refuses(name string) error {
	if len(t.refused) == 0 {
		return nil
	}
	switch path.Base(name) {
	case "cpu.max", "cpu.max.burst", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us":
	default:
		return nil
	}
	mount := t.mounts.Unified
	if t.mounts.Layout != cgroup.LayoutV2 {
		mount = t.mounts.V1[cgroup.CPU]
	}
	return t.refused[strings.TrimPrefix(path.Dir(name), mount)]
}

// errnoOf finds the kernel's error of a name or of a text, "EBUSY" or "device or resource
// busy".
func errnoOf(text string) (unix.Errno, bool) {
	const last = 133 // EHWPOISON
	for no := unix.Errno(1); no <= last; no++ {
		if text == unix.ErrnoName(no) || text == no.Error() {
			return no, true
		}
	}
	return 0, false
}

// opener opens hardware counters that can be lost.
type opener struct {
	linux.CounterOpener
	t *troubles
}

// OpenCgroup opens a group's counters; see linux.CounterOpener.
func (o opener) OpenCgroup(dir string, inode uint64, cpus []int, events []perf.Event) (linux.CgroupCounters, error) {
	p := strings.TrimPrefix(dir, o.t.mounts.Unified)
	if err := o.t.gone("open", p); err != nil {
		return nil, err
	}
	c, err := o.CounterOpener.OpenCgroup(dir, inode, cpus, events)
	if err != nil {
		return nil, err
	}
	return counters{c, o.t, p}, nil
}

// counters are one group's.
type counters struct {
	linux.CgroupCounters
	t    *troubles
	path string
}

// Enable switches them on; see linux.CgroupCounters.
func (c counters) Enable() error {
	if err := c.t.gone("enable", c.path); err != nil {
		return err
	}
	return c.CgroupCounters.Enable()
}

// Read reads them; see linux.CgroupCounters.
func (c counters) Read(out []perf.Count) error {
	if err := c.t.gone("read", c.path); err != nil {
		return err
	}
	return c.CgroupCounters.Read(out)
}

// gone is the error of counters that are lost, as when another tool has taken the PMU.
func (t *troubles) gone(op, p string) error {
	if !t.lost[p] {
		return nil
	}
	return fmt.Errorf("perf: %s counters of %s: %w", op, p, unix.EBUSY)
}
