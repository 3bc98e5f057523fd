package machine

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Each kernel takes and refuses what it does in life.
func TestKernelsTake(t *testing.T) {
	for _, tt := range []struct {
		v                            CPUMax
		mainline, anyBurst, noBursts bool
	}{
		{CPUMax{-1, 100_000, 0}, true, true, true},
		{CPUMax{-1, 100_000, 500_000}, true, true, false}, // measured on 6.18
		{CPUMax{20_000, 100_000, 0}, true, true, true},
		{CPUMax{20_000, 100_000, 20_000}, true, true, false},
		{CPUMax{20_000, 100_000, 20_001}, false, true, false},
		{CPUMax{20_000, 100_000, 200_000}, false, true, false},
		{CPUMax{999, 100_000, 0}, false, false, false},
		{CPUMax{0, 100_000, 0}, false, false, false},
		{CPUMax{-2, 100_000, 0}, false, false, false},
		{CPUMax{20_000, 999, 0}, false, false, false},
		{CPUMax{20_000, 1_000_001, 0}, false, false, false},
		{CPUMax{20_000, 100_000, -1}, false, false, false},
		{CPUMax{math.MaxInt64, 100_000, 0}, false, false, false},
		{CPUMax{20_000, 100_000, math.MaxInt64}, false, false, false},
	} {
		for k, want := range map[Kernel]bool{Mainline: tt.mainline, AnyBurst: tt.anyBurst, NoBurst: tt.noBursts} {
			if got := k.Takes(tt.v); got != want {
				t.Errorf("%s takes %+v: %v", k, tt.v, got)
			}
		}
	}
}

// bursty is a task that rests but for bursts of 8 CPUs.
func bursty(rest, burst int64) TaskConfig {
	cfg := spinner(8)
	cfg.Work = &Work{Phases: []Phase{{Nsec: rest}, {Nsec: burst, CPUs: 8}}}
	return cfg
}

// fine is a machine with steps of a millisecond.
func fine(k Kernel) Config {
	c := oneSocket()
	c.StepNsec, c.Kernel = 1e6, k
	return c
}

// Also a write that changes nothing gives a fresh quota at once: who writes twenty times a
// second undoes a quota of a tenth. Measured on Linux 6.18 with one busy loop under 100 ms
// in 1 s: 101 ms a second without a write, 1005 ms with one every 50 ms; nr_periods went up by one,
// nr_throttled by none.
func TestWriteRefills(t *testing.T) {
	for _, k := range []Kernel{Mainline, AnyBurst, NoBurst} {
		m := newMachine(t, fine(k))
		n := add(t, m, spinner(1))
		v := CPUMax{QuotaUsec: 100_000, PeriodUsec: 1_000_000}
		must(t, m.SetCPUMax(n, v))
		m.Advance(3e9)
		if u := over(t, m, n, 1); u.UsageNsec < 95e6 || u.UsageNsec > 105e6 || u.Throttled != 1 {
			t.Errorf("%s without a write: %+v", k, u)
		}
		before, err := m.Counters(n)
		must(t, err)
		for range 20 {
			must(t, m.SetCPUMax(n, v))
			m.Advance(50e6)
		}
		after, err := m.Counters(n)
		must(t, err)
		if u := after.UsageNsec - before.UsageNsec; u < 990e6 || after.Periods-before.Periods != 1 || after.Throttled != before.Throttled {
			t.Errorf("%s with a write each 50 ms: %d ms, %d periods, %d throttled", k, u/1e6, after.Periods-before.Periods, after.Throttled-before.Throttled)
		}
		// Moved under another limit nobody gets a quota.
		m.Advance(2e9)
		before, err = m.Counters(n)
		must(t, err)
		for range 4 {
			must(t, m.MoveCPUMax(n, v))
			m.Advance(200e6)
		}
		after, err = m.Counters(n)
		must(t, err)
		if u := after.UsageNsec - before.UsageNsec; u > 110e6 {
			t.Errorf("%s: %d ms in 0.8 s of moves", k, u/1e6)
		}
	}
}

// What a bucket holds is what a burst can use at once: a quota and the burst, which fill
// while the task rests.
func TestBucket(t *testing.T) {
	for _, tt := range []struct {
		k     Kernel
		burst int64
		most  float64 // ms of CPU time in a period
	}{
		{Mainline, 0, 20}, {Mainline, 20_000, 40}, {AnyBurst, 100_000, 120}, {NoBurst, 0, 20},
	} {
		m := newMachine(t, fine(tt.k))
		n := add(t, m, bursty(2e9, 40e6))
		must(t, m.SetCPUMax(n, CPUMax{QuotaUsec: 20_000, PeriodUsec: 100_000, BurstUsec: tt.burst}))
		m.Advance(1e9)
		most, last := 0.0, uint64(0)
		for range 200 { // windows of a burst's length, so that no refill lies between but one
			m.Advance(40e6)
			c, err := m.Counters(n)
			must(t, err)
			most, last = max(most, float64(c.UsageNsec-last)/1e6), c.UsageNsec
		}
		if most < tt.most-1 || most > tt.most+20+1 {
			t.Errorf("%s, burst %d us: used %.1f ms at once, expected %.0f to a quota more", tt.k, tt.burst, most, tt.most)
		}
		c, err := m.Counters(n)
		must(t, err)
		if want := tt.burst > 0; (c.Bursts > 0) != want || (c.BurstNsec > 0) != want {
			t.Errorf("%s, burst %d us: %d bursts of %d ns", tt.k, tt.burst, c.Bursts, c.BurstNsec)
		}
	}
}

// The timer rests while the group does: a quiet period and the one after it count, no more
// (measured on Linux 6.18: 3 periods in a second after a busy loop was stopped). And the timers of
// groups that were made together are not in step.
func TestQuietPeriods(t *testing.T) {
	m := newMachine(t, fine(Mainline))
	n := add(t, m, bursty(5e9, 10e6))
	must(t, m.SetCPUMax(n, CPUMax{QuotaUsec: 20_000, PeriodUsec: 100_000}))
	c := over(t, m, n, 50)
	if c.Periods < 10 || c.Periods > 50 || c.Throttled < 9 || c.Throttled > 30 {
		t.Errorf("%d periods and %d throttled in 50 s of ten bursts", c.Periods, c.Throttled)
	}
	offsets := map[int64]bool{}
	for num := range 100 {
		b := unlimited(Mainline, num, 0)
		b.write(CPUMax{QuotaUsec: 20_000, PeriodUsec: 100_000}, 0, &counters{})
		offsets[b.ends/5e6] = true
	}
	if len(offsets) < 18 {
		t.Errorf("the timers of 100 groups expire in %d of 20 parts of a period", len(offsets))
	}
}

// On few CPUs a service's own threads wait for each other, as many as M/M/k has it; that is
// run-queue delay, and it is gone where there are CPUs enough.
func TestQueueingOnFewCPUs(t *testing.T) {
	for _, step := range []int64{1e6, 10e6} {
		for _, tt := range []struct {
			cpus int
			rho  float64
		}{{1, 0.5}, {2, 0.5}, {2, 0.8}, {4, 0.9}, {8, 0.6}} {
			c := oneSocket()
			c.StepNsec, c.ThreadsPerCore = step, 1
			m := newMachine(t, c)
			cfg := spinner(32)
			cfg.Work, cfg.Requests = nil, &Requests{PerSecond: tt.rho * float64(tt.cpus) / 2e-3, Instructions: 2e-3 * c.Hz / cfg.CPI, Variation: 1}
			cfg.CPUs = model.FullSet(tt.cpus)
			n := add(t, m, cfg)
			m.Advance(2e9)
			_, _, err := m.Latencies(n)
			must(t, err)
			used := over(t, m, n, 200)
			h, _, err := m.Latencies(n)
			must(t, err)
			k := float64(tt.cpus)
			wait := math.Pow(tt.rho, math.Sqrt(2*(k+1))-1) / (k * (1 - tt.rho)) * 2e6
			if got := h.Mean() - 2e6; math.Abs(got-wait) > 0.25*wait+0.05e6 {
				t.Errorf("step %d ms, %d CPUs at %.1f: waits %.2f ms, M/M/k has %.2f", step/1e6, tt.cpus, tt.rho, got/1e6, wait/1e6)
			}
			if u := float64(used.UsageNsec) / 200e9; math.Abs(u-tt.rho*k) > 0.05*k {
				t.Errorf("step %d ms, %d CPUs at %.1f: used %.2f", step/1e6, tt.cpus, tt.rho, u)
			}
			// The delay is taken by the step, and one that waits for a whole one counts it wholly.
			delay := float64(used.DelayNsec) / float64(used.Requests)
			if delay < 0.4*wait-0.1e6 || delay > 1.6*wait+float64(step) {
				t.Errorf("step %d ms, %d CPUs at %.1f: delay %.2f ms a request, waits %.2f", step/1e6, tt.cpus, tt.rho, delay/1e6, wait/1e6)
			}
			must(t, m.SetCPUs(n, model.FullSet(16)))
			m.Advance(1e9)
			if _, _, err = m.Latencies(n); err != nil {
				t.Fatal(err)
			}
			if free := over(t, m, n, 50); float64(free.DelayNsec)/float64(free.Requests) > 0.05*2e6 {
				t.Errorf("step %d ms: delay %d us a request with CPUs enough", step/1e6, free.DelayNsec/free.Requests/1e3)
			}
		}
	}
}

// Alibaba, footnote 6: below 45 % utilisation siblings hardly meet, because whoever wakes
// takes a core that is wholly idle; above, they do. A sibling that another cpuset keeps
// busy is met whatever the own utilisation is.
func TestSiblingsMeetAbove45(t *testing.T) {
	// asked is the utilisation that requests would come to if nobody met.
	play := func(asked float64, neighbour bool) (rho, slower float64) {
		m := newMachine(t, fine(Mainline)) // 32 CPUs: n and n+16 are threads of one core
		cfg := spinner(64)
		cfg.Work, cfg.Requests = nil, &Requests{PerSecond: asked * 32 / 1e-3, Instructions: 1e-3 * m.cfg.Hz, Variation: 1}
		if neighbour {
			be := spinner(16)
			for cpu := range 16 {
				cfg.CPUs.Add(cpu)
				be.CPUs.Add(cpu + 16)
			}
			cfg.Requests.PerSecond /= 2
			add(t, m, be)
		}
		n := add(t, m, cfg)
		m.Advance(1e9)
		c := over(t, m, n, 5)
		return float64(c.UsageNsec) / 5e9 / 32, c.cpi() - 1
	}
	for _, tt := range []struct{ asked, least, most float64 }{{0.3, 0, 0.03}, {0.38, 0, 0.06}, {0.42, 0, 0.09}, {0.5, 0.15, 0.35}, {0.6, 0.4, 0.6}} {
		rho, slower := play(tt.asked, false)
		t.Logf("at %.2f instructions take %.3f longer", rho, slower)
		if slower < tt.least || slower > tt.most {
			t.Errorf("at %.2f instructions take %.3f longer, expected %.2f to %.2f", rho, slower, tt.least, tt.most)
		}
	}
	if _, met := play(0.3, true); met < 0.5 {
		t.Errorf("beside busy siblings instructions take %.3f longer", met)
	}
}
