package machine

import (
	"math"
	"math/rand/v2"
	"testing"
)

const gib = 1 << 30

// withMemory gives a service hot, warm and cold memory: 4 GiB all the time, 2 GiB of page
// cache once in ten minutes, 6 GiB once in three days.
func withMemory(c TaskConfig) TaskConfig {
	c.Memory = []Heat{{Bytes: 4 * gib}, {Bytes: 2 * gib, File: true, EveryNsec: 600e9}, {Bytes: 6 * gib, EveryNsec: 3 * 24 * 3600e9}}
	return c
}

// slow steps let hours pass quickly; ages and faults do not depend on them.
func pagesMachine(t *testing.T, memory, swap float64) *Machine {
	c := oneSocket()
	c.StepNsec, c.MemBytes, c.SwapBytes = 1e9, memory, swap
	return newMachine(t, c)
}

func memoryUse(t *testing.T, m *Machine, n int) MemoryUse {
	t.Helper()
	u, err := m.MemoryUse(n)
	must(t, err)
	return u
}

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*math.Abs(want)) {
		t.Errorf("%s = %.4g, want %.4g within %.0f %%", what, got, want, share*100)
	}
}

// Pages that are used at random once in T have ages distributed as exp(-age/T).
func TestPagesAge(t *testing.T) {
	m := pagesMachine(t, 64*gib, 0)
	n := add(t, m, withMemory(spinner(1)))
	m.Advance(6 * 3600e9)
	u := memoryUse(t, m, n)
	near(t, "anonymous", u.Anon, 10*gib, 1e-9)
	near(t, "page cache", u.File, 2*gib, 1e-9)
	for nsec, want := range map[int64][2]float64{
		0: {10 * gib, 2 * gib}, 1e9: {6 * gib, 2 * gib}, 600e9: {6 * gib, 2 * gib / math.E}, 6 * 3600e9: {6 * gib * math.Exp(-0.25/3), 0}, 7 * 3600e9: {0, 0},
	} {
		anon, file, err := m.MemoryOlder(n, nsec)
		must(t, err)
		if math.Abs(anon-want[0]) > 0.02*gib || math.Abs(file-want[1]) > 0.02*gib {
			t.Errorf("not used for %d s: %.3f and %.3f GiB, want %.3f and %.3f", nsec/1e9, anon/gib, file/gib, want[0]/gib, want[1]/gib)
		}
	}
	if u.FaultPages != 0 || u.Swap != 0 || u.Blocked != 0 {
		t.Errorf("nothing was taken, and yet: %+v", u)
	}
}

// Cold pages that are reclaimed come back one by one and cost little; hot ones come back at
// once, and their owner stalls.
func TestReclaim(t *testing.T) {
	m := pagesMachine(t, 64*gib, 32*gib)
	n := add(t, m, withMemory(spinner(2)))
	m.Advance(6 * 3600e9)
	got, err := m.Reclaim(n, 100*gib, 3600e9, true, false)
	must(t, err)
	near(t, "reclaimed", got, 6*gib*math.Exp(-1.0/72), 1e-3)
	if u := memoryUse(t, m, n); u.Swap != got || uint64(got) != u.ReclaimedBytes || u.File < 1.9*gib {
		t.Errorf("after reclaim: %+v", u)
	}
	before := memoryUse(t, m, n)
	m.Advance(3600e9)
	after := memoryUse(t, m, n)
	back := float64(after.FaultPages-before.FaultPages) * pageBytes
	near(t, "back after an hour", back, got*(1-math.Exp(-1.0/72)), 0.01)
	if after.Blocked > 0.01 {
		t.Errorf("blocked %.3f of its time by cold pages", after.Blocked)
	}
	p, err := m.Pressure(n)
	must(t, err)
	got, err = m.Reclaim(n, 3*gib, 0, true, true)
	must(t, err)
	near(t, "reclaimed of the rest", got, 3*gib, 1e-9)
	m.Advance(3e9)
	q, err := m.Pressure(n)
	must(t, err)
	if q.MemorySome-p.MemorySome < 1e8 || q.MemoryFull > q.MemorySome || m.SystemPressure().MemorySome < q.MemorySome-p.MemorySome {
		t.Errorf("hot pages were taken and nobody stalled: %+v, then %+v", p, q)
	}
}

// A limit holds, a full machine takes the oldest pages of all, and without swap anonymous
// memory stays until somebody has to die.
func TestLimitsAndFullMachine(t *testing.T) {
	m := pagesMachine(t, 14*gib, 2*gib)
	a := add(t, m, withMemory(spinner(1)))
	m.Advance(3600e9)
	must(t, m.SetMemoryLimits(a, 9*gib, 0))
	m.Advance(2e9)
	if u := memoryUse(t, m, a); u.Anon+u.File > 9*gib+1e6 || u.Swap > 2*gib {
		t.Errorf("above its limit: %+v", u)
	}
	must(t, m.SetMemoryLimits(a, 0, 0))
	b := withMemory(spinner(1))
	b.Name = "b"
	n := add(t, m, b)
	m.Advance(10e9)
	ua, ub := memoryUse(t, m, a), memoryUse(t, m, n)
	if resident := ua.Anon + ua.File + ub.Anon + ub.File; resident < 15*gib && !ua.Killed && !ub.Killed {
		t.Errorf("24 GiB on 14 and 2 of swap, and nobody is out of memory: %.1f GiB", resident/gib)
	}
	if ua.Swap+ub.Swap > 2*gib+1 {
		t.Errorf("%.2f GiB in 2 GiB of swap", (ua.Swap+ub.Swap)/gib)
	}
	for _, err := range []error{m.SetMemoryLimits(a, -1, 0), m.SetMemoryLimits(a, math.NaN(), 0), m.SetMemoryLimits(99, 1, 1)} {
		if err == nil {
			t.Error("an impossible limit was taken")
		}
	}
	if _, err := m.Reclaim(a, math.NaN(), 0, true, true); err == nil {
		t.Error("NaN bytes were reclaimed")
	}
}

// Memory neither comes to be nor gets lost, whatever is done to it.
func FuzzPages(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := pagesMachine(t, math.Exp(rng.Float64()*4)*gib, rng.Float64()*8*gib)
		if rng.IntN(2) == 0 {
			m.cfg.ZswapShare = rng.Float64()
		}
		sum := map[int]float64{}
		for range 1 + rng.IntN(4) {
			c := spinner(1 + rng.IntN(3))
			for range rng.IntN(5) {
				c.Memory = append(c.Memory, Heat{Bytes: rng.Float64() * gib, File: rng.IntN(2) == 0, EveryNsec: int64(math.Exp(rng.Float64() * 35))})
			}
			n, err := m.Add(c)
			if err != nil {
				continue // more than there is
			}
			for _, h := range c.Memory {
				sum[n] += h.Bytes
			}
		}
		for range 50 {
			for n := range len(m.tasks) {
				switch rng.IntN(4) {
				case 0:
					_, err := m.Reclaim(n, rng.Float64()*gib, rng.Int64N(1e13), rng.IntN(2) == 0, rng.IntN(2) == 0)
					must(t, err)
				case 1:
					must(t, m.SetMemoryLimits(n, rng.Float64()*gib, rng.Float64()*gib))
				}
			}
			m.Advance(rng.Int64N(1e12))
			for n, want := range sum {
				u := memoryUse(t, m, n)
				if all := u.Anon + u.File + u.Swap + u.Dropped; math.Abs(all-want) > 1e-6*want+1 || !(u.Blocked >= 0 && u.Blocked <= maxBlocked) {
					t.Fatalf("task %d has %v bytes of %v, blocked %v", n, all, want, u.Blocked)
				}
			}
		}
	})
}

// A task that lived before it is played has old pages from the start; what is locked has no age and stays; a sweep brings all
// back, at an even pace, and makes it young.
func TestAgedLockedSwept(t *testing.T) {
	m := pagesMachine(t, 64*gib, 32*gib)
	c := spinner(1)
	c.AgedNsec = 24 * 3600e9
	c.Memory = []Heat{{Bytes: 2 * gib, EveryNsec: 48 * 3600e9}, {Bytes: gib, EveryNsec: 48 * 3600e9, Locked: true}, {Bytes: gib, EveryNsec: 48 * 3600e9, File: true}}
	n := add(t, m, c)
	m.Advance(1e9)
	anon, file, err := m.MemoryOlder(n, 12*3600e9)
	must(t, err)
	near(t, "older than half a day", anon, 2*gib*math.Exp(-0.25), 0.01)
	near(t, "page cache older than that", file, gib*math.Exp(-0.25), 0.01)
	got, err := m.Reclaim(n, 64*gib, 0, true, true)
	must(t, err)
	near(t, "all but what is locked", got, 3*gib, 0.01)
	if u := memoryUse(t, m, n); u.Anon < 0.99*gib {
		t.Errorf("%.3g bytes are there of 1 GiB that is locked", u.Anon)
	}
	before := memoryUse(t, m, n).FaultPages
	must(t, m.Sweep(n, 10e9))
	m.Advance(5e9)
	near(t, "came back in half of the sweep", float64(memoryUse(t, m, n).FaultPages-before)*pageBytes, 1.5*gib, 0.25)
	m.Advance(10e9)
	u := memoryUse(t, m, n)
	near(t, "anonymous after the sweep", u.Anon, 3*gib, 0.01)
	if anon, file, _ := m.MemoryOlder(n, 60e9); anon+file != 0 {
		t.Errorf("%v and %v bytes are a minute old just after a sweep", anon, file)
	}
	if m.Sweep(n, 1) == nil || m.Sweep(99, 1e9) == nil {
		t.Error("an impossible sweep is taken")
	}
}

// What goes to zswap leaves a copy in memory, which counts against the task's limit and the machine's memory; the copy goes when the page comes back.
func TestZswap(t *testing.T) {
	m := pagesMachine(t, 16*gib, 8*gib)
	m.cfg.ZswapShare = 0.5
	c := spinner(1)
	c.Memory = []Heat{{Bytes: 4 * gib, EveryNsec: 1e17}}
	n, err := m.Add(c)
	must(t, err)
	m.Advance(60e9)
	free := m.MemoryRoom().Free
	got, err := m.Reclaim(n, 2*gib, 0, true, true)
	u := memoryUse(t, m, n)
	if near := math.Abs(u.Zswap - 0.5*got); err != nil || near > 1 || math.Abs(u.Swap-2*gib) > gib/100 || math.Abs(m.MemoryRoom().Free-free-gib) > gib/100 {
		t.Fatalf("took %.2f GiB: %+v, %v; %.2f GiB are free, %.2f before", got/gib, u, err, m.MemoryRoom().Free/gib, free/gib)
	}
	must(t, m.SetMemoryLimits(n, 0, 2.5*gib))
	m.Advance(60e9)
	if u := memoryUse(t, m, n); u.Anon+u.Zswap > 2.51*gib || u.Anon+u.Zswap < 2.4*gib || u.Swap < 2.9*gib {
		t.Errorf("limited to 2.5 GiB: %+v", u)
	}
	must(t, m.SetMemoryLimits(n, 0, 0))
	must(t, m.Sweep(n, 10e9))
	m.Advance(20e9)
	if u := memoryUse(t, m, n); u.Zswap > 1 || u.Anon < 3.99*gib {
		t.Errorf("all of it was used: %+v", u)
	}
	// A machine that is full makes room by more than what is over, and kills nobody while that helps.
	c.Memory = []Heat{{Bytes: 15 * gib, EveryNsec: 1e17}}
	_, err = m.Add(c)
	must(t, err)
	m.Advance(5e9)
	if free := m.MemoryRoom(); memoryUse(t, m, n).Killed || free.SwapTotal-free.SwapFree < 5.9*gib || free.SwapTotal-free.SwapFree > 6.2*gib {
		t.Errorf("3 GiB too much: %+v", free)
	}
}
