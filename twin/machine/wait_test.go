package machine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

func waitsOf(t testing.TB, m *Machine, num int) (w Waits, all float64) {
	t.Helper()
	must(t, m.TakeWaits(num, &w))
	for _, nsec := range w.Charged {
		if nsec < 0 || math.IsNaN(nsec) {
			t.Fatalf("charged %v", w.Charged)
		}
		all += nsec
	}
	for _, nsec := range w.TakenNsec {
		if nsec < 0 || math.IsNaN(nsec) {
			t.Fatalf("taken %v", w.TakenNsec)
		}
		all += nsec
	}
	return w, all + w.ThrottledNsec
}

// Whatever runs beside whom, under which weights, cpusets, quotas and siblings: what a task is said
// to have waited for is what it waited. The two are counted apart: its delay as CPU time is divided,
// and who is charged from who was given it.
func TestWaitsAddUp(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 12))
		c := Skylake()
		c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1+rng.IntN(2), 1+rng.IntN(4), 1+rng.IntN(2)
		m, err := New(c, seed)
		must(t, err)
		cpus := func() (set model.CPUSet) {
			for cpu := range c.CPUs() {
				if rng.IntN(2) == 0 {
					set.Add(cpu)
				}
			}
			return set
		}
		n := 2 + rng.IntN(6)
		for i := range n {
			cfg := spinner(1 + rng.IntN(2*c.CPUs()))
			if rng.IntN(2) == 0 {
				cfg.Work, cfg.Requests = nil, &Requests{PerSecond: 50 + 500*rng.Float64(), Instructions: 5e6 * rng.Float64() * float64(c.CPUs()), Variation: 1}
			} else if rng.IntN(2) == 0 {
				cfg.Work.Phases = []Phase{{Nsec: 3e8, Jitter: 0.5, CPUs: 3}, {Nsec: 2e8, CPUs: 0.1}}
			}
			cfg.Shares = []int64{2, 256, 1024, 8192}[rng.IntN(4)]
			if rng.IntN(2) == 0 {
				cfg.CPUs = cpus()
			}
			must(t, m.Watch(add(t, m, cfg), true))
			if rng.IntN(3) == 0 {
				must(t, m.SetCPUMax(i, CPUMax{QuotaUsec: 5000 + rng.Int64N(200_000), PeriodUsec: 100_000}))
			}
		}
		var before [16]uint64
		for range 30 {
			if seed%2 == 1 {
				must(t, m.Take(Taker(rng.IntN(int(takers))), cpus(), rng.Float64()*MaxTaken))
			}
			m.Advance(1e8)
			switch i := rng.IntN(n); rng.IntN(5) {
			case 4:
				must(t, m.SetIdle(i, rng.IntN(2) == 0))
			case 0:
				must(t, m.SetCPUs(i, cpus()))
			case 1:
				must(t, m.SetFrozen(i, rng.IntN(2) == 0))
			case 2:
				must(t, m.SetShares(i, 2+rng.Int64N(5000)))
			}
			for i := range n {
				k, err := m.Counters(i)
				must(t, err)
				if _, all := waitsOf(t, m, i); math.Abs(all-float64(k.DelayNsec-before[i])) > 2+1e-9*all {
					t.Fatalf("seed %d, task %d at %d: %.0f ns are charged, it waited %d", seed, i, m.NowNsec(), all, k.DelayNsec-before[i])
				}
				before[i] = k.DelayNsec
			}
		}
	}
}

// Who ran is charged, not who might have: by what each was given where the victim's threads wait.
func TestWaitsAreChargedToWhoRan(t *testing.T) {
	c := oneSocket()
	c.CoresPerSocket, c.ThreadsPerCore = 4, 1
	set := func(cpus ...int) (s model.CPUSet) {
		for _, cpu := range cpus {
			s.Add(cpu)
		}
		return s
	}
	on := func(threads int, shares int64, cpus model.CPUSet) TaskConfig {
		cfg := spinner(threads)
		cfg.Shares, cfg.CPUs = shares, cpus
		return cfg
	}
	quota := func(cpus float64) CPUMax { return CPUMax{QuotaUsec: int64(cpus * 1e5), PeriodUsec: 1e5} }
	const own, held = 0, -1
	for name, x := range map[string]struct {
		tasks  []TaskConfig // the first is the victim
		limits map[int]CPUMax
		want   map[int]float64 // shares of its waiting
	}{
		"one thread on one CPU waits for the others by their weights": {
			tasks: []TaskConfig{on(1, 1024, set(0)), on(1, 1024, set(0)), on(1, 3072, set(0)), on(4, 1024, set(1))},
			want:  map[int]float64{1: 0.25, 2: 0.75},
		},
		// While the other runs, which its weight gives half of the time, both wait; while one of them
		// runs, the other one does.
		"two threads on one CPU wait for each other too": {
			tasks: []TaskConfig{on(2, 1024, set(0)), on(1, 1024, set(0))},
			want:  map[int]float64{own: 0.5 / 1.5, 1: 1 / 1.5},
		},
		"alone with too many threads": {
			tasks: []TaskConfig{on(8, 1024, set(0, 1)), on(2, 8192, set(2, 3))},
			want:  map[int]float64{own: 1},
		},
		// A large neighbour elsewhere, a small one here.
		"only who shares its CPUs": {
			tasks: []TaskConfig{on(2, 1024, set(0, 1)), on(2, 1024, set(1)), on(4, 8192, set(2, 3))},
			want:  map[int]float64{1: 1},
		},
		"a neighbour's quota": {
			tasks:  []TaskConfig{on(4, 1024, set()), on(4, 1024, set()), on(4, 1024, set())},
			limits: map[int]CPUMax{1: quota(0.4)},
			want:   map[int]float64{1: 0.4 / 2.2, 2: 1.8 / 2.2},
		},
		"its own quota": {
			tasks:  []TaskConfig{on(2, 1024, set()), on(1, 1024, set())},
			limits: map[int]CPUMax{0: quota(0.5)},
			want:   map[int]float64{held: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, c)
			for i, cfg := range x.tasks {
				add(t, m, cfg)
				if v, ok := x.limits[i]; ok {
					must(t, m.SetCPUMax(i, v))
				}
			}
			must(t, m.Watch(0, true))
			m.Advance(10e9)
			w, all := waitsOf(t, m, 0)
			got := map[int]float64{held: w.ThrottledNsec / all}
			for i, nsec := range w.Charged {
				got[i] = nsec / all
			}
			for i, share := range got {
				if math.Abs(share-x.want[i]) > 0.01 {
					t.Errorf("task %d is charged with %.3f, want %.3f (all: %v)", i, share, x.want[i], fmt.Sprint(got))
				}
			}
		})
	}
}

// A service that queues behind itself blames nobody, however much others use elsewhere; when
// another comes onto its CPUs, what its threads wait for each other is for that one as far as it
// kept the one in front from getting on.
func TestWaitsOfAService(t *testing.T) {
	c := oneSocket()
	c.CoresPerSocket, c.ThreadsPerCore = 4, 1
	m := newMachine(t, c)
	cfg := spinner(8)
	cfg.CPUs, _ = model.ParseCPUSet("0-1")
	cfg.Work, cfg.Requests = nil, &Requests{PerSecond: 700, Instructions: 6e6, Variation: 1}
	web := add(t, m, cfg)
	hog := spinner(2)
	hog.CPUs, _ = model.ParseCPUSet("2-3")
	other := add(t, m, hog)
	must(t, m.Watch(web, true))
	m.Advance(20e9)
	w, all := waitsOf(t, m, web)
	if all < 1e9 || w.Charged[web] < 0.999*all {
		t.Errorf("beside nobody: %.0f of %.0f ns are its own", w.Charged[web], all)
	}
	quiet := w.Quantile(0.99)
	if w.Wakeups < 13_000 || quiet <= 0 || float64(quiet) > w.LongestNsec {
		t.Errorf("%d waits, p99 %d, the longest %.0f", w.Wakeups, quiet, w.LongestNsec)
	}
	must(t, m.SetCPUs(other, cfg.CPUs))
	m.Advance(20e9)
	w, all = waitsOf(t, m, web)
	if share := w.Charged[other] / all; share < 0.55 || share > 0.85 {
		t.Errorf("with another on half of its CPUs: it is charged with %.2f", share)
	}
	if loud := w.Quantile(0.99); loud < 2*quiet {
		t.Errorf("p99 of waits %d beside nobody, %d beside another", quiet, loud)
	}
}
