package numa

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
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

// TestKernelForksMeanwhile: a process forks when half of its pages have moved. What it shares since stays where it is and is told as left, nothing that was
// written is lost, the child's pages are those that it was born with, and once it is gone the rest moves.
func TestKernelForksMeanwhile(t *testing.T) {
	root, a, b := twoNodes(t)
	const pages = 4000
	c := spawn(t, "", childSpec{Pages: pages, Node: a, Fork: true, Later: true})
	m := newMover(t, root, MoverConfig{MaxPages: 512})
	target := Target{PID: c.pid, Shares: []Share{{b, 1}}}
	if err := m.Start([]Target{target}); err != nil {
		t.Fatal(err)
	}
	for moved := uint64(0); moved < pages/2; {
		r, err := m.Step(t.Context())
		if err != nil || r.Stop == StopDone {
			t.Fatalf("%+v, %v", r, err)
		}
		moved += r.MovedPages()
	}
	c.fork()
	run(t, m)
	s := m.Targets()[0]
	here, _ := nodesOf(t, c, c.Anon, pages)
	forked := *c
	forked.pid = int32(c.Forked)
	there, _ := nodesOf(t, &forked, c.Anon, pages)
	left, _ := here.Get(a)
	if s.Status != Settled || s.Err != nil || s.Left[LeftShared] < left || left == 0 || left > pages*3/4 || there.String() != here.String() {
		t.Errorf("%+v; pages are on %v, the fork's on %v", s, here, there)
	}
	intact(t, c)
	intact(t, &forked)
	if err := unix.Kill(c.Forked, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.Forked = 0
	for end := time.Now().Add(patience); ; { // the kernel lets go of its pages by and by
		move(t, m, target)
		if here, _ = nodesOf(t, c, c.Anon, pages); here.String() == fmt.Sprintf("N%d=%d", b, pages) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("when the fork is gone pages are on %v", here)
		}
		time.Sleep(10 * time.Millisecond)
	}
	intact(t, c)
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
	mask := cpus.Of(a)
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
		left, err := MigrateProcess(Live{}, c.pid, cpus.Of(way[0]), cpus.Of(way[1]))
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
