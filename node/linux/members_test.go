package linux

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
)

// fakeKernel is one cgroup and its processes. run and delay are cumulative, in
// nanoseconds; usage is what the cgroup was charged.
type fakeKernel struct {
	members    []int32
	run, delay map[int32]uint64
	usage      uint64
	lists      int
	refused    error

	refusedUsage error
}

func (f *fakeKernel) Identity() cgroup.Identity              { return cgroup.Identity{Path: "/t", Inode: 1} }
func (f *fakeKernel) UsageNsec() (uint64, error)             { return f.usage, f.refusedUsage }
func (f *fakeKernel) Throttling() (cgroup.Throttling, error) { return cgroup.Throttling{}, nil }
func (f *fakeKernel) Refresh() error                         { return nil }
func (f *fakeKernel) Close() error                           { return nil }
func (f *fakeKernel) Name() string                           { return "fake" }
func (f *fakeKernel) KeepsDeadThreads() bool                 { return true }

func (f *fakeKernel) Procs(dst []int32) ([]int32, error) {
	f.lists++
	if f.refused != nil {
		return dst[:0], f.refused
	}
	return append(dst[:0], slices.Sorted(slices.Values(f.members))...), nil
}

func (f *fakeKernel) Query(ids []int32, out []taskstats.Stats) error {
	for i, id := range ids {
		out[i] = taskstats.Stats{Status: taskstats.Gone}
		if run, ok := f.run[id]; ok {
			out[i] = taskstats.Stats{RunNsec: run, DelayNsec: f.delay[id], Status: taskstats.OK}
		}
	}
	return nil
}

// work lets processes run and wait as long, inside the cgroup.
func (f *fakeKernel) work(d time.Duration, ids ...int32) {
	for _, id := range ids {
		f.run[id] += uint64(d)
		f.delay[id] += uint64(d)
		f.usage += uint64(d)
	}
}

type membersBench struct {
	t *testing.T
	k *fakeKernel
	h *Host
	w *watched
}

func newMembersBench(t *testing.T, members ...int32) *membersBench {
	k := &fakeKernel{members: members, run: map[int32]uint64{}, delay: map[int32]uint64{}}
	for _, id := range members {
		k.run[id] = 0
	}
	w := &watched{group: k, members: membership{doubt: true}}
	return &membersBench{t, k, &Host{tasks: []*watched{w}, delay: k, opt: Options{Clock: RealClock{}, Log: slog.New(slog.DiscardHandler)}}, w}
}

// read takes one reading and returns it with how often the cgroup was listed for it.
func (b *membersBench) read() (model.TaskSample, int) {
	before := b.k.lists
	var snap model.Snapshot
	b.h.observeTask(b.w, &snap)
	b.h.observeDelay(&snap)
	return snap.Tasks[0], b.k.lists - before
}

// settle reads until the list is trusted.
func (b *membersBench) settle() {
	b.t.Helper()
	for range 4 {
		if _, lists := b.read(); lists == 0 {
			return
		}
	}
	b.t.Fatal("the list is never trusted")
}

const ms = time.Millisecond

func (b *membersBench) expect(run time.Duration, lists int) {
	b.t.Helper()
	s, n := b.read()
	if s.C[model.CountRun] != model.Read(uint64(run)) || s.C[model.CountDelay] != model.Read(uint64(run)) {
		b.t.Errorf("run %+v delay %+v, want %v", s.C[model.CountRun], s.C[model.CountDelay], run)
	}
	if n != lists {
		b.t.Errorf("listed %d times, want %d", n, lists)
	}
}

func TestSteadyMembersAreNotListed(t *testing.T) {
	b := newMembersBench(t, 10, 11)
	b.settle()
	for i := range 5 {
		b.k.work(100*ms, 10, 11)
		b.expect(time.Duration(i+1)*200*ms, 0)
	}
}

// Who comes is followed from the reading on in which it first ran.
func TestNewcomerIsFollowed(t *testing.T) {
	b := newMembersBench(t, 10)
	b.settle()
	b.k.members, b.k.run[5] = append(b.k.members, 5), 0
	b.k.work(50*ms, 10, 5)
	b.expect(50*ms, 1) // its first reading is what its growth counts from
	b.k.work(50*ms, 10, 5)
	b.expect(150*ms, 1) // once in doubt, listed outright
	b.k.work(50*ms, 10, 5)
	b.expect(250*ms, 0)
}

func TestShortLivedAreListedOnceAReading(t *testing.T) {
	b := newMembersBench(t, 10)
	b.settle()
	for i := range 5 {
		b.k.usage += uint64(80 * ms) // came and went between two readings
		b.k.work(100*ms, 10)
		b.expect(time.Duration(i+1)*100*ms, 1)
	}
}

// A process that was moved away runs on: its time is another task's.
func TestMovedAwayIsNotCounted(t *testing.T) {
	b := newMembersBench(t, 10, 11)
	b.settle()
	b.k.work(100*ms, 10, 11)
	b.expect(200*ms, 0)
	b.k.members = []int32{10}
	b.k.run[11] += uint64(time.Second)
	b.k.delay[11] += uint64(time.Second)
	b.k.work(100*ms, 10)
	b.expect(300*ms, 1)
}

// An id that was used again belongs to a stranger.
func TestUsedAgainIsNotCounted(t *testing.T) {
	b := newMembersBench(t, 10, 11)
	b.settle()
	b.k.work(300*ms, 10, 11)
	b.expect(600*ms, 0)
	b.k.members = []int32{10}
	b.k.run[11], b.k.delay[11] = uint64(ms), uint64(ms)
	b.expect(600*ms, 1)
	b.k.run[11] += uint64(time.Second)
	b.k.work(100*ms, 10)
	b.expect(700*ms, 1)
}

func TestGoneMemberMakesDoubt(t *testing.T) {
	b := newMembersBench(t, 10, 11)
	b.settle()
	delete(b.k.run, 11)
	b.k.members = []int32{10}
	b.expect(0, 1)
}

// What cannot be listed has no run and no delay, and is tried again.
func TestListRefused(t *testing.T) {
	b := newMembersBench(t, 10)
	b.settle()
	b.k.refused = errors.New("refused")
	b.k.usage += uint64(time.Second)
	if s, _ := b.read(); s.C[model.CountRun].Outcome == model.OK || s.C[model.CountDelay].Outcome == model.OK {
		t.Errorf("%+v", s)
	}
	b.k.refused = nil
	b.k.work(time.Second, 10)
	if s, n := b.read(); s.C[model.CountRun].Outcome != model.OK || n != 1 {
		t.Errorf("%+v, listed %d times", s, n)
	}
}

func TestToleranceIsBounded(t *testing.T) {
	for _, c := range []struct {
		grew, ran time.Duration
		want      bool
	}{
		{0, 0, true}, {5 * ms, 0, true}, {6 * ms, 0, false}, {0, 6 * ms, false},
		{time.Second, 950 * ms, true}, {time.Second, 949 * ms, false}, {time.Second, 1051 * ms, false},
	} {
		m := membership{grew: uint64(c.grew), told: true}
		if got := m.explains(uint64(c.ran)); got != c.want {
			t.Errorf("used %v, ran %v: explained %v", c.grew, c.ran, got)
		}
	}
	if (&membership{}).explains(0) {
		t.Error("an unknown usage explains nothing")
	}
}

// The real kernel's two clocks agree well enough for the list to be trusted, a newcomer
// is found without a discovery, and a reading allocates nothing.
func TestMembersOnTheKernel(t *testing.T) {
	b := newBed(t, "members")
	path := b.mkdir("be-1")
	b.spin(path)
	b.open(false)
	b.h.opt.DiscoverEvery = time.Hour
	read := func() { b.observe(model.WindowStart | model.WindowEnd) }
	read()
	w := b.h.tasks[0]
	// How far usage and run time are apart is how long a reading takes, which is an
	// emulated machine's own affair; the longer the window, the less it matters.
	pause := 50 * ms
	b.until("usage and run time of one spinner agree", func() bool {
		time.Sleep(pause)
		pause += pause / 4
		read()
		return !w.members.listed
	})
	if n := testing.AllocsPerRun(50, func() {
		if err := b.h.Observe(model.WindowStart|model.WindowEnd, &b.snap); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a reading allocates %v times", n)
	}
	second := int32(b.spin(path).PID())
	b.until("a second spinner is found", func() bool {
		read()
		return slices.Contains(w.members.ids, second)
	})
}

func (f *fakeKernel) UsageAndStat() (uint64, cgroup.CPUStat, error) {
	return f.usage, cgroup.CPUStat{}, f.refusedUsage
}
