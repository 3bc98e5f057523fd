package rig

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// steady are tenants whose work is always the same.
func steady() []Tenant {
	return []Tenant{
		{RMID: 1, CPI: 1.0, MPKI: 2, Sensitivity: 1.0, Appetite: 0.1},
		{RMID: 2, CPI: 2.0, MPKI: 20, Sensitivity: 0.5, Appetite: 2.0},
	}
}

// guestTime is a machine's table of who ran, moved on by hand.
type guestTime struct {
	clock uint64
	ran   [tableDomains][tableRMIDs]Ran
}

// pass lets time pass with a number of CPUs kept busy by an RMID in a domain.
func (g *guestTime) pass(d time.Duration, domain, rmid int, cpus float64) {
	g.clock += uint64(d)
	g.ran[domain][rmid].CPUNsec += uint64(cpus * float64(d))
}

func near(got uint64, want float64) bool { return math.Abs(float64(got)-want) <= 1 }

func TestPressureAlone(t *testing.T) {
	p := newPressure(steady(), 1)
	var g guestTime
	check := func(what string) {
		t.Helper()
		want := []Answer{{CPIMilli: 1000, MPKI: 2}, {CPIMilli: 2000, MPKI: 20}}
		for d := range tableDomains {
			if diff := cmp.Diff(want, p.answers(d)); diff != "" {
				t.Errorf("%s: domain %d: -want +got:\n%s", what, d, diff)
			}
		}
	}
	check("before the first reading")
	g.pass(time.Second, 0, 0, 2) // idle is RMID 0's
	if !p.advance(g.clock, &g.ran) {
		t.Error("the first reading was not taken")
	}
	check("nobody ran")
}

func TestPressureOfAnAntagonist(t *testing.T) {
	p := newPressure(steady(), 1)
	var g guestTime
	g.pass(time.Second, 0, 2, 1)
	if !p.advance(g.clock, &g.ran) {
		t.Fatal("the reading was not taken")
	}
	// One CPU, 2.0 units a CPU: a CPI of 1 * (1 + 1 * 2) and 2 misses become 6. Its own
	// pressure is none on itself.
	if diff := cmp.Diff([]Answer{{CPIMilli: 3000, MPKI: 6}, {CPIMilli: 2000, MPKI: 20}}, p.answers(0)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]Answer{{CPIMilli: 1000, MPKI: 2}, {CPIMilli: 2000, MPKI: 20}}, p.answers(1)); diff != "" {
		t.Errorf("the other domain: -want +got:\n%s", diff)
	}
	// Both at two CPUs, each hurts the other.
	g.clock += uint64(time.Second)
	g.ran[0][1].CPUNsec += 2e9
	g.ran[0][2].CPUNsec += 2e9
	p.advance(g.clock, &g.ran)
	if diff := cmp.Diff([]Answer{{CPIMilli: 5000, MPKI: 10}, {CPIMilli: 2200, MPKI: 22}}, p.answers(0)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// It stopped: a span later nothing is left of it.
	g.pass(contentionSpan, 0, 2, 0)
	p.advance(g.clock, &g.ran)
	if got := p.answers(0); got[0].CPIMilli != 1000 {
		t.Errorf("after it stopped: %+v", got)
	}
}

// "Lately" is an average: a reading of half a span moves it half of the way.
func TestPressureAverages(t *testing.T) {
	p := newPressure(steady(), 1)
	var g guestTime
	half := 0.0
	for i := range 6 {
		g.pass(contentionSpan/2, 0, 2, 1)
		p.advance(g.clock, &g.ran)
		half += (1 - half) / 2
		if got := p.answers(0)[0].CPIMilli; !near(got, 1000*(1+2*half)) {
			t.Errorf("reading %d: %d, want %.1f", i, got, 1000*(1+2*half))
		}
	}
	// A tenth of a CPU in periods of 100 ms counts by its mean.
	for i := range 100 {
		g.pass(10*time.Millisecond, 0, 2, map[bool]float64{true: 1}[i%10 == 0])
		p.advance(g.clock, &g.ran)
	}
	if got := p.answers(0)[0].CPIMilli; got < 1100 || got > 1400 {
		t.Errorf("capped at 0.1 CPU: %d, want about 1200", got)
	}
}

func TestPressureTimeStandsStill(t *testing.T) {
	p := newPressure(steady(), 1)
	var g guestTime
	if p.advance(0, &g.ran) {
		t.Error("a reading at time 0 was taken")
	}
	g.pass(time.Second, 0, 2, 1)
	p.advance(g.clock, &g.ran)
	before := p.answers(0)
	g.ran[0][2].CPUNsec += 5e9 // its clock was not yet written
	for _, clock := range []uint64{g.clock, g.clock - 1, 0} {
		if p.advance(clock, &g.ran) {
			t.Errorf("a reading of time %d after %d was taken", clock, g.clock)
		}
	}
	if diff := cmp.Diff(before, p.answers(0)); diff != "" {
		t.Errorf("it was believed: -want +got:\n%s", diff)
	}
	// What it ran is not lost: one CPU throughout.
	g.clock += uint64(5 * time.Second)
	p.advance(g.clock, &g.ran)
	if diff := cmp.Diff(before, p.answers(0)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// CPU time that went back gives no rate, neither a huge one nor none.
func TestPressureCPUTimeGoesBack(t *testing.T) {
	p := newPressure(steady(), 1)
	var g guestTime
	g.pass(time.Second, 0, 2, 1)
	p.advance(g.clock, &g.ran)
	before := p.answers(0)
	g.clock += uint64(time.Second)
	g.ran[0][2].CPUNsec = 10
	if !p.advance(g.clock, &g.ran) {
		t.Error("the reading was not taken")
	}
	if diff := cmp.Diff(before, p.answers(0)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	g.pass(time.Second, 0, 2, 0.5)
	p.advance(g.clock, &g.ran)
	if got := p.answers(0)[0].CPIMilli; !near(got, 2000) {
		t.Errorf("afterwards: %d, want 2000", got)
	}
}

func TestPressureBySeed(t *testing.T) {
	list := slices.Clone(tenants)
	list[0].Spread = 1e6 // beyond any sense: the draw is held within three deviations
	play := func(seed uint64) (all [][]Answer) {
		p := newPressure(list, seed)
		var g guestTime
		for range 20 {
			g.pass(100*time.Millisecond, 0, 3, 1)
			p.advance(g.clock, &g.ran)
			all = append(all, p.answers(0), p.answers(1))
		}
		return all
	}
	if diff := cmp.Diff(play(7), play(7)); diff != "" {
		t.Errorf("one seed, two runs:\n%s", diff)
	}
	if cmp.Equal(play(7), play(8)) {
		t.Error("two seeds, one run")
	}
	// Work stays alike for half a second of the guest's time.
	p := newPressure(tenants, 7)
	var g guestTime
	drawn := 0
	last := slices.Clone(p.spread)
	for range 50 {
		g.pass(100*time.Millisecond, 0, 0, 0)
		p.advance(g.clock, &g.ran)
		if !slices.Equal(last, p.spread) {
			drawn++
			last = slices.Clone(p.spread)
		}
		for i, s := range p.spread {
			if most := 3 * tenants[i].Spread; math.Abs(s-1) > most+1e-9 {
				t.Errorf("factor %v, want at most %v from 1", s, most)
			}
		}
	}
	if drawn != 10 {
		t.Errorf("%d draws in 5 s, want 10", drawn)
	}
}

// Run answers in the table, as long as the emulator writes there.
func TestContentionRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, f := makeTable(t)
		c := &Contention{Table: table, Tenants: steady(), Seed: 1}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		answer := func() []uint64 {
			time.Sleep(2 * contentionEvery)
			synctest.Wait()
			return words(t, f, wantAnswers+48, 6)
		}
		if got := answer(); !slices.Equal(got, make([]uint64, 6)) {
			t.Errorf("before the emulator's mark: %v", got)
		}
		const magic = 0x32304d4853544452
		put(t, f, 0, magic, 8, 256, 1e9, 1e6, 0)
		if got := answer(); got[4] != 0 {
			t.Errorf("before the guest's time runs: %v", got)
		}
		put(t, f, wantRan+2*32, 1e9)
		put(t, f, 40, 1e9)
		if got := answer(); got[4] != 3000 || got[5] != 6 {
			t.Errorf("beside an antagonist: %v", got)
		}
		put(t, f, 40, 2e9) // and a second without it
		if got := answer(); got[4] != 1000 || got[5] != 2 {
			t.Errorf("alone: %v", got)
		}
		if got := words(t, f, wantAnswers+3*48, 6); !slices.Equal(got, make([]uint64, 6)) {
			t.Errorf("a stranger's answer was written: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A table that breaks under way ends the rule, and with it the run.
func TestContentionRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, f := makeTable(t)
		if err := f.Truncate(10); err != nil {
			t.Fatal(err)
		}
		if err := (&Contention{Table: table}).Run(t.Context()); err == nil || errors.Is(err, ErrNoTable) {
			t.Errorf("got %v", err)
		}
	})
}
