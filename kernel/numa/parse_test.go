package numa

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// writeTree makes a tree of files.
func writeTree(t *testing.T, files map[string]string) *hostfs.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return hostfs.NewRoot(dir)
}

// addCaptured adds a file of every captured tree to a fuzz corpus.
func addCaptured(f *testing.F, pattern string) {
	f.Helper()
	names, err := filepath.Glob("testdata/*" + pattern)
	if err != nil || len(names) == 0 {
		f.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func TestCounts(t *testing.T) {
	var c Counts
	for _, n := range []NodeCount{{3, 5}, {0, 1}, {3, 2}, {1, 0}, {1000, 7}} {
		c = c.Add(n.Node, n.Count)
	}
	want := Counts{{0, 1}, {1, 0}, {3, 7}, {1000, 7}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if c.Total() != 15 || c.String() != "N0=1 N1=0 N3=7 N1000=7" {
		t.Errorf("%d, %s", c.Total(), c)
	}
	if _, ok := c.Get(2); ok {
		t.Error("node 2 is listed")
	}
	if n, ok := c.Get(1); !ok || n != 0 {
		t.Error("a listed zero is no absence")
	}
}

// TestTopologyKinds: memory without CPUs (CXL), CPUs without memory, an offline node, and
// numbers with gaps.
func TestTopologyKinds(t *testing.T) {
	files := map[string]string{"possible": "0-5\n", "online": "0,2,5\n", "has_cpu": "0,2\n", "has_memory": "0,5\n"}
	for name, text := range map[string]string{
		"node0/cpulist": "0-3\n", "node0/distance": "10 20 40\n", "node2/cpulist": "4-7\n", "node2/distance": "20 10 60\n",
		"node5/cpulist": "\n", "node5/distance": "40 60 10\n",
	} {
		files[name] = text
	}
	tree := func(change map[string]string) *hostfs.Root {
		all := map[string]string{}
		for name, text := range files {
			all["sys/devices/system/node/"+name] = text
		}
		for name, text := range change {
			all["sys/devices/system/node/"+name] = text
		}
		return writeTree(t, all)
	}
	top, err := ReadTopology(tree(nil))
	if err != nil {
		t.Fatal(err)
	}
	cxl, cpuOnly := top.Node(5), top.Node(2)
	if len(cxl.CPUs) != 0 || !cxl.HasMemory || cpuOnly.HasMemory || len(cpuOnly.CPUs) != 4 {
		t.Errorf("%+v", top)
	}
	if d, ok := cpuOnly.Distances.Get(5); !ok || d != 60 {
		t.Errorf("distances of node 2: %v", cpuOnly.Distances)
	}
	if got := top.MemoryNodes(); !slices.Equal(got, []int{0, 5}) {
		t.Errorf("memory nodes %v", got)
	}
	for id, text := range map[int]string{2: "no memory", 1: "offline", 6: "online: 0,2,5"} {
		if err := top.checkMemoryNode(id); !errors.Is(err, ErrNoNode) || !strings.Contains(err.Error(), text) {
			t.Errorf("node %d: %v, want %q", id, err, text)
		}
	}
	for name, text := range map[string]string{"online": "\n", "has_cpu": "x\n", "node0/distance": "10 20\n", "node5/distance": "10 20 far\n", "node2/cpulist": "4-\n"} {
		if _, err := ReadTopology(tree(map[string]string{name: text})); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s %q: %v", name, text, err)
		}
	}
}

func TestNodeFilesMalformed(t *testing.T) {
	meminfo := read(t, "testdata/qemu-6.12/sys/devices/system/node/node0/meminfo")
	for _, c := range []struct{ old, text string }{
		{"Node 0 MemFree:", "Node 0 MemFrei:"}, {" kB\nNode 0 MemFree", " MB\nNode 0 MemFree"}, {"Shmem:          ", "Shmem:         x"},
	} {
		bad := strings.Replace(meminfo, c.old, c.text, 1)
		if _, err := parseNodeMeminfo([]byte(bad)); bad == meminfo || !errors.Is(err, ErrMalformed) {
			t.Errorf("meminfo with %q: changed %v, %v", c.text, bad != meminfo, err)
		}
	}
	for text, want := range map[string]Balancing{"0\n": {}, "1\n": {TowardCPUs: true}, "2\n": {Tiering: true}, "3\n": {TowardCPUs: true, Tiering: true}} {
		got, err := ReadBalancing(writeTree(t, map[string]string{"proc/sys/kernel/numa_balancing": text}))
		if got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := ReadBalancing(writeTree(t, map[string]string{"proc/sys/kernel/numa_balancing": "on\n"})); !errors.Is(err, ErrMalformed) {
		t.Errorf("on: %v", err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestZoneinfo(t *testing.T) {
	zones, err := parseZoneinfo(nil, []byte(read(t, "testdata/epyc-6.18-hybrid/proc/zoneinfo")))
	if err != nil {
		t.Fatal(err)
	}
	if len(zones) != 5 || zones[2].Name != "Normal" || zones[2].ProtectionMax != 0 || zones[2].Managed == 0 || zones[0].ProtectionMax == 0 {
		t.Errorf("%+v", zones)
	}
	if zones[0].Room() != 0 {
		t.Errorf("zone DMA has room for %d pages, and is kept for what can use no other", zones[0].Room())
	}
	if z := (Zone{Name: "Device", Free: 100, Managed: 100}); z.Room() != 0 {
		t.Error("device memory takes ordinary pages")
	}
	text := read(t, "testdata/qemu-6.1/proc/zoneinfo")
	for _, c := range []struct{ old, text string }{
		{"Node 0, zone", "Node x, zone"}, {"Node 0, zone", "Node 1024, zone"}, {"pages free", "pages frei"},
		{"        high     ", "        hoch     "}, {"        high     ", "        high     -"}, {"protection: (", "protection: ("},
		{"protection: (0, ", "protection: (x, "}, {"protection", "protektion"},
	} {
		bad := strings.Replace(text, c.old, c.text, 1)
		if c.old == c.text {
			bad = strings.Replace(text, ")", "", 1)
		}
		if _, err := parseZoneinfo(nil, []byte(bad)); bad == text || !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: changed %v, %v", c.text, bad != text, err)
		}
	}
	if _, err := parseZoneinfo(nil, []byte("  pages free 3\n")); !errors.Is(err, ErrMalformed) {
		t.Errorf("no zone: %v", err)
	}
}

func TestPolicy(t *testing.T) {
	for text, want := range map[string]Policy{
		"default":                   {Mode: PolicyDefault},
		"local":                     {Mode: PolicyLocal},
		"prefer:1":                  {Mode: PolicyPrefer, Nodes: cpus.Of(1)},
		"prefer=static:3":           {Mode: PolicyPrefer, Nodes: cpus.Of(3), Static: true},
		"prefer (many):0-1,4":       {Mode: PolicyPreferMany, Nodes: cpus.Of(0, 1, 4)},
		"bind:0":                    {Mode: PolicyBind, Nodes: cpus.Of(0)},
		"bind=relative:0-2":         {Mode: PolicyBind, Nodes: cpus.Of(0, 1, 2), Relative: true},
		"bind=:0-1":                 {Mode: PolicyBind, Nodes: cpus.Of(0, 1)},
		"bind=static|balancing:0-1": {Mode: PolicyBind, Nodes: cpus.Of(0, 1), Static: true, Balancing: true},
		"interleave:0,1023":         {Mode: PolicyInterleave, Nodes: cpus.Of(0, 1023)},
		"weighted interleave:0-1":   {Mode: PolicyWeightedInterleave, Nodes: cpus.Of(0, 1)},
		"newpolicy:0-1":             {},
		"defaulted":                 {},
	} {
		for _, rest := range []string{"", "anon=1 N0=1"} {
			line := text
			if rest != "" {
				line += " " + rest
			}
			got, after, err := cutPolicy([]byte(line))
			if diff := cmp.Diff(want, got); diff != "" || err != nil || string(after) != rest {
				t.Errorf("%q: %s, rest %q, %v", line, diff, after, err)
			}
		}
	}
	for _, bad := range []string{"", " anon=1", "bind:", "bind:1-0", "bind:0-", "bind:x", "bind:1024", "bind:0,,1", "bind=static,0"} {
		if p, _, err := cutPolicy([]byte(bad)); !errors.Is(err, ErrMalformed) && p.Mode != PolicyBind || err == nil && bad != "bind=static,0" {
			t.Errorf("%q: %+v, %v", bad, p, err)
		}
	}
	// A list that fills the kernel's buffer may be cut anywhere.
	full := "bind:0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,"[:policyBuffer-1]
	p, rest, err := cutPolicy([]byte(full + " anon=1"))
	if err != nil || !p.Truncated || !p.Nodes.Has(20) || string(rest) != "anon=1" {
		t.Errorf("%+v, %q, %v", p.Nodes, rest, err)
	}
	if !p.Binds(99) || p.Binds(20) {
		t.Error("a list cut short binds to what it names")
	}
	for mode, want := range map[PolicyMode]string{PolicyOther: "other", PolicyPreferMany: "prefer (many)", 99: "other"} {
		if mode.String() != want {
			t.Errorf("%d is %q", mode, mode)
		}
	}
}

func TestNumaMapsLine(t *testing.T) {
	var m Mapping
	line := `7f00 bind:1 file=/a\040b\134\075.so anon=3 dirty=2 mapped=9 mapmax=4 swapcache=1 active=0 writeback=5 new=7 N1=5 N0=4 kernelpagesize_kB=4`
	if err := m.parse([]byte(line)); err != nil {
		t.Fatal(err)
	}
	want := Mapping{
		Start: 0x7f00, Policy: Policy{Mode: PolicyBind, Nodes: cpus.Of(1)}, File: []byte(`/a\040b\134\075.so`),
		AnonPages: 3, DirtyPages: 2, SwapCachePages: 1, WritebackPages: 5, MapMax: 4, HasActive: true,
		Pages: Counts{{0, 4}, {1, 5}}, UnitBytes: 4096,
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	if got := hostfs.Unescape(string(m.File)); got != `/a b\=.so` {
		t.Errorf("%q", got)
	}
	if err := m.parse([]byte("7f00 default stack anon=2 dirty=2 N0=2 kernelpagesize_kB=4")); err != nil || !m.Stack || m.File != nil || m.MapMax != 1 || !m.HasActive || m.ActivePages != 2 {
		t.Errorf("nothing is left of the line before: %+v, %v", m, err)
	}
	if err := m.parse([]byte("7f00 default heap")); err != nil || !m.Heap || m.HasActive || m.UnitBytes != 0 || len(m.Pages) != 0 {
		t.Errorf("a mapping without pages: %+v, %v", m, err)
	}
	for _, bad := range []string{
		"", "xyz default", "7f00", "7F00 default", "12345678901234567 default", "7f00 default anon=", "7f00 default anon=-1",
		"7f00 default N0=1", "7f00 default N0=x kernelpagesize_kB=4", "7f00 default N1024=1 kernelpagesize_kB=4",
		"7f00 default kernelpagesize_kB=0", "7f00 default file=", "7f00 default active=18446744073709551616",
	} {
		if err := m.parse([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestNumaMapsBounds: a line longer than any the kernel writes, and a file cut in a line.
func TestNumaMapsBounds(t *testing.T) {
	const stat = "1 (a) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 77 0\n"
	long := "7f00 default file=/" + strings.Repeat(`\040`, 4095) + " N0=1 kernelpagesize_kB=4\n"
	count := func(text string) (int, error) {
		n := 0
		root := writeTree(t, map[string]string{"proc/1/stat": stat, "proc/1/numa_maps": text})
		err := ReadNumaMaps(root, 1, func(*Mapping) error { n++; return nil })
		return n, err
	}
	if n, err := count(strings.Repeat(long, 9)); n != 9 || err != nil {
		t.Errorf("the longest lines: %d, %v", n, err)
	}
	if _, err := count("7f00 default file=/" + strings.Repeat("x", lineBuffer) + "\n"); !errors.Is(err, ErrMalformed) {
		t.Errorf("too long: %v", err)
	}
	if n, err := count("7f00 default\n7f01 default"); n != 1 || !errors.Is(err, ErrMalformed) {
		t.Errorf("cut: %d, %v", n, err)
	}
	if _, err := count(""); !errors.Is(err, ErrVanished) {
		t.Errorf("empty: %v", err)
	}
	mine := errors.New("mine")
	root := writeTree(t, map[string]string{"proc/1/stat": stat, "proc/1/numa_maps": long + long})
	n := 0
	if err := ReadNumaMaps(root, 1, func(*Mapping) error { n++; return mine }); !errors.Is(err, mine) || n != 1 {
		t.Errorf("the caller's error: %v after %d", err, n)
	}
}

func TestProcessFiles(t *testing.T) {
	for text, want := range map[string]uint64{
		"1 (a) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 77 0\n":               77,
		"1 (a) b) (c) R 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 12345 0\n":     12345,
		"1 (a) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 18446744073709551615": 1<<64 - 1,
	} {
		if got, err := parseStartTicks([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "1 (a", "1 (a) S 0", "1 (a) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 0"} {
		if _, err := parseStartTicks([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, found, err := parseMemoryUse([]byte("Name:\tx\nVmLck:\t      12 kB\nRssAnon:\t  3 kB\n")); got != (memoryUse{12 << 10, 3 << 10}) || !found || err != nil {
		t.Errorf("%+v, %v, %v", got, found, err)
	}
	if _, found, err := parseMemoryUse([]byte("Name:\tx\n")); found || err != nil {
		t.Errorf("a kernel thread: %v, %v", found, err)
	}
	for _, bad := range []string{"VmLck: 1\n", "VmLck: x kB\n", "VmLck: kB\n", "VmLck: 1 kB\n", "RssAnon: -1 kB\nVmLck: 1 kB\n"} {
		if _, _, err := parseMemoryUse([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "7f00 r--p 0", "7f00-7f00 r--p 0", "7f00-7e00 r--p 0", "7f00-8000 r--", "7f00-8000 r--x 0", "g-8000 r--p 0"} {
		if _, _, err := parseArea([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestMemoryNumaStat(t *testing.T) {
	var s MemoryNumaStat
	if err := s.parse([]byte("anon N0=4096 N1=8192\nfile N0=0 N1=1\nnewline N0=7\nshmem N0=3 N1=4\n")); err != nil {
		t.Fatal(err)
	}
	want := MemoryNumaStat{AnonBytes: Counts{{0, 4096}, {1, 8192}}, FileBytes: Counts{{0, 0}, {1, 1}}, ShmemBytes: Counts{{0, 3}, {1, 4}}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	if err := s.parse([]byte("anon N0=1\nfile N0=2\n")); err != nil || len(s.ShmemBytes) != 0 || len(s.AnonBytes) != 1 {
		t.Errorf("nothing is left of the reading before: %+v, %v", s, err)
	}
	for _, bad := range []string{"", "anon N0=1\n", "anon\nfile N0=1\n", "anon N0=x\nfile N0=1\n", "anon N0=1 N0=2\nfile N0=1\n",
		"anon N0=1\nanon N0=1\nfile N0=1\n", "anon N1024=1\nfile N0=1\n", "anon 0=1\nfile N0=1\n", "anon N0=-1\nfile N0=1\n"} {
		if err := s.parse([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var v1 MemoryNumaStatV1
	text := read(t, "testdata/epyc-6.18-hybrid/sys/fs/cgroup/batch/memory.numa_stat")
	if err := v1.parse([]byte(text)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, text string }{
		{"file=", "datei="}, {"anon=", "anon"}, {" N0=", " N0="}, {" N0=", " M0="}, {"unevictable=0", "unevictable=x"}, {"file=0 N0", "anon=0 N0"},
	} {
		bad := strings.Replace(text, c.old, c.text, 1)
		if c.old == c.text {
			first, _, _ := strings.Cut(text, " N0")
			bad = first + "\n" + text
		}
		if err := v1.parse([]byte(bad)); bad == text || !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: changed %v, %v", c.text, bad != text, err)
		}
	}
}
