package resctrl

// /proc/self/mountinfo: where resctrl is mounted in the calling process's namespace, and
// with which options. The kernel allows one mount; bind mounts of it may be more.
//
// https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
//
//	30 25 0:26 / /sys/fs/resctrl rw,relatime - resctrl resctrl rw,cdp,mba_MBps,debug
//
// The options (since): cdp (4.10), cdpl2 (4.16), mba_MBps (4.18), debug (6.7).

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/mountinfo"
)

const (
	filesystemsPath = "/proc/filesystems"
	fsType          = "resctrl"

	// DefaultPoint is where resctrl is mounted by everybody.
	DefaultPoint = "/sys/fs/resctrl"
)

// MountOptions are those of the file system.
type MountOptions struct {
	CDP   bool // L3 masks for code and data apart: L3CODE and L3DATA
	CDPL2 bool // the same for L2
	MBps  bool // MB in MiB/s, held by a feedback loop of the kernel, instead of per cent
	Debug bool // files that show the hardware's numbers
}

// String returns the options as mount takes them, "" for none.
func (o MountOptions) String() string {
	var list []string
	for _, x := range []struct {
		on   bool
		name string
	}{{o.CDP, "cdp"}, {o.CDPL2, "cdpl2"}, {o.MBps, "mba_MBps"}, {o.Debug, "debug"}} {
		if x.on {
			list = append(list, x.name)
		}
	}
	return strings.Join(list, ",")
}

// MountInfo says where and how resctrl is mounted.
type MountInfo struct {
	Point    string // "/sys/fs/resctrl"
	Options  MountOptions
	ReadOnly bool   // the mount or the file system: containers are often given it so
	Device   string // "0:26", decimal major and minor number
}

// Discover finds the mount. ErrNotMounted: the kernel has resctrl, and it is not mounted
// where this process could see it. ErrUnsupported: the kernel has none, or the CPU has
// nothing to control, in which case the kernel does not register the file system.
func Discover(fsys hostfs.FS) (MountInfo, error) {
	found, err := findMount(fsys, "")
	if err == nil || !errors.Is(err, ErrNotMounted) {
		return found, err
	}
	data, readErr := fsys.ReadFile(filesystemsPath, nil)
	if readErr != nil {
		return found, fmt.Errorf("discover resctrl: %w", readErr)
	}
	if !slices.Contains(strings.Fields(string(data)), fsType) {
		return found, fmt.Errorf("discover resctrl: %s: %w: no %s", filesystemsPath, ErrUnsupported, fsType)
	}
	return found, err
}

// findMount returns the mount at point, or the first one when point is "".
func findMount(fsys hostfs.FS, point string) (MountInfo, error) {
	data, err := fsys.ReadFile(mountinfo.Path, nil)
	if err != nil {
		return MountInfo{}, fmt.Errorf("discover resctrl: %w", err)
	}
	list, err := parseMountinfo(string(data))
	if err != nil {
		return MountInfo{}, fmt.Errorf("discover resctrl: %s: %w", mountinfo.Path, err)
	}
	for _, m := range list {
		if point == "" || m.Point == point {
			return m, nil
		}
	}
	return MountInfo{}, fmt.Errorf("discover resctrl: %s: %w", mountinfo.Path, ErrNotMounted)
}

// parseMountinfo returns the whole mounts of resctrl. A bind mount of a part of it (one
// group handed to a container) is not one that could be driven.
func parseMountinfo(text string) ([]MountInfo, error) {
	var list []MountInfo
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.Contains(line, " - "+fsType+" ") {
			continue // a host of containers has thousands of lines, some of them odd
		}
		x, err := mountinfo.Parse(line)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		if x.Root != "/" {
			continue
		}
		m := MountInfo{Point: strings.TrimRight(x.Point, "/"), Device: x.Device, ReadOnly: x.ReadOnly()}
		for _, option := range x.SuperOptions {
			switch option {
			case "cdp":
				m.Options.CDP = true
			case "cdpl2":
				m.Options.CDPL2 = true
			case "mba_MBps":
				m.Options.MBps = true
			case "debug":
				m.Options.Debug = true
			}
		}
		list = append(list, m)
	}
	return list, nil
}
