package program

import (
	"math"
	"regexp"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/twin/machine"
)

// Every program can be run on the default machine, is described and has a source.
func TestEveryProgramRuns(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	names := Names()
	if len(names) < 30 || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Fatalf("names: %v", names)
	}
	for _, name := range names {
		p, ok := Find(name)
		if !ok || !kebab.MatchString(name) || p.What == "" || p.Source == "" {
			t.Errorf("%s: %+v", name, p)
		}
		c := machine.TaskConfig{Name: name, Threads: 4, Work: &machine.Work{}}
		p.Apply(&c)
		config := machine.Skylake()
		if err := c.Check(&config); err != nil {
			t.Error(err)
		}
	}
	if _, ok := Find("nonesuch"); ok {
		t.Error("found what is not there")
	}
}

// The SPEC programs were fitted with the cycles of an LLC hit that the machine has.
func TestHitCycles(t *testing.T) {
	if c := machine.Skylake(); c.LLCHitCycles != hitCycles {
		t.Errorf("a hit costs %v cycles on the machine, and the catalogue was fitted with %v", c.LLCHitCycles, float64(hitCycles))
	}
}

// Two callers get two catalogues: what one changes the other does not see.
func TestCataloguesAreApart(t *testing.T) {
	a, _ := Find("xalancbmk")
	a.Curve.MPKI[0] = 0
	if b, _ := Find("xalancbmk"); b.Curve.MPKI[0] != 34.9 {
		t.Error("a caller changed the catalogue")
	}
}

// Alone on an idle machine each program of a known CPI has that CPI, and each of known
// traffic that traffic.
func TestAlone(t *testing.T) {
	for _, want := range []struct {
		name     string
		cpi, gb  float64 // GB/s read and written, with the source's threads
		readPart float64
	}{
		{"cpi2-job-a", 0.88, 0, 0}, {"cpi2-job-b", 1.36, 0, 0}, {"cpi2-job-c", 2.03, 0, 0}, {"web-search-leaf", 1.8, 0, 0},
		{"npb-mg", 0, 33.47, 26.31}, {"ocean", 0, 32.29, 23.81}, {"npb-sp", 0, 31.24, 20.48}, {"npb-ua", 0, 22.19, 16.79},
		{"blackscholes", 0, 2.85, 2.50}, {"npb-ep", 0, 0.02, 0.01}, {"specjbb-big", 0, 16.27, 12.30},
		{"memcached-small", 0, 3.40, 1.99}, {"redis-big", 0, 3.62, 2.19}, {"stream-big", 0, 7.45, 1.21}, {"sysbench-memory", 0, 14.38, 0.14},
	} {
		p, ok := Find(want.name)
		if !ok {
			t.Fatal(want.name)
		}
		threads := max(1, p.Threads)
		config := machine.Skylake()
		config.Sockets, config.CoresPerSocket, config.ThreadsPerCore = 1, 24, 1
		m, err := machine.New(config, 1)
		if err != nil {
			t.Fatal(err)
		}
		c := machine.TaskConfig{Name: p.Name, Threads: threads, Work: &machine.Work{}}
		p.Apply(&c)
		n, err := m.Add(c)
		if err != nil {
			t.Fatal(err)
		}
		m.Advance(20e9)
		a, _ := m.Counters(n)
		m.Advance(5e9)
		b, _ := m.Counters(n)
		cpi := float64(b.Cycles-a.Cycles) / float64(b.Instructions-a.Instructions)
		gb := float64(b.MemBytes-a.MemBytes) / 5e9
		if want.cpi > 0 && math.Abs(cpi-want.cpi) > 0.03*want.cpi {
			t.Errorf("%s: CPI %.3f, published %.2f", p.Name, cpi, want.cpi)
		}
		if want.gb > 0 && math.Abs(gb-want.gb) > 0.08*want.gb {
			t.Errorf("%s: %.2f GB/s, published %.2f", p.Name, gb, want.gb)
		}
	}
}

// A service that waits for more takes as long alone, and longer where memory is slower; other programs are as they were.
func TestExposed(t *testing.T) {
	c := machine.Skylake()
	slow := c
	slow.MemLatencyNsec *= 2
	for _, name := range Names() {
		p, _ := Find(name)
		e := p.Exposed()
		if !p.Service {
			if e.Overlap != p.Overlap || e.CPI != p.CPI {
				t.Errorf("%s serves nobody and changed", name)
			}
			continue
		}
		if alone, was := e.cycles(&c), p.cycles(&c); math.Abs(alone-was) > 1e-9 || e.CPI < 0.1 {
			t.Errorf("%s takes %.3f cycles alone, was %.3f; its core's own are %.3f", name, alone, was, e.CPI)
		}
		if e.cycles(&slow) <= p.cycles(&slow) {
			t.Errorf("%s does not feel a slower memory more", name)
		}
	}
}
