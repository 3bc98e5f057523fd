package linux

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	cpuset "github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

// cpuTree writes the files of a machine's CPUs.
func cpuTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, "/sys/devices/system/cpu", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Two sockets of two cores of two threads, numbered as Intel does: core and cache numbers
// begin anew in each package, and are told apart. They stay as they are when CPUs go.
func TestTopologyOfTwoSockets(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"online": "0-7", "possible": "0-9"}
	for id := range 8 {
		pkg := id % 4 / 2
		files[fmt.Sprintf("cpu%d/topology/physical_package_id", id)] = fmt.Sprint(pkg)
		files[fmt.Sprintf("cpu%d/topology/core_id", id)] = fmt.Sprint(id % 2 * 4)
		files[fmt.Sprintf("cpu%d/cache/index3/level", id)] = "3"
		files[fmt.Sprintf("cpu%d/cache/index3/type", id)] = "Unified"
		files[fmt.Sprintf("cpu%d/cache/index3/id", id)] = fmt.Sprint(pkg * 7)
	}
	cpuTree(t, dir, files)
	var log strings.Builder
	h := &Host{opt: Options{FS: hostfs.NewRoot(dir), Log: slog.New(slog.NewTextHandler(&log, nil))}}
	look := func(want *model.Topology) {
		t.Helper()
		h.topology.now = nil
		h.lookAtCPUs()
		if d := cmp.Diff(want, h.topology.now); d != "" {
			t.Error(d)
		}
	}
	all := []model.CPU{
		{ID: 0, Core: 0, Socket: 0, LLC: 0}, {ID: 1, Core: 1, Socket: 0, LLC: 0}, {ID: 2, Core: 2, Socket: 1, LLC: 1}, {ID: 3, Core: 3, Socket: 1, LLC: 1},
		{ID: 4, Core: 0, Socket: 0, LLC: 0}, {ID: 5, Core: 1, Socket: 0, LLC: 0}, {ID: 6, Core: 2, Socket: 1, LLC: 1}, {ID: 7, Core: 3, Socket: 1, LLC: 1},
	}
	look(&model.Topology{CPUs: all, Possible: model.FullSet(10)})
	look(nil)
	cpuTree(t, dir, map[string]string{"online": "2-3,6-7"})
	look(&model.Topology{CPUs: []model.CPU{all[2], all[3], all[6], all[7]}, Possible: model.FullSet(10)})
	// What cannot be read is told once, and is tried again.
	cpuTree(t, dir, map[string]string{"online": "0-3", "cpu0/topology/core_id": "x"})
	look(nil)
	look(nil)
	if n := strings.Count(log.String(), "share a core is not known"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	cpuTree(t, dir, map[string]string{"cpu0/topology/core_id": "0"})
	look(&model.Topology{CPUs: all[:4], Possible: model.FullSet(10)})
}

// A VM that shows CPUs and nothing else: each is a core, all share what they have.
func TestTopologyOfABareMachine(t *testing.T) {
	dir := t.TempDir()
	cpuTree(t, dir, map[string]string{"online": "0-1", "possible": "0-1", "cpu0/uevent": "", "cpu1/uevent": ""})
	h := &Host{opt: Options{FS: hostfs.NewRoot(dir), Log: slog.New(slog.DiscardHandler)}}
	h.lookAtCPUs()
	want := &model.Topology{CPUs: []model.CPU{{ID: 0}, {ID: 1, Core: 1}}, Possible: model.FullSet(2)}
	if d := cmp.Diff(want, h.topology.now); d != "" {
		t.Error(d)
	}
}

// nodeTree writes what the kernel tells of memory nodes: of four, CPUs 0 and 1 are on 0, CPU 2 on 1, which has no memory, CPU 3 on 3, and 2 is memory without CPUs.
func nodeTree(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{"online": "0-3", "possible": "0-7", "has_cpu": "0-1,3", "has_memory": "0,2-3"}
	for node, of := range [][2]string{{"0-1", "10 21 14 31"}, {"2", "21 10 31 20"}, {"", "14 31 10 41"}, {"3", "31 20 41 10"}} {
		files[fmt.Sprintf("node%d/cpulist", node)], files[fmt.Sprintf("node%d/distance", node)] = of[0], of[1]
	}
	for name, text := range files {
		name = filepath.Join(dir, "/sys/devices/system/node", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// CPUs on a node without memory are near the nearest that has some, of which the kernel gives them pages.
func TestTopologyOfANodeWithoutMemory(t *testing.T) {
	dir := t.TempDir()
	nodeTree(t, dir)
	files := map[string]string{"online": "0-3", "possible": "0-3"}
	for cpu, node := range []int{0, 0, 1, 3} {
		files[fmt.Sprintf("cpu%d/node%d/cpulist", cpu, node)] = ""
	}
	cpuTree(t, dir, files)
	h := &Host{opt: Options{FS: hostfs.NewRoot(dir), Log: slog.New(slog.DiscardHandler)}}
	h.lookAtCPUs()
	var near []int
	for _, c := range h.topology.now.CPUs {
		near = append(near, c.Node)
	}
	if d := cmp.Diff([]int{0, 0, 3, 3}, near); d != "" {
		t.Error(d)
	}
}

// Pages go to nodes with memory and CPUs. To one without CPUs they go where there is no other, which no policy asks for.
func TestPagesTo(t *testing.T) {
	dir := t.TempDir()
	nodeTree(t, dir)
	nodes, err := numa.ReadTopology(hostfs.NewRoot(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ off, want []int }{
		{[]int{0}, []int{3}}, {[]int{3}, []int{0}}, {[]int{2}, []int{0, 3}}, {[]int{1}, []int{0, 3}}, {[]int{0, 3}, []int{2}}, {[]int{0, 2, 3}, nil},
	} {
		if d := cmp.Diff(c.want, pagesTo(nodes, cpuset.Of(c.off...))); d != "" {
			t.Errorf("off %v: %s", c.off, d)
		}
	}
}
