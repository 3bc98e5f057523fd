// Package survey looks at a host and guesses which of its cgroups are what: which job, which
// class, and why. A guess is where a person starts, not what the agent goes by: it is written
// into a configuration with its reason beside it, and what nothing speaks for is left open.
//
// What counts: cgroups' paths (node/source recognises units, containers and pods), their CPU
// weight, cpu.idle and quota, what they used in a moment, and which TCP ports their processes
// listen on. Package node/linux/look reads all that from a host.
package survey

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/commensal-io/commensal/node/source"
)

// Group is one cgroup that may be a task: a systemd unit, a container, a pod, or a cgroup
// that somebody made by hand. Groups never lie inside each other.
type Group struct {
	Path     string
	Unit     string           // "": no unit of systemd's
	Slice    string           // that the unit lies in
	Is       *source.Identity // of a container or pod
	Pod      *source.PodName  // of a pod whose name is known
	Seen     bool             // what follows was looked at; false where only paths are known
	CPU      float64          // CPU-sec/sec while it was looked at
	Quota    float64          // in CPUs; 0: none
	Weight   uint64           // of cpu.weight, where 100 is the default; 0: not known
	Idle     bool             // cpu.idle
	Ports    []Port           // it listens on, ordered
	Programs []string         // names of its processes, each once, ordered; not all where there are many
}

// Port is a TCP port that somebody listens on.
type Port struct {
	Number   int
	Loopback bool // only from this machine, or this pod
	Program  string
}

// Groups picks those of a host's cgroups that may be tasks, in the order of their paths.
func Groups(paths []string, names source.Names) []Group {
	var list []Group
	sorted := slices.Sorted(slices.Values(paths))
	taken := map[string]bool{}
	for _, p := range sorted {
		if len(p) < 2 || p[0] != '/' || inside(p, taken) || !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) {
			continue // what no rule can name, too
		}
		g := Group{Path: p}
		id, known := source.Identify(p)
		switch name, slice, unit := source.UnitOf(p); {
		case known:
			g.Is = &id
			if n, ok := names[id.Pod]; ok && id.Pod != "" {
				g.Pod = &n
			}
		case unit && strings.HasSuffix(name, ".slice"):
			continue // what is in it counts
		case unit:
			g.Unit, g.Slice = name, slice
		case !byHand(p, sorted):
			continue
		}
		list = append(list, g)
		taken[p] = true
	}
	return list
}

// inside reports whether a path lies below one that is taken.
func inside(path string, taken map[string]bool) bool {
	for cut := strings.LastIndexByte(path, '/'); cut > 0; cut = strings.LastIndexByte(path[:cut], '/') {
		if taken[path[:cut]] {
			return true
		}
	}
	return false
}

// byHand reports whether a cgroup is one that somebody made apart from systemd and the
// runtimes: a leaf below nothing of theirs.
func byHand(path string, sorted []string) bool {
	top, _, _ := strings.Cut(path[1:], "/")
	if strings.Contains(top, ".") || strings.HasPrefix(top, "kubepods") || strings.HasPrefix(top, "commensal") || top == "kubelet" || top == "docker" {
		return false // systemd's, ours, or a runtime's that was not recognised
	}
	i, _ := slices.BinarySearch(sorted, path+"/")
	return i >= len(sorted) || !strings.HasPrefix(sorted[i], path+"/")
}
