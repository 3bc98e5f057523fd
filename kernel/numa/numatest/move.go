package numatest

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
)

// stat reads a group's anonymous memory by node, in pages, of either version.
func (r *rig) stat(dir string, v2 bool) func() (numa.Counts, error) {
	r.Helper()
	page := uint64(os.Getpagesize())
	if !v2 {
		file, err := numa.OpenMemoryNumaStatV1(r.fs, dir)
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { _ = file.Close() })
		return func() (numa.Counts, error) {
			s, err := file.Read()
			if err != nil {
				return nil, err
			}
			return s.Hierarchical.AnonPages, nil
		}
	}
	file, err := numa.OpenMemoryNumaStat(r.fs, dir)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = file.Close() })
	var pages numa.Counts
	return func() (numa.Counts, error) {
		s, err := file.Read()
		if err != nil {
			return nil, err
		}
		pages = pages[:0]
		for _, n := range s.AnonBytes {
			pages = pages.Add(n.Node, n.Count/page)
		}
		return pages, nil
	}
}

// slack is how many pages a kernel's per-CPU sums and lists may hold back, on the few CPUs
// of a test machine.
const slack = 64 * 4 * 2

// agrees waits until a group's anonymous memory on a node is about so many pages.
func (r *rig) agrees(read func() (numa.Counts, error), node int, want, beyond uint64) {
	r.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		counts, err := read()
		if err != nil {
			r.Fatal(err)
		}
		got, _ := counts.Get(node)
		if got+slack+beyond >= want && want+slack+beyond >= got {
			return
		}
		if time.Now().After(end) {
			r.Fatalf("node %d: the group has %d anonymous pages, want about %d", node, got, want)
		}
	}
}

// anon counts a process's anonymous pages on a node, by numa_maps.
func (r *rig) anon(pid int32, node int) uint64 {
	r.Helper()
	var sum uint64
	err := numa.ReadNumaMaps(r.fs, pid, func(m *numa.Mapping) error {
		if m.File == nil && !m.Huge {
			n, _ := m.Pages.Get(node)
			sum += n
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return sum
}

// testNumaStat: a group's memory by node is its process's, and the group's end is named.
func testNumaStat(r *rig) {
	dir, v2 := r.bed.Group(r, "conform-stat")
	read := r.stat(dir, v2)
	for _, node := range r.top.MemoryNodes() {
		p := r.bed.Spawn(r, dir, 4000, node)
		for _, n := range r.top.MemoryNodes() {
			r.agrees(read, n, r.anon(p.PID, n), 0)
		}
		counts, err := read()
		if n, _ := counts.Get(node); err != nil || n < 3000 {
			r.Errorf("node %d: %v, %v", node, counts, err)
		}
		p.End()
	}
	maker := r.fs.(hostfs.DirMaker)
	if err := maker.Rmdir(dir); err != nil {
		r.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, numa.ErrVanished) {
		r.Errorf("the group is gone: %v", err)
	}
}

// testAllocations: hot calls do not allocate in the driver.
func testAllocations(r *rig) {
	node := r.top.MemoryNodes()[0]
	p := r.bed.Spawn(r, "", 600, node)
	batch := numa.NewBatch(r.bed.Calls(), 600)
	for i := range 600 {
		batch.Add(p.Anon+uint64(i*os.Getpagesize()), node)
	}
	f := func() error { return batch.Query(p.PID) }
	if err := f(); err != nil {
		r.Fatal(err)
	}
	var err error
	if n := testing.AllocsPerRun(20, func() { err = f() }); err != nil || n != 0 {
		r.Errorf("Query: %v allocations, %v", n, err)
	}
}

// testExactSteps takes a process up by tenths and back: exact, in steps of at most 512 pages,
// evenly, and what a ledger wrote down puts it back.
func testExactSteps(r *rig) {
	a, b := r.two()
	const pages, most = 4000, 512
	p := r.bed.Spawn(r, "", pages, a)
	m := r.mover(numa.MoverConfig{MaxPages: most})
	// What its program itself has lies anywhere: begin with all of it on a.
	before := r.move(m, numa.Target{PID: p.PID, Shares: shares(a, b, 0)})
	for _, percent := range []uint64{10, 20, 30, 20, 10} {
		if err := m.Start([]numa.Target{{PID: p.PID, Shares: shares(a, b, percent)}}); err != nil {
			r.Fatal(err)
		}
		r.run(m, most)
		if s := m.Targets()[0]; !has(&s, b, percent) {
			r.Errorf("%d %%: %+v", percent, s)
		}
		for _, from := range []int{0, 1000, 2000, 3000} {
			part, _ := r.where(p, from, 1000)
			if n, _ := part.Get(b); n+10 < 10*percent || n > 10*percent+10 {
				r.Errorf("%d %%: of pages %d to %d %v", percent, from, from+1000, part)
			}
		}
	}
	back := numa.Target{PID: p.PID, StartTicks: before[0].StartTicks, Shares: numa.SharesOf(before[0].After)}
	if states := r.move(m, back); states[0].After.Total() == 0 || states[0].ShortPages != 0 {
		r.Errorf("%+v", states[0])
	}
	if got, _ := r.where(p, 0, pages); got.String() != on(a, pages) {
		r.Errorf("put back: %v", got)
	}
	// Another process that has the number by now is left alone.
	if s := r.move(m, numa.Target{PID: p.PID, StartTicks: before[0].StartTicks + 1, Shares: shares(a, b, 50)})[0]; s.Status != numa.Gone {
		r.Errorf("another process's number: %+v", s)
	}
}

// testGroup: move_pages, numa_maps and memory.numa_stat tell the same after three processes of
// a group were moved.
func testGroup(r *rig) {
	a, b := r.two()
	dir, v2 := r.bed.Group(r, "conform-three")
	read := r.stat(dir, v2)
	var targets []numa.Target
	for range 3 {
		targets = append(targets, numa.Target{PID: r.bed.Spawn(r, dir, 1500, a).PID, Shares: shares(a, b, 25)})
	}
	var wantA, wantB uint64
	for _, s := range r.move(r.mover(numa.MoverConfig{}), targets...) {
		if !has(&s, b, 25) {
			r.Errorf("%+v", s)
		}
		onA, _ := s.After.Get(a)
		onB, _ := s.After.Get(b)
		wantA, wantB = wantA+onA, wantB+onB
	}
	beyond := uint64(0)
	if !v2 {
		beyond = 3 * 500 // what the processes had before they were in the group
	}
	r.agrees(read, a, wantA, beyond)
	r.agrees(read, b, wantB, beyond)
}

// testAim: after the survey one process gets other shares, one is left alone, and what cannot be is refused.
func testAim(r *rig) {
	a, b := r.two()
	moved, left := r.bed.Spawn(r, "", 1000, a), r.bed.Spawn(r, "", 1000, a)
	m := r.mover(numa.MoverConfig{})
	if err := m.Start([]numa.Target{{PID: moved.PID, Shares: shares(a, b, 100)}, {PID: left.PID, Shares: shares(a, b, 100)}}); err != nil {
		r.Fatal(err)
	}
	for stop := numa.StopScan; stop != numa.StopSurveyed; {
		rep, err := m.Step(context.Background())
		if err != nil {
			r.Fatal(err)
		}
		stop = rep.Stop
	}
	if err := m.Aim(0, []numa.Share{{Node: a}}); !errors.Is(err, numa.ErrBadShares) {
		r.Errorf("no parts at all: %v", err)
	}
	if err := m.Aim(0, []numa.Share{{Node: numa.MaxNodes - 1, Parts: 1}}); !errors.Is(err, numa.ErrNoNode) {
		r.Errorf("a node that is not there: %v", err)
	}
	if err := errors.Join(m.Aim(0, shares(a, b, 25)), m.Aim(1, nil)); err != nil {
		r.Fatal(err)
	}
	r.run(m, 0)
	if s := m.Targets()[0]; !has(&s, b, 25) {
		r.Errorf("%+v, want 25 %% on node %d", s, b)
	}
	if s := m.Targets()[1]; s.Status != numa.Settled || !slices.Equal(s.Before, s.After) || r.anon(left.PID, a) < uint64(left.Pages) {
		r.Errorf("%+v was to be left alone", s)
	}
}

// testEndsMidway: a process ends between two steps; the next one is served.
func testEndsMidway(r *rig) {
	a, b := r.two()
	gone, stays := r.bed.Spawn(r, "", 4000, a), r.bed.Spawn(r, "", 500, a)
	m := r.mover(numa.MoverConfig{MaxPages: 512})
	if err := m.Start([]numa.Target{{PID: gone.PID, Shares: shares(a, b, 50)}, {PID: stays.PID, Shares: shares(a, b, 50)}}); err != nil {
		r.Fatal(err)
	}
	for range 3 {
		if _, err := m.Step(context.Background()); err != nil {
			r.Fatal(err)
		}
	}
	if s := m.Targets()[0]; s.Status != numa.Moving || s.RemainingPages == 0 {
		r.Fatalf("%+v", s)
	}
	gone.End()
	r.run(m, 0)
	if s := m.Targets()[0]; s.Status != numa.Gone || s.Err != nil {
		r.Errorf("%+v", s)
	}
	if s := m.Targets()[1]; !has(&s, b, 50) {
		r.Errorf("%+v", s)
	}
}

// testMigrate moves a whole process there and back.
func testMigrate(r *rig) {
	a, b := r.two()
	p := r.bed.Spawn(r, "", 1000, a)
	for _, way := range [][2]int{{a, b}, {b, a}} {
		left, err := numa.MigrateProcess(r.bed.Calls(), p.PID, cpus.Of(way[0]), cpus.Of(way[1]))
		// Pages of its program may stay; those of its region may not.
		if err != nil || left > 100 {
			r.Errorf("%d to %d: %d left, %v", way[0], way[1], left, err)
		}
		if got, _ := r.where(p, 0, 1000); got.String() != on(way[1], 1000) {
			r.Errorf("%d to %d: %v", way[0], way[1], got)
		}
	}
}
