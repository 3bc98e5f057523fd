package cgroup

// /proc/self/mountinfo (kernel/mountinfo): where the hierarchies are. The options of a v1
// file system name its controllers.
//
//	32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
//	41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/mountinfo"
)

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
	IO      Controller = "io"    // v2 only
	BlkIO   Controller = "blkio" // v1 only: it has other files (package blkio)
)

func controllers() []Controller {
	return []Controller{CPU, CPUAcct, CPUSet, Freezer, Memory, PIDs, BlkIO}
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
	data, err := fs.ReadFile(mountinfo.Path, nil)
	if err != nil {
		return nil, fmt.Errorf("discover cgroups: %w", err)
	}
	list, err := parseMountinfo(data)
	if err != nil {
		return nil, fmt.Errorf("discover cgroups: %s: %w", mountinfo.Path, err)
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

func parseMountinfo(data []byte) ([]mountinfo.Mount, error) {
	var list []mountinfo.Mount
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		m, err := mountinfo.Parse(string(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", n, ErrMalformed, err)
		}
		list = append(list, m)
	}
	return list, nil
}

// selectMounts picks one usable mount for each controller: the one that shows most of
// its hierarchy, of several the first in the list.
func selectMounts(list []mountinfo.Mount) *Mounts {
	m := &Mounts{V1: make(map[Controller]string)}
	byID := make(map[int]mountinfo.Mount, len(list))
	for _, x := range list {
		byID[x.ID] = x
	}
	shown := make(map[Controller]int)
	for _, x := range list {
		if x.FSType != "cgroup" && x.FSType != "cgroup2" {
			continue
		}
		var held []Controller
		for _, c := range controllers() {
			if x.FSType == "cgroup" && slices.Contains(x.SuperOptions, string(c)) {
				held = append(held, c)
			}
		}
		if x.FSType == "cgroup" && len(held) == 0 {
			continue // name=systemd, devices and the like
		}
		if reason := unusable(x, list, byID); reason != "" {
			m.Refused = append(m.Refused, Refusal{Mountpoint: x.Point, Reason: reason})
			continue
		}
		up, _ := levelsAbove(x.Root)
		if x.FSType == "cgroup2" {
			held = []Controller{unified}
		}
		for _, c := range held {
			if at, taken := shown[c]; taken && at >= up {
				continue
			}
			shown[c] = up
			if c == unified {
				m.Unified, m.NSDelegate = x.Point, slices.Contains(x.SuperOptions, "nsdelegate")
			} else {
				m.V1[c] = x.Point
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
func unusable(x mountinfo.Mount, list []mountinfo.Mount, byID map[int]mountinfo.Mount) string {
	if _, whole := levelsAbove(x.Root); !whole {
		// A container without a cgroup namespace sees its own group so. Paths in
		// it are not the host's, and the neighbours are not there at all.
		return fmt.Sprintf("shows only the subtree %s of its hierarchy (a bind mount or a container): the host's groups cannot be seen", x.Root)
	}
	if slices.Contains(x.SuperOptions, "noprefix") {
		return "mounted with noprefix: its files have other names"
	}
	if over, hidden := hiddenBy(x, list, byID); hidden {
		return fmt.Sprintf("hidden by mount %d on %s", over.ID, over.Point)
	}
	return ""
}

// hiddenBy looks for a mount that lies over x: one on x's mount point or above it that
// x is not reached through. Line order says nothing about that; parent ids do.
func hiddenBy(x mountinfo.Mount, list []mountinfo.Mount, byID map[int]mountinfo.Mount) (mountinfo.Mount, bool) {
	through := map[int]bool{x.ID: true}
	for at := x.Parent; !through[at]; {
		through[at] = true
		up, ok := byID[at]
		if !ok {
			break
		}
		at = up.Parent
	}
	for _, y := range list {
		above := y.Point == "/" || y.Point == x.Point || strings.HasPrefix(x.Point, y.Point+"/")
		if above && !through[y.ID] {
			return y, true
		}
	}
	return mountinfo.Mount{}, false
}
