package source

// A list of cgroups as `find /sys/fs/cgroup -type d` prints it (cgroup v2), the first
// line being the mount point:
//
//	/sys/fs/cgroup
//	/sys/fs/cgroup/system.slice
//	/sys/fs/cgroup/system.slice/nginx.service
//
// On cgroup v1 and hybrid hosts the hierarchies lie below it, and that of the cpu
// controller counts:
//
//	/sys/fs/cgroup
//	/sys/fs/cgroup/cpu,cpuacct
//	/sys/fs/cgroup/cpu,cpuacct/docker
//	/sys/fs/cgroup/memory
//
// Plain cgroup paths, without a mount point, are taken too.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrTree: a list of cgroups does not read as one.
var ErrTree = errors.New("no list of cgroups")

// maxTreeLines bounds a list: ten times what the agent lists on a host.
const maxTreeLines = 1_000_000

// Tree is a host's cgroups.
type Tree struct {
	Paths []string // below the root of the hierarchy that counts, sorted
	V1    bool     // of the cpu controller's hierarchy, of several
}

// ParseTree reads a list of cgroups.
func ParseTree(r io.Reader) (*Tree, error) {
	var lines []string
	scan := bufio.NewScanner(r)
	for n := 1; scan.Scan(); n++ {
		line := strings.TrimRight(scan.Text(), "\r")
		if line == "" {
			continue
		}
		if n > maxTreeLines {
			return nil, fmt.Errorf("%w: more than %d lines", ErrTree, maxTreeLines)
		}
		if line[0] != '/' && line != "." && !strings.HasPrefix(line, "./") {
			return nil, fmt.Errorf("%w: line %d: expected a path, as find prints it", ErrTree, n)
		}
		lines = append(lines, line)
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTree, err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrTree)
	}
	return treeOf(lines), nil
}

// treeOf finds the root of a list and takes what lies below it.
func treeOf(lines []string) *Tree {
	top := ""
	if isMount(lines[0]) {
		top, lines = strings.TrimRight(lines[0], "/"), lines[1:]
	}
	below := func(s string) bool { return strings.HasPrefix(s, top+"/") }
	t := &Tree{}
	if cpu := cpuHierarchy(lines, top); cpu != "" {
		top, t.V1 = cpu, true
	}
	for _, line := range lines {
		if below(line) {
			t.Paths = append(t.Paths, strings.TrimRight(line[len(top):], "/"))
		}
	}
	t.Paths = slices.DeleteFunc(t.Paths, func(p string) bool { return p == "" })
	slices.Sort(t.Paths)
	t.Paths = slices.Compact(t.Paths)
	return t
}

// isMount tells a mount point from a cgroup: it is what find was given, . or a path that
// says cgroup (/sys/fs/cgroup, /host/sys/fs/cgroup/cpu,cpuacct).
func isMount(line string) bool {
	return line == "." || slices.ContainsFunc(strings.Split(line, "/"), func(s string) bool { return s == "cgroup" || s == "cgroup2" })
}

// cpuHierarchy returns the folder of the cpu controller where the first level below the
// mount point is v1's hierarchies: at least two of them are named for their controllers.
func cpuHierarchy(lines []string, top string) string {
	cpu, found := "", map[string]bool{}
	for _, line := range lines {
		name, ok := strings.CutPrefix(line, top+"/")
		if !ok || strings.Contains(name, "/") {
			continue
		}
		for c := range strings.SplitSeq(name, ",") {
			if slices.Contains(controllers[1:], c) || c == "freezer" {
				found[name] = true
			}
			if c == "cpu" {
				cpu = line
			}
		}
	}
	if len(found) < 2 {
		return ""
	}
	return cpu
}
