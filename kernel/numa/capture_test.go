package numa

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// capturedPID and capturedGroup are where a captured tree has its process and its cgroup.
const (
	capturedPID   = 100
	capturedGroup = "/sys/fs/cgroup/batch"
)

// capturedFiles are the machine's files of a captured tree.
var capturedFiles = []string{
	"/sys/devices/system/node/*", "/sys/devices/system/node/node*/cpulist", "/sys/devices/system/node/node*/distance",
	"/sys/devices/system/node/node*/meminfo",
	"/sys/kernel/mm/mempolicy/weighted_interleave/*", "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
	"/proc/zoneinfo", "/proc/sys/kernel/numa_balancing",
}

// TestCapture takes a tree like those in testdata of the machine that it runs on, and
// holds it to what the tests of those demand. In the rig the tree is brought out.
func TestCapture(t *testing.T) {
	liveRoot(t)
	topology(t)
	dir := filepath.Dir(rigtest.Out(t, "kernel/numa/capture/taken"))
	group, v2 := memoryGroup(t, "capture")
	spec := childSpec{Pages: 600, Zero: 8, Holes: 8, File: fileOf(t, 8), Policies: true}
	if rigtest.Inside() {
		// Pages are set aside for the whole machine: not elsewhere.
		if err := os.WriteFile("/proc/sys/vm/nr_hugepages", []byte("2"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile("/proc/sys/vm/nr_hugepages", []byte("0"), 0); err != nil {
				t.Error(err)
			}
		})
		spec.HugeTLB = 2
	}
	c := spawn(t, group, spec)
	for _, pattern := range capturedFiles {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			copyOut(t, name, dir+name)
		}
	}
	from, to := "/proc/"+strconv.Itoa(int(c.pid)), "/proc/"+strconv.Itoa(capturedPID)
	for _, name := range []string{"/maps", "/smaps", "/numa_maps", "/stat", "/status"} {
		copyOut(t, from+name, dir+to+name)
	}
	copyOut(t, group+"/memory.numa_stat", dir+capturedGroup+"/memory.numa_stat")
	checkTree(t, hostfs.NewRoot(dir), v2)
}

// copyOut copies a pseudo-file, if it is a file and there.
func copyOut(t *testing.T, from, to string) {
	t.Helper()
	if st, err := os.Stat(from); err != nil || st.IsDir() || strings.HasSuffix(from, "uevent") {
		return
	}
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrInvalid) || err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkTree reads everything in a tree and holds the files to each other.
func checkTree(t *testing.T, root hostfs.FS, v2 bool) {
	t.Helper()
	top, err := ReadTopology(root)
	if err != nil {
		t.Fatal(err)
	}
	room := NewRoomReader(root)
	if err := room.Refresh(); err != nil {
		t.Fatal(err)
	}
	for _, n := range top.Nodes {
		checkNode(t, root, &n, room)
	}
	checkCapturedProcess(t, root, top)
	checkCapturedGroup(t, root, top, v2)
	if _, err := ReadBalancing(root); err != nil && !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if pages := hugePages(root, uint64(os.Getpagesize())); pages != 2<<20/os.Getpagesize() {
		t.Errorf("a transparent huge page has %d pages", pages)
	}
}

func checkNode(t *testing.T, root hostfs.FS, n *Node, room *RoomReader) {
	t.Helper()
	if local, ok := n.Distances.Get(n.ID); !ok || local != 10 {
		t.Errorf("node %d: distances %v: to itself it is always 10", n.ID, n.Distances)
	}
	mem, err := ReadNodeMeminfo(root, n.ID)
	if err != nil {
		t.Fatal(err)
	}
	if n.HasMemory != (mem.TotalBytes > 0) || mem.FreeBytes > mem.TotalBytes || mem.AnonBytes+mem.FileBytes > mem.TotalBytes {
		t.Errorf("node %d, has memory: %v: %+v", n.ID, n.HasMemory, mem)
	}
	// zoneinfo and meminfo are not read at once: a percent of the node may have moved.
	pages, slack := mem.FreeBytes/uint64(os.Getpagesize()), mem.TotalBytes/uint64(os.Getpagesize())/100
	var free uint64
	for _, z := range room.Zones() {
		if z.Node == n.ID {
			free += z.Free
		}
	}
	if free+slack < pages || pages+slack < free {
		t.Errorf("node %d: zones have %d pages free, meminfo %d", n.ID, free, pages)
	}
	if got := room.Pages(n.ID, 0); n.HasMemory && (got == 0 || got >= free) || room.Pages(n.ID, got) != 0 || room.Pages(n.ID, 1) != got-1 {
		t.Errorf("node %d: room for %d pages of %d free", n.ID, got, free)
	}
}

func checkCapturedProcess(t *testing.T, root hostfs.FS, top *Topology) {
	t.Helper()
	seen := map[PolicyMode]int{}
	var anon, huge uint64
	var file, stack bool
	err := ReadNumaMaps(root, capturedPID, func(m *Mapping) error {
		for _, n := range m.Pages {
			if top.Node(n.Node) == nil {
				t.Errorf("%x: pages on node %d, which is not online", m.Start, n.Node)
			}
		}
		if m.Policy.Truncated || m.Policy.Mode == PolicyOther {
			t.Errorf("%x: policy %+v", m.Start, m.Policy)
		}
		seen[m.Policy.Mode]++
		anon += m.AnonPages
		file = file || strings.HasSuffix(hostfs.Unescape(string(m.File)), "/mapped") && m.AnonPages == 1 && m.Pages.Total() == 8
		stack = stack || m.Stack
		if m.Huge && m.UnitBytes == 2<<20 && !m.HasActive {
			huge += m.Pages.Total()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []PolicyMode{PolicyDefault, PolicyLocal, PolicyPrefer, PolicyPreferMany, PolicyBind, PolicyInterleave} {
		if seen[mode] == 0 {
			t.Errorf("no mapping with policy %s; %v", mode, seen)
		}
	}
	if _, err := root.Inode("/sys/kernel/mm/mempolicy/weighted_interleave"); err == nil && seen[PolicyWeightedInterleave] != 1 {
		t.Errorf("the kernel has weighted interleave, and mappings have %v", seen)
	}
	if anon < 600+9*4+1 || !file || !stack {
		t.Errorf("%d anonymous pages, file %v, stack %v", anon, file, stack)
	}
	if len(top.MemoryNodes()) > 1 && huge != 2 {
		t.Errorf("%d hugetlb pages; the rig's child has two", huge)
	}
}

func checkCapturedGroup(t *testing.T, root hostfs.FS, top *Topology, v2 bool) {
	t.Helper()
	var anon Counts // bytes
	if v2 {
		r, err := OpenMemoryNumaStat(root, capturedGroup)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		s, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		anon = s.AnonBytes
		for name, c := range map[string]Counts{"file": s.FileBytes, "shmem": s.ShmemBytes, "anon_thp": s.AnonTHPBytes,
			"inactive_anon": s.InactiveAnonBytes, "unevictable": s.UnevictableBytes, "slab_reclaimable": s.SlabReclaimableBytes} {
			if len(c) != len(top.MemoryNodes()) {
				t.Errorf("%s: %v; memory nodes %v", name, c, top.MemoryNodes())
			}
		}
	} else {
		r, err := OpenMemoryNumaStatV1(root, capturedGroup)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		s, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []PagesByKind{s.Own, s.Hierarchical} {
			if sum := k.FilePages.Total() + k.AnonPages.Total() + k.UnevictablePages.Total(); sum != k.TotalPages.Total() {
				t.Errorf("%+v: the total is not the sum", k)
			}
		}
		for _, n := range s.Hierarchical.AnonPages {
			anon = anon.Add(n.Node, n.Count*uint64(os.Getpagesize()))
		}
	}
	if len(anon) != len(top.MemoryNodes()) || anon.Total() < 600*uint64(os.Getpagesize()) {
		t.Errorf("anonymous memory by node %v; the child has 600 pages", anon)
	}
}
