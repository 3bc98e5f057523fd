// Package blkio reads what groups do on block devices and limits it: the io controller of cgroup v2, and blkio of v1.
//
//	               v2        v1
//	what was done  io.stat   blkio.throttle.io_service_bytes_recursive, io_serviced_recursive
//	limits         io.max    blkio.throttle.{read,write}_{bps,iops}_device
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#io
// https://docs.kernel.org/admin-guide/cgroup-v1/blkio-controller.html
//
// Three things are other on v1. Since Linux 6.10 nothing is counted of a device before a first limit on it was written, in any group, none ("8:0 0")
// included: the kernel waits with all its accounting until then, and this package does not write it by itself. What the page cache writes back is not the group's that wrote it, so it is neither counted
// nor held. And limits are of a group alone: those below are not held by them (blk-throttle.c, throtl_pd_init: on v1 every group hangs
// directly below the device), so a group with others inside is not for WriteLimit.
//
// Groups are named by their path below the controller's hierarchy, as in package cgroup, whose sentinels this package's errors wrap.
package blkio

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// ErrGroupsBelow: the group has others inside, which a limit of v1 would not reach. Nothing was written.
var ErrGroupsBelow = errors.New("a limit of cgroup v1 does not reach the groups inside")

// Device is a block device by its numbers.
type Device struct{ Major, Minor uint32 }

// String returns "major:minor".
func (d Device) String() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

func (d Device) compare(o Device) int {
	return cmp.Or(cmp.Compare(d.Major, o.Major), cmp.Compare(d.Minor, o.Minor))
}

// Controller is the host's io controller. It keeps no files open. It is not safe for concurrent use.
type Controller struct {
	fs    hostfs.FS
	v2    bool
	mount string
	lies  map[Device]bool // on other devices
}

// Open finds the controller among a host's cgroup mounts. Without one the error wraps cgroup.ErrUnsupported.
func Open(fsys hostfs.FS, m *cgroup.Mounts) (*Controller, error) {
	c := &Controller{fs: fsys, lies: map[Device]bool{}}
	if mount, ok := m.V1[cgroup.BlkIO]; ok {
		c.mount = mount
		if _, err := fsys.Inode(mount + "/" + v1Files[0]); err != nil {
			return nil, fmt.Errorf("open blkio controller: %w: the kernel has no %s (CONFIG_BLK_DEV_THROTTLING)", cgroup.ErrUnsupported, v1Files[0])
		}
		return c, nil
	}
	if m.Unified != "" && slices.Contains(m.UnifiedControllers, cgroup.IO) {
		c.v2, c.mount = true, m.Unified
		return c, nil
	}
	return nil, fmt.Errorf("open io controller: %w: no hierarchy has it (io of cgroup v2, blkio of v1)", cgroup.ErrUnsupported)
}

// V2 says whether the controller is on cgroup v2.
func (c *Controller) V2() bool { return c.v2 }

// Inode returns the inode number of a group's directory in the controller's hierarchy.
func (c *Controller) Inode(path string) (uint64, error) {
	if err := cgroup.CheckPath(path); err != nil {
		return 0, err
	}
	inode, err := c.fs.Inode(c.mount + path)
	if err != nil {
		return 0, c.wrap("identify", path, "", err)
	}
	return inode, nil
}

// Groups lists all groups below the root. On v1, where a group can be renamed, this is how it is found again.
func (c *Controller) Groups() ([]string, error) {
	var list []string
	var walk func(path string) error
	walk = func(path string) error {
		names, err := c.fs.ReadDir(c.mount + path)
		if err != nil {
			return c.wrap("list", path, "", err)
		}
		for _, n := range names {
			if n.IsDir {
				list = append(list, path+"/"+n.Name)
				if err := walk(path + "/" + n.Name); err != nil && !errors.Is(err, cgroup.ErrVanished) {
					return err
				}
			}
		}
		return nil
	}
	return list, walk("")
}

// wrap gives a failed operation its sentinel: a file that is missing is so because the group is, or because the controller is not
// handed down to it.
func (c *Controller) wrap(op, path, name string, err error) error {
	what := strings.TrimSpace(op+" "+name) + " of cgroup " + path
	switch {
	case errors.Is(err, unix.ENODEV) && op == "read":
		return fmt.Errorf("%s: %w: %w", what, cgroup.ErrVanished, err)
	case errors.Is(err, fs.ErrNotExist):
		kind := cgroup.ErrVanished
		if _, gone := c.fs.Inode(c.mount + path); name != "" && gone == nil {
			kind = cgroup.ErrUnsupported
		}
		return fmt.Errorf("%s: %w: %w", what, kind, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// lower reports whether a device lies on others, as those of LVM, RAID and loops do: what is done on it is done below, too.
func (c *Controller) lower(d Device) bool {
	lies, known := c.lies[d]
	if !known {
		dir := "/sys/dev/block/" + d.String()
		slaves, err := c.fs.ReadDir(dir + "/slaves")
		_, loop := c.fs.Inode(dir + "/loop")
		lies = err == nil && len(slaves) > 0 || loop == nil
		c.lies[d] = lies
	}
	return !lies
}

// device reads "8:0" at the beginning of a line, and returns what follows the blank.
func device(line []byte) (d Device, rest []byte, err error) {
	name, rest, _ := bytes.Cut(line, []byte(" "))
	major, minor, ok := bytes.Cut(name, []byte(":"))
	ma, err1 := number(major, 32)
	mi, err2 := number(minor, 32)
	if !ok || err1 != nil || err2 != nil {
		return d, nil, fmt.Errorf("%w: %q begins with no device", cgroup.ErrMalformed, clip(line))
	}
	return Device{uint32(ma), uint32(mi)}, rest, nil
}

// number reads digits without allocating.
func number(b []byte, bits int) (uint64, error) {
	n, most := uint64(0), uint64(1)<<(bits-1)<<1-1
	if len(b) == 0 {
		return 0, strconv.ErrSyntax
	}
	for _, c := range b {
		v := uint64(c - '0')
		if v > 9 || n > (most-v)/10 {
			return 0, strconv.ErrSyntax
		}
		n = 10*n + v
	}
	return n, nil
}

// clip keeps a line that is quoted short.
func clip(b []byte) []byte { return b[:min(len(b), 80)] }
