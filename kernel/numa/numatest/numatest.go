// Package numatest holds a kernel's memory nodes and page moves to what kernel/numa expects of
// them: the same tests run on a kernel's and on a simulated one.
package numatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
)

// Bed is a machine with processes whose pages can be moved.
type Bed interface {
	FS() hostfs.FS
	Calls() numa.Calls
	// Group makes a cgroup with the memory controller, and removes it at the end.
	Group(t testing.TB, name string) (dir string, v2 bool)
	// Spawn starts a process, in a group where one is named, with so many pages of anonymous
	// memory in one mapping, all of them on a node; it ends with the test.
	Spawn(t testing.TB, group string, pages, node int) Process
}

// Process is a process of the bed.
type Process struct {
	PID   int32
	Anon  uint64 // where its pages begin
	Pages int
	End   func() // ends it; once more does nothing
}

// patience bounds every wait.
const patience = 60 * time.Second

// Conform runs all tests.
func Conform(t *testing.T, bed Bed) {
	for _, test := range []struct {
		name string
		run  func(*rig)
	}{
		{"files agree about the nodes", testNodes},
		{"a node that is not there", testMissingNode},
		{"where pages are", testQuery},
		{"a process that ended", testGone},
		{"memory.numa_stat", testNumaStat},
		{"hot calls do not allocate", testAllocations},
		{"exact shares, step by step, and back", testExactSteps},
		{"three processes of a group", testGroup},
		{"a process ends on the way", testEndsMidway},
		{"other shares after the survey", testAim},
		{"a whole process migrates", testMigrate},
		{"a context that is over", testContext},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &rig{T: t, bed: bed, fs: bed.FS()}
			top, err := numa.ReadTopology(r.fs)
			if errors.Is(err, numa.ErrUnsupported) {
				t.Skip("a kernel without memory nodes")
			}
			if err != nil {
				t.Fatal(err)
			}
			r.top = top
			test.run(r)
		})
	}
}

// rig is a test on a bed.
type rig struct {
	*testing.T
	bed Bed
	fs  hostfs.FS
	top *numa.Topology
}

// two returns two nodes to move pages between.
func (r *rig) two() (a, b int) {
	r.Helper()
	nodes := r.top.MemoryNodes()
	if len(nodes) < 2 {
		r.Skipf("moving pages takes two memory nodes; this machine has %v", nodes)
	}
	return nodes[0], nodes[1]
}

// where counts a process's pages by node and outcome, as move_pages tells of them.
func (r *rig) where(p Process, from, pages int) (numa.Counts, numa.Outcomes) {
	r.Helper()
	var counts numa.Counts
	var outcomes numa.Outcomes
	batch := numa.NewBatch(r.bed.Calls(), numa.MaxBatch)
	for i := 0; i < pages; {
		batch.Reset()
		for i < pages && batch.Add(p.Anon+uint64((from+i)*os.Getpagesize()), 0) {
			i++
		}
		if err := batch.Query(p.PID); err != nil {
			r.Fatal(err)
		}
		for k := range batch.Len() {
			if node, ok := batch.Node(k); ok {
				counts = counts.Add(node, 1)
			}
			outcomes[batch.Outcome(k)]++
		}
	}
	return counts, outcomes
}

func on(node, pages int) string { return fmt.Sprintf("N%d=%d", node, pages) }

// mover returns a Mover for the length of the test.
func (r *rig) mover(cfg numa.MoverConfig) *numa.Mover {
	r.Helper()
	m := numa.NewMover(r.fs, r.bed.Calls(), cfg)
	r.Cleanup(func() {
		if err := m.Close(); err != nil {
			r.Error(err)
		}
	})
	return m
}

// run steps to the end.
func (r *rig) run(m *numa.Mover, most uint64) {
	r.Helper()
	for range 10000 {
		rep, err := m.Step(context.Background())
		if err != nil {
			r.Fatal(err)
		}
		var tried uint64
		for _, n := range rep.Outcomes {
			tried += n
		}
		if most > 0 && tried > most {
			r.Errorf("a step tried %d pages, more than %d", tried, most)
		}
		if rep.Stop == numa.StopDone {
			return
		}
		if rep.Stop == numa.StopRoom {
			r.Fatalf("no room: %+v", rep)
		}
	}
	r.Fatal("it does not come to an end")
}

// move brings targets to their shares and returns how they stand.
func (r *rig) move(m *numa.Mover, targets ...numa.Target) []numa.TargetState {
	r.Helper()
	if err := m.Start(targets); err != nil {
		r.Fatal(err)
	}
	r.run(m, 0)
	return m.Targets()
}

// shares returns a percentage on node b, the rest on node a.
func shares(a, b int, percent uint64) []numa.Share {
	return []numa.Share{{Node: a, Parts: 100 - percent}, {Node: b, Parts: percent}}
}

// has says whether so many per cent of what a process has are on a node, to a page.
func has(s *numa.TargetState, node int, percent uint64) bool {
	n, _ := s.After.Get(node)
	want := int64(s.After.Total() * percent)
	off := int64(n*100) - want
	return s.ShortPages == 0 && s.Status == numa.Settled && off > -100 && off < 100
}

// testNodes holds what several files say of the nodes to each other.
func testNodes(r *rig) {
	room := numa.NewRoomReader(r.fs)
	if err := room.Refresh(); err != nil {
		r.Fatal(err)
	}
	var total, managed uint64
	cpus := map[int]bool{}
	for _, n := range r.top.Nodes {
		mem, err := numa.ReadNodeMeminfo(r.fs, n.ID)
		if err != nil {
			r.Fatal(err)
		}
		if mem.FreeBytes > mem.TotalBytes || room.Pages(n.ID, 0) > mem.FreeBytes/uint64(os.Getpagesize())*2+1000 {
			r.Errorf("node %d: %+v, room for %d pages", n.ID, mem, room.Pages(n.ID, 0))
		}
		if d, ok := n.Distances.Get(n.ID); !ok || d != 10 {
			r.Errorf("node %d: distances %v", n.ID, n.Distances)
		}
		total += mem.TotalBytes
		for _, cpu := range n.CPUs {
			if cpus[cpu] {
				r.Errorf("CPU %d is on two nodes", cpu)
			}
			cpus[cpu] = true
		}
	}
	for _, z := range room.Zones() {
		managed += z.Managed * uint64(os.Getpagesize())
	}
	if total > managed+managed/100 || managed > total+total/100 {
		r.Errorf("nodes have %d bytes, their zones %d", total, managed)
	}
	if _, err := numa.ReadBalancing(r.fs); err != nil && !errors.Is(err, numa.ErrUnsupported) {
		r.Error(err)
	}
}

// testMissingNode: every way to name a node that is not there says so.
func testMissingNode(r *rig) {
	missing := r.top.Possible[len(r.top.Possible)-1] + 1
	first := r.top.MemoryNodes()[0]
	p := r.bed.Spawn(r, "", 10, first)
	batch := numa.NewBatch(r.bed.Calls(), 10)
	batch.Add(p.Anon, missing)
	if _, err := batch.Move(p.PID); !errors.Is(err, numa.ErrNoNode) || !errors.Is(err, unix.ENODEV) {
		r.Errorf("move_pages: %v", err)
	}
	if left, err := numa.MigrateProcess(r.bed.Calls(), p.PID, cpus.Of(first), cpus.Of(missing)); !errors.Is(err, numa.ErrNoNode) {
		r.Errorf("migrate_pages: %d, %v", left, err)
	}
	if err := r.mover(numa.MoverConfig{}).Start([]numa.Target{{PID: p.PID, Shares: []numa.Share{{Node: missing, Parts: 1}}}}); !errors.Is(err, numa.ErrNoNode) {
		r.Errorf("Mover: %v", err)
	}
	if _, err := numa.ReadNodeMeminfo(r.fs, missing); !errors.Is(err, numa.ErrNoNode) {
		r.Errorf("meminfo: %v", err)
	}
	if got, _ := r.where(p, 0, 10); got.String() != on(first, 10) {
		r.Errorf("the pages are on %v", got)
	}
}

// testQuery: present pages by node, by move_pages and by numa_maps; nothing where nothing is
// mapped; and moving them where they are is a success.
func testQuery(r *rig) {
	for _, node := range r.top.MemoryNodes() {
		p := r.bed.Spawn(r, "", 700, node)
		if got, outcomes := r.where(p, 0, 700); got.String() != on(node, 700) || outcomes[numa.Present] != 700 {
			r.Errorf("on node %d: %v, %v", node, got, outcomes)
		}
		nothing := Process{PID: p.PID}
		if _, outcomes := r.where(nothing, 0, 1); outcomes[numa.Unmapped]+outcomes[numa.NotPresent] != 1 {
			r.Errorf("no mapping: %v", outcomes)
		}
		seen := false
		err := numa.ReadNumaMaps(r.fs, p.PID, func(m *numa.Mapping) error {
			if m.Start == p.Anon {
				n, _ := m.Pages.Get(node)
				seen = n >= 700 && m.UnitBytes == uint64(os.Getpagesize()) // neighbours may have been merged into it
			}
			return nil
		})
		if err != nil || !seen {
			r.Errorf("numa_maps: seen %v, %v", seen, err)
		}
		batch := numa.NewBatch(r.bed.Calls(), 700)
		for i := range 700 {
			batch.Add(p.Anon+uint64(i*os.Getpagesize()), node)
		}
		if counts, err := batch.Move(p.PID); err != nil || counts[numa.Moved] != 700 {
			r.Errorf("moved to where they are: %v, %v", counts, err)
		}
		p.End()
	}
}

// testGone: a process that ended has no memory, also through a folder that is open.
func testGone(r *rig) {
	node := r.top.MemoryNodes()[0]
	p := r.bed.Spawn(r, "", 10, node)
	open, err := numa.OpenProcess(r.fs, p.PID)
	if err != nil {
		r.Fatal(err)
	}
	defer open.Close() //nolint:errcheck // of a process that is gone
	if err := open.NumaMaps(func(*numa.Mapping) error { return nil }); err != nil {
		r.Fatal(err)
	}
	p.End()
	if err := open.NumaMaps(func(*numa.Mapping) error { return nil }); !errors.Is(err, numa.ErrVanished) {
		r.Errorf("through the open folder: %v", err)
	}
	if err := numa.ReadNumaMaps(r.fs, p.PID, func(*numa.Mapping) error { return nil }); !errors.Is(err, numa.ErrVanished) {
		r.Errorf("numa_maps: %v", err)
	}
	batch := numa.NewBatch(r.bed.Calls(), 1)
	batch.Add(p.Anon, node)
	if err := batch.Query(p.PID); !errors.Is(err, numa.ErrVanished) {
		r.Errorf("query: %v", err)
	}
	if counts, err := batch.Move(p.PID); !errors.Is(err, numa.ErrVanished) || counts[numa.NotTried] != 1 {
		r.Errorf("move: %v, %v", counts, err)
	}
	states := r.move(r.mover(numa.MoverConfig{}), numa.Target{PID: p.PID, Shares: []numa.Share{{Node: node, Parts: 1}}})
	if s := states[0]; s.Status != numa.Gone || s.Err != nil {
		r.Errorf("%+v", s)
	}
}

// testContext: a context that is over moves nothing, and what it kept from being done is done
// afterwards.
func testContext(r *rig) {
	a, b := r.two()
	p := r.bed.Spawn(r, "", 1000, a)
	m := r.mover(numa.MoverConfig{})
	if err := m.Start([]numa.Target{{PID: p.PID, Shares: shares(a, b, 50)}}); err != nil {
		r.Fatal(err)
	}
	if _, err := m.Step(context.Background()); err != nil {
		r.Fatal(err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if rep, err := m.Step(over); !errors.Is(err, context.Canceled) || rep.Stop != numa.StopContext {
		r.Errorf("%+v, %v", rep, err)
	}
	if got, _ := r.where(p, 0, 1000); got.String() != on(a, 1000) {
		r.Errorf("pages moved: %v", got)
	}
	r.run(m, 0)
	if s := m.Targets()[0]; !has(&s, b, 50) {
		r.Errorf("%+v", s)
	}
}
