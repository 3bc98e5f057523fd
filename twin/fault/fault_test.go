package fault

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/schedwait"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
)

// bench is a file system with two files, a clock and what was noticed.
type bench struct {
	root   *hostfs.Root
	now    int64
	events []Event
	i      *Injector
}

func newBench(t *testing.T, rules ...Rule) *bench {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"quota": "-1\n", "stat": "nr_periods 10\nnr_throttled 4 cpu0 8\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{root: hostfs.NewRoot(dir)}
	b.i = New(World{
		Now: func() int64 { return b.now }, Pass: func(n int64) { b.now += n },
		Notice: func(e *Event) { b.events = append(b.events, *e) },
		Write:  func(path, s string) error { return b.root.WriteFile(path, []byte(s)) },
	}, rules, rand.New(rand.NewPCG(1, 2)))
	return b
}

func (b *bench) read(t *testing.T, path string) string {
	t.Helper()
	data, err := b.root.ReadFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReadsAreSpoiled(t *testing.T) {
	for _, tc := range []struct {
		rule Rule
		want string
		err  error
	}{
		{Rule{Kind: Short}, "nr_periods 10\nnr_t", nil},
		{Rule{Kind: Garble}, "nr_periods ba\nnr_throttled e cpua i\n", nil},
		{Rule{Kind: Back}, "nr_periods 5\nnr_throttled 2 cpu0 4\n", nil},
		{Rule{Kind: Jump}, "nr_periods 1000000000000010\nnr_throttled 1000000000000004 cpu0 1000000000000008\n", nil},
		{Rule{Kind: Fail, Errno: unix.EIO}, "", unix.EIO},
		{Rule{Kind: FailAfter, Errno: unix.EINTR}, "", unix.EINTR},
		{Rule{Kind: Vanish}, "", unix.ENODEV},
		{Rule{Kind: Fail, Errno: unix.EIO, Path: "quota"}, "nr_periods 10\nnr_throttled 4 cpu0 8\n", nil},
		{Rule{Kind: Fail, Errno: unix.EIO, Ops: Write}, "nr_periods 10\nnr_throttled 4 cpu0 8\n", nil},
		{Rule{Kind: Fail, Errno: unix.EIO, From: 5}, "nr_periods 10\nnr_throttled 4 cpu0 8\n", nil},
	} {
		t.Run(tc.rule.String(), func(t *testing.T) {
			tc.rule.Share = 1
			if tc.rule.Ops == 0 {
				tc.rule.Ops = Read
			}
			b := newBench(t, tc.rule)
			f := b.i.Begin("agent", 0)
			got, err := f.FS(b.root).ReadFile("/stat", nil)
			if !errors.Is(err, tc.err) || string(got) != tc.want {
				t.Errorf("ReadFile: %q, %v; expected %q, %v", got, err, tc.want, tc.err)
			}
			open, err := f.FS(b.root).Open("/stat")
			if err != nil {
				t.Fatal(err)
			}
			for _, read := range []func([]byte) ([]byte, error){open.ReadAll, open.ReadRecord} {
				if got, err := read(nil); !errors.Is(err, tc.err) || string(got) != tc.want {
					t.Errorf("open file: %q, %v; expected %q, %v", got, err, tc.want, tc.err)
				}
			}
			if err := open.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A directory is listed short, and whole the next time; the other directory has its own turns.
func TestListsAreShort(t *testing.T) {
	b := newBench(t, Rule{Ops: List, Share: 1, Kind: Short})
	if err := errors.Join(b.root.Mkdir("/dir", 0o700), b.root.Mkdir("/dir/a", 0o700)); err != nil {
		t.Fatal(err)
	}
	all, err := b.root.ReadDir("/")
	if err != nil || len(all) < 2 {
		t.Fatal(all, err)
	}
	f := b.i.Begin("agent", 0).FS(b.root)
	for i, want := range []int{len(all) / 2, 0, len(all), 1, len(all) / 2} {
		if got, err := f.ReadDir([]string{"/", "/dir"}[i%2]); err != nil || len(got) != want {
			t.Errorf("list %d: %d, %v; expected %d", i, len(got), err, want)
		}
	}
	if n := b.i.Counts()["short"]; n != 3 {
		t.Errorf("%d short lists", n)
	}
}

func TestWrites(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		b := newBench(t, Rule{Ops: Write, Share: 1, Max: 1, Kind: Fail, Errno: unix.EBUSY})
		f := b.i.Begin("agent", 0).FS(b.root)
		var pe *fs.PathError
		if err := f.WriteFile("/quota", []byte("5\n")); !errors.Is(err, unix.EBUSY) || !errors.As(err, &pe) || pe.Path != "/quota" {
			t.Errorf("write: %v", err)
		}
		if got := b.read(t, "/quota"); got != "-1\n" {
			t.Errorf("a refused write left %q", got)
		}
		if err := f.WriteFile("/quota", []byte("5\n")); err != nil {
			t.Errorf("the second write, after which the rule is used up: %v", err)
		}
	})
	t.Run("taken, and refused all the same", func(t *testing.T) {
		b := newBench(t, Rule{Ops: Write, Share: 1, Kind: FailAfter, Errno: unix.EINTR})
		if err := b.i.Begin("agent", 0).FS(b.root).WriteFile("/quota", []byte("5\n")); !errors.Is(err, unix.EINTR) {
			t.Errorf("write: %v", err)
		}
		if got := b.read(t, "/quota"); !strings.HasPrefix(got, "5\n") {
			t.Errorf("the kernel has %q", got)
		}
	})
	t.Run("a stranger behind us", func(t *testing.T) {
		b := newBench(t, Rule{Ops: Write, Share: 1, Kind: Foreign, Texts: []string{"7\n"}})
		if err := b.i.Begin("agent", 0).FS(b.root).WriteFile("/quota", []byte("5\n")); err != nil {
			t.Error(err)
		}
		if got := b.read(t, "/quota"); !strings.HasPrefix(got, "7\n") {
			t.Errorf("the kernel has %q", got)
		}
		var who []string
		for _, e := range b.events {
			who = append(who, e.Who)
		}
		if diff := cmp.Diff([]string{"agent", "stranger"}, who); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
	t.Run("slow", func(t *testing.T) {
		b := newBench(t, Rule{Ops: Write, Share: 1, Kind: Slow, Nsec: 3e9})
		if err := b.i.Begin("agent", 0).FS(b.root).WriteFile("/quota", []byte("5\n")); err != nil || b.now != 3e9 {
			t.Errorf("write: %v, at %d ns", err, b.now)
		}
	})
}

// TestKill: at whichever write a life ends, what came before stands, the write itself
// stands or not, and nothing comes after it, neither through this life's wrappers nor
// through what they opened.
func TestKill(t *testing.T) {
	took := map[bool]bool{}
	for seed := range uint64(20) {
		for n := uint64(1); n <= 3; n++ {
			b := newBench(t)
			b.i.rng = rand.New(rand.NewPCG(seed, n))
			o := b.i.Begin("agent", n)
			f := o.FS(b.root)
			open, err := f.Open("/stat")
			if err != nil {
				t.Fatal(err)
			}
			for k := uint64(1); k <= 3; k++ {
				err := f.WriteFile("/quota", []byte{'0' + byte(k), '\n'})
				if errors.Is(err, ErrKilled) != (k >= n) || o.Killed() != (k >= n) {
					t.Fatalf("kill at %d, write %d: %v, killed %v", n, k, err, o.Killed())
				}
			}
			last := uint64(b.read(t, "/quota")[0] - '0')
			if b.read(t, "/quota")[0] == '-' {
				last = 0
			}
			if last != n && last != n-1 {
				t.Fatalf("kill at %d: the kernel has %d", n, last)
			}
			took[last == n] = true
			if _, err := open.ReadAll(nil); !errors.Is(err, ErrKilled) {
				t.Errorf("an open file after death: %v", err)
			}
			if err := o.Source(quiet{}).Query([]int32{1}, make([]taskstats.Stats, 1)); !errors.Is(err, ErrKilled) {
				t.Errorf("taskstats after death: %v", err)
			}
			next := b.i.Begin("agent", 0)
			if err := next.FS(b.root).WriteFile("/quota", []byte("9\n")); err != nil {
				t.Errorf("the next life: %v", err)
			}
			if _, err := f.ReadFile("/stat", nil); !errors.Is(err, ErrKilled) {
				t.Errorf("the dead one reads during the next life: %v", err)
			}
		}
	}
	if !took[true] || !took[false] {
		t.Errorf("the last write took effect: %v; expected both to happen", took)
	}
}

// TestKillInJournal: a journal whose writer is killed at any of its calls can be read, and
// never misses what was appended before.
func TestKillInJournal(t *testing.T) {
	torn, whole := 0, 0
	for seed := range uint64(30) {
		for n := uint64(1); n <= 16; n++ {
			b := newBench(t)
			b.i.rng = rand.New(rand.NewPCG(seed, n))
			disk := NewMemory()
			o := b.i.Begin("agent", n)
			done := 0
			j, err := journal.ContinueOn(o.Disk(disk), "/j", "boot", nil)
			for k := 0; err == nil && k < 4; k++ {
				l := journal.Limit{Task: "/t", Path: "/t", Inode: uint64(k), Intended: model.Bandwidth(model.CPUMax{QuotaUsec: 1000, PeriodUsec: 100_000})}
				if err = j.Intent([]journal.Limit{l}); err == nil {
					done++
				}
			}
			if err != nil && !errors.Is(err, ErrKilled) {
				t.Fatal(err)
			}
			c, err := journal.ReadOn(disk, "/j")
			if err != nil || len(c.Limits) < done || len(c.Limits) > done+1 {
				t.Fatalf("seed %d, kill at %d: %d of %d limits, %v\n%s", seed, n, len(c.Limits), done, err, disk)
			}
			if c.Torn {
				torn++
			} else {
				whole++
			}
		}
	}
	if torn == 0 || whole == 0 {
		t.Errorf("%d torn, %d whole: expected both", torn, whole)
	}
}

func TestDiskFaults(t *testing.T) {
	for _, tc := range []struct {
		rule Rule
		err  error
	}{
		{Rule{Kind: Fail, Errno: unix.EIO}, unix.EIO},
		{Rule{Kind: FailAfter, Errno: unix.EIO}, unix.EIO},
		{Rule{Kind: Short}, unix.ENOSPC},
	} {
		t.Run(tc.rule.String(), func(t *testing.T) {
			tc.rule.Ops, tc.rule.Share, tc.rule.From = Append, 1, 10
			tc.rule.Max = 1
			b := newBench(t, tc.rule)
			disk := NewMemory()
			j, err := journal.ContinueOn(b.i.Begin("agent", 0).Disk(disk), "/j", "boot", nil)
			if err != nil {
				t.Fatal(err)
			}
			l := journal.Limit{Task: "/t", Path: "/t", Inode: 1, Intended: model.Bandwidth(model.CPUMax{QuotaUsec: 1000, PeriodUsec: 100_000})}
			b.now = 10
			if err := j.Intent([]journal.Limit{l}); !errors.Is(err, tc.err) {
				t.Fatalf("intent: %v; expected %v", err, tc.err)
			}
			if err := j.Intent([]journal.Limit{l}); err != nil {
				t.Fatalf("the rule is used up: %v", err)
			}
			c, err := journal.ReadOn(disk, "/j")
			if err != nil || len(c.Limits) != 1 {
				t.Errorf("%+v, %v\n%s", c, err, disk)
			}
		})
	}
}

// quiet is a source in which every thread group ran 100 ns and waited 50.
type quiet struct{}

func (quiet) Query(ids []int32, out []taskstats.Stats) error {
	for i := range ids {
		out[i] = taskstats.Stats{RunNsec: 100, DelayNsec: 50, Status: taskstats.OK}
	}
	return nil
}
func (quiet) Name() string           { return "quiet" }
func (quiet) KeepsDeadThreads() bool { return true }
func (quiet) Close() error           { return nil }

func TestSource(t *testing.T) {
	for _, tc := range []struct {
		rule Rule
		want taskstats.Stats
		err  error
	}{
		{Rule{Kind: Vanish}, taskstats.Stats{Status: taskstats.Gone}, nil},
		{Rule{Kind: FailAfter}, taskstats.Stats{Status: taskstats.Unavailable}, nil},
		{Rule{Kind: Back}, taskstats.Stats{RunNsec: 50, DelayNsec: 25, Status: taskstats.OK}, nil},
		{Rule{Kind: Jump}, taskstats.Stats{RunNsec: 1e15 + 100, DelayNsec: 1e15 + 50, Status: taskstats.OK}, nil},
		{Rule{Kind: Fail, Errno: unix.ENOBUFS}, taskstats.Stats{}, unix.ENOBUFS},
	} {
		tc.rule.Ops, tc.rule.Share = Query, 1
		b := newBench(t, tc.rule)
		s := b.i.Begin("agent", 0).Source(quiet{})
		out := make([]taskstats.Stats, 1)
		if err := s.Query([]int32{7}, out); !errors.Is(err, tc.err) || out[0] != tc.want {
			t.Errorf("%s: %+v, %v; expected %+v, %v", &tc.rule, out[0], err, tc.want, tc.err)
		}
		if s.Name() != "quiet" || !s.KeepsDeadThreads() {
			t.Error("the source says otherwise of itself than the inner one")
		}
	}
}

// meter opens counters that count 100.
type meter struct{}

func (meter) Supported(perf.Event) error  { return nil }
func (meter) Fit(int, []perf.Event) error { return nil }
func (meter) FileLimit() (uint64, error)  { return 1024, nil }
func (meter) OpenCgroup(string, uint64, []int, []perf.Event) (linux.CgroupCounters, error) {
	return meter{}, nil
}
func (meter) Enable() error  { return nil }
func (meter) Disable() error { return nil }
func (meter) Close() error   { return nil }
func (meter) Read(out []perf.Count) error {
	for i := range out {
		out[i] = perf.Count{Raw: 100, EstimateRaw: 100, Status: perf.OK}
	}
	return nil
}

func TestCounters(t *testing.T) {
	for _, tc := range []struct {
		rule Rule
		want uint64
		err  error
	}{
		{Rule{Kind: Back}, 50, nil},
		{Rule{Kind: Jump}, 1e15 + 100, nil},
		{Rule{Kind: Fail, Errno: unix.EIO}, 0, unix.EIO},
		{Rule{Kind: Vanish}, 0, unix.ESRCH},
	} {
		tc.rule.Ops, tc.rule.Share, tc.rule.From = Count, 1, 10
		b := newBench(t, tc.rule)
		c, err := b.i.Begin("agent", 0).Opener(meter{}).OpenCgroup("/g", 1, []int{0}, []perf.Event{perf.Cycles})
		if err != nil {
			t.Fatal(err)
		}
		b.now = 10
		out := make([]perf.Count, 1)
		if err := c.Read(out); !errors.Is(err, tc.err) || out[0].EstimateRaw != tc.want {
			t.Errorf("%s: %+v, %v; expected %d, %v", &tc.rule, out[0], err, tc.want, tc.err)
		}
	}
}

// tracer says that a task waited for two others.
type tracer struct{}

func (tracer) SetGroups([]schedwait.Group) error { return nil }
func (tracer) Start() error                      { return nil }
func (tracer) Stop() error                       { return nil }
func (tracer) Close() error                      { return nil }
func (tracer) Read(r *schedwait.Reading, _ int64) error {
	*r = schedwait.Reading{Switches: 7, Tasks: []schedwait.Waits{{Task: 1, Nsec: [2]int64{100, 0}, Shares: []schedwait.Share{
		{Party: schedwait.TaskParty(2), Nsec: 70}, {Party: schedwait.TaskParty(3), Nsec: 30},
	}}}}
	return nil
}

func TestWaits(t *testing.T) {
	for _, tc := range []struct {
		rule                 Rule
		err                  error
		switches, rows, last int64
		waits, events        int64
	}{
		{Rule{Kind: Fail, Errno: unix.EIO}, unix.EIO, 0, 0, 0, 0, 0},
		{Rule{Kind: Jump}, nil, 7 + manySwitches, 0, 30, 0, 0},
		{Rule{Kind: Short}, nil, 7, 1, 30, 0, 0},
		{Rule{Kind: Vanish}, nil, 7, 0, 30, 1, 0},
		{Rule{Kind: Back}, nil, 7, 0, 30, 0, 7},
		{Rule{Kind: Fail, Path: "waits stop", Errno: unix.EIO}, nil, 7, 0, 30, 0, 0},
	} {
		tc.rule.Ops, tc.rule.Share, tc.rule.From = Trace, 1, 10
		b := newBench(t, tc.rule)
		s, err := b.i.Begin("agent", 0).Waits(func() linux.WaitSource { return tracer{} })
		if err != nil {
			t.Fatal(err)
		}
		b.now = 10
		var r schedwait.Reading
		if err := s.Read(&r, 0); !errors.Is(err, tc.err) || r.Switches != tc.switches || r.Lost.Rows != tc.rows || r.Lost.Waits != tc.waits || r.Lost.Events != tc.events {
			t.Errorf("%s: %+v, %v", &tc.rule, r, err)
		}
		if tc.err != nil {
			continue
		}
		shares := r.Tasks[0].Shares
		last, sum := shares[len(shares)-1], int64(0)
		for _, x := range shares {
			sum += x.Nsec
		}
		if sum != 100 || last.Nsec != tc.last || (last.Party == schedwait.Unknown) != (tc.rule.Kind == Short) {
			t.Errorf("%s: %+v", &tc.rule, shares)
		}
	}
	b := newBench(t, Rule{Ops: Trace, Path: "waits open", Share: 1, Kind: Fail, Errno: unix.EPERM})
	o := b.i.Begin("agent", 0)
	if _, err := o.Waits(func() linux.WaitSource { t.Error("opened"); return nil }); !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	o.Kill()
	if err := (&Waits{WaitSource: tracer{}, o: o}).Start(); !errors.Is(err, ErrKilled) {
		t.Error(err)
	}
}

func TestClock(t *testing.T) {
	now := int64(0)
	c := NewClock(func() int64 { return now }, func() int64 { return 1000 + now }, []Step{{AtNsec: 20, Nsec: -500}, {AtNsec: 10, Nsec: 100}})
	for _, want := range [][3]int64{{0, 0, 1000}, {9, 9, 1009}, {10, 10, 1110}, {20, 20, 620}} {
		now = want[0]
		if c.MonoNsec() != want[1] || c.WallNsec() != want[2] {
			t.Errorf("at %d: %d and %d; expected %d and %d", now, c.MonoNsec(), c.WallNsec(), want[1], want[2])
		}
	}
}

// TestSameSeed: equal plans, seeds and calls give equal faults.
func TestSameSeed(t *testing.T) {
	play := func() []string {
		b := newBench(t, Rule{Ops: Read, Share: 0.3, Kind: Fail, Errno: unix.EIO}, Rule{Share: 0.2, Ops: Write, Kind: FailAfter, Errno: unix.EINTR})
		f := b.i.Begin("agent", 40).FS(b.root)
		for range 60 {
			_, _ = f.ReadFile("/stat", nil)
			_ = f.WriteFile("/quota", []byte("5\n"))
		}
		var list []string
		for i := range b.events {
			list = append(list, b.events[i].String())
		}
		return list
	}
	first := play()
	if diff := cmp.Diff(first, play()); diff != "" || len(first) < 40 {
		t.Errorf("%d events; second time otherwise:\n%s", len(first), diff)
	}
}
