package rig

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// guestTime is a machine's table of who ran, moved on by hand.
type guestTime struct {
	t     *testing.T
	l     *loop
	clock uint64
	ran   [tableDomains][tableRMIDs]Ran
}

const (
	aService, another, aScan = 1, 2, 3
	allWays                  = 1<<11 - 1
)

func newGuest(t *testing.T, seed uint64) *guestTime {
	t.Helper()
	l, err := newLoop(&Contention{Machine: contended(), Tenants: tenants, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	g := &guestTime{t: t, l: l}
	for d := range g.ran {
		for r := range g.ran[d] {
			g.ran[d][r].WayMask = allWays
		}
	}
	return g
}

// pass lets seconds pass in which RMIDs keep so many CPUs of domain 0 busy, in readings of 20 ms.
func (g *guestTime) pass(seconds float64, cpus map[int]float64) {
	g.t.Helper()
	for range int(seconds * 50) {
		g.clock += 20e6
		for rmid, n := range cpus {
			g.ran[0][rmid].CPUNsec += uint64(n * 20e6)
		}
		if err := g.l.advance(g.clock, &g.ran); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *guestTime) answer(domain, rmid int) Answer {
	for _, s := range g.l.seats {
		if s.domain == domain && s.rmid == rmid {
			return s.answer
		}
	}
	g.t.Fatalf("no tenant with RMID %d in domain %d", rmid, domain)
	return Answer{}
}

// mean is an RMID's mean CPI over five seconds more: the work of a moment is never alike.
func (g *guestTime) mean(rmid int, cpus map[int]float64) float64 {
	g.t.Helper()
	sum := 0.0
	for range 25 {
		g.pass(0.2, cpus)
		sum += float64(g.answer(0, rmid).CPIMilli) / 1000
	}
	return sum / 25
}

// Who scans beside a service makes it slower; not when it is capped, kept to two ways, or on the other socket.
func TestContentionHarm(t *testing.T) {
	g := newGuest(t, 1)
	alone := map[int]float64{aService: 0.8}
	beside := map[int]float64{aService: 0.8, aScan: 1}
	g.pass(10, alone)
	quiet := g.mean(aService, alone)
	if quiet < 0.8 || quiet > 1.3 {
		t.Errorf("alone it has %.2f cycles an instruction", quiet)
	}
	harm := func(what string, least, most float64, cpus map[int]float64) {
		t.Helper()
		g.pass(10, cpus)
		got := g.mean(aService, cpus) / quiet
		t.Logf("%s its CPI is %.2f times %.2f", what, got, quiet)
		if got < least || got > most {
			t.Errorf("%s its CPI is %.2f times that alone, want %.2f to %.2f", what, got, least, most)
		}
	}
	harm("beside a scan", 1.3, 4, beside)
	if a, b := g.answer(0, aService), g.answer(0, aScan); a.OccupancyBytes >= b.OccupancyBytes || b.RateBytes < 1e9 || b.LocalPercent != 100 {
		t.Errorf("service %+v, scan %+v", a, b)
	}
	harm("beside one at 0.01 CPU", 0.9, 1.1, map[int]float64{aService: 0.8, aScan: 0.01})
	harm("beside a scan again", 1.3, 4, beside)
	g.ran[0][aScan].WayMask = 3
	harm("beside one in two ways", 0.9, 1.25, beside)
	if two := g.answer(0, aScan).OccupancyBytes; two > 16<<20*2/11+1 {
		t.Errorf("in two ways it holds %d bytes", two)
	}
	g.ran[0][aScan].WayMask = allWays
	full := g.answer(0, aScan).RateBytes
	g.ran[0][aScan].DelayPercent = 90
	g.pass(5, beside)
	if got := g.answer(0, aScan).RateBytes; got > full*2/3 {
		t.Errorf("with MBA at 10 %% it moves %d bytes a second, before %d", got, full)
	}
	if got := g.answer(1, aService); got.CPIMilli != 0 {
		t.Errorf("on the socket where it never ran it has %+v", got)
	}
}

// A solver that is kept to two ways takes the memory from who waits for it: worse than before.
func TestContentionWorse(t *testing.T) {
	const aWaiter, aSolver, divided = 8, 9, 10
	g := newGuest(t, 1)
	g.pass(15, map[int]float64{aWaiter: 0.8, aSolver: 1})
	before := g.mean(aWaiter, map[int]float64{aWaiter: 0.8, aSolver: 1})
	g.ran[0][divided].WayMask = 3
	g.pass(15, map[int]float64{aWaiter: 0.8, divided: 1})
	if after := g.mean(aWaiter, map[int]float64{aWaiter: 0.8, divided: 1}); after < 1.05*before {
		t.Errorf("CPI %.2f with all ways for the solver, %.2f with two", before, after)
	}
}

// Who takes the memory's bandwidth makes a service that waits for memory slower whatever ways it has, less so at the lowest level of MBA, and with its
// pages on the other socket's memory, of which the guest tells.
func TestContentionMemory(t *testing.T) {
	const aWaiter, aStream = 14, 15
	for _, half := range []bool{false, true} {
		g := newGuest(t, 1)
		alone, beside := map[int]float64{aWaiter: 0.6}, map[int]float64{aWaiter: 0.6, aStream: 1}
		g.pass(10, alone)
		quiet := g.mean(aWaiter, alone)
		g.pass(10, beside)
		harmed := g.mean(aWaiter, beside)
		g.ran[0][aStream].WayMask = 3
		g.pass(10, beside)
		ways := g.mean(aWaiter, beside)
		if half {
			c := &Contention{}
			c.Hear("anything else")
			c.Hear("rig: pages of RMID 15 0 0")
			c.Hear("rig: pages of RMID 15 many")
			c.Hear("rig: pages of RMID 15 33554432 33554432")
			if err := c.place(g.l); err != nil {
				t.Fatal(err)
			}
		} else {
			g.ran[0][aStream].DelayPercent = 90
		}
		g.pass(10, beside)
		eased := g.mean(aWaiter, beside)
		t.Logf("alone %.2f, beside %.2f, beside two ways %.2f, eased (half of its pages elsewhere: %v) %.2f", quiet, harmed, ways, half, eased)
		if harmed < 1.3*quiet || ways < 0.95*harmed || eased > 0.85*harmed {
			t.Errorf("alone %.2f, beside %.2f, beside two ways %.2f, eased (half of its pages elsewhere: %v) %.2f", quiet, harmed, ways, half, eased)
		}
	}
}

// Time that stands still or runs back, and CPU time that goes back, change nothing; a long halt of the host is cut short.
func TestContentionTime(t *testing.T) {
	g := newGuest(t, 1)
	g.pass(3, map[int]float64{aService: 1, aScan: 1})
	before, played := g.answer(0, aService), g.l.m.NowNsec()
	g.ran[0][aScan].CPUNsec += 5e9 // its clock was not yet written
	for _, clock := range []uint64{g.clock, g.clock - 1, 0} {
		if err := g.l.advance(clock, &g.ran); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, g.answer(0, aService)); diff != "" || g.l.m.NowNsec() != played {
		t.Errorf("it was believed: -want +got:\n%s", diff)
	}
	g.ran[0][aScan].CPUNsec = 10
	g.pass(0.02, nil)
	for i := range g.l.seats {
		if s := &g.l.seats[i]; s.busy < 0 || s.busy > 2 {
			t.Errorf("RMID %d keeps %v CPUs busy", s.rmid, s.busy)
		}
	}
	played = g.l.m.NowNsec()
	g.clock += uint64(time.Hour)
	g.pass(0.02, nil)
	if got := g.l.m.NowNsec() - played; got > 2*contentionMost.Nanoseconds() {
		t.Errorf("after an hour %d ns were played", got)
	}
}

func TestContentionBySeed(t *testing.T) {
	play := func(seed uint64) (all []Answer) {
		g := newGuest(t, seed)
		for range 20 {
			g.pass(0.1, map[int]float64{aService: 1, aScan: 1})
			all = append(all, g.answer(0, aService))
		}
		return all
	}
	if diff := cmp.Diff(play(7), play(7)); diff != "" {
		t.Errorf("one seed, two runs:\n%s", diff)
	}
	if cmp.Equal(play(7), play(8)) {
		t.Error("two seeds, one run")
	}
}

// Run answers in the table, as long as the emulator writes there.
func TestContentionRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, f := makeTable(t)
		c := &Contention{Table: table, Machine: contended(), Tenants: tenants[:3], Seed: 1}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		answer := func() []uint64 {
			time.Sleep(2 * contentionEvery)
			synctest.Wait()
			return words(t, f, wantAnswers+aService*48, 6)
		}
		if got := answer(); !slices.Equal(got, make([]uint64, 6)) {
			t.Errorf("before the emulator's mark: %v", got)
		}
		const magic = 0x32304d4853544452
		put(t, f, 0, magic, 8, 256, 1e9, 1e6, 0)
		if got := answer(); got[4] != 0 {
			t.Errorf("before the guest's time runs: %v", got)
		}
		put(t, f, wantRan+aService*32, 1e9, 0, allWays, 0)
		put(t, f, 40, 1e9)
		if got := answer(); got[1] < 1<<20 || got[4] < 500 || got[5] == 0 {
			t.Errorf("when it ran: %v", got)
		}
		if got := words(t, f, wantAnswers+9*48, 6); !slices.Equal(got, make([]uint64, 6)) {
			t.Errorf("a stranger's answer was written: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A table that breaks under way ends the loop, and with it the run; so does a machine that cannot be.
func TestContentionRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, f := makeTable(t)
		if err := f.Truncate(10); err != nil {
			t.Fatal(err)
		}
		if err := (&Contention{Table: table, Machine: contended()}).Run(t.Context()); err == nil || errors.Is(err, ErrNoTable) {
			t.Errorf("got %v", err)
		}
		if err := (&Contention{Table: table}).Run(t.Context()); err == nil {
			t.Error("a machine without sockets was played")
		}
	})
}
