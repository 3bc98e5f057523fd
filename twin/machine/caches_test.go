package machine

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// divided is a socket of 16 cores whose cache is cut into so many.
func divided(caches int) Config {
	c := oneSocket()
	c.CoresPerSocket, c.ThreadsPerCore, c.CachesPerSocket = 16, 1, caches
	c.LLCBytes /= float64(caches)
	return c
}

// Who misses always, whatever it holds, does not feel how the socket's cache is cut: the memory behind it is one, and
// none of its lines crosses a link.
func TestCachesShareTheirMemory(t *testing.T) {
	play := func(caches int) (c Counters, s MemoryState) {
		m := newMachine(t, divided(caches))
		num := 0
		for i := range 4 {
			cfg := stream(4)
			cfg.CPUs, cfg.Prefetched = model.FullSet(4*i+4).Without(model.FullSet(4*i)), 0
			cfg.Curve = MissCurve{StepBytes: 1 << 20, MPKI: []float64{cfg.APKI}}
			num = add(t, m, cfg)
		}
		m.Advance(5e9)
		c, err := m.Counters(num)
		must(t, err)
		return c, m.Memory(0)
	}
	one, whole := play(1)
	four, cut := play(4)
	if a, b := float64(one.Instructions), float64(four.Instructions); math.Abs(a/b-1) > 0.01 {
		t.Errorf("%v instructions with one cache, %v with four", a, b)
	}
	if math.Abs(whole.LatencyNsec/cut.LatencyNsec-1) > 0.01 || whole.LatencyNsec < 1.2*idleMemory(t).LatencyNsec {
		t.Errorf("%+v with one cache, %+v with four", whole, cut)
	}
}

func misses(c Counters) float64 { return float64(c.LLCMisses) / float64(c.Instructions) }

// idleMemory is the memory of a machine with nothing to do.
func idleMemory(t *testing.T) MemoryState {
	m := newMachine(t, divided(1))
	m.Advance(1e9)
	return m.Memory(0)
}

// A stream beside another cache takes no line of a task's, and has one class's masks and levels a cache; where both are
// near one cache it takes most.
func TestCachesAreApart(t *testing.T) {
	reuse := closed("reuse", 20, 14, 9, 6, 4, 2.5, 1.5, 1, 0.7, 0.5, 0.4)
	reuse.CPUs = model.FullSet(1)
	has := func(cpu int) float64 {
		m := newMachine(t, divided(2))
		a := add(t, m, reuse)
		m.Advance(60e9) // its cache is warm
		alone := misses(over(t, m, a, 20))
		s := stream(1)
		s.CPUs.Add(cpu)
		b := add(t, m, s)
		beside := misses(over(t, m, a, 20))
		for cache := range 2 {
			total, local := m.Traffic(b, cache)
			if near := m.cfg.CacheOf(cpu) == cache; (total > 0) != near || total != local {
				t.Errorf("from cache %d the stream on CPU %d moved %v bytes, %v of them near", cache, cpu, total, local)
			}
		}
		return beside / alone
	}
	if other, same := has(8), has(1); math.Abs(other-1) > 1e-9 || same < 1.2 {
		t.Errorf("misses grow by %v beside another cache's stream, by %v beside its own's", other, same)
	}
	m := newMachine(t, divided(2))
	must(t, m.SetWays(0, 1, 1))
	if first, _, err := m.Class(0, 0); err != nil || first == 1 {
		t.Errorf("a mask of cache 1 is that of cache 0: %#x, %v", first, err)
	}
	if m.SetWays(0, 2, 1) == nil {
		t.Error("there is no third cache, and its mask was set")
	}
}

// Each CPU has one cache, and each cache is of one socket; sizes that do not fit are refused.
func TestCachesOfCPUs(t *testing.T) {
	c := Skylake()
	c.CachesPerSocket = 4
	for cpu := range c.CPUs() {
		if cache := c.CacheOf(cpu); c.Home(cache) != c.SocketOf(cpu) || cache != c.CoreOf(cpu)/4 {
			t.Errorf("CPU %d: cache %d, home %d", cpu, cache, c.Home(cache))
		}
	}
	for _, n := range []int{-1, 3, 5, 32} {
		if c.CachesPerSocket = n; c.Check() == nil {
			t.Errorf("%d caches on 16 cores are taken", n)
		}
	}
}
