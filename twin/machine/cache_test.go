package machine

import (
	"math"
	"testing"
)

// shares returns what each of two tasks of one thread fills of a socket's LLC in the end,
// as shares of it, and the first one's counters then.
func shares(t *testing.T, a, b TaskConfig, change func(m *Machine, a, b int)) (float64, float64, Counters) {
	t.Helper()
	m := newMachine(t, oneSocket())
	na, nb := add(t, m, a), add(t, m, b)
	if change != nil {
		change(m, na, nb)
	}
	m.Advance(20e9)
	var out [2]float64
	for i, n := range []int{na, nb} {
		bytes, err := m.Occupancy(n, 0)
		must(t, err)
		out[i] = bytes / m.cfg.LLCBytes
	}
	return out[0], out[1], over(t, m, na, 1)
}

func closed(name string, mpki ...float64) TaskConfig {
	return TaskConfig{Name: name, Threads: 1, CPI: 1, APKI: 30, Overlap: 4, Curve: MissCurve{StepBytes: 2 << 20, MPKI: mpki}, Work: &Work{}}
}

// Streams share a cache as they insert: that is all that LRU knows of them.
func TestStreamsShareByInsertion(t *testing.T) {
	fast, slow := closed("fast", 30), closed("slow", 30)
	slow.CPI = 10
	a, b, c := shares(t, fast, slow, nil)
	if math.Abs(a+b-1) > 0.01 {
		t.Errorf("%.3f and %.3f of the cache", a, b)
	}
	other := 10 + 30.0/4/1000*2.6*67
	if want := other / (other + c.cpi()); math.Abs(a-want) > 0.03 {
		t.Errorf("the faster one has %.3f, by insertion it would be %.3f", a, want)
	}
}

// Under LRU tasks hold what they fill in one and the same time (Xiang et al., HOTL,
// ASPLOS'13): a task that uses its lines again keeps more than its share of insertions.
func TestReuseKeepsLines(t *testing.T) {
	reuse := closed("reuse", 20, 14, 9, 6, 4, 2.5, 1.5, 1, 0.7, 0.5, 0.4)
	stream := closed("stream", 30)
	a, b, _ := shares(t, reuse, stream, nil)
	m := newMachine(t, oneSocket())
	task, err := m.task(add(t, m, reuse))
	must(t, err)
	bytes := a * m.cfg.LLCBytes
	misses := reuse.Curve.At(bytes, reuse.APKI)
	if byInsertion := misses / (misses + 30); a < 1.3*byInsertion {
		t.Errorf("reuse keeps %.3f of the cache; by insertions alone it would be about %.3f", a, byInsertion)
	}
	// The time in which each fills what it has, in nanoseconds.
	fill := func(c *TaskConfig, table *[maxCurve]float64, bytes float64) float64 {
		cpi := c.CPI + (30-c.Curve.At(bytes, 30))/1000*m.cfg.LLCHitCycles/4 + c.Curve.At(bytes, 30)/1000/4*m.cfg.MemLatencyNsec*m.cfg.Hz/1e9
		return c.Curve.fillTime(table, bytes, 30) / cacheLine * 1000 * cpi / m.cfg.Hz * 1e9
	}
	other := stream.Curve.filling(30)
	if x, y := fill(&reuse, &task.filling, bytes), fill(&stream, &other, b*m.cfg.LLCBytes); math.Abs(x/y-1) > 0.1 {
		t.Errorf("they fill what they have in %.2f and %.2f ms", x/1e6, y/1e6)
	}
}

// fillTime is the integral of 1/misses.
func TestFillTime(t *testing.T) {
	c := MissCurve{StepBytes: 1 << 20, MPKI: []float64{20, 10, 10, 2, 0}}
	table := c.filling(40)
	for _, steps := range []float64{0, 0.3, 1, 1.5, 2.7, 3.9, 5, 6.5} {
		want := 0.0
		const n = 200_000
		for i := range n {
			x := (float64(i) + 0.5) / n * steps
			want += c.StepBytes * steps / n / math.Max(c.At(x*c.StepBytes, 40), neverLeaves*40)
		}
		got := c.fillTime(&table, steps*c.StepBytes, 40)
		if math.Abs(got-want) > 0.01*want {
			t.Errorf("filling %.1f steps takes %.4g, by sum %.4g", steps, got, want)
		}
	}
}

// Disjoint masks isolate, whoever inserts more.
func TestDisjointMasks(t *testing.T) {
	a, b, _ := shares(t, closed("a", 20, 10, 5, 4), stream(16), func(m *Machine, _, b int) {
		k := m.AddCLOS()
		must(t, m.SetCLOS(b, k))
		must(t, m.SetWays(k, 0, 0x3))
		must(t, m.SetWays(0, 0, 0x7fc))
	})
	if math.Abs(a-9.0/11) > 0.01 || math.Abs(b-2.0/11) > 0.01 {
		t.Errorf("%.3f and %.3f of the cache with 9 and 2 ways", a, b)
	}
}

// In one way prefetched lines are gone before they are used, in two hardly any: misses
// and traffic rise, and so do references, which count what is asked for again.
func TestOneWayLosesPrefetches(t *testing.T) {
	miss := func(ways int, prefetched float64) (float64, Counters) {
		s := stream(12)
		s.Prefetched, s.Curve = prefetched, MissCurve{StepBytes: 2 << 20, MPKI: []float64{38}}
		m := newMachine(t, oneSocket())
		n := add(t, m, s)
		must(t, m.SetWays(0, 0, 1<<ways-1))
		m.Advance(2e9)
		c := over(t, m, n, 1)
		return float64(c.LLCMisses) / float64(c.Instructions) * 1000, c
	}
	one, _ := miss(1, 0.9)
	two, _ := miss(2, 0.9)
	all, _ := miss(11, 0.9)
	if one < 1.1*two || two > 1.03*all || math.Abs(all-38) > 0.1 {
		t.Errorf("misses per 1000 instructions in 1, 2 and 11 ways: %.1f, %.1f, %.1f", one, two, all)
	}
	if none, _ := miss(1, 0); math.Abs(none-38) > 0.1 {
		t.Errorf("without prefetching one way misses %.1f, not 38", none)
	}
}
