package resctrl

// /proc/self/mountinfo: where resctrl is mounted in the calling process's namespace, and
// with which options. The kernel allows one mount; bind mounts of it may be more.
//
// https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
//
//	30 25 0:26 / /sys/fs/resctrl rw,relatime - resctrl resctrl rw,cdp,mba_MBps,debug
//
// The fields: mount id, parent, device, what of the file system is mounted, mount point,
// options of the mount, any number of optional fields, "-", type, source, options of the
// file system. Blanks in paths stand as octal escapes.
//
// The options (since): cdp (4.10), cdpl2 (4.16), mba_MBps (4.18), debug (6.7).

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	mountinfoPath   = "/proc/self/mountinfo"
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
	data, err := fsys.ReadFile(mountinfoPath, nil)
	if err != nil {
		return MountInfo{}, fmt.Errorf("discover resctrl: %w", err)
	}
	list, err := parseMountinfo(string(data))
	if err != nil {
		return MountInfo{}, fmt.Errorf("discover resctrl: %s: %w", mountinfoPath, err)
	}
	for _, m := range list {
		if point == "" || m.Point == point {
			return m, nil
		}
	}
	return MountInfo{}, fmt.Errorf("discover resctrl: %s: %w", mountinfoPath, ErrNotMounted)
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
		// An empty source leaves two blanks in a row: strings.Fields would lose it.
		field := strings.Split(line, " ")
		end := -1
		if len(field) > 6 {
			end = slices.Index(field[6:], "-")
		}
		if end < 0 || len(field) < 6+end+4 {
			return nil, fmt.Errorf("%w: %q has too few fields", ErrMalformed, clip(line))
		}
		tail := field[6+end+1:]
		if field[3] != "/" {
			continue
		}
		m := MountInfo{Point: strings.TrimRight(unescapeOctal(field[4]), "/"), Device: field[2]}
		m.ReadOnly = slices.Contains(strings.Split(field[5], ","), "ro")
		for option := range strings.SplitSeq(tail[2], ",") {
			switch option {
			case "cdp":
				m.Options.CDP = true
			case "cdpl2":
				m.Options.CDPL2 = true
			case "mba_MBps":
				m.Options.MBps = true
			case "debug":
				m.Options.Debug = true
			case "ro":
				m.ReadOnly = true
			}
		}
		list = append(list, m)
	}
	return list, nil
}

// unescapeOctal undoes the kernel's seq_path escapes: "\040" is a blank. A backslash
// that three octal digits do not follow stands for itself.
func unescapeOctal(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(v))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
