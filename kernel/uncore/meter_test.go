package uncore

import (
	"errors"
	"math"
	"os"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
)

// bench is a machine whose counters say what the test wants.
type bench struct {
	dir    string
	refuse map[int]error // by CPU
	open   []*counters
}

// counters are those of one box.
type counters struct {
	b      *bench
	cpu    int
	values []uint64
	ns     uint64
	err    error
	ended  bool
}

func (b *bench) opener(cpu int, events []perf.Raw) (Counters, error) {
	if err := b.refuse[cpu]; err != nil {
		return nil, err
	}
	c := &counters{b: b, cpu: cpu, values: make([]uint64, len(events))}
	b.open = append(b.open, c)
	return c, nil
}

func (c *counters) Enable() error { return nil }

func (c *counters) Read(values []uint64) (enabled, running uint64, ended bool, err error) {
	copy(values, c.values)
	return 2 * c.ns, c.ns, c.ended, c.err
}

func (c *counters) Close() error {
	for i, o := range c.b.open {
		if o == c {
			c.b.open = append(c.b.open[:i:i], c.b.open[i+1:]...)
			return nil
		}
	}
	return os.ErrClosed
}

// of lists what is open on a CPU.
func (b *bench) of(cpu int) (list []*counters) {
	for _, c := range b.open {
		if c.cpu == cpu {
			list = append(list, c)
		}
	}
	return list
}

// count adds to all counters of a CPU.
func (b *bench) count(cpu int, ns uint64, values ...uint64) {
	for _, c := range b.of(cpu) {
		c.ns += ns
		for i, v := range values {
			c.values[i] += v
		}
	}
}

func start(t *testing.T, s server, refuse map[int]error) (*bench, *Meter) {
	t.Helper()
	b := &bench{dir: tree(t, s.files()), refuse: refuse}
	m, err := NewMeter(hostfs.NewRoot(b.dir), b.opener)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m.Close(); len(b.open) > 0 {
			t.Errorf("%d groups left open", len(b.open))
		}
	})
	return b, m
}

// expect reads a cache.
func expect(t *testing.T, m *Meter, cache int, nsec uint64, why error) {
	t.Helper()
	if got, err := m.Read(cache); got != nsec || !errors.Is(err, why) || (err == nil) != (why == nil) {
		t.Errorf("cache %d: %d ns, %v; want %d, %v", cache, got, err, nsec, why)
	}
}

// A second at 2 GHz, of which the counters had a half: 600,000 reads a box that were 300 clocks in the table took 150 ns.
func TestLatencyByClocks(t *testing.T) {
	b, m := start(t, iceLake, nil)
	if len(b.open) != 8 {
		t.Fatalf("%d groups on two dies, want 4 each", len(b.open))
	}
	expect(t, m, 0, 0, ErrWaiting) // nothing was counted yet
	b.count(0, 5e8, 600_000*300, 600_000, 1e9)
	b.count(2, 5e8, 600_000*500, 600_000, 1e9)
	expect(t, m, 0, 150, nil)
	b.count(0, 5e8, 600_000*600, 600_000, 1e9)
	expect(t, m, 0, 300, nil) // of this while, not of all
	expect(t, m, 1, 250, nil) // of both, since nobody asked before
	b.count(0, 5e8, 0, 0, 1e9)
	expect(t, m, 0, 0, ErrIdle)
	b.count(0, 5e8, 7, 24, 1e9)
	expect(t, m, 0, 0, ErrIdle) // 96 reads
	b.count(0, 5e8, 1e12, 1e6, 0)
	expect(t, m, 0, 0, ErrAbsurd) // the clock stands still
	b.count(0, 5e8, 1e15, 1e3, 1e9)
	expect(t, m, 0, 0, ErrAbsurd)
	expect(t, m, 7, 0, ErrNoDie)
}

func TestLatencyBySteps(t *testing.T) {
	b, m := start(t, genoa, nil)
	b.count(0, 1e9, 921_446, 54_210)
	expect(t, m, 0, 170, nil) // 16.998 steps of 10 ns
	b.count(0, 1e9, math.MaxUint64/2, 200)
	expect(t, m, 0, 0, ErrAbsurd)
}

// Boxes whose counters somebody else has are left out; without any there is no latency, and what waited is part of the next while.
func TestSharedCounters(t *testing.T) {
	b, m := start(t, sapphire, nil)
	boxes := b.of(0)
	boxes[0].err = perf.ErrStarved
	b.count(0, 1e9, 1000*200, 1000, 2e9)
	expect(t, m, 0, 100, nil)
	for _, c := range boxes {
		c.err = perf.ErrStarved
	}
	expect(t, m, 0, 0, ErrWaiting)
	for _, c := range boxes {
		c.err = nil
	}
	expect(t, m, 0, 100, nil) // the first box's
	boxes[2].values[1]--
	b.count(0, 1e9, 1000*200, 0, 2e9)
	expect(t, m, 0, 0, ErrBackwards)
	b.count(0, 1e9, 1000*400, 1000, 2e9)
	expect(t, m, 0, 200, nil)
}

func TestOfflineAndBack(t *testing.T) {
	b, m := start(t, skylake, nil)
	b.of(2)[1].ended = true
	b.count(2, 1e9, 1000*200, 1000, 2e9)
	expect(t, m, 1, 0, perf.ErrOffline)
	if len(b.of(2)) != 0 {
		t.Error("what ended is still open")
	}
	expect(t, m, 1, 0, ErrFresh) // opened anew
	b.count(2, 1e9, 1000*200, 1000, 2e9)
	expect(t, m, 1, 100, nil)
	// CPU 2 goes: the kernel counts that die on CPU 3.
	write(t, b.dir, "/sys/devices/system/cpu/online", "0-1,3\n")
	for _, u := range m.units {
		write(t, b.dir, devices+"/"+u.pmu.Name+"/cpumask", "0,3\n")
	}
	expect(t, m, 1, 0, ErrFresh)
	b.count(3, 1e9, 1000*200, 1000, 2e9)
	expect(t, m, 1, 100, nil)
	write(t, b.dir, "/sys/devices/system/cpu/online", "0-1\n")
	for _, u := range m.units {
		write(t, b.dir, devices+"/"+u.pmu.Name+"/cpumask", "0\n")
	}
	expect(t, m, 1, 0, ErrNoDie)
	expect(t, m, 0, 0, ErrFresh)
	write(t, b.dir, "/sys/devices/system/cpu/online", "")
	if _, err := m.Read(0); err == nil {
		t.Error("no CPU is online, and there is a latency")
	}
}

func TestRefused(t *testing.T) {
	all := map[int]error{0: perf.ErrPermission, 2: perf.ErrPermission}
	b := &bench{refuse: all}
	m, err := NewMeter(hostfs.NewRoot(tree(t, genoa.files())), b.opener)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(); !errors.Is(err, perf.ErrPermission) || len(b.open) > 0 {
		t.Errorf("%v, %d open", err, len(b.open))
	}
	b, m = start(t, genoa, map[int]error{2: perf.ErrTooManyFiles})
	b.count(0, 1e9, 2000, 200)
	expect(t, m, 0, 100, nil)
	expect(t, m, 1, 0, perf.ErrTooManyFiles)
	b.refuse = nil
	expect(t, m, 1, 0, ErrFresh)
}

func TestCachesWithoutNumbers(t *testing.T) {
	files := genoa.files()
	for _, cpu := range []string{"0", "1", "2", "3"} {
		delete(files, "/sys/devices/system/cpu/cpu"+cpu+"/cache/index3/id")
	}
	m, err := NewMeter(hostfs.NewRoot(tree(t, files)), (&bench{}).opener)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(); !errors.Is(err, ErrNoDie) {
		t.Errorf("%v, want ErrNoDie", err)
	}
}
