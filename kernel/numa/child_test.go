package numa

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// patience bounds every wait; a healthy kernel needs a small part of it.
const patience = 60 * time.Second

// childSpec is what a child maps.
type childSpec struct {
	Pages int    // private anonymous pages, touched
	Node  int    // on this node
	Huge  bool   // as transparent huge pages, where they can be had
	Bind  bool   // and keeps them bound there
	Lock  bool   // and locked
	Zero  int    // pages that are only read: the zero page
	Holes int    // pages that are mapped and never touched
	Fork  bool   // a forked child holds the pages too
	Later bool   // with Fork: once it is told to, and not before
	File  string // and maps this file, and writes to its first page
	// Spin: it touches its pages again and again, from the CPUs of its node, under the
	// default policy: automatic NUMA balancing takes part. It leaves all other children
	// alone, whose memory has an explicit policy.
	Spin bool
	// Policies maps one page for each memory policy that the kernel knows.
	Policies bool
	HugeTLB  int // hugetlb pages, of the default size
}

// childMap is where the child has what it mapped.
type childMap struct {
	Anon, Zero, Holes, File uint64
	FilePages               int
	Forked                  int
}

func TestMain(m *testing.M) {
	testchild.Play(map[string]testchild.Role{"map": mapMemory, "peek": peek})
	// Children inherit it: huge pages of their Go heap would be in the way of counting.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "no huge pages for this process:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// mapMemory is the child whose pages tests move. It begins when it is told its spec: by then
// it is in its cgroup, of either version.
func mapMemory(p *testchild.Parent, _ []string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(p.Line()), &spec); err != nil {
		return err
	}
	if spec.Huge {
		if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0); err != nil {
			return err
		}
	}
	var at childMap
	anon, err := mapAnon(&spec)
	if err != nil {
		return err
	}
	at.Anon = address(anon)
	if at.Zero, err = mapUntouched(spec.Zero, true); err != nil {
		return err
	}
	if at.Holes, err = mapUntouched(spec.Holes, false); err != nil {
		return err
	}
	if spec.File != "" {
		file, err := mapFile(spec.File)
		if err != nil {
			return err
		}
		at.File, at.FilePages = address(file), len(file)/os.Getpagesize()
	}
	if spec.Policies {
		if err := mapPolicies(); err != nil {
			return err
		}
	}
	if spec.HugeTLB > 0 {
		if err := mapHugeTLB(spec.HugeTLB); err != nil {
			return err
		}
	}
	if spec.Fork && !spec.Later {
		if at.Forked, err = forkSleeper(); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(at); err != nil {
		return err
	}
	if spec.Later {
		p.Line()
		if at.Forked, err = forkSleeper(); err != nil {
			return err
		}
		p.Say("%d", at.Forked)
	}
	if spec.Spin {
		go touch(anon, spec.Node)
	}
	return p.Stay()
}

// touch reads and writes memory from the CPUs of a node, without end.
func touch(mem []byte, node int) {
	runtime.LockOSThread()
	var cpus unix.CPUSet
	if top, err := ReadTopology(hostfs.NewRoot("/")); err == nil {
		for _, cpu := range top.Node(node).CPUs {
			cpus.Set(cpu)
		}
		_ = unix.SchedSetaffinity(0, &cpus)
	}
	for {
		for i := 0; i < len(mem); i += os.Getpagesize() {
			mem[i+1]++
		}
	}
}

// mapPolicies maps and touches a page under each policy, with what the kernel does not
// know left out.
func mapPolicies() error {
	top, err := ReadTopology(hostfs.NewRoot("/"))
	if err != nil {
		return err
	}
	nodes := top.MemoryNodes()
	all, last := cpus.Of(nodes...), cpus.Of(nodes[len(nodes)-1])
	for _, p := range []struct {
		mode  int
		nodes *cpus.Set
	}{
		{unix.MPOL_DEFAULT, nil}, {unix.MPOL_LOCAL, nil}, {unix.MPOL_PREFERRED, &last}, {unix.MPOL_PREFERRED_MANY, &all},
		{unix.MPOL_BIND, &all}, {unix.MPOL_BIND | unix.MPOL_F_STATIC_NODES, &last}, {unix.MPOL_BIND | unix.MPOL_F_RELATIVE_NODES, &all},
		{unix.MPOL_BIND | unix.MPOL_F_NUMA_BALANCING, &all}, {unix.MPOL_INTERLEAVE, &all}, {unix.MPOL_WEIGHTED_INTERLEAVE, &all},
	} {
		mem, err := unix.Mmap(-1, 0, 4*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		if err := mbind(mem, p.mode, p.nodes); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("mbind mode %#x: %w", p.mode, err)
		}
		for i := 0; i < len(mem); i += os.Getpagesize() {
			mem[i] = 1
		}
	}
	return nil
}

func mapHugeTLB(pages int) error {
	mem, err := unix.Mmap(-1, 0, pages*2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
	if err != nil {
		return fmt.Errorf("map %d hugetlb pages: %w", pages, err)
	}
	for i := range pages {
		mem[i*2<<20] = 1
	}
	return nil
}

// child is a running child.
type child struct {
	childMap
	pid  int32
	spec childSpec
	end  func() // ends it and waits; may be called twice
	fork func() // of one with Later: has it fork, and waits until it has
}

// spawn starts a child and waits until it has mapped its memory; group, if not "", is the
// directory of a cgroup that it joins first.
func spawn(t testing.TB, group string, spec childSpec) *child {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	o := testchild.Options{Env: []string{"GOGC=off"}, Group: group}
	if !spec.Spin && !spec.Policies {
		o.Before = func() error { // its memory has the policy "local" throughout
			if _, _, errno := unix.Syscall6(unix.SYS_SET_MEMPOLICY, unix.MPOL_LOCAL, 0, 0, 0, 0, 0); errno != 0 {
				return fmt.Errorf("set_mempolicy: %w", errno)
			}
			return nil
		}
	}
	p := testchild.StartWith(t, "map", o)
	c := &child{pid: int32(p.PID()), spec: spec}
	c.end = func() {
		if c.Forked > 0 {
			_ = unix.Kill(c.Forked, unix.SIGKILL) // not reaped while its parent lives
			c.Forked = 0
		}
		p.End()
	}
	c.fork = func() {
		p.Say("fork")
		pid, err := strconv.Atoi(p.Line())
		if err != nil {
			t.Fatal(err)
		}
		c.Forked = pid
	}
	t.Cleanup(c.end)
	p.Say("%s", text)
	if err := json.Unmarshal([]byte(p.Line()), &c.childMap); err != nil {
		t.Fatal(err)
	}
	return c
}

// nodesAt asks where pages of the child are; -1 for one that is in none, with its outcome.
func nodesAt(t *testing.T, c *child, from uint64, pages int) ([]int, []Outcome) {
	t.Helper()
	nodes, outcomes := make([]int, pages), make([]Outcome, pages)
	b := NewBatch(Live{}, pages)
	for i := 0; i < pages; {
		first := i
		b.Reset()
		for ; i < pages && b.Add(from+uint64(i*os.Getpagesize()), 0); i++ {
		}
		if err := b.Query(c.pid); err != nil {
			t.Fatal(err)
		}
		for k := range b.Len() {
			node, ok := b.Node(k)
			if !ok {
				node = -1
			}
			nodes[first+k], outcomes[first+k] = node, b.Outcome(k)
		}
	}
	return nodes, outcomes
}

// nodesOf asks where pages of the child are: by node, and by outcome.
func nodesOf(t *testing.T, c *child, from uint64, pages int) (Counts, Outcomes) {
	t.Helper()
	var counts Counts
	var sum Outcomes
	nodes, outcomes := nodesAt(t, c, from, pages)
	for i, node := range nodes {
		if node >= 0 {
			counts = counts.Add(node, 1)
		}
		sum[outcomes[i]]++
	}
	return counts, sum
}

func liveRoot(t *testing.T) hostfs.FS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("other processes' pages take root")
	}
	return hostfs.NewRoot("/")
}

// topology reads the machine's nodes; a kernel without NUMA has none to test.
func topology(t *testing.T) *Topology {
	t.Helper()
	top, err := ReadTopology(hostfs.NewRoot("/"))
	if errors.Is(err, ErrUnsupported) {
		t.Skipf("this kernel has no NUMA: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// twoNodes returns the machine, and two nodes that pages can move between.
func twoNodes(t *testing.T) (root hostfs.FS, a, b int) {
	t.Helper()
	root = liveRoot(t)
	nodes := topology(t).MemoryNodes()
	if len(nodes) < 2 {
		t.Skipf("moving pages takes two memory nodes; this machine has %v", nodes)
	}
	return root, nodes[0], nodes[1]
}

// memoryGroup makes a cgroup for memory, v2 where the controller is there, v1 otherwise.
func memoryGroup(t testing.TB, name string) (dir string, v2 bool) {
	t.Helper()
	base := ""
	if data, err := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control"); err == nil && slices.Contains(strings.Fields(string(data)), "memory") {
		base, v2 = "/sys/fs/cgroup", true
	} else if _, err := os.Stat("/sys/fs/cgroup/memory/memory.numa_stat"); err == nil {
		base = "/sys/fs/cgroup/memory"
	} else {
		t.Skip("no memory controller here, neither in /sys/fs/cgroup nor in /sys/fs/cgroup/memory")
	}
	dir = fmt.Sprintf("%s/commensal-test-%d-%s", base, os.Getpid(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.Remove(dir)
		for end := time.Now().Add(patience); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			err = os.Remove(dir)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return dir, v2
}

// fileOf puts n pages into a file of its own, on a file system with a page cache.
func fileOf(t *testing.T, pages int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mapped")
	if err := os.WriteFile(name, make([]byte, pages*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
