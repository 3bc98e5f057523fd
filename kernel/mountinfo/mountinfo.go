// Package mountinfo reads a line of /proc/self/mountinfo: a mount of the calling
// process's namespace.
//
// https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
//
//	41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
//	(1)(2)(3)(4) (5)                    (6)         (7)     (8)(9)    (10)    (11)
//
// (1) mount id, (2) parent's mount id, (3) device, (4) the part of the file system that
// is mounted, (5) mount point, (6) options, (7) any number of optional fields, (8) the
// end of these, (9) type, (10) source, (11) options of the file system. In (4), (5), (10)
// and (11) space, tab, newline, backslash and "#" stand as octal escapes.
package mountinfo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Path is where the mounts of the calling process are listed.
const Path = "/proc/self/mountinfo"

// Mount is one line, unescaped.
type Mount struct {
	ID, Parent   int
	Device       string // decimal major and minor number: "0:26"
	Root         string // part of the file system that is mounted
	Point        string
	Options      []string // of the mount
	FSType       string
	SuperOptions []string // of the file system: for cgroup v1, its controllers
}

// Parse reads one line, without its newline.
func Parse(line string) (Mount, error) {
	// Escapes leave no blank inside a field, but an empty source leaves two in a
	// row: strings.Fields would lose that field.
	field := strings.Split(line, " ")
	end := -1
	if len(field) > 6 {
		end = slices.Index(field[6:], "-")
	}
	if end < 0 || len(field) < 6+end+4 {
		return Mount{}, fmt.Errorf("%q has too few fields", line[:min(len(line), maxShown)])
	}
	id, err := strconv.Atoi(field[0])
	if err != nil {
		return Mount{}, fmt.Errorf("mount id %q", field[0])
	}
	parent, err := strconv.Atoi(field[1])
	if err != nil {
		return Mount{}, fmt.Errorf("parent id %q", field[1])
	}
	tail := field[6+end+1:]
	m := Mount{
		ID: id, Parent: parent, Device: field[2], Options: strings.Split(field[5], ","), FSType: tail[0],
		Root: hostfs.Unescape(field[3]), Point: hostfs.Unescape(field[4]),
	}
	for option := range strings.SplitSeq(tail[2], ",") {
		m.SuperOptions = append(m.SuperOptions, hostfs.Unescape(option))
	}
	return m, nil
}

// maxShown bounds how much of a line an error quotes: overlayfs has lines of kilobytes.
const maxShown = 120

// ReadOnly reports whether the mount or the file system refuses writes: containers are
// often given it so.
func (m *Mount) ReadOnly() bool {
	return slices.Contains(m.Options, "ro") || slices.Contains(m.SuperOptions, "ro")
}
