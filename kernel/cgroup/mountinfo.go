package cgroup

// /proc/self/mountinfo: the mounts of the calling process's namespace, one a line.
//
// https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
//
//	32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
//	41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
//	(1)(2)(3)(4) (5)                    (6)         (7)     (8)(9)    (10)    (11)
//
// (1) mount id, (2) parent's mount id, (3) device, (4) the part of the file system that
// is mounted, (5) mount point, (6) options, (7) any number of optional fields, (8) the
// end of these, (9) type, (10) source, (11) options of the file system: for cgroup v1,
// its controllers. In (4), (5), (10) and (11) space, tab, newline, backslash and "#"
// stand as octal escapes.

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const mountinfoPath = "/proc/self/mountinfo"

// ErrMalformed is returned when a kernel file does not read as its documentation says.
var ErrMalformed = errors.New("malformed")

// Controller is a cgroup controller, by the kernel's name.
type Controller string

// The v1 controllers that Commensal reads, writes, or keeps a group's directory in.
const (
	CPU     Controller = "cpu"
	CPUAcct Controller = "cpuacct"
	CPUSet  Controller = "cpuset"
	Freezer Controller = "freezer"
	Memory  Controller = "memory"
	PIDs    Controller = "pids"
	IO      Controller = "io" // v2 only: v1's blkio is not used
)

func controllers() []Controller {
	return []Controller{CPU, CPUAcct, CPUSet, Freezer, Memory, PIDs}
}

// Layout is how a host mounts its cgroups, judged by where the cpu controller lives.
type Layout uint8

// The layouts.
const (
	LayoutNone   Layout = iota // no usable mount holds the cpu controller
	LayoutV1                   // cpu on v1, no cgroup2 mount
	LayoutHybrid               // cpu on v1, and a cgroup2 mount
	LayoutV2                   // cpu is not on v1, and there is a cgroup2 mount
)

// String returns the layout's name.
func (l Layout) String() string {
	names := [...]string{"none", "v1", "hybrid", "v2"}
	if int(l) < len(names) {
		return names[l]
	}
	return "layout(" + strconv.Itoa(int(l)) + ")"
}

// Mounts says where a host's cgroup hierarchies are.
type Mounts struct {
	Layout Layout
	// V1 maps a controller to its mount point. Controllers that share a hierarchy
	// ("cpu,cpuacct") share a mount point.
	V1 map[Controller]string
	// Unified is the mount point of cgroup2; "" when there is none.
	Unified string
	// UnifiedPartial: the root of Unified is an ordinary group of the host, because
	// this process is in a cgroup namespace. Groups outside of it cannot be seen.
	UnifiedPartial bool
	// NSDelegate: Unified has the mount option nsdelegate (cgroup_delegate.go).
	NSDelegate bool
	// UnifiedControllers are those of Unified's root, in the kernel's order: what v1
	// does not hold.
	UnifiedControllers []Controller
	// Refused are the cgroup mounts that were not used although they hold
	// something of interest.
	Refused []Refusal
}

// Refusal is a cgroup mount that cannot be used, and why.
type Refusal struct {
	Mountpoint string
	Reason     string
}

// Discover reads the mounts of the calling process.
func Discover(fs hostfs.FS) (*Mounts, error) {
	data, err := fs.ReadFile(mountinfoPath, nil)
	if err != nil {
		return nil, fmt.Errorf("discover cgroups: %w", err)
	}
	list, err := parseMountinfo(data)
	if err != nil {
		return nil, fmt.Errorf("discover cgroups: %s: %w", mountinfoPath, err)
	}
	m := selectMounts(list)
	if m.Unified != "" {
		path := m.Unified + "/cgroup.controllers"
		data, err := fs.ReadFile(path, data)
		if err != nil {
			return nil, fmt.Errorf("discover cgroups: %w", err)
		}
		if m.UnifiedControllers, err = parseControllers(data); err != nil {
			return nil, fmt.Errorf("discover cgroups: %s: %w", path, err)
		}
		// Every group but the true root has a type.
		_, err = fs.Inode(m.Unified + "/cgroup.type")
		m.UnifiedPartial = err == nil
	}
	_, cpuV1 := m.V1[CPU]
	switch {
	case cpuV1 && m.Unified != "":
		m.Layout = LayoutHybrid
	case cpuV1:
		m.Layout = LayoutV1
	case m.Unified != "":
		m.Layout = LayoutV2
	}
	return m, nil
}

// mount is one line of mountinfo, unescaped.
type mount struct {
	id, parent  int
	root        string // part of the file system that is mounted
	point       string
	fsType      string
	superOption []string
}

func parseMountinfo(data []byte) ([]mount, error) {
	var list []mount
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		m, err := parseMount(string(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, m)
	}
	return list, nil
}

func parseMount(line string) (mount, error) {
	// Escapes leave no blank inside a field, but an empty source leaves two in a
	// row: strings.Fields would lose that field.
	field := strings.Split(line, " ")
	end := -1
	if len(field) > 6 {
		end = slices.Index(field[6:], "-")
	}
	if end < 0 || len(field) < 6+end+4 {
		return mount{}, fmt.Errorf("%w: %q has too few fields", ErrMalformed, line)
	}
	id, err := strconv.Atoi(field[0])
	if err != nil {
		return mount{}, fmt.Errorf("%w: mount id %q", ErrMalformed, field[0])
	}
	parent, err := strconv.Atoi(field[1])
	if err != nil {
		return mount{}, fmt.Errorf("%w: parent id %q", ErrMalformed, field[1])
	}
	tail := field[6+end+1:]
	m := mount{
		id: id, parent: parent,
		root: unescapeOctal(field[3]), point: unescapeOctal(field[4]),
		fsType: tail[0],
	}
	for option := range strings.SplitSeq(tail[2], ",") {
		m.superOption = append(m.superOption, unescapeOctal(option))
	}
	return m, nil
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

// selectMounts picks one usable mount for each controller: the one that shows most of
// its hierarchy, of several the first in the list.
func selectMounts(list []mount) *Mounts {
	m := &Mounts{V1: make(map[Controller]string)}
	byID := make(map[int]mount, len(list))
	for _, x := range list {
		byID[x.id] = x
	}
	shown := make(map[Controller]int)
	for _, x := range list {
		if x.fsType != "cgroup" && x.fsType != "cgroup2" {
			continue
		}
		var held []Controller
		for _, c := range controllers() {
			if x.fsType == "cgroup" && slices.Contains(x.superOption, string(c)) {
				held = append(held, c)
			}
		}
		if x.fsType == "cgroup" && len(held) == 0 {
			continue // name=systemd, devices and the like
		}
		if reason := unusable(x, list, byID); reason != "" {
			m.Refused = append(m.Refused, Refusal{Mountpoint: x.point, Reason: reason})
			continue
		}
		up, _ := levelsAbove(x.root)
		if x.fsType == "cgroup2" {
			held = []Controller{unified}
		}
		for _, c := range held {
			if at, taken := shown[c]; taken && at >= up {
				continue
			}
			shown[c] = up
			if c == unified {
				m.Unified, m.NSDelegate = x.point, slices.Contains(x.superOption, "nsdelegate")
			} else {
				m.V1[c] = x.point
			}
		}
	}
	return m
}

// unified stands for the v2 hierarchy among the controllers.
const unified Controller = "cgroup2"

// levelsAbove returns how far above this process's cgroup namespace a mount begins: "/"
// is its root, "/../.." two groups above it (the host's mount, seen in a container). A
// mount that begins below the root, or beside it, is none.
func levelsAbove(root string) (int, bool) {
	if root == "/" {
		return 0, true
	}
	n := strings.Count(root, "/..")
	return n, n > 0 && root == strings.Repeat("/..", n)
}

// unusable says why a cgroup mount cannot be used; "" if it can.
func unusable(x mount, list []mount, byID map[int]mount) string {
	if _, whole := levelsAbove(x.root); !whole {
		// A container without a cgroup namespace sees its own group so. Paths in
		// it are not the host's, and the neighbours are not there at all.
		return fmt.Sprintf("shows only the subtree %s of its hierarchy (a bind mount or a container): the host's groups cannot be seen", x.root)
	}
	if slices.Contains(x.superOption, "noprefix") {
		return "mounted with noprefix: its files have other names"
	}
	if over, hidden := hiddenBy(x, list, byID); hidden {
		return fmt.Sprintf("hidden by mount %d on %s", over.id, over.point)
	}
	return ""
}

// hiddenBy looks for a mount that lies over x: one on x's mount point or above it that
// x is not reached through. Line order says nothing about that; parent ids do.
func hiddenBy(x mount, list []mount, byID map[int]mount) (mount, bool) {
	through := map[int]bool{x.id: true}
	for at := x.parent; !through[at]; {
		through[at] = true
		up, ok := byID[at]
		if !ok {
			break
		}
		at = up.parent
	}
	for _, y := range list {
		above := y.point == "/" || y.point == x.point || strings.HasPrefix(x.point, y.point+"/")
		if above && !through[y.id] {
			return y, true
		}
	}
	return mount{}, false
}
