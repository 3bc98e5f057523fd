package cputrace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestMain(m *testing.M) { testchild.Main(m, nil) }

// sim is a kernel with a tick, whose tasks run on known CPUs at known times, and a clock
// that is late now and then.
type sim struct {
	runs   [][]run // by CPU, in order
	tick   int64
	byCPU  bool
	now    int64
	late   func() int64
	goneAt int64 // 0: never
}

// run is a time in which a task ran without a break.
type run struct{ from, to int64 }

func (s *sim) Now() (int64, error) { return s.now, nil }

func (s *sim) Until(nsec int64) (int64, error) {
	s.now = max(s.now, nsec) + s.late()
	return s.now, nil
}

// UsageNsec charges as the kernel does: when a run ends, and at ticks within it.
func (s *sim) UsageNsec(dst []uint64) ([]uint64, error) {
	if s.goneAt > 0 && s.now >= s.goneAt {
		return dst[:0], fmt.Errorf("read: %w", cgroup.ErrVanished)
	}
	dst = dst[:0]
	all := int64(0)
	for cpu, list := range s.runs {
		sum := int64(0)
		for _, r := range list {
			switch {
			case r.to <= s.now:
				sum += r.to - r.from
			case r.from < s.now:
				shift := int64(cpu)*s.tick/3 - s.tick // ticks of CPUs are not at one time
				sum += max(0, (s.now-shift)/s.tick*s.tick+shift-r.from)
			}
		}
		all += sum
		dst = append(dst, uint64(sum))
	}
	if !s.byCPU {
		dst = append(dst[:0], uint64(all))
	}
	return dst, nil
}

// truth is what was used in each millisecond.
func (s *sim) truth(msecs int) []float64 {
	b := make(bins, msecs)
	for _, list := range s.runs {
		for _, r := range list {
			b.fill(r.from, r.to, float64(r.to-r.from))
		}
	}
	return inMsec(b)
}

func inMsec(b []uint32) []float64 { return (&Recording{UsedNsec: b}).Msec() }

// drawn makes CPUs of runs of lengths from 50 us to 40 ms.
func drawn(seed uint64, cpus, msecs int) [][]run {
	rng := rand.New(rand.NewPCG(seed, 0))
	all := make([][]run, cpus)
	for c := range all {
		at := int64(0)
		for at < int64(msecs)*msec {
			at += int64(rng.ExpFloat64() * 20e6)
			long := int64(50e3 + math.Exp(rng.Float64()*math.Log(800))*50e3)
			all[c] = append(all[c], run{at, at + long})
			at += long + 1
		}
	}
	return all
}

func record(t *testing.T, s *sim, msecs int) *Recording {
	t.Helper()
	r := newRecorder(msecs, s.tick, s.byCPU)
	r.clock = s
	if err := r.run(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	out := &Recording{}
	r.report(out)
	return out
}

// shifted is how many milliseconds earlier or later than it was any CPU time is shown. More
// than most is most + 1.
func shifted(got, want []float64, most int) int {
	ahead := func(a, b []float64, by int) bool { // a's sum is never above b's that many later
		x, y := 0.0, 0.0
		for _, v := range b[:min(by, len(b))] {
			y += v
		}
		for i := 0; i+by < len(a); i++ {
			x, y = x+a[i], y+b[i+by]
			if x > y+0.1 { // rounding to the microsecond adds up
				return true
			}
		}
		return false
	}
	for w := range most + 1 {
		if !ahead(got, want, w) && !ahead(want, got, w) {
			return w
		}
	}
	return most + 1
}

// The kernel's steps are put back to where the time was used: with counters by CPU nothing
// is off by more than the time between two readings, for all lengths of runs and ticks.
func TestRecordsWhatWasUsed(t *testing.T) {
	const msecs = 2000
	for _, tick := range []int64{1 * msec, 4 * msec, 10 * msec} {
		for _, byCPU := range []bool{true, false} {
			s := &sim{runs: drawn(uint64(tick), 3, msecs), tick: tick, byCPU: byCPU}
			rng := rand.New(rand.NewPCG(7, 0))
			s.late = func() int64 { return rng.Int64N(100e3) }
			want := s.truth(msecs)
			out := record(t, s, msecs)
			got := inMsec(out.UsedNsec)
			if len(got) != msecs || out.Ended != "" || out.Late != 0 {
				t.Fatalf("%d ms, %+v", len(got), out)
			}
			var sumGot, sumWant, most float64
			for i := range got {
				sumGot, sumWant, most = sumGot+got[i], sumWant+want[i], max(most, got[i])
			}
			// What runs at the end is not charged yet, and the last reading is a little late.
			if d := sumWant - sumGot; d < -0.4 || d > 3*float64(tick)/1e6 {
				t.Errorf("tick %d, by CPU %v: %.3f ms of CPU time, used were %.3f", tick, byCPU, sumGot, sumWant)
			}
			window := 2
			if !byCPU {
				window = 1 + int(tick/msec)
			}
			if off := shifted(got[:msecs-50], want[:msecs-50], window); off > window {
				t.Errorf("tick %d, by CPU %v: some time is off by %d ms", tick, byCPU, shifted(got[:msecs-50], want[:msecs-50], 100))
			}
			if byCPU && most > 4 {
				t.Errorf("tick %d: %.2f ms of CPU time in one millisecond of 3 CPUs", tick, most)
			}
			if tick > msec && out.PutBack < 0.2 {
				t.Errorf("tick %d, by CPU %v: %.2f put back", tick, byCPU, out.PutBack)
			}
			if out.CPUs != map[bool]int{true: 3}[byCPU] {
				t.Errorf("CPUs %d", out.CPUs)
			}
		}
	}
}

// Readings that come late lose nothing, and are told.
func TestLateReadings(t *testing.T) {
	const msecs = 1000
	s := &sim{runs: drawn(3, 2, msecs), tick: 4 * msec, byCPU: true}
	n := 0
	s.late = func() int64 {
		if n++; n%20 == 0 {
			return 5*msec + 1
		}
		return 0
	}
	want := s.truth(msecs)
	out := record(t, s, msecs)
	got := inMsec(out.UsedNsec)
	if off := shifted(got[:msecs-50], want[:msecs-50], 6); off > 6 {
		t.Errorf("some time is off by more than the lateness")
	}
	if out.Late < 0.2 || out.Late > 0.3 || out.LateMaxUsec != 5000 || out.LateP99Usec != 5000 {
		t.Errorf("%+v", out)
	}
}

// A cgroup that goes, and a context that ends, leave what was recorded.
func TestCutShort(t *testing.T) {
	s := &sim{runs: [][]run{{{0, 2 * msec}}}, tick: 4 * msec, byCPU: true, late: func() int64 { return 0 }, goneAt: 10 * msec}
	if out := record(t, s, 100); len(out.UsedNsec) != 9 || out.Ended != "the cgroup is gone" || out.MeanCPU == 0 {
		t.Errorf("%d ms, %+v", len(out.UsedNsec), out)
	}
	s.goneAt = msec
	s.now = 0
	r := newRecorder(100, s.tick, true)
	r.clock = s
	if err := r.run(context.Background(), s); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("gone at once: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.goneAt, s.now = 0, 0
	r = newRecorder(100, s.tick, true)
	r.clock = s
	if err := r.run(ctx, s); err != nil || r.done != 1 || r.ended != "it was stopped" {
		t.Errorf("%v, %d ms, %q", err, r.done, r.ended)
	}
}

func TestCounterThatGoesBack(t *testing.T) {
	b := make(bins, 10)
	l := lane{last: 1000}
	var s sums
	l.step(b, 10, 0, msec, 4*msec, true, &s)
	l.step(b, 510, msec, 2*msec, 4*msec, true, &s)
	if s.used != 500 || b[0] != 0 || b[1] != 500 {
		t.Errorf("%+v, %v", s, b)
	}
	l.step(b, math.MaxUint64, 2*msec, 3*msec, 4*msec, false, &s) // absurd, and no panic
}

func TestReadingDoesNotAllocate(t *testing.T) {
	b := make(bins, 1000)
	var l lane
	var s sums
	now := int64(0)
	r := newRecorder(1, 4*msec, true)
	if n := testing.AllocsPerRun(1000, func() {
		now += msec
		l.step(b, uint64(now), now-msec, now, 4*msec, true, &s)
		r.timing(1, now)
	}); n != 0 {
		t.Errorf("%v allocations a reading", n)
	}
}

func TestWrite(t *testing.T) {
	r := &Recording{
		Path: "/a\n0\n", Kernel: "6.12", Source: "cpu.stat", Tick: 4, Start: time.Unix(0, 0), UsedNsec: []uint32{0, 1e6, 2500e3, 250e3, 1234, 499, math.MaxUint32},
		Limit: Limit{Known: true, QuotaUsec: 200000, PeriodUsec: 100000, Periods: 10, Throttled: 3, ThrottledAround: 3},
	}
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	var numbers []string
	in := bufio.NewScanner(&out)
	for in.Scan() {
		if !strings.HasPrefix(in.Text(), "#") {
			numbers = append(numbers, in.Text())
			continue
		}
		if strings.Contains(in.Text(), "quota:") && !strings.Contains(in.Text(), "throttled in 3 of 10 periods; THROTTLED 3 times") {
			t.Error(in.Text())
		}
	}
	if got := strings.Join(numbers, " "); got != "0 1 2.5 0.25 0.001 0 4294.967" {
		t.Errorf("%s", got)
	}
	for i, v := range r.Msec() {
		if f, err := strconv.ParseFloat(numbers[i], 64); err != nil || f != v {
			t.Errorf("line %d says %s, Msec %g", i, numbers[i], v)
		}
	}
	if err := r.Write(full{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

func TestLimitSince(t *testing.T) {
	a := Limit{Known: true, QuotaUsec: 5, PeriodUsec: 10, Periods: 100, Throttled: 10, ThrottledAround: 12}
	b := Limit{Known: true, QuotaUsec: 6, PeriodUsec: 10, Periods: 130, Throttled: 11, ThrottledAround: 11}
	if got := since(a, b); got.QuotaUsec != 6 || got.Periods != 30 || got.Throttled != 1 || got.ThrottledAround != 0 {
		t.Errorf("%+v", got)
	}
	if got := since(a, Limit{}); got.QuotaUsec != 5 || got.Periods != 0 || got.Throttled != 0 {
		t.Errorf("%+v", got)
	}
}

// ownGroup makes a cgroup of the test's own.
func ownGroup(t *testing.T) (root hostfs.FS, d cgroup.Driver, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups takes root")
	}
	root = hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(root)
	if err != nil {
		t.Fatal(err)
	}
	if d, err = cgroup.Open(root, mounts); err != nil {
		t.Skipf("no cgroups that are driven: %v", err)
	}
	path = fmt.Sprintf("/commensal-test-%d-cputrace", os.Getpid())
	if err := d.Mkdir(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 1000 {
			if err = d.Rmdir(path); !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			t.Error(err)
		}
	})
	return root, d, path
}

// On the real kernel: 20 ms of each 100 ms are seen as such, and not as steps.
func TestKernelRecord(t *testing.T) {
	root, d, path := ownGroup(t)
	if _, err := Record(context.Background(), root, path, 5*time.Millisecond); !errors.Is(err, ErrIdle) {
		t.Errorf("an empty cgroup: %v", err)
	}
	child := testchild.StartWith(t, "burst 20ms", testchild.Options{Env: []string{"GOMAXPROCS=1"}})
	if err := d.MovePID(path, child.Await("ready").PID()); err != nil {
		t.Fatal(err)
	}
	g, err := d.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	before, err := g.UsageNsec()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Record(context.Background(), root, path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	after, err := g.UsageNsec()
	if err != nil {
		t.Fatal(err)
	}
	sum, busy := uint64(0), 0
	for _, v := range r.UsedNsec {
		sum += uint64(v)
		if v > uint32(msec)/2 {
			busy++
		}
	}
	t.Logf("%s", strings.Join(r.Facts(), "\n"))
	if used := after - before; sum > used+uint64(len(r.UsedNsec)) || float64(sum) < 0.8*float64(used)-float64(4*msec) {
		t.Errorf("%d ns in the trace, %d were used", sum, used)
	}
	// One thread spins: a millisecond holds about one, however late readings were, and
	// milliseconds that hold it account for its time. In steps of a tick they would not.
	if r.CPUs > 0 && r.LargestMsec > 2.5 {
		t.Errorf("%.2f ms of CPU time in one millisecond of a single thread", r.LargestMsec)
	}
	if r.Late < 0.05 && float64(busy)*float64(msec) < 0.5*float64(sum) {
		t.Errorf("%d milliseconds hold half a millisecond or more, %d ns were used: the trace is in steps", busy, sum)
	}
	if _, err := Record(context.Background(), root, path+"/none", time.Second); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("no such cgroup: %v", err)
	}
	if _, err := Record(context.Background(), root, path, 2*time.Hour); !errors.Is(err, ErrDuration) {
		t.Errorf("two hours: %v", err)
	}
}
