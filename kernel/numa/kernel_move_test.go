package numa

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// These tests move pages between two nodes of the machine, of processes of their own.

// newMover returns a Mover on the live kernel.
func newMover(t *testing.T, root hostfs.FS, cfg MoverConfig) *Mover {
	t.Helper()
	m := NewMover(root, Live{}, cfg)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// move brings targets to their shares and returns how they stand.
func move(t *testing.T, m *Mover, targets ...Target) ([]TargetState, Outcomes) {
	t.Helper()
	if err := m.Start(targets); err != nil {
		t.Fatal(err)
	}
	outcomes, stops := run(t, m)
	if last := stops[len(stops)-1]; last != StopDone {
		t.Errorf("stopped: %s", last)
	}
	return m.Targets(), outcomes
}

// shares returns a percentage on node b, the rest on node a.
func shares(a, b int, percent uint64) []Share {
	return []Share{{a, 100 - percent}, {b, percent}}
}

// intact says whether the child's pages hold what it wrote; every seventh is looked at.
func intact(t *testing.T, c *child) {
	t.Helper()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	var b [1]byte
	for i := 0; i < c.spec.Pages; i += 7 {
		at := i * os.Getpagesize()
		if _, err := mem.ReadAt(b[:], int64(c.Anon)+int64(at)); err != nil || b[0] != byte(at>>12)|1 {
			t.Fatalf("page %d holds %d, %v", i, b[0], err)
		}
	}
}

// TestKernelExactSteps takes a process up by tenths and back: exact, in steps of at most
// 512 pages, evenly, and what a ledger wrote down puts it back.
func TestKernelExactSteps(t *testing.T) {
	root, a, b := twoNodes(t)
	c := spawn(t, "", childSpec{Pages: 4000, Node: a})
	m := newMover(t, root, MoverConfig{MaxPages: 512})
	// What the child's program itself has lies anywhere: begin with all of it on a.
	before, _ := move(t, m, Target{PID: c.pid, Shares: shares(a, b, 0)})
	for _, percent := range []uint64{10, 20, 30, 20, 10} {
		states, outcomes := move(t, m, Target{PID: c.pid, Shares: shares(a, b, percent)})
		s := states[0]
		want := apportion(s.After.Total(), shares(a, b, percent))
		if s.ShortPages != 0 || s.After.String() != want.String() {
			t.Errorf("%d %%: %+v, want %v; %v", percent, s, want, outcomes)
		}
		// The child's own region, by the kernel's word: its share, to the stride's ends.
		got, _ := nodesOf(t, c, c.Anon, 4000)
		if n, _ := got.Get(b); n+5 < 40*percent || n > 40*percent+5 {
			t.Errorf("%d %%: of 4000 pages %v", percent, got)
		}
		for _, from := range []int{0, 1000, 2000, 3000} {
			part, _ := nodesOf(t, c, c.Anon+uint64(from*os.Getpagesize()), 1000)
			if n, _ := part.Get(b); n+10 < 10*percent || n > 10*percent+10 {
				t.Errorf("%d %%: of pages %d to %d %v", percent, from, from+1000, part)
			}
		}
	}
	back := Target{PID: c.pid, StartTicks: before[0].StartTicks, Shares: SharesOf(before[0].After)}
	if states, _ := move(t, m, back); states[0].After.Total() == 0 || states[0].ShortPages != 0 {
		t.Errorf("%+v", states[0])
	}
	if got, _ := nodesOf(t, c, c.Anon, 4000); got.String() != fmt.Sprintf("N%d=4000", a) {
		t.Errorf("put back: %v", got)
	}
	intact(t, c)
}

// TestKernelMoverAgrees: move_pages, numa_maps and memory.numa_stat tell the same after a
// group of three processes was moved.
func TestKernelMoverAgrees(t *testing.T) {
	root, a, b := twoNodes(t)
	dir, v2 := memoryGroup(t, "agrees")
	read := anonOf(t, root, dir, v2)
	var targets []Target
	children := map[int32]*child{}
	for range 3 {
		c := spawn(t, dir, childSpec{Pages: 1500, Node: a})
		children[c.pid] = c
	}
	procs, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(procs)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, Target{PID: int32(pid), Shares: shares(a, b, 25)})
	}
	states, _ := move(t, newMover(t, root, MoverConfig{}), targets...)
	if len(states) != 3 {
		t.Fatalf("%d processes", len(states))
	}
	var wantA, wantB uint64
	for _, s := range states {
		if want := apportion(s.After.Total(), shares(a, b, 25)); s.After.String() != want.String() {
			t.Errorf("%+v, want %v", s, want)
		}
		if got, _ := nodesOf(t, children[s.PID], children[s.PID].Anon, 1500); got.Total() != 1500 {
			t.Errorf("%v", got)
		}
		onA, _ := s.After.Get(a)
		onB, _ := s.After.Get(b)
		wantA, wantB = wantA+onA, wantB+onB
	}
	const slack = 512 // pages, as in agrees; what is left alone is some of it
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		counts, err := read()
		if err != nil {
			t.Fatal(err)
		}
		gotA, _ := counts.Get(a)
		gotB, _ := counts.Get(b)
		gotA, gotB = gotA/uint64(os.Getpagesize()), gotB/uint64(os.Getpagesize())
		if gotA+slack > wantA && gotA < wantA+slack && gotB+slack > wantB && gotB < wantB+slack {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("memory.numa_stat: %d and %d pages, the Mover: %d and %d", gotA, gotB, wantA, wantB)
		}
	}
}

// TestKernelEndsMidway: a process is killed between two steps; the next one is served.
func TestKernelEndsMidway(t *testing.T) {
	root, a, b := twoNodes(t)
	gone, stays := spawn(t, "", childSpec{Pages: 4000, Node: a}), spawn(t, "", childSpec{Pages: 500, Node: a})
	m := newMover(t, root, MoverConfig{MaxPages: 512})
	if err := m.Start([]Target{{PID: gone.pid, Shares: shares(a, b, 50)}, {PID: stays.pid, Shares: shares(a, b, 50)}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := m.Step(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Targets()[0]; s.Status != Moving || s.RemainingPages == 0 {
		t.Fatalf("%+v", s)
	}
	gone.end()
	run(t, m)
	if s := m.Targets()[0]; s.Status != Gone || s.Err != nil {
		t.Errorf("%+v", s)
	}
	if s := m.Targets()[1]; s.Status != Settled || s.ShortPages != 0 {
		t.Errorf("%+v", s)
	}
}

// TestKernelHuge: transparent huge pages move whole, and the share holds to half of one:
// recognised by page flags, and to a whole one when measured without them.
func TestKernelHuge(t *testing.T) {
	root, a, b := twoNodes(t)
	for _, blind := range []bool{false, true} {
		c := spawn(t, "", childSpec{Pages: 10 * 512, Node: a, Huge: true})
		if n := hugeBytes(t, c); n < 10*fakeHugeSize*9/10 {
			t.Skipf("the kernel gave %d bytes in huge pages; transparent_hugepage is never, or memory is fragmented", n)
		}
		m := newMover(t, root, MoverConfig{MaxPages: 2048})
		m.blind = m.blind || blind
		if blind != m.blind {
			t.Error("page flags cannot be read, as root")
		}
		for _, percent := range []uint64{30, 0} {
			states, _ := move(t, m, Target{PID: c.pid, Shares: shares(a, b, percent)})
			s := states[0]
			want := apportion(s.After.Total(), shares(a, b, percent))
			got, _ := s.After.Get(b)
			wanted, _ := want.Get(b)
			if off := int64(got) - int64(wanted); s.Status != Settled || off > 512 || off < -512 || (!blind && (off > 256 || off < -256)) {
				t.Errorf("blind %v, %d %%: %+v, want %v", blind, percent, s, want)
			}
			region, _ := nodesOf(t, c, c.Anon, 10*512)
			if n, _ := region.Get(b); percent > 0 && (n < 2*512 || n > 4*512) || percent == 0 && n > 512 || n%512 != 0 {
				t.Errorf("blind %v, %d %%: of 10 huge pages %v", blind, percent, region)
			}
		}
		if n := hugeBytes(t, c); n < 10*fakeHugeSize*8/10 {
			t.Errorf("blind %v: huge pages were split: %d bytes are left", blind, n)
		}
		intact(t, c)
		c.end()
	}
}

// TestKernelMediumPages: large pages of other sizes than the huge one (Linux 6.8) move
// whole, too: the share holds to half of one, and none is torn.
func TestKernelMediumPages(t *testing.T) {
	root, a, b := twoNodes(t)
	rigtest.Only(t, "it makes all processes use 64 KiB pages")
	const dir = "/sys/kernel/mm/transparent_hugepage/"
	pages := 64 << 10 / os.Getpagesize()
	if _, err := os.Stat(dir + "hugepages-64kB"); errors.Is(err, os.ErrNotExist) {
		pages = 1 // this kernel has only the huge ones: without them, small pages
	}
	for name, value := range map[string]string{"enabled": "never", "hugepages-64kB/enabled": "always", "hugepages-2048kB/enabled": "never"} {
		if pages > 1 || name == "enabled" {
			setWord(t, dir+name, value)
		}
	}
	c := spawn(t, "", childSpec{Pages: 4096, Node: a, Huge: true})
	m := newMover(t, root, MoverConfig{MaxPages: 512})
	for _, percent := range []uint64{10, 35, 0} {
		states, _ := move(t, m, Target{PID: c.pid, Shares: shares(a, b, percent)})
		want := apportion(states[0].After.Total(), shares(a, b, percent))
		got, _ := states[0].After.Get(b)
		wanted, _ := want.Get(b)
		if off := int64(got) - int64(wanted); off > int64(pages/2) || off < -int64(pages/2) {
			t.Errorf("%d %%: %+v, want %v", percent, states[0], want)
		}
		for at := 0; at < 4096; at += pages {
			if whole, _ := nodesOf(t, c, c.Anon+uint64(at*os.Getpagesize()), pages); len(whole) != 1 {
				t.Errorf("%d %%: a page of %d was torn: %v", percent, pages, whole)
			}
		}
	}
	intact(t, c)
	t.Logf("pages of %d small ones", pages)
}

// setWord writes a setting of the form "always [madvise] never" and puts it back.
func setWord(t *testing.T, file, value string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, old, _ := strings.Cut(string(data), "[")
	old, _, ok := strings.Cut(old, "]")
	if !ok {
		t.Fatalf("%s: %q", file, data)
	}
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, []byte(old), 0); err != nil {
			t.Error(err)
		}
	})
}

// hugeBytes returns how much of a child's region is mapped by huge pages.
func hugeBytes(t *testing.T, c *child) uint64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kb uint64
		if n, _ := fmt.Sscanf(line, "AnonHugePages: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}

// TestKernelLeftAlone: pages of files, those shared since a fork, locked and bound ones
// stay where they are, though all of the process was to go.
func TestKernelLeftAlone(t *testing.T) {
	root, a, b := twoNodes(t)
	all := []Share{{b, 1}}
	for _, c := range []struct {
		spec   childSpec
		reason Reason
	}{
		{childSpec{Pages: 400, Node: a, Fork: true}, LeftShared},
		{childSpec{Pages: 400, Node: a, Lock: true}, LeftLocked},
		{childSpec{Pages: 400, Node: a, Bind: true}, LeftBound},
	} {
		proc := spawn(t, "", c.spec)
		states, _ := move(t, newMover(t, root, MoverConfig{}), Target{PID: proc.pid, Shares: all})
		if s := states[0]; s.Status != Settled || s.Left[c.reason] < 400 {
			t.Errorf("%s: %+v", c.reason, s)
		}
		if got, _ := nodesOf(t, proc, proc.Anon, 400); got.String() != fmt.Sprintf("N%d=400", a) {
			t.Errorf("%s: pages are on %v", c.reason, got)
		}
		proc.end()
	}
	// Asked for page by page, the kernel refuses what is shared.
	shared := spawn(t, "", childSpec{Pages: 400, Node: a, Fork: true})
	batch := NewBatch(Live{}, 400)
	for i := range 400 {
		batch.Add(shared.Anon+uint64(i*os.Getpagesize()), b)
	}
	if counts, err := batch.Move(shared.pid); err != nil || counts[Shared] != 400 {
		t.Errorf("pages that a fork shares: %v, %v", counts, err)
	}
	bound := spawn(t, "", childSpec{Pages: 400, Node: a, Bind: true})
	move(t, newMover(t, root, MoverConfig{MoveBound: true}), Target{PID: bound.pid, Shares: all})
	if got, _ := nodesOf(t, bound, bound.Anon, 400); got.String() != fmt.Sprintf("N%d=400", b) {
		t.Errorf("bound pages that were to be moved all the same: %v", got)
	}
}

// TestKernelFilePages: a file that two processes map stays where it is; the page that one
// of them has written to is its own, and moves.
func TestKernelFilePages(t *testing.T) {
	root, a, b := twoNodes(t)
	file := fileOf(t, 64)
	moved, other := spawn(t, "", childSpec{Pages: 100, Node: a, File: file}), spawn(t, "", childSpec{Pages: 1, Node: a, File: file})
	for _, to := range []int{a, b} {
		before, _ := nodesOf(t, other, other.File+uint64(os.Getpagesize()), 63)
		states, _ := move(t, newMover(t, root, MoverConfig{}), Target{PID: moved.pid, Shares: []Share{{to, 1}}})
		if s := states[0]; s.Left[LeftFile] < 63 || s.ShortPages != 0 {
			t.Errorf("%+v", s)
		}
		if after, _ := nodesOf(t, other, other.File+uint64(os.Getpagesize()), 63); after.String() != before.String() {
			t.Errorf("the file's pages were on %v and are on %v", before, after)
		}
		if own, _ := nodesOf(t, moved, moved.File, 1); own.String() != fmt.Sprintf("N%d=1", to) {
			t.Errorf("the page written to is on %v, want node %d", own, to)
		}
	}
}

// TestKernelPinned: pages that a pipe holds do not move, are named, and others behind them
// in the same call do.
func TestKernelPinned(t *testing.T) {
	_, a, b := twoNodes(t)
	mem, err := unix.Mmap(-1, 0, 100*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	mask := MaskOf(a)
	if err := mbind(mem, unix.MPOL_PREFERRED, &mask); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i] = 1
	}
	// The pipe refers to the pages themselves until it is read.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pinned := mem[10*os.Getpagesize():]
	iov := unix.Iovec{Base: &pinned[0]}
	iov.SetLen(4 * os.Getpagesize())
	if n, err := unix.Vmsplice(int(w.Fd()), []unix.Iovec{iov}, 0); err != nil || n != 4*os.Getpagesize() {
		t.Fatalf("vmsplice: %d, %v", n, err)
	}
	batch := NewBatch(Live{}, 101)
	// A page that cannot be looked up ends a group: what comes behind it is not reached
	// by the first call.
	for i := range 100 {
		if i == 20 {
			batch.Add(4096, b)
		}
		batch.Add(address(mem)+uint64(i*os.Getpagesize()), b)
	}
	counts, err := batch.Move(int32(os.Getpid()))
	if err != nil || counts[Moved] != 96 || counts[Stayed] != 4 || counts[Unmapped]+counts[NotPresent] != 1 {
		t.Errorf("%v, %v", counts, err)
	}
}

// TestKernelCpuset: a change of cpuset.mems takes the pages along, and a node outside is
// refused by name.
func TestKernelCpuset(t *testing.T) {
	root, a, b := twoNodes(t)
	dir, v2 := memoryGroup(t, "cpuset")
	mems := dir + "/cpuset.mems"
	if _, err := os.Stat(mems); err != nil {
		t.Skipf("no cpuset controller beside memory here (v2: %v)", v2)
	}
	set := func(list string) {
		if err := os.WriteFile(mems, []byte(list), 0); err != nil {
			t.Fatal(err)
		}
	}
	set(strconv.Itoa(a))
	c := spawn(t, dir, childSpec{Pages: 1000, Node: a})
	m := newMover(t, root, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: shares(a, b, 10)}}); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	if s := m.Targets()[0]; s.Status != Refused || !errors.Is(s.Err, ErrNodeNotAllowed) {
		t.Errorf("outside the cpuset: %+v", s)
	}
	set(strconv.Itoa(b))
	var got Counts
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got, _ = nodesOf(t, c, c.Anon, 1000); got.String() == fmt.Sprintf("N%d=1000", b) {
			break
		}
	}
	if got.String() != fmt.Sprintf("N%d=1000", b) {
		t.Errorf("the pages did not follow cpuset.mems: %v", got)
	}
	set(fmt.Sprintf("%d,%d", a, b))
	if states, _ := move(t, m, Target{PID: c.pid, Shares: shares(a, b, 90)}); states[0].ShortPages != 0 {
		t.Errorf("%+v", states[0])
	}
}

// TestKernelMigrateProcess moves a whole process there and back.
func TestKernelMigrateProcess(t *testing.T) {
	_, a, b := twoNodes(t)
	c := spawn(t, "", childSpec{Pages: 1000, Node: a})
	for _, way := range [][2]int{{a, b}, {b, a}} {
		left, err := MigrateProcess(Live{}, c.pid, MaskOf(way[0]), MaskOf(way[1]))
		// Pages that the program's file shares with the tests may stay; the region's may not.
		if err != nil || left > 100 {
			t.Errorf("%d to %d: %d left, %v", way[0], way[1], left, err)
		}
		if got, _ := nodesOf(t, c, c.Anon, 1000); got.String() != fmt.Sprintf("N%d=1000", way[1]) {
			t.Errorf("%d to %d: %v", way[0], way[1], got)
		}
	}
	intact(t, c)
}

// TestKernelRoom: the target's room bounds what is sent there, to the page.
func TestKernelRoom(t *testing.T) {
	root, a, b := twoNodes(t)
	c := spawn(t, "", childSpec{Pages: 3000, Node: a})
	room := NewRoomReader(root)
	if err := room.Refresh(); err != nil {
		t.Fatal(err)
	}
	have := room.Pages(b, 0)
	if have < 20000 {
		t.Skipf("node %d has room for %d pages", b, have)
	}
	// The machine goes on meanwhile: what is left lies between the child's pages and none.
	m := newMover(t, root, MoverConfig{ReservePages: have - 1000})
	if err := m.Start([]Target{{PID: c.pid, Shares: shares(a, b, 100)}}); err != nil {
		t.Fatal(err)
	}
	outcomes, stops := run(t, m)
	if moved := outcomes[Moved]; stops[len(stops)-1] != StopRoom || moved > 2500 || outcomes[NoMemory] != 0 {
		t.Errorf("%d of 3000 pages moved into room for about 1000; %v", moved, stops)
	}
	m.cfg.ReservePages = 0
	run(t, m)
	if s := m.Targets()[0]; s.Status != Settled || s.ShortPages != 0 {
		t.Errorf("%+v", s)
	}
}

// TestKernelNodeNearlyFull: a node whose watermarks are close takes pages to the watermark
// and no more, and no reclaim runs.
func TestKernelNodeNearlyFull(t *testing.T) {
	root, a, b := twoNodes(t)
	rigtest.Only(t, "it raises the machine's watermarks")
	const left = 1500
	room := NewRoomReader(root)
	b, a = fullerNode(t, room, a, b)
	c := spawn(t, "", childSpec{Pages: 3*left + 1000, Node: a})
	raiseWatermarks(t, room, b, left)
	reclaimed, had := scanned(t), room.Pages(b, 0)
	m := newMover(t, root, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: shares(a, b, 100)}}); err != nil {
		t.Fatal(err)
	}
	outcomes, stops := run(t, m)
	if moved := outcomes[Moved]; stops[len(stops)-1] != StopRoom || moved+left < had || moved > had+left || outcomes[NoMemory] != 0 {
		t.Errorf("%d pages moved to a node with room for %d: %v, %v", moved, had, outcomes, stops)
	}
	if after := scanned(t); after != reclaimed {
		t.Errorf("reclaim looked at %d pages", after-reclaimed)
	}
	t.Logf("moved %d pages into room for %d", outcomes[Moved], had)
}

// fullerNode returns first the node of which the greater part is in use: raised
// watermarks come near to it first.
func fullerNode(t *testing.T, room *RoomReader, a, b int) (fuller, other int) {
	t.Helper()
	if err := room.Refresh(); err != nil {
		t.Fatal(err)
	}
	free := func(node int) (part float64) {
		var free, managed uint64
		for _, z := range room.Zones() {
			if z.Node == node && z.Name != "DMA" {
				free, managed = free+z.Free, managed+z.Managed
			}
		}
		return float64(free) / float64(managed)
	}
	if free(a) < free(b) {
		return a, b
	}
	return b, a
}

// raiseWatermarks leaves the node room for some left to twice left pages, coming from
// below, and puts the watermarks back at the end.
func raiseWatermarks(t *testing.T, room *RoomReader, node int, left uint64) {
	t.Helper()
	const file = "/proc/sys/vm/min_free_kbytes"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, old, 0); err != nil {
			t.Error(err)
		}
	})
	kb, err := strconv.ParseUint(strings.TrimSpace(string(old)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := room.Refresh(); err != nil {
			t.Fatal(err)
		}
		have := room.Pages(node, 0)
		if have <= 2*left {
			return
		}
		// Of what is added about half is this node's, and its high watermark rises by half
		// as much again: three quarters of the excess.
		kb += (have - left) * uint64(os.Getpagesize()) / 1024
		if err := os.WriteFile(file, []byte(strconv.FormatUint(kb, 10)), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("node %d still has room for %d pages", node, room.Pages(node, 0))
}

// scanned returns how many pages reclaim has looked at since boot.
func scanned(t *testing.T) uint64 {
	t.Helper()
	data, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains([]string{"pgscan_kswapd", "pgscan_direct"}, name) {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestKernelContext: a context that is over moves nothing.
func TestKernelContext(t *testing.T) {
	root, a, b := twoNodes(t)
	c := spawn(t, "", childSpec{Pages: 1000, Node: a})
	m := newMover(t, root, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: shares(a, b, 50)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := m.Step(over); !errors.Is(err, context.Canceled) || r.Stop != StopContext {
		t.Errorf("%+v, %v", r, err)
	}
	if got, _ := nodesOf(t, c, c.Anon, 1000); got.String() != fmt.Sprintf("N%d=1000", a) {
		t.Errorf("pages moved: %v", got)
	}
	run(t, m)
	if s := m.Targets()[0]; s.ShortPages != 0 || s.Status != Settled {
		t.Errorf("%+v", s)
	}
}

// TestKernelBalancing: pages of a process that runs on one node, moved to the other, come
// back by themselves. On Linux 6.1 those that the kernel has marked cannot be looked up,
// and the Mover says so.
func TestKernelBalancing(t *testing.T) {
	root, a, b := twoNodes(t)
	rigtest.Only(t, "it makes automatic NUMA balancing hurry")
	balancing, err := ReadBalancing(root)
	if err != nil || !balancing.TowardCPUs {
		t.Skipf("automatic NUMA balancing is off: %+v, %v", balancing, err)
	}
	hurry(t)
	c := spawn(t, "", childSpec{Pages: 1000, Node: a, Spin: true})
	m := newMover(t, root, MoverConfig{})
	var hidden, back, away uint64
	for end := time.Now().Add(patience); time.Now().Before(end) && (back == 0 || rigtest.Kernel() == "6.1" && hidden == 0); {
		states, outcomes := move(t, m, Target{PID: c.pid, Shares: []Share{{b, 1}}})
		if states[0].Status != Settled {
			t.Fatalf("%+v", states[0])
		}
		hidden, away = hidden+states[0].HiddenPages, away+outcomes[Moved]
		for wait := time.Now().Add(patience / 6); time.Now().Before(wait) && back == 0; time.Sleep(50 * time.Millisecond) {
			got, _ := nodesOf(t, c, c.Anon, 1000)
			if n, _ := got.Get(a); n > 500 {
				back = n
			}
		}
	}
	if away == 0 || back == 0 {
		t.Errorf("%d pages moved away, %d came back", away, back)
	}
	if (hidden > 0) != (rigtest.Kernel() == "6.1") {
		t.Errorf("%d pages could not be looked up", hidden)
	}
	t.Logf("%d pages moved away, %d came back, %d could not be looked up", away, back, hidden)
}

// hurry makes the kernel look where memory is used ten times a second.
func hurry(t *testing.T) {
	t.Helper()
	const dir = "/sys/kernel/debug/sched/numa_balancing/"
	for name, value := range map[string]string{"scan_delay_ms": "100", "scan_period_min_ms": "100", "scan_period_max_ms": "200"} {
		old, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(dir+name, []byte(strings.TrimSpace(string(old))), 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKernelSpeed prints what moving costs: pages a second by size of batch, and the same
// of asking. It demands only that nothing is allocated and everything moves.
func TestKernelSpeed(t *testing.T) {
	_, a, b := twoNodes(t)
	const pages = 4096
	c := spawn(t, "", childSpec{Pages: pages, Node: a})
	t.Logf("%8s %14s %14s %10s", "batch", "moved a second", "asked a second", "a batch")
	at := a
	for _, size := range []int{64, 512, 4096} {
		batch := NewBatch(Live{}, size)
		to := a + b - at
		var moving, asking time.Duration
		for i := 0; i < pages; i += size {
			batch.Reset()
			for j := i; j < i+size; j++ {
				batch.Add(c.Anon+uint64(j*os.Getpagesize()), to)
			}
			start := time.Now()
			counts, err := batch.Move(c.pid)
			moving += time.Since(start)
			if err != nil || counts[Moved] != uint64(size) {
				t.Fatalf("%v, %v", counts, err)
			}
			start = time.Now()
			if err := batch.Query(c.pid); err != nil {
				t.Fatal(err)
			}
			asking += time.Since(start)
		}
		at = to
		t.Logf("%8d %14.0f %14.0f %10s", size, pages/moving.Seconds(), pages/asking.Seconds(), (moving / time.Duration(pages/size)).Round(time.Microsecond))
	}
	batch := NewBatch(Live{}, 256)
	for j := range 256 {
		batch.Add(c.Anon+uint64(j*os.Getpagesize()), 0)
	}
	allocs := testing.AllocsPerRun(4, func() {
		at = a + b - at
		for i := range batch.nodes {
			batch.nodes[i] = int32(at)
		}
		if counts, err := batch.Move(c.pid); err != nil || counts[Moved] != 256 {
			t.Errorf("%v, %v", counts, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a batch", allocs)
	}
}
