package machine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// What holds of every machine, and what a review of the physics found not to.

// socket is a server with one socket of so many cores without siblings.
func socket(cores int) machine.Config {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1, cores, 1
	return c
}

// world is a machine whose tasks are told by name.
type world struct {
	*machine.Machine
	t     testing.TB
	tasks map[string]int
}

func newWorld(t testing.TB, c machine.Config) *world {
	t.Helper()
	m, err := machine.New(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &world{m, t, map[string]int{}}
}

// add starts a program of the catalogue under a name that ends in its threads.
func (w *world) add(prog string, threads int, change func(c *machine.TaskConfig)) int {
	w.t.Helper()
	p, ok := program.Find(prog)
	if !ok {
		w.t.Fatalf("no program %s", prog)
	}
	c := machine.TaskConfig{Name: fmt.Sprintf("%s-%d", prog, threads), Threads: threads, Work: &machine.Work{}}
	p.Apply(&c)
	if change != nil {
		change(&c)
	}
	n, err := w.Add(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.tasks[c.Name] = n
	return n
}

// figures are what a task does in a while.
type did struct{ cpi, mpki, bytes, nsec float64 } // nsec: CPU time an instruction

// over lets a time pass and returns what each task did in it, by name.
func (w *world) over(seconds float64) map[string]did {
	w.t.Helper()
	before := map[string]machine.Counters{}
	for name, n := range w.tasks {
		before[name], _ = w.Counters(n)
	}
	w.Advance(int64(seconds * 1e9))
	done := map[string]did{}
	for name, n := range w.tasks {
		a := before[name]
		b, err := w.Counters(n)
		if err != nil {
			w.t.Fatal(err)
		}
		instructions := float64(b.Instructions - a.Instructions)
		done[name] = did{
			float64(b.Cycles-a.Cycles) / instructions, float64(b.LLCMisses-a.LLCMisses) / instructions * 1000, float64(b.MemBytes-a.MemBytes) / seconds,
			float64(b.UsageNsec-a.UsageNsec) / instructions,
		}
	}
	return done
}

func apart(a, b float64) float64 { return math.Abs(a-b) / max(a, b) }

// A core's prefetchers run one lead ahead, however many of its threads work: a stream in one way
// loses as many prefetched lines with one thread a core as with two.
func TestLeadIsACores(t *testing.T) {
	mpki := func(threads int) float64 {
		c := socket(16)
		c.ThreadsPerCore = threads
		w := newWorld(t, c)
		n := w.add("stream", 16*threads, nil)
		class := w.AddCLOS()
		if err := w.SetWays(class, 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := w.SetCLOS(n, class); err != nil {
			t.Fatal(err)
		}
		w.over(1)
		return w.over(1)[fmt.Sprintf("stream-%d", 16*threads)].mpki
	}
	if one, two := mpki(1), mpki(2); apart(one, two) > 0.02 || one < 46 {
		t.Errorf("%.1f misses with one thread a core, %.1f with two", one, two)
	}
}

// The length of a step is no part of the physics: means are the same with 10 ms and 0.1 ms, where
// curves are steep (the shares of a cache went back and forth at each step) and where a quota is
// used up within a step.
func TestStepsDoNotMatter(t *testing.T) {
	quota := func(usec int64) func(w *world) {
		return func(w *world) {
			be := w.add("stream", 20, nil)
			w.add("web-search-leaf", 4, nil)
			if err := w.SetCPUMax(be, machine.CPUMax{QuotaUsec: usec, PeriodUsec: 100_000}); err != nil {
				t.Fatal(err)
			}
		}
	}
	pair := func(a string, an int, b string, bn int) func(w *world) {
		return func(w *world) { w.add(a, an, nil); w.add(b, bn, nil) }
	}
	for name, fill := range map[string]func(w *world){
		"art beside art": pair("art", 24, "art", 4), "mcf beside art": pair("mcf", 4, "art", 20), "mcf-2000 beside mcf": pair("mcf-2000", 2, "mcf", 20),
		"art beside web-frontend": pair("art", 2, "web-frontend", 24),
		"quota 24":                quota(24_000), "quota 50": quota(50_000), "quota 100": quota(100_000), "quota 400": quota(400_000), "quota 1000": quota(1_000_000),
	} {
		play := func(under func(machine.Config) machine.Config, step int64, seconds float64) map[string]did {
			c := under(socket(28))
			c.StepNsec = step
			w := newWorld(t, c)
			fill(w)
			w.over(1)
			return w.over(seconds)
		}
		for physics, under := range physics() {
			coarse, fine := play(under, 10e6, 2), play(under, 1e5, 2)
			for task, f := range fine {
				c := coarse[task]
				if apart(c.cpi, f.cpi) > 0.02 || apart(c.bytes, f.bytes) > 0.02 {
					t.Errorf("%s physics, %s: %s: CPI %.3f and %.2f GB/s in steps of 10 ms, %.3f and %.2f in steps of 0.1 ms", physics, name, task, c.cpi, c.bytes/1e9, f.cpi, f.bytes/1e9)
				}
			}
		}
	}
}

// A steady load is steady: no step differs from the one before, in the steps of the physics and in those of the labs.
// Two of art hold all that they need or nothing, and who fills the cache beside them is slower where they do not: without
// calm (cache.go) they go from one to the other and back at each step.
func TestSteadyLoadsAreSteady(t *testing.T) {
	for _, pair := range []struct {
		a    string
		cpus int
		b    string
	}{
		{"art", 4, "art"}, {"mcf", 4, "art"}, {"mcf-2000", 4, "stream"}, {"xalancbmk", 4, "lbm"},
		{"art", 2, "web-frontend"}, {"art", 2, "cpi2-job-a"}, {"art", 2, "compute"}, {"art", 2, "sysbench-memory"},
	} {
		for i, step := range []int64{10e6, 10e6, 100e6, 100e6} {
			c := socket(28)
			if i%2 == 1 {
				c = machine.Published(c)
			}
			c.StepNsec = step
			w := newWorld(t, c)
			w.add(pair.a, pair.cpus, func(c *machine.TaskConfig) { c.Name = "a" })
			w.add(pair.b, 24, func(c *machine.TaskConfig) { c.Name = "b" })
			w.over(200 * float64(step) / 1e9)
			first := w.over(float64(step) / 1e9)
			for range 20 {
				for task, f := range w.over(float64(step) / 1e9) {
					if !(apart(f.cpi, first[task].cpi) <= 0.005) {
						t.Fatalf("%v in steps of %d ms: %s has CPI %.3f in one step and %.3f in another", pair, step/1e6, task, first[task].cpi, f.cpi)
					}
				}
			}
		}
	}
}

// A link carries what it can: reads in one direction, and what is written over it in the other.
func TestLinksAreBounds(t *testing.T) {
	for _, cores := range []int{8, 20, 28, 56} {
		c := machine.Skylake()
		c.CoresPerSocket, c.ThreadsPerCore = cores, 1
		w := newWorld(t, c)
		for s := range 2 {
			w.add("stream", cores, func(c *machine.TaskConfig) {
				c.Name = fmt.Sprint("from-", s)
				for cpu := s * cores; cpu < (s+1)*cores; cpu++ {
					c.CPUs.Add(cpu)
				}
				c.Pages = []float64{float64(s), float64(1 - s)}
			})
		}
		w.over(2)
		p, _ := program.Find("stream")
		run := w.over(1)
		for s := range 2 {
			out := run[fmt.Sprint("from-", 1-s)].bytes*(1-p.WriteShare) + run[fmt.Sprint("from-", s)].bytes*p.WriteShare
			if out > 1.01*c.LinkPeakBytes {
				t.Errorf("%d cores: the links out of socket %d carry %.1f GB/s over %.0f", cores, s, out/1e9, c.LinkPeakBytes/1e9)
			}
			if cores == 56 && out < 0.95*c.LinkPeakBytes {
				t.Errorf("56 cores: the links out of socket %d carry %.1f GB/s of %.0f", s, out/1e9, c.LinkPeakBytes/1e9)
			}
		}
	}
}

// Sixteen programs of one thread are the same as one task of sixteen.
func TestSixteenCopies(t *testing.T) {
	for _, prog := range []string{"mcf", "xalancbmk", "soplex", "lbm"} {
		one, many := newWorld(t, socket(28)), newWorld(t, socket(28))
		one.add(prog, 16, func(c *machine.TaskConfig) { c.Name = "all" })
		for i := range 16 {
			many.add(prog, 1, func(c *machine.TaskConfig) { c.Name = fmt.Sprint(i) })
		}
		one.over(2)
		many.over(2)
		a, b := one.over(1)["all"], did{}
		for _, f := range many.over(1) {
			b.bytes += f.bytes
			b.cpi += f.cpi / 16
		}
		if apart(a.cpi, b.cpi) > 0.01 || apart(a.bytes, b.bytes) > 0.01 {
			t.Errorf("%s: CPI %.3f and %.1f GB/s as one task, %.3f and %.1f as sixteen", prog, a.cpi, a.bytes/1e9, b.cpi, b.bytes/1e9)
		}
	}
}

// drawn is a machine with tasks of the catalogue, whatever comes: sockets, siblings, masks, levels,
// quotas, pages anywhere, services and batch work.
func drawn(t *testing.T, rng *rand.Rand, under func(machine.Config) machine.Config) *world {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1+rng.IntN(2), 2+rng.IntN(27), 1+rng.IntN(2)
	c = under(c)
	w := newWorld(t, c)
	names := program.Names()
	class := w.AddCLOS()
	for s := range c.Sockets {
		if err := w.SetWays(class, s, 1<<(1+rng.IntN(c.LLCWays))-1); err != nil {
			t.Fatal(err)
		}
		if err := w.SetMBA(class, s, 10*(1+rng.IntN(10))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1 + rng.IntN(6) {
		n := w.add(names[rng.IntN(len(names))], 1+rng.IntN(c.CPUs()), func(cfg *machine.TaskConfig) {
			cfg.Name = fmt.Sprint(i, "-", cfg.Name)
			if rng.IntN(3) == 0 {
				cfg.Work, cfg.Requests = nil, &machine.Requests{PerSecond: 2000 * rng.Float64(), Instructions: 5e6, Variation: 1}
			}
			if rng.IntN(2) == 0 {
				from := rng.IntN(c.CPUs())
				cfg.CPUs = model.FullSet(c.CPUs()).And(model.FullSet(from + 1))
			}
			for range c.Sockets {
				cfg.Pages = append(cfg.Pages, rng.Float64())
			}
			if rng.IntN(2) == 0 {
				cfg.Apart = true
			}
		})
		if rng.IntN(2) == 0 {
			if err := w.SetCLOS(n, class); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(3) == 0 {
			if err := w.SetCPUMax(n, machine.CPUMax{QuotaUsec: 5000 + rng.Int64N(500_000), PeriodUsec: 100_000}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// What tasks moved is what the memories delivered, and that is no more than they can; what tasks hold of
// a cache fits into it.
func TestTrafficIsConserved(t *testing.T) {
	conserved(t, 200, func(c machine.Config) machine.Config { return c })
}

// So it is with all terms that public measurements add, and with a queue that holds little.
func TestTermsConserveTraffic(t *testing.T) {
	conserved(t, 100, machine.Published)
	conserved(t, 100, func(c machine.Config) machine.Config {
		c.Physics.QueueLines = 60
		return c
	})
}

func conserved(t *testing.T, seeds uint64, under func(machine.Config) machine.Config) {
	t.Helper()
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := drawn(t, rng, under)
		c := w.Config()
		last := 0.0
		for turn := range 60 {
			w.Advance(c.StepNsec)
			moved, delivered := 0.0, 0.0
			for _, n := range w.tasks {
				k, err := w.Counters(n)
				if err != nil {
					t.Fatal(err)
				}
				moved += float64(k.MemBytes)
			}
			for n := range c.Sockets {
				m := w.Memory(n)
				delivered += m.BytesPerSecond * float64(c.StepNsec) / 1e9
				if m.BytesPerSecond > 1.001*m.PeakBytes {
					t.Fatalf("seed %d, step %d: node %d delivers %.2f GB/s of %.2f", seed, turn, n, m.BytesPerSecond/1e9, m.PeakBytes/1e9)
				}
				held := 0.0
				for _, task := range w.tasks {
					bytes, err := w.Occupancy(task, n)
					if err != nil {
						t.Fatal(err)
					}
					held += bytes
				}
				if held > c.LLCBytes*(1+1e-9) {
					t.Fatalf("seed %d, step %d: %.1f MB of a cache of %.1f are held", seed, turn, held/1e6, c.LLCBytes/1e6)
				}
			}
			if diff := math.Abs(moved - last - delivered); diff > 1e-6*delivered+float64(2*len(w.tasks)) {
				t.Fatalf("seed %d, step %d: tasks moved %.0f bytes, the memories %.0f", seed, turn, moved-last, delivered)
			}
			last = moved
		}
	}
}

// Less of a neighbour is no worse for a service: with fewer of its cores, and with a lower level of its memory
// bandwidth, a service's work does not take longer, whatever the physics, on one socket and two, beside siblings and
// without. (Fewer ways may make it take longer: who is squeezed misses more. And so may a lower level of a core's
// sibling, where the stricter of both holds: TestStricterSibling.)
func TestLessNeighbourIsNoWorse(t *testing.T) {
	for name, under := range physics() {
		for sockets := 1; sockets <= 2; sockets++ {
			for threads := 1; threads <= 2; threads++ {
				t.Run(fmt.Sprintf("%s, %d sockets, %d threads a core", name, sockets, threads), func(t *testing.T) {
					c := machine.Skylake()
					c.Sockets, c.ThreadsPerCore, c.CoresPerSocket = sockets, threads, 32/sockets/threads
					c.MBAPerThread = true
					lessIsNoWorse(t, under(c), rand.New(rand.NewPCG(uint64(sockets), uint64(threads))))
				})
			}
		}
	}
}

// physics is what worlds are played under.
func physics() map[string]func(machine.Config) machine.Config {
	return map[string]func(machine.Config) machine.Config{"usual": func(c machine.Config) machine.Config { return c }, "published": machine.Published}
}

// lessIsNoWorse draws programs and where their pages are. It compares times and not cycles: with more at work the clock may be slower.
func lessIsNoWorse(t *testing.T, c machine.Config, rng *rand.Rand) {
	names := program.Names()
	for range 25 {
		lc, be := names[rng.IntN(len(names))], names[rng.IntN(len(names))]
		near, far := []float64{rng.Float64(), rng.Float64()}[:c.Sockets], []float64{rng.Float64(), rng.Float64()}[:c.Sockets]
		rate := max(0, 1000*(2*rng.Float64()-1)) // half of them serve requests, the others have work all the time
		nsec := func(cores, level int) float64 {
			w := newWorld(t, c)
			w.add(lc, 4, func(c *machine.TaskConfig) {
				if c.Name, c.Pages = "lc", near; rate > 0 {
					c.Work, c.Requests = nil, &machine.Requests{PerSecond: rate, Instructions: 2e6, Variation: 1}
				}
			})
			n := w.add(be, cores, func(c *machine.TaskConfig) { c.Name, c.Pages = "be", far })
			class := w.AddCLOS()
			for s := range c.Sockets {
				if err := w.SetMBA(class, s, level); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.SetCLOS(n, class); err != nil {
				t.Fatal(err)
			}
			w.over(1)
			return w.over(1)["lc"].nsec
		}
		last := 0.0
		for _, cores := range []int{1, 4, 8, 16, 24} {
			now := nsec(cores, 100)
			if !(now >= last*0.995) {
				t.Errorf("%s beside %s: an instruction takes %.3f ns with %d of its cores, and %.3f with fewer", lc, be, now, cores, last)
			}
			last = now
		}
		last = 0
		for _, level := range []int{10, 20, 40, 60, 100} {
			now := nsec(24, level)
			if !(now >= last*0.995) {
				t.Errorf("%s beside %s: an instruction takes %.3f ns at a level of %d, and %.3f at a lower one", lc, be, now, level, last)
			}
			last = now
		}
	}
}
