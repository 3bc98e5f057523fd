package numa

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// fakeKernel moves pages of a real process between two nodes that it only pretends, so
// that what the kernel does to a move can be tried on a machine of one node: it does as
// do_pages_move in mm/migrate.c does, group by group.
type fakeKernel struct {
	node   map[uintptr]int32      // of pages that are not on node 0
	pinned map[uintptr]bool       // stay, and fail their group
	lookup map[uintptr]unix.Errno // what looking a page up says
	huge   func(page uintptr) bool
	room   int               // pages that may yet move before ENOMEM; below 0: no bound
	before func() unix.Errno // called before each move

	moves, most int // calls that moved, and the most pages of one
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{
		node: map[uintptr]int32{}, pinned: map[uintptr]bool{}, lookup: map[uintptr]unix.Errno{},
		huge: func(uintptr) bool { return false }, room: -1, before: func() unix.Errno { return 0 },
	}
}

const fakeHugeSize = 2 << 20

func (k *fakeKernel) MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (int, error) {
	if nodes == nil {
		if _, err := (Live{}).MovePages(pid, pages, nil, status, flags); err != nil {
			return 0, err
		}
		for i, p := range pages {
			if status[i] >= 0 {
				status[i] = k.node[p]
			}
		}
		return 0, nil
	}
	if errno := k.before(); errno != 0 {
		return 0, errno
	}
	k.moves++
	k.most = max(k.most, len(pages))
	var group []int
	for i, p := range pages {
		if nodes[i] > 1 {
			return 0, unix.ENODEV
		}
		errno := k.lookup[p]
		if errno == 0 && k.node[p] != nodes[i] && !k.onItsWay(pages, group, p) {
			group = append(group, i)
			continue
		}
		status[i] = nodes[i]
		if errno == 0 && k.node[p] != nodes[i] {
			errno = unix.EBUSY
		}
		if errno != 0 {
			status[i] = -int32(errno)
		}
		if left, err := k.migrate(pages, nodes, status, group); left > 0 || err != nil {
			return left + len(pages) - i - 1, err
		}
		group = group[:0]
	}
	return k.migrate(pages, nodes, status, group)
}

// onItsWay says whether a page's huge page is in the group already.
func (k *fakeKernel) onItsWay(pages []uintptr, group []int, page uintptr) bool {
	return k.huge(page) && slices.ContainsFunc(group, func(i int) bool { return pages[i]/fakeHugeSize == page/fakeHugeSize })
}

// migrate moves a group; if a page of it fails, the status of none is written.
func (k *fakeKernel) migrate(pages []uintptr, nodes, status []int32, group []int) (int, error) {
	failed := 0
	for _, i := range group {
		if k.room == 0 {
			return 0, unix.ENOMEM
		}
		if k.pinned[pages[i]] {
			failed++
			continue
		}
		k.put(pages[i], nodes[i])
	}
	for _, i := range group {
		if failed == 0 {
			status[i] = nodes[i]
		}
	}
	return failed, nil
}

// put moves a page, with its huge page.
func (k *fakeKernel) put(page uintptr, node int32) {
	first, n := page, 1
	if k.huge(page) {
		first, n = page/fakeHugeSize*fakeHugeSize, fakeHugeSize/os.Getpagesize()
	}
	for j := range n {
		k.node[first+uintptr(j*os.Getpagesize())] = node
	}
	k.room -= min(max(k.room, 0), n)
}

func (k *fakeKernel) MigratePages(int32, *NodeMask, *NodeMask) (int, error) { return 0, unix.ENOSYS }

// fakeNodes is the live machine, but for its nodes: those of the rig's.
type fakeNodes struct {
	*hostfs.Root
	nodes *hostfs.Root
}

func (f fakeNodes) ReadFile(path string, buf []byte) ([]byte, error) {
	if strings.HasPrefix(path, nodeDir) || path == zoneinfoPath {
		return f.nodes.ReadFile(path, buf)
	}
	return f.Root.ReadFile(path, buf)
}

// fakeMover returns a Mover over a fake kernel; every mapping is looked at page by page,
// because the real numa_maps knows nothing of the fake's nodes.
func fakeMover(t *testing.T, k *fakeKernel, cfg MoverConfig) *Mover {
	t.Helper()
	live := liveRoot(t).(*hostfs.Root)
	m := NewMover(fakeNodes{live, fixture("qemu-6.12")}, k, cfg)
	m.survey.each = true
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// run steps until the Mover stops for another reason than its bounds, and returns what it
// did by outcome, with the reasons it stopped for.
func run(t *testing.T, m *Mover) (Outcomes, []Stop) {
	t.Helper()
	var sum Outcomes
	var stops []Stop
	for range 10000 {
		r, err := m.Step(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var tried uint64
		for i, n := range r.Outcomes {
			sum[i] += n
			tried += n
		}
		if tried > m.cfg.MaxPages {
			t.Errorf("a step tried %d pages, more than %d", tried, m.cfg.MaxPages)
		}
		stops = append(stops, r.Stop)
		if r.Stop == StopDone || r.Stop == StopRoom {
			return sum, stops
		}
	}
	t.Fatal("it does not come to an end")
	return sum, stops
}

// tenth puts a tenth on node 1.
var tenth = []Share{{0, 90}, {1, 10}}

// TestFake tries what a kernel may do to moves. The child's pages never move: who pretends
// it forgets it at the end of each test, so that all can share one child.
func TestFake(t *testing.T) {
	liveRoot(t)
	topology(t)
	c := spawn(t, "", childSpec{Pages: 9 * 512, Holes: 1})
	for name, test := range map[string]func(*testing.T, *child){
		"ExactSteps":    testFakeExactSteps,
		"Even":          testFakeEven,
		"SurveyFirst":   testFakeSurveyFirst,
		"BatchOutcomes": testFakeBatchOutcomes,
		"CallErrors":    testFakeCallErrors,
		"Pinned":        testFakePinned,
		"Hopeless":      testFakeHopeless,
		"Huge":          testFakeHuge,
		"NodeFull":      testFakeNodeFull,
		"Reserve":       testFakeReserve,
		"EndsMidway":    testFakeEndsMidway,
		"Refused":       testFakeRefused,
		"Context":       testFakeContext,
		"ReusedNumber":  testFakeReusedNumber,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// testFakeExactSteps takes a process up by tenths and down again: exact at each.
func testFakeExactSteps(t *testing.T, c *child) {
	k := newFakeKernel()
	m := fakeMover(t, k, MoverConfig{MaxPages: 512})
	for _, percent := range []uint64{10, 20, 10, 0} {
		if err := m.Start([]Target{{PID: c.pid, Shares: []Share{{0, 100 - percent}, {1, percent}}}}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		s := m.Targets()[0]
		want := apportion(s.After.Total(), []Share{{0, 100 - percent}, {1, percent}})
		if got, _ := s.After.Get(1); s.Status != Settled || s.ShortPages != 0 || s.After[0] != want[0] {
			t.Errorf("%d %%: %+v, want %v (node 1 has %d)", percent, s, want, got)
		}
	}
	if k.most > MaxBatch {
		t.Errorf("a call with %d pages", k.most)
	}
}

// testFakeEven: every stretch of the child's memory has its tenth.
func testFakeEven(t *testing.T, c *child) {
	k := newFakeKernel()
	m := fakeMover(t, k, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: tenth}}); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	for i := 0; i+100 <= c.spec.Pages; i += 100 {
		n := 0
		for j := i; j < i+100; j++ {
			n += int(k.node[uintptr(c.Anon)+uintptr(j*os.Getpagesize())])
		}
		if n < 9 || n > 11 {
			t.Errorf("of pages %d to %d, %d moved", i, i+100, n)
		}
	}
}

// testFakeSurveyFirst: nothing moves before the survey of all is there to be written
// down, and what it says is what puts things back.
func testFakeSurveyFirst(t *testing.T, c *child) {
	a, b := c, spawn(t, "", childSpec{Pages: 300})
	k := newFakeKernel()
	m := fakeMover(t, k, MoverConfig{MaxScan: 1})
	targets := []Target{{PID: a.pid, Shares: tenth}, {PID: b.pid, Shares: []Share{{1, 1}}}}
	if err := m.Start(targets); err != nil {
		t.Fatal(err)
	}
	var r Report
	for steps := 0; r.Stop != StopSurveyed; steps++ {
		var err error
		if r, err = m.Step(context.Background()); err != nil || k.moves != 0 || steps > 2 {
			t.Fatalf("step %d: %+v, %v; %d moves", steps, r, err, k.moves)
		}
	}
	before := m.Targets()
	for i, s := range before {
		if s.Status != Surveyed || s.Before.Total() < uint64([]int{a.spec.Pages, 300}[i]) || s.RemainingPages == 0 || s.StartTicks == 0 {
			t.Errorf("%+v", s)
		}
	}
	if want := before[0].RemainingPages + before[1].RemainingPages; r.RemainingPages != want {
		t.Errorf("%d remain, want %d", r.RemainingPages, want)
	}
	run(t, m)
	if n, _ := m.Targets()[1].After.Get(0); m.Targets()[1].Status != Settled || n != 0 {
		t.Errorf("all of it was to go: %+v", m.Targets()[1])
	}
	var back []Target
	for _, s := range before {
		back = append(back, Target{PID: s.PID, StartTicks: s.StartTicks, Shares: SharesOf(s.Before)})
	}
	if err := m.Start(back); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	for _, s := range m.Targets() {
		if n, _ := s.After.Get(1); n != 0 || s.Status != Settled {
			t.Errorf("not put back: %+v", s)
		}
	}
}

// testFakeBatchOutcomes: each page's outcome by name, also of pages that a call did not
// come to.
func testFakeBatchOutcomes(t *testing.T, c *child) {
	k := newFakeKernel()
	page := func(i int) uintptr { return uintptr(c.Anon) + uintptr(i*os.Getpagesize()) }
	k.pinned[page(0)], k.pinned[page(50)] = true, true
	k.lookup[page(10)], k.lookup[page(20)] = unix.EACCES, unix.EBUSY
	k.lookup[page(30)], k.lookup[page(40)] = unix.EIO, unix.EHWPOISON
	b := NewBatch(k, 1000)
	for i := range 100 {
		b.Add(uint64(page(i)), 1)
	}
	b.Add(c.Holes, 1)
	b.Add(4096, 1) // no mapping
	k.lookup[uintptr(c.Holes)], k.lookup[4096] = unix.ENOENT, unix.EFAULT
	counts, err := b.Move(c.pid)
	if err != nil {
		t.Fatal(err)
	}
	want := map[Outcome]uint64{Moved: 94, Shared: 1, Busy: 1, Unmovable: 1, OtherError: 1, Stayed: 2}
	for o, n := range want {
		if counts[o] != n {
			t.Errorf("%s: %d, want %d", o, counts[o], n)
		}
	}
	// 6.1 says Unmapped of a hole, later kernels NotPresent.
	if counts[NotPresent]+counts[Unmapped] != 2 || counts.Failed() != 8 || k.moves > 4 {
		t.Errorf("%v, %d calls", counts, k.moves)
	}
	for i, o := range map[int]Outcome{0: Stayed, 1: Moved, 10: Shared, 20: Busy, 30: Unmovable, 40: OtherError, 50: Stayed, 99: Moved} {
		if node, ok := b.Node(i); b.Outcome(i) != o || !ok || (node == 1) != (o == Moved) || b.Address(i) != uint64(page(i)) {
			t.Errorf("page %d: %s on %d, want %s", i, b.Outcome(i), node, o)
		}
	}
}

func TestBatchBounds(t *testing.T) {
	b := NewBatch(newFakeKernel(), MaxBatch+1)
	for i := range MaxBatch + 1 {
		if b.Add(uint64(i), 0) != (i < MaxBatch) {
			t.Fatalf("page %d", i)
		}
	}
	if !b.Full() || b.Len() != MaxBatch {
		t.Errorf("%d pages", b.Len())
	}
	b.Reset()
	if counts, err := b.Move(1); b.Len() != 0 || counts != (Outcomes{}) || err != nil {
		t.Errorf("an empty batch: %v, %v", counts, err)
	}
	if err := b.Query(1); err != nil {
		t.Errorf("an empty batch: %v", err)
	}
	for o, want := range map[Outcome]string{NotTried: "not tried", CameBack: "came back", OtherError: "other error", numOutcomes: "unknown outcome"} {
		if o.String() != want {
			t.Errorf("%d is %q", o, o)
		}
	}
}

// testFakeCallErrors: what the kernel says about a whole call.
func testFakeCallErrors(t *testing.T, c *child) {
	for errno, want := range map[unix.Errno]error{
		unix.ESRCH: ErrVanished, unix.EINVAL: ErrVanished, unix.EPERM: ErrPermission, unix.ENODEV: ErrNoNode,
		unix.EACCES: ErrNodeNotAllowed, unix.ENOMEM: ErrNodeFull, unix.ENOSYS: ErrUnsupported, unix.E2BIG: unix.E2BIG,
	} {
		k := newFakeKernel()
		k.before = func() unix.Errno { return errno }
		b := NewBatch(k, 1)
		b.Add(c.Anon, 1)
		counts, err := b.Move(c.pid)
		if !errors.Is(err, want) || !errors.Is(err, errno) || counts[Moved] != 0 || counts.Failed() != 1 {
			t.Errorf("%v: %v, %v", errno, err, counts)
		}
	}
	k := newFakeKernel()
	k.node[uintptr(c.Anon)] = 0
	b := NewBatch(cameBack{k}, 1)
	b.Add(c.Anon, 1)
	if counts, err := b.Move(c.pid); err != nil || counts[CameBack] != 1 {
		t.Errorf("moved and back again: %v, %v", counts, err)
	}
}

// cameBack says that it moved, and did not.
type cameBack struct{ *fakeKernel }

func (k cameBack) MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (int, error) {
	if nodes != nil {
		copy(status, nodes)
		return 0, nil
	}
	return k.fakeKernel.MovePages(pid, pages, nodes, status, flags)
}

// testFakePinned: pages that stay are made up for by others.
func testFakePinned(t *testing.T, c *child) {
	k := newFakeKernel()
	for i := range 1000 {
		k.pinned[uintptr(c.Anon)+uintptr(3*i*os.Getpagesize())] = true
	}
	m := fakeMover(t, k, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: tenth}}); err != nil {
		t.Fatal(err)
	}
	outcomes, _ := run(t, m)
	s := m.Targets()[0]
	want := apportion(s.After.Total(), tenth)
	if s.ShortPages != 0 || s.After[1] != want[1] || outcomes[Stayed] == 0 {
		t.Errorf("%+v, want %v; %v", s, want, outcomes)
	}
}

// testFakeHopeless: a process that is pinned as a whole is given up.
func testFakeHopeless(t *testing.T, c *child) {
	k := newFakeKernel()
	for i := range c.spec.Pages { // all that is worth while
		k.pinned[uintptr(c.Anon)+uintptr(i*os.Getpagesize())] = true
	}
	m := fakeMover(t, k, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: []Share{{0, 1}, {1, 1}}}}); err != nil {
		t.Fatal(err)
	}
	outcomes, _ := run(t, m)
	if s := m.Targets()[0]; s.Status != Refused || !errors.Is(s.Err, errHopeless) || outcomes[Stayed] > 2*hopeless {
		t.Errorf("%+v; %v", s, outcomes)
	}
}

// testFakeHuge: huge pages move whole, whether they are recognised beforehand or, without
// page frame numbers, by what they did; the bound holds for both.
func testFakeHuge(t *testing.T, c *child) {
	for _, pages := range []uint64{512, 2000} {
		k := newFakeKernel()
		k.huge = func(p uintptr) bool { return uint64(p) >= c.Anon && uint64(p) < c.Anon+9*fakeHugeSize }
		m := fakeMover(t, k, MoverConfig{MaxPages: pages})
		m.blind = true // the real page flags know nothing of the fake's huge pages
		if err := m.Start([]Target{{PID: c.pid, Shares: []Share{{0, 67}, {1, 33}}}}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		s := m.Targets()[0]
		want := apportion(s.After.Total(), []Share{{0, 67}, {1, 33}})
		off := int64(s.After[1].Count) - int64(want[1].Count)
		if s.Status != Settled || off < -512 || off > 512 || s.ShortPages > 512 {
			t.Errorf("%d a step: %+v, want %v", pages, s, want)
		}
		n := 0
		for i := range 9 {
			n += int(k.node[uintptr(c.Anon)+uintptr(i*fakeHugeSize)])
		}
		if n < 2 || n > 4 {
			t.Errorf("%d a step: %d of 9 huge pages moved, want 3", pages, n)
		}
	}
}

// testFakeNodeFull: the target refuses pages though it had room: the step ends, names it,
// and the next one goes on.
func testFakeNodeFull(t *testing.T, c *child) {
	k := newFakeKernel()
	k.room = 100
	m := fakeMover(t, k, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: tenth}}); err != nil {
		t.Fatal(err)
	}
	outcomes, stops := run(t, m)
	s := m.Targets()[0]
	if outcomes[Moved] != 100 || outcomes[NoMemory] == 0 || stops[len(stops)-1] != StopRoom || s.Status != Moving || s.RemainingPages == 0 {
		t.Errorf("%v, %v, %+v", outcomes, stops, s)
	}
	k.room = -1
	run(t, m)
	if s := m.Targets()[0]; s.ShortPages != 0 || s.After[1] != apportion(s.After.Total(), tenth)[1] {
		t.Errorf("%+v", s)
	}
}

// testFakeReserve: what is to stay free on the target stays free.
func testFakeReserve(t *testing.T, c *child) {
	k := newFakeKernel()
	r := NewRoomReader(fixture("qemu-6.12"))
	if err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	m := fakeMover(t, k, MoverConfig{ReservePages: r.Pages(1, 0) - 70})
	if err := m.Start([]Target{{PID: c.pid, Shares: tenth}}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	rep, err := m.Step(context.Background())
	if err != nil || rep.MovedPages() != 70 || rep.Stop != StopRoom || !slices.Equal(rep.FullNodes, []int{1}) {
		t.Errorf("%+v, %v", rep, err)
	}
}

// testFakeEndsMidway: a process ends between two steps, and another in the middle of one;
// the third is served all the same.
func testFakeEndsMidway(t *testing.T, c *child) {
	a, b := spawn(t, "", childSpec{Pages: 2000}), spawn(t, "", childSpec{Pages: 2000})
	k := newFakeKernel()
	m := fakeMover(t, k, MoverConfig{MaxPages: 512})
	half := []Share{{0, 1}, {1, 1}}
	if err := m.Start([]Target{{PID: a.pid, Shares: half}, {PID: b.pid, Shares: half}, {PID: c.pid, Shares: half}, {PID: 1 << 22, Shares: half}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := m.Step(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Targets()[0]; s.Status != Moving || k.moves == 0 {
		t.Fatalf("%+v", s)
	}
	a.end()
	moves, ended := k.moves, false
	k.before = func() unix.Errno {
		if k.moves == moves+1 && !ended { // the second batch that is not a's
			b.end()
			ended = true
			return unix.ESRCH
		}
		return 0
	}
	run(t, m)
	for i, want := range []TargetStatus{Gone, Gone, Settled, Gone} {
		if s := m.Targets()[i]; s.Status != want || s.Err != nil || s.RemainingPages != 0 {
			t.Errorf("process %d: %+v, want %s", i, s, want)
		}
	}
}

// testFakeRefused: the kernel refuses one process; the next is served.
func testFakeRefused(t *testing.T, c *child) {
	a, b := c, spawn(t, "", childSpec{Pages: 100})
	k := newFakeKernel()
	calls := 0
	k.before = func() unix.Errno {
		if calls++; calls == 1 {
			return unix.EACCES
		}
		return 0
	}
	m := fakeMover(t, k, MoverConfig{})
	if err := m.Start([]Target{{PID: a.pid, Shares: tenth}, {PID: b.pid, Shares: tenth}}); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	if s := m.Targets()[0]; s.Status != Refused || !errors.Is(s.Err, ErrNodeNotAllowed) {
		t.Errorf("%+v", s)
	}
	if s := m.Targets()[1]; s.Status != Settled || s.After[1] != apportion(s.After.Total(), tenth)[1] {
		t.Errorf("%+v", s)
	}
}

// testFakeContext: a context that ends stops the work before the next call, and what was
// only chosen is chosen again.
func testFakeContext(t *testing.T, c *child) {
	k := newFakeKernel()
	m := fakeMover(t, k, MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, Shares: []Share{{1, 1}}}}); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for range 2 {
		r, err := m.Step(over)
		if !errors.Is(err, context.Canceled) || r.Stop != StopContext || k.moves != 0 {
			t.Errorf("%+v, %v, %d moves", r, err, k.moves)
		}
	}
	if r, err := m.Step(context.Background()); err != nil || r.Stop != StopSurveyed {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := m.Step(over); !errors.Is(err, context.Canceled) || r.Outcomes != (Outcomes{}) {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.before = func() unix.Errno { cancel(); return 0 }
	r, err := m.Step(ctx)
	if !errors.Is(err, context.Canceled) || r.Stop != StopContext || r.MovedPages() != MaxBatch {
		t.Errorf("%+v, %v", r, err)
	}
	k.before = func() unix.Errno { return 0 }
	run(t, m)
	s := m.Targets()[0]
	if n, _ := s.After.Get(0); s.Status != Settled || n != 0 || s.ShortPages != 0 {
		t.Errorf("%+v", s)
	}
}

// testFakeReusedNumber: the process that was meant is gone, and its number is another's.
func testFakeReusedNumber(t *testing.T, c *child) {
	m := fakeMover(t, newFakeKernel(), MoverConfig{})
	if err := m.Start([]Target{{PID: c.pid, StartTicks: 1, Shares: tenth}}); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	if s := m.Targets()[0]; s.Status != Gone {
		t.Errorf("%+v", s)
	}
}

// TestFakeLeftAlone: what is not the process's alone, and what it locked or bound.
func TestFakeLeftAlone(t *testing.T) {
	const pages = 1000 // more than the child has of its own
	file := fileOf(t, 20)
	for _, c := range []struct {
		spec   childSpec
		cfg    MoverConfig
		reason Reason
		left   uint64 // at least; 0: none
		moves  bool   // the pages are movable all the same
	}{
		{childSpec{Pages: pages, File: file}, MoverConfig{}, LeftFile, 19, true},
		{childSpec{Pages: pages, Fork: true}, MoverConfig{}, LeftShared, pages, false},
		{childSpec{Pages: pages, Bind: true}, MoverConfig{}, LeftBound, pages, false},
		{childSpec{Pages: pages, Lock: true}, MoverConfig{}, LeftLocked, pages, false},
		{childSpec{Pages: pages, Bind: true}, MoverConfig{MoveBound: true}, LeftBound, 0, true},
		{childSpec{Pages: pages, Zero: 50, Holes: 50}, MoverConfig{}, LeftShared, 0, true},
	} {
		proc := spawn(t, "", c.spec)
		m := fakeMover(t, newFakeKernel(), c.cfg)
		m.survey.each = false
		if err := m.Start([]Target{{PID: proc.pid, Shares: tenth}}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Step(context.Background()); err != nil {
			t.Fatal(err)
		}
		s := m.Targets()[0]
		if got := s.Left[c.reason]; got < c.left || (c.left == 0 && got != 0) || (s.Before.Total() >= pages) != c.moves {
			t.Errorf("%+v: %s: %d pages left, want %d; movable %v; %+v", c.spec, c.reason, got, c.left, c.moves, s)
		}
		proc.end()
	}
}

func TestStartRefuses(t *testing.T) {
	m := fakeMover(t, newFakeKernel(), MoverConfig{})
	for _, c := range []struct {
		shares []Share
		want   error
	}{
		{nil, ErrBadShares}, {[]Share{{0, 0}}, ErrBadShares}, {[]Share{{0, 1}, {2, 1}}, ErrNoNode}, {[]Share{{0, 1}, {2, 0}}, nil},
	} {
		if err := m.Start([]Target{{PID: 1, Shares: c.shares}}); !errors.Is(err, c.want) {
			t.Errorf("%v: %v", c.shares, err)
		}
	}
	if err := m.Start(nil); err != nil {
		t.Fatal(err)
	}
	if _, stops := run(t, m); !slices.Equal(stops, []Stop{StopSurveyed, StopDone}) {
		t.Errorf("nothing to do: %v", stops)
	}
}
