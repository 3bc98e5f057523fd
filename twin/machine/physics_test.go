package machine

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A table of turbo falls from the measured clock with one core to the clock with all of them.
func TestTurboOver(t *testing.T) {
	for _, cores := range []int{1, 2, 8, 16, 20, 28} {
		c := oneSocket()
		c.CoresPerSocket, c.Turbo = cores, TurboOver(c.Hz, cores)
		must(t, c.Check()) // that it falls, and not below the clock
		if last := c.Turbo[cores-1]; len(c.Turbo) != cores || last != c.Hz {
			t.Errorf("%d cores: %d clocks, the last %v of %v", cores, len(c.Turbo), last, c.Hz)
		}
	}
	if all := TurboOver(2.9e9, 20); math.Abs(all[1]-3.5e9) > 1 || math.Abs(all[15]-3.1e9) > 1 || math.Abs(all[16]-2.9e9) > 1 {
		t.Errorf("what was measured does not come back: %v", all)
	}
}

// A level lets through of one core what was measured of one core, a lower one less, and at half the clock
// half of it.
func TestMBAClocks(t *testing.T) {
	const free = 64 / 13.2 // ns a line
	c := Config{Hz: 3.0e9, Physics: Physics{MBAClocks: true}}
	for percent, gb := range map[int]float64{10: 2.785, 20: 4.08, 30: 5.475, 40: 8.82, 50: 9.705, 60: 10.80, 70: 11.78, 90: 11.78} {
		if got := 64 / gated(free, c.mbaGapNsec(percent)); math.Abs(got/gb-1) > 0.01 {
			t.Errorf("at %d %% a core moves %.2f GB/s, measured %.2f", percent, got, gb)
		}
	}
	half := c
	half.Hz /= 2
	last := math.Inf(1)
	for percent := 10; percent <= 100; percent++ {
		gap := c.mbaGapNsec(percent)
		if gap > last || percent == 100 && gap != 0 {
			t.Errorf("at %d %% requests are %v ns apart, a per cent lower %v", percent, gap, last)
		}
		if slow := half.mbaGapNsec(percent); math.Abs(slow-2*gap) > 1e-9 {
			t.Errorf("at %d %% and half the clock requests are %v ns apart, else %v", percent, slow, gap)
		}
		last = gap
	}
}

// figures runs streams and one that chases pointers on a socket and returns what each did in a second.
func figures(t *testing.T, terms Physics, writes float64, threads int) (chase, streams Counters, m *Machine) {
	t.Helper()
	c := oneSocket()
	c.CoresPerSocket, c.ThreadsPerCore, c.Physics = 28, 1, terms
	m = newMachine(t, c)
	prober := TaskConfig{Name: "chase", Threads: 1, CPI: 0.5, APKI: 100, Overlap: 1, Curve: MissCurve{StepBytes: 1 << 20, MPKI: []float64{100}}, Work: &Work{}}
	prober.CPUs.Add(0)
	loader := stream(threads)
	loader.CPI, loader.Overlap, loader.Prefetched, loader.WriteShare = 0.2, 16, 1, writes
	loader.CPUs = model.FullSet(28)
	loader.CPUs.Remove(0)
	a, b := add(t, m, prober), add(t, m, loader)
	m.Advance(1e9)
	at, err := m.Counters(b)
	must(t, err)
	chase = over(t, m, a, 1)
	now, err := m.Counters(b)
	must(t, err)
	return chase, Counters{Cycles: now.Cycles - at.Cycles, Instructions: now.Instructions - at.Instructions, MemBytes: now.MemBytes - at.MemBytes}, m
}

// What is written back takes no place among the lines that come in: without writes nothing changes, with them a
// core moves as much more as it writes.
func TestWritesApart(t *testing.T) {
	_, same, _ := figures(t, Physics{}, 0, 1)
	if _, got, _ := figures(t, Physics{WritesApart: true}, 0, 1); got != same {
		t.Errorf("without writes %+v, with the term %+v", same, got)
	}
	_, together, _ := figures(t, Physics{}, 0.3, 1)
	_, apart, _ := figures(t, Physics{WritesApart: true}, 0.3, 1)
	if more := float64(apart.MemBytes) / float64(together.MemBytes); more < 1.25 || more > 1/0.7 {
		t.Errorf("with 30 %% of writes a core moves %.3f times as much, expected up to %.3f", more, 1/0.7)
	}
}

// A counter that leaves out what prefetchers fetch says less of who reads ahead, and the machine goes on as before.
func TestDemandMisses(t *testing.T) {
	play := func(demand bool, prefetched float64) Counters {
		c := oneSocket()
		c.Physics.DemandMisses = demand
		m := newMachine(t, c)
		s := stream(2)
		s.Prefetched = prefetched
		n := add(t, m, s)
		m.Advance(1e9)
		k, err := m.Counters(n)
		must(t, err)
		return k
	}
	for _, prefetched := range []float64{0, 0.5, 0.9} {
		all, demand := play(false, prefetched), play(true, prefetched)
		if got := float64(demand.LLCMisses) / float64(all.LLCMisses); math.Abs(got-(1-prefetched)) > 0.01 {
			t.Errorf("with a share of %g prefetched %.3f of the misses are counted", prefetched, got)
		}
		if demand.LLCMisses = all.LLCMisses; demand != all {
			t.Errorf("the machine does something else: %+v and %+v", demand, all)
		}
	}
}

// A queue that holds all that comes changes nothing. A short one bounds what it adds to who asks for one line at a
// time, and what is delivered stays the memory's.
func TestQueueLines(t *testing.T) {
	chase, streams, _ := figures(t, Physics{}, 0.2, 27)
	if c, s, _ := figures(t, Physics{QueueLines: 1e5}, 0.2, 27); c != chase || s != streams {
		t.Errorf("with a queue without end %+v and %+v, without one %+v and %+v", c, s, chase, streams)
	}
	last := float64(chase.Cycles) / float64(chase.Instructions)
	for _, lines := range []float64{400, 200, 100, 50} {
		c, s, m := figures(t, Physics{QueueLines: lines}, 0.2, 27)
		now := float64(c.Cycles) / float64(c.Instructions)
		if now > last*1.001 {
			t.Errorf("with %v lines an instruction takes %.2f cycles, with more %.2f", lines, now, last)
		}
		last = now
		mem := m.Memory(0)
		wait := mem.LatencyNsec - m.cfg.MemLatencyNsec
		if held := mem.BytesPerSecond / cacheLine * wait / 1e9; held > lines*1.01 {
			t.Errorf("%.0f lines wait in a queue of %v", held, lines)
		}
		if s.MemBytes < streams.MemBytes*8/10 || float64(s.MemBytes) > mem.PeakBytes*1.001 {
			t.Errorf("with %v lines %.1f GB/s are moved, with all %.1f", lines, float64(s.MemBytes)/1e9, float64(streams.MemBytes)/1e9)
		}
	}
	if idle := 0.5 + 0.1*m67; last > idle*1.6 {
		t.Errorf("behind a queue of 50 lines an instruction takes %.1f cycles, idle %.1f", last, idle)
	}
}

// m67 is an idle memory's latency in cycles of oneSocket.
const m67 = 67 * 2.6

// The share of the work that meets a sibling is the mean over how many are busy (here Poisson's), and with no
// variance what it is at the mean.
func TestTogether(t *testing.T) {
	for _, cpus := range []float64{8, 32, 64} {
		for load := 0.1; load < 0.9; load += 0.05 {
			mean := load * cpus
			if got, want := together(cpus, mean, 0), max(0, 2-cpus/mean); math.Abs(got-want) > 1e-9 {
				t.Errorf("%v CPUs, %.1f busy without variance: %.4f, expected %.4f", cpus, mean, got, want)
			}
			meet, busy, p := 0.0, 0.0, math.Exp(-mean)
			for n := 0.0; n < 400; n++ {
				meet += p * min(cpus, max(0, 2*n-cpus))
				busy += p * min(cpus, n)
				p *= mean / (n + 1)
			}
			if got := together(cpus, mean, mean); math.Abs(got-meet/busy) > 0.03 {
				t.Errorf("%v CPUs, %.1f busy: %.3f, expected %.3f", cpus, mean, got, meet/busy)
			}
		}
	}
}

// Siblings meet as often in steps of 1 ms, which show how many requests run at a time, as in steps of 20 ms,
// which show their mean.
func TestSiblingBurstsKnowNoStep(t *testing.T) {
	slower := func(terms Physics, step int64) float64 {
		c := oneSocket()
		c.StepNsec, c.Physics = step, terms
		m := newMachine(t, c)
		cfg := spinner(64)
		cfg.Work, cfg.Requests = nil, &Requests{PerSecond: 0.42 * 32 / 2e-3, Instructions: 2e-3 * c.Hz, Variation: 1}
		n := add(t, m, cfg)
		m.Advance(1e9)
		got := over(t, m, n, 30)
		return got.cpi() - 1
	}
	apart := func(terms Physics) float64 { return slower(terms, 0.25e6) - slower(terms, 20e6) }
	with, without := apart(Physics{SiblingBursts: true}), apart(Physics{})
	t.Logf("fine steps say %.4f more than coarse ones, without the term %.4f", with, without)
	if math.Abs(with) > 0.6*math.Abs(without) {
		t.Errorf("fine steps say %.4f more than coarse ones, without the term %.4f", with, without)
	}
	if quiet := slower(Physics{SiblingBursts: true}, 20e6); quiet <= slower(Physics{}, 20e6) {
		t.Errorf("bursts slow nobody down: %.4f", quiet)
	}
}

// What fluctuates is seen within a time or between two of them.
func TestWithin(t *testing.T) {
	last := 0.0
	for _, x := range []float64{1e-6, 1e-4, 9.99e-4, 1.01e-3, 0.1, 1, 10, 100, 1e6} {
		v := within(x)
		if v <= last || v >= 1 {
			t.Errorf("within %v: %v, after %v", x, v, last)
		}
		last = v
	}
	if last < 0.99 {
		t.Errorf("in an endless time %v is seen", last)
	}
}
