package numa

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

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
		"TooLarge":      testFakeTooLarge,
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
			n += int(k.on(uintptr(c.Anon) + uintptr(j*os.Getpagesize())))
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
		// The real page flags know nothing of the fake's huge pages; without them, the
		// Mover finds out at the first page that it would take.
		if m.flags != nil {
			if err := m.flags.close(); err != nil {
				t.Fatal(err)
			}
		}
		m.flags = nil
		m.blind = pages > 512
		if err := m.Start([]Target{{PID: c.pid, Shares: []Share{{0, 67}, {1, 33}}}}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		if !m.blind {
			t.Error("what moves together was known without page flags")
		}
		s := m.Targets()[0]
		want := apportion(s.After.Total(), []Share{{0, 67}, {1, 33}})
		off := int64(s.After[1].Count) - int64(want[1].Count)
		if s.Status != Settled || off < -512 || off > 512 || s.ShortPages > 512 {
			t.Errorf("%d a step: %+v, want %v", pages, s, want)
		}
		n := 0
		for i := range 9 {
			n += int(k.on(uintptr(c.Anon) + uintptr(i*fakeHugeSize)))
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
	m := fakeMover(t, k, MoverConfig{MaxPages: 2 * MaxBatch})
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

// testFakeTooLarge: a process above the bound is left alone, and that is said.
func testFakeTooLarge(t *testing.T, c *child) {
	m := fakeMover(t, newFakeKernel(), MoverConfig{MaxProcessPages: uint64(c.spec.Pages)})
	if err := m.Start([]Target{{PID: c.pid, Shares: tenth}}); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	if s := m.Targets()[0]; s.Status != Refused || !errors.Is(s.Err, ErrTooLarge) {
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
