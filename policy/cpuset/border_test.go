package cpuset_test

import (
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpuset"
)

// quiet returns a rig on which LC has used little for so long that BE has all it can get.
func quiet(t testing.TB, topo *model.Topology, want float64) *rig {
	r := newRig(t, topo, pair()...)
	r.run(10*sec+2*sec*int64(len(topo.CPUs)), want)
	return r
}

// A step in LC's load frees cores in the first pulse after it, and the LC set is large
// enough in the second one.
func TestStepResponse(t *testing.T) {
	for _, c := range []struct {
		name      string
		topology  *model.Topology
		low, high float64
	}{
		{"two cores of one thread", cpuset.Machine(1, 1, 2, 1), 0.1, 1.5},
		{"four cores of one thread", cpuset.Machine(1, 1, 4, 1), 0.3, 3},
		{"one socket, siblings", cpuset.Machine(1, 1, 8, 2), 0.8, 6},
		{"two sockets, siblings", cpuset.Machine(2, 1, 16, 2), 2, 20},
		{"four sockets of two caches", cpuset.Machine(4, 2, 8, 2), 5, 50},
		{"many cores of one thread", cpuset.Machine(2, 1, 32, 1), 4, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := quiet(t, c.topology, c.low)
			lc, be := r.cores()
			if want := min(r.s.Size(r.p, c.low), len(r.s.Order)-r.s.FloorCores); lc < want || lc > r.s.Size(r.p, 1.2*c.low)+1 {
				t.Fatalf("LC has %d cores, BE %d, while LC uses %g CPUs and needs %d", lc, be, c.low, want)
			}
			before := len(r.Said)
			r.step(50*msec, c.high)
			after, _ := r.cores()
			most := len(r.s.Order) - r.s.FloorCores
			if after <= lc && lc < most {
				t.Fatalf("LC has %d cores after the first pulse, %d before", after, lc)
			}
			if after > lc && len(r.Said) == before {
				t.Fatal("nothing was said")
			}
			r.step(50*msec, c.high)
			r.step(50*msec, c.high)
			if after, _ = r.cores(); after < min(r.s.Size(r.p, c.high), most) {
				t.Fatalf("LC has %d cores and needs %d", after, r.s.Size(r.p, c.high))
			}
		})
	}
}

// A step that the spare absorbs is no alarm: LC's size follows it within a second, while its
// set is never full.
func TestSmallStep(t *testing.T) {
	for _, threads := range []int{1, 2} {
		r := quiet(t, cpuset.Machine(1, 1, 32, threads), 6)
		lc, _ := r.cores()
		for range 20 {
			r.step(50*msec, 9)
			if r.backlog > 0 {
				t.Fatal("LC waits")
			}
		}
		after, _ := r.cores()
		if least, most := r.s.Least(r.p, 9), r.s.Size(r.p, 9); after < least || after > most || after <= lc {
			t.Errorf("%d threads: LC went from %d to %d cores, and needs %d to %d", threads, lc, after, least, most)
		}
	}
}

// On stationary noise of single pulses the border comes to rest; where it alarms, it moves a
// bounded number of times a minute.
func TestNoOscillation(t *testing.T) {
	kinds := map[string]func(rng *rand.Rand, mean, size float64, n int) float64{
		"normal": func(rng *rand.Rand, mean, size float64, _ int) float64 {
			return mean * max(0, 1+size*rng.NormFloat64())
		},
		"sawtooth": func(_ *rand.Rand, mean, size float64, n int) float64 {
			return mean * max(0, 1+size*(float64(n%7)-3)/3)
		},
		"square": func(_ *rand.Rand, mean, size float64, n int) float64 {
			return mean * max(0, 1+size*float64(2*(n/40%2)-1))
		},
		"rare spikes": func(rng *rand.Rand, mean, size float64, _ int) float64 {
			if rng.IntN(200) == 0 {
				return mean * (1 + 4*size)
			}
			return mean
		},
	}
	const mean, minutes = 8.0, 20
	for kind, draw := range kinds {
		for _, c := range []struct {
			size  float64
			moves int // a minute, on average, after the first five
		}{{0.05, 0}, {0.2, 24}, {0.6, 30}} {
			for threads := 1; threads <= 2; threads++ {
				rng := rand.New(rand.NewPCG(1, 2))
				r := newRig(t, cpuset.Machine(1, 1, 32, threads), pair()...)
				settled := 0
				for n := range minutes * 60 * 20 {
					r.step(50*msec, draw(rng, mean, c.size, n))
					if n == 5*60*20 {
						settled = r.resizes
					}
				}
				got := r.resizes - settled
				lc, be := r.cores()
				t.Logf("%s of %g %%: %d moves in %d minutes, LC %d cores of %d, BE %d", kind, 100*c.size, got, minutes-5, lc, threads, be)
				if got > c.moves*(minutes-5) {
					t.Error("too many moves")
				}
			}
		}
	}
}

// An alarm costs BE its cores for about a second. A load that stays is followed, and left again
// in seconds.
func TestShortAndLongRise(t *testing.T) {
	r := quiet(t, cpuset.Machine(1, 1, 32, 2), 4)
	_, had := r.cores()
	r.step(50*msec, 40)
	if _, be := r.cores(); be != r.s.FloorCores {
		t.Fatalf("BE has %d cores although LC's set was full", be)
	}
	r.backlog = 0 // one pulse, and nothing was left over
	r.run(int64(1.5*float64(sec)), 4)
	if _, be := r.cores(); be < had-2 {
		t.Errorf("BE has %d cores 1.5 s after one full pulse, %d before it", be, had)
	}
	n := r.resizes
	r.run(5*sec, 4)
	if _, be := r.cores(); be != had || r.resizes-n > 2 {
		t.Errorf("BE has %d cores after 6.5 s, %d before, %d moves", be, had, r.resizes-n)
	}

	r.run(15*sec, 20)
	if lc, _ := r.cores(); lc < r.s.Size(r.p, 20) {
		t.Errorf("LC has %d cores and needs %d", lc, r.s.Size(r.p, 20))
	}
	r.run(sec, 4)
	if _, be := r.cores(); be > had*3/4 {
		t.Errorf("BE has %d cores a second after a load of 15 s, %d before it", be, had)
	}
	r.run(15*sec, 4)
	if _, be := r.cores(); be < had-1 {
		t.Errorf("BE has %d cores 16 s after a load of 15 s, %d before it", be, had)
	}
}

// Whatever the distance between spikes of one pulse, LC takes cores back so many times a
// minute at most, and each time they come back in two or three moves.
func TestAnyRhythm(t *testing.T) {
	for _, period := range []int64{1, 2, 3, 5, 8, 12, 20, 30, 33, 45, 90} {
		r := quiet(t, cpuset.Machine(1, 1, 32, 2), 4)
		n, settled, before, minutes := int64(0), 0, 0, 30
		alarms, early := 0, 0
		for range 35 * 60 / period {
			if n += period; n > 5*60 && settled == 0 {
				settled, early = r.resizes, alarms
			}
			before = r.s.BE
			if r.step(50*msec, 20); r.s.BE < before {
				alarms++
			}
			r.run(period*sec-50*msec, 4)
		}
		moves, taken := r.resizes-settled, alarms-early
		t.Logf("a spike each %d s: %d moves, %d of them by LC, in half an hour", period, moves, taken)
		if taken > (r.p.ReturnsPerMin+1)*minutes || moves > 4*(r.p.ReturnsPerMin+1)*minutes {
			t.Error("too many")
		}
	}
}

// What cannot be read is not zero: BE gets nothing, and its floor after a while.
func TestBlind(t *testing.T) {
	for _, o := range []model.Outcome{model.Unavailable, model.Absent, model.GoneBackwards} {
		r := quiet(t, cpuset.Machine(1, 1, 16, 2), 2)
		_, had := r.cores()
		r.pulse.LCUsage = model.Counter{Outcome: o}
		r.run(900*msec, 2)
		if _, be := r.cores(); be != had {
			t.Errorf("%s: BE has %d cores after 0.9 s, %d before", o, be, had)
		}
		r.run(200*msec, 2)
		if _, be := r.cores(); be != r.s.FloorCores {
			t.Errorf("%s: BE has %d cores after 1.1 s without a load", o, be)
		}
		n := len(r.Said)
		r.run(60*sec, 2)
		if len(r.Said) != n {
			t.Errorf("%s: said again: %+v", o, r.Said[n:])
		}
		r.pulse.LCUsage = model.Read(0)
		r.used = 0
		r.run(900*msec, 2)
		if _, be := r.cores(); be != r.s.FloorCores {
			t.Errorf("%s: BE has %d cores before LC was watched anew", o, be)
		}
		r.run(60*sec, 2)
		if _, be := r.cores(); be != had {
			t.Errorf("%s: BE has %d cores a minute later, %d before", o, be, had)
		}
	}
}

// A counter that goes back, pulses that are late, early, doubled or missing move nothing by
// themselves.
func TestOddPulses(t *testing.T) {
	r := quiet(t, cpuset.Machine(1, 1, 16, 2), 2)
	lc, _ := r.cores()
	same := func(what string) {
		t.Helper()
		if now, _ := r.cores(); now != lc {
			t.Fatalf("%s: LC has %d cores, %d before", what, now, lc)
		}
	}
	r.step(3*sec, 2)
	same("a pulse three seconds late")
	r.step(1*msec, 30)
	same("a pulse of a millisecond")
	r.used -= 1e9
	r.step(50*msec, 2)
	same("a counter that went back")
	r.step(50*msec, 2)
	same("the pulse after it")
	r.tick()
	same("the same pulse twice")
	r.Pulse = nil
	r.tick()
	same("no pulse")
	r.pulse.MonoNsec -= sec
	r.Pulse = &r.pulse
	r.tick()
	same("a pulse of the past")
	r.run(sec, 2)
	same("a second of good ones")
}
