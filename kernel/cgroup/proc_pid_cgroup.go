package cgroup

// /proc/PID/cgroup: the groups that a process is in, a line a hierarchy.
//
// https://man7.org/linux/man-pages/man7/cgroups.7.html, "/proc files"
//
//	4:cpu,cpuacct:/system.slice/commensal.service
//	3:cpuset:/
//	0::/system.slice/commensal.service
//
// Paths are as the reader's cgroup namespace shows them: /.. begins one outside of it.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// ReadPaths returns the groups that a process ("self" or its number) is in, in the
// hierarchies whose limits are written: those of the cpu and the cpuset controller, or the
// one of v2. The root is none of them, and neither is what lies outside of our namespace.
func ReadPaths(fsys hostfs.FS, layout Layout, process string) ([]string, error) {
	file := "/proc/" + process + "/cgroup"
	data, err := fsys.ReadFile(file, nil)
	if err != nil {
		return nil, fmt.Errorf("read the cgroups of process %s: %w", process, err)
	}
	paths, err := parsePaths(string(data), layout)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return paths, nil
}

func parsePaths(text string, layout Layout) ([]string, error) {
	var paths []string
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			return nil, fmt.Errorf("%w: line %q", ErrMalformed, line)
		}
		held := strings.Split(f[1], ",")
		ours := slices.Contains(held, string(CPU)) || slices.Contains(held, string(CPUSet))
		if layout == LayoutV2 {
			ours = f[1] == ""
		}
		path := strings.TrimSuffix(f[2], " (deleted)")
		if ours && CheckPath(path) == nil && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}
