package machine

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// rare is a service that hardly ever has two requests at a time.
func rare() TaskConfig {
	cfg := spinner(8)
	cfg.Work, cfg.Requests = nil, &Requests{PerSecond: 40, Instructions: 5e6, Variation: 1}
	return cfg
}

// A thread that has a CPU keeps it and gets on more slowly: it waits for nobody. One that is woken
// there, and one that stands in line, wait for the taker.
func TestTakers(t *testing.T) {
	c := oneSocket()
	c.CoresPerSocket, c.ThreadsPerCore = 4, 1
	first, _ := model.ParseCPUSet("0")
	both, _ := model.ParseCPUSet("0-1")
	bound := func(cfg TaskConfig, cpus model.CPUSet) TaskConfig {
		cfg.CPUs = cpus
		return cfg
	}
	for name, x := range map[string]struct {
		tasks            []TaskConfig // the first is looked at
		softIRQ, steal   float64      // of CPU 0
		runs             float64      // CPUs that it uses
		irq, stole, rest float64      // shares of what it waits
		still            bool         // it does not wait at all
	}{
		"alone on a CPU that is taken it waits for nobody": {
			tasks: []TaskConfig{bound(spinner(1), first)}, steal: 0.4, runs: 0.6, still: true,
		},
		"soft interrupts take of what the hypervisor leaves": {
			tasks: []TaskConfig{bound(spinner(1), first)}, steal: 0.5, softIRQ: 0.5, runs: 0.25, still: true,
		},
		"who stands in line waits for the taker too": {
			tasks: []TaskConfig{bound(spinner(1), first), bound(spinner(1), first)}, softIRQ: 0.3, runs: 0.35, irq: 0.3, rest: 0.7,
		},
		"with too many threads, for each other and for the taker": {
			tasks: []TaskConfig{bound(spinner(4), first)}, steal: 0.3, softIRQ: 0.5, runs: 0.35, irq: 0.35, stole: 0.3, rest: 0.35,
		},
		"another CPU's taker is nobody's here": {
			tasks: []TaskConfig{bound(spinner(2), both), bound(spinner(2), both)}, steal: 0.5, runs: 0.75, stole: 0.25, rest: 0.75,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, c)
			for _, cfg := range x.tasks {
				add(t, m, cfg)
			}
			must(t, m.Watch(0, true))
			must(t, m.Take(SoftIRQ, first, x.softIRQ))
			must(t, m.Take(Steal, first, x.steal))
			m.Advance(10e9)
			k, err := m.Counters(0)
			must(t, err)
			if runs := float64(k.UsageNsec) / 10e9; math.Abs(runs-x.runs) > 0.01 {
				t.Errorf("it uses %.3f CPUs, want %.3f", runs, x.runs)
			}
			w, all := waitsOf(t, m, 0)
			if math.Abs(all-float64(k.DelayNsec)) > 2 {
				t.Errorf("%.0f ns are charged, it waited %d", all, k.DelayNsec)
			}
			if x.still {
				if all > 0.01*10e9 {
					t.Errorf("it waited %.0f ns", all)
				}
				return
			}
			if irq, stole := w.TakenNsec[SoftIRQ]/all, w.TakenNsec[Steal]/all; math.Abs(irq-x.irq) > 0.01 || math.Abs(stole-x.stole) > 0.01 {
				t.Errorf("of %.0f ns soft interrupts have %.3f, the hypervisor %.3f; want %.3f and %.3f", all, irq, stole, x.irq, x.stole)
			}
		})
	}
}

// What is taken of CPUs that had something to run is counted: all that tasks used, and takers took, is
// what was to be had; and a service that is alone loses to the taker alone.
func TestTakersOfAService(t *testing.T) {
	c := oneSocket()
	c.CoresPerSocket, c.ThreadsPerCore = 2, 1
	m := newMachine(t, c)
	web := add(t, m, rare())
	must(t, m.Watch(web, true))
	m.Advance(20e9)
	before, err := m.Counters(web)
	must(t, err)
	w, quiet := waitsOf(t, m, web)
	if w.TakenNsec != [takers]float64{} {
		t.Errorf("taken by nobody: %v", w.TakenNsec)
	}
	short := latencyOf(t, m, web)
	must(t, m.Take(Steal, model.FullSet(2), 0.5))
	m.Advance(20e9)
	after, err := m.Counters(web)
	must(t, err)
	w, all := waitsOf(t, m, web)
	if share := w.TakenNsec[Steal] / all; share < 0.9 || all < 2*quiet {
		t.Errorf("of %.0f ns, %.0f before, the hypervisor has %.2f", all, quiet, share)
	}
	used, was := after.UsageNsec-before.UsageNsec, before.UsageNsec
	if math.Abs(float64(used)/float64(was)-1) > 0.1 {
		t.Errorf("its requests take %d ns, %d before", used, was)
	}
	if stole := m.TakenNsec(Steal); math.Abs(float64(stole)/float64(used)-1) > 0.02 {
		t.Errorf("%d ns are stolen, beside %d that were used", stole, used)
	}
	if long := latencyOf(t, m, web); long < 1.8*short {
		t.Errorf("a request takes %.0f ns, %.0f before", long, short)
	}
}

func latencyOf(t *testing.T, m *Machine, num int) float64 {
	t.Helper()
	h, _, err := m.Latencies(num)
	must(t, err)
	return h.Mean()
}

func TestTakersRefused(t *testing.T) {
	m := newMachine(t, oneSocket())
	c := m.Config()
	for _, err := range []error{
		m.Take(takers, model.CPUSet{}, 0.1), m.Take(-1, model.CPUSet{}, 0.1), m.Take(Steal, model.FullSet(c.CPUs()+1), 0.1),
		m.Take(Steal, model.FullSet(1), -0.1), m.Take(Steal, model.FullSet(1), 0.91), m.Take(SoftIRQ, model.FullSet(1), math.NaN()),
	} {
		if err == nil {
			t.Error("it was taken")
		}
	}
}
