package cputopology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestFixture(t *testing.T) {
	got, err := Read(hostfs.NewRoot("testdata/epyc-6.18"))
	if err != nil {
		t.Fatal(err)
	}
	llc := Cache{Level: 3, ID: 0, SizeBytes: 32 << 20, Shared: []int{0, 1}}
	want := &Topology{CPUs: []CPU{{ID: 0, Core: 0, Siblings: []int{0}, LLC: llc}, {ID: 1, Core: 1, Siblings: []int{1}, LLC: llc}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// twoSockets is two packages of two cores of two threads, numbered as Intel does (the
// second threads last), with CPU 7 offline.
func twoSockets() map[string]string {
	files := map[string]string{"online": "0-6\n"}
	for id := range 8 {
		pkg, core := id%4/2, id%2
		dir := fmt.Sprintf("cpu%d/", id)
		files[dir+"topology/physical_package_id"] = fmt.Sprintln(pkg)
		files[dir+"topology/core_id"] = fmt.Sprintln(core * 4)
		files[dir+"topology/thread_siblings_list"] = fmt.Sprintf("%d,%d\n", id%4, id%4+4)
		files[dir+fmt.Sprintf("node%d/cpulist", pkg)] = ""
		files[dir+"cache/index0/level"], files[dir+"cache/index0/type"] = "1\n", "Data\n"
		files[dir+"cache/index1/level"], files[dir+"cache/index1/type"] = "3\n", "Unified\n"
		files[dir+"cache/index1/id"], files[dir+"cache/index1/size"] = fmt.Sprintln(pkg), "1024K\n"
		files[dir+"cache/index1/shared_cpu_list"] = fmt.Sprintf("%d-%d,%d-%d\n", pkg*2, pkg*2+1, pkg*2+4, pkg*2+5)
		files[dir+"cache/index2/level"], files[dir+"cache/index2/type"] = "4\n", "Instruction\n"
	}
	return files
}

func TestTwoSockets(t *testing.T) {
	got, err := Read(hostfs.NewRoot(writeTree(t, twoSockets())))
	if err != nil || len(got.CPUs) != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
	want := CPU{ID: 6, Package: 1, Die: Unknown, Core: 0, Siblings: []int{2, 6}, Node: 1,
		LLC: Cache{Level: 3, ID: 1, SizeBytes: 1 << 20, Shared: []int{2, 3, 6, 7}}}
	if diff := cmp.Diff(want, got.CPUs[6]); diff != "" {
		t.Error(diff)
	}
	if nodes := got.Nodes(); !slices.Equal(nodes, []int{0, 1}) {
		t.Errorf("Nodes = %v", nodes)
	}
}

// TestBareMachine: a VM that shows CPUs and nothing else. Nothing unknown reads as 0.
func TestBareMachine(t *testing.T) {
	got, err := Read(hostfs.NewRoot(writeTree(t, map[string]string{"online": "0\n", "cpu0/uevent": ""})))
	if err != nil {
		t.Fatal(err)
	}
	want := &Topology{CPUs: []CPU{{ID: 0, Package: Unknown, Die: Unknown, Core: Unknown, Node: Unknown, LLC: Cache{ID: Unknown, SizeBytes: Unknown}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if nodes := got.Nodes(); len(nodes) != 0 {
		t.Errorf("Nodes = %v", nodes)
	}
}

func TestMalformed(t *testing.T) {
	if _, err := Read(hostfs.NewRoot(t.TempDir())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	for _, c := range []struct{ file, text string }{
		{"online", ""}, {"online", "\n"}, {"online", "x\n"}, {"online", "0-\n"},
		{"cpu3/topology/core_id", "x\n"}, {"cpu3/topology/physical_package_id", "-2\n"}, {"cpu3/topology/die_id", "\n"},
		{"cpu3/topology/core_cpus_list", "3-1\n"},
		{"cpu3/cache/index1/level", "L3\n"}, {"cpu3/cache/index1/id", "a\n"}, {"cpu3/cache/index1/size", "1M\n"}, {"cpu3/cache/index1/shared_cpu_list", ",\n"},
	} {
		files := twoSockets()
		files[c.file] = c.text
		if _, err := Read(hostfs.NewRoot(writeTree(t, files))); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s holding %q: %v", c.file, c.text, err)
		}
	}
	files := twoSockets()
	files["cpu3/cache/index1/size"] = "0K\n"
	got, err := Read(hostfs.NewRoot(writeTree(t, files)))
	if err != nil || got.CPUs[3].LLC.SizeBytes != Unknown {
		t.Errorf("a cache of 0K: %+v, %v", got, err)
	}
}

func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, cpuDir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"32768K", "0K", "", "K", "1M", "99999999999999K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := parseSize(s); err == nil && v != Unknown && v < 1024 {
			t.Errorf("%q: %d", s, v)
		}
	})
}

// TestKernel reads the machine that the test runs on.
func TestKernel(t *testing.T) {
	root := hostfs.NewRoot("/")
	got, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	online, err := ReadOnline(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.CPUs) != len(online) || len(online) < runtime.NumCPU() {
		t.Errorf("%d CPUs, %d online, %d usable here", len(got.CPUs), len(online), runtime.NumCPU())
	}
	for _, c := range got.CPUs {
		if c.Siblings != nil && !slices.Contains(c.Siblings, c.ID) {
			t.Errorf("CPU %d is not among its siblings %v", c.ID, c.Siblings)
		}
		if c.LLC.Level > 0 && c.LLC.Shared != nil && !slices.Contains(c.LLC.Shared, c.ID) {
			t.Errorf("CPU %d does not share its cache %+v", c.ID, c.LLC)
		}
	}
	t.Logf("%+v", got.CPUs)
}

// Nodes returns the NUMA nodes that have online CPUs, ascending; none if unknown.
func (t *Topology) Nodes() []int {
	var nodes []int
	for _, c := range t.CPUs {
		if c.Node != Unknown {
			nodes = append(nodes, c.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
