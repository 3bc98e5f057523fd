package cpuset

import (
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
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
		shape     shape
		low, high float64
	}{
		{"two cores of one thread", shape{1, 1, 2, 1}, 0.1, 1.5},
		{"four cores of one thread", shape{1, 1, 4, 1}, 0.3, 3},
		{"one socket, siblings", shape{1, 1, 8, 2}, 0.8, 6},
		{"two sockets, siblings", shape{2, 1, 16, 2}, 2, 20},
		{"four sockets of two caches", shape{4, 2, 8, 2}, 5, 50},
		{"a small step", shape{1, 1, 32, 2}, 4, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := quiet(t, c.shape.topology(), c.low)
			lc, be := r.cores()
			low := r.s.needs(c.low)
			if n := len(r.s.Order); lc > low+2*r.p.ReserveCores && be < n-low-2*r.p.ReserveCores {
				t.Fatalf("BE got %d of %d cores while LC uses %g CPUs", be, n, c.low)
			}
			if low+r.p.ReserveCores < len(r.s.Order)-r.s.FloorCores && lc >= len(r.s.Order)-r.s.FloorCores {
				t.Fatalf("BE got nothing: LC has %d cores", lc)
			}
			before := len(r.said)
			r.step(50*msec, c.high)
			after, _ := r.cores()
			most := len(r.s.Order) - r.s.FloorCores
			if after <= lc && lc < most {
				t.Fatalf("LC has %d cores after the first pulse, %d before", after, lc)
			}
			if after > lc && len(r.said) == before {
				t.Fatal("nothing was said")
			}
			r.step(50*msec, c.high)
			r.step(50*msec, c.high)
			if after, _ = r.cores(); after < min(r.s.needs(c.high), most) {
				t.Fatalf("LC has %d cores and needs %d", after, r.s.needs(c.high))
			}
		})
	}
}

// On stationary noise the border comes to rest: whatever the noise, it moves a bounded
// number of times a minute once it has settled, and not at all where the reserve holds it.
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
		}{{0.05, 0}, {0.2, 2}, {0.6, 4}} {
			rng := rand.New(rand.NewPCG(1, 2))
			r := newRig(t, shape{1, 1, 32, 2}.topology(), pair()...)
			settled := 0
			for n := range minutes * 60 * 20 {
				r.step(50*msec, draw(rng, mean, c.size, n))
				if n == 5*60*20 {
					settled = r.resizes
				}
			}
			if got := r.resizes - settled; got > c.moves*(minutes-5) {
				t.Errorf("%s of %g %%: %d moves in %d minutes", kind, 100*c.size, got, minutes-5)
			} else {
				lc, be := r.cores()
				t.Logf("%s of %g %%: %d moves in %d minutes, LC %d cores, BE %d", kind, 100*c.size, got, minutes-5, lc, be)
			}
		}
	}
}

// One noisy pulse costs BE its cores for about a second, a rise that lasts costs them for
// the whole hold, and then one core a second comes back.
func TestShortAndLongRise(t *testing.T) {
	r := quiet(t, shape{1, 1, 32, 2}.topology(), 4)
	_, had := r.cores()
	r.step(50*msec, 40)
	if _, be := r.cores(); be != r.s.FloorCores {
		t.Fatalf("BE has %d cores although LC's set was full", be)
	}
	r.backlog = 0 // one pulse, and nothing was left over
	n := 0
	for ; r.s.BE < had && n < 1000; n++ {
		r.step(50*msec, 4)
	}
	if n < 15 || n > 40 {
		t.Errorf("BE was back at %d cores after %d pulses", had, n)
	}
	if r.resizes > 60+2 {
		t.Errorf("%d moves", r.resizes)
	}

	r = quiet(t, shape{1, 1, 32, 2}.topology(), 4)
	r.run(4*sec, 20)
	_, low := r.cores()
	r.run(9*sec, 4)
	if _, be := r.cores(); be > low {
		t.Errorf("BE got a core %d s into the hold of %d s", 9, r.p.HoldNsec/sec)
	}
	r.run(6*sec, 4)
	if _, be := r.cores(); be < low+3 || be > low+7 {
		t.Errorf("BE went from %d to %d cores in the seconds after the hold", low, be)
	}
}

// Spikes that come every few seconds are learned: the border stops moving.
func TestLearnsSpikes(t *testing.T) {
	r := quiet(t, shape{1, 1, 32, 2}.topology(), 4)
	moves := []int{}
	for range 30 {
		before := r.resizes
		r.step(50*msec, 12)
		r.run(5*sec-50*msec, 4)
		moves = append(moves, r.resizes-before)
	}
	late := 0
	for _, n := range moves[10:] {
		late += n
	}
	if late > 2 {
		t.Fatalf("moves by spike: %v", moves)
	}
	if r.s.Keep.Doubled == 0 {
		t.Fatal("the hold was not doubled")
	}
	r.run(int64(r.s.Keep.Doubled+1)*r.p.QuietNsec, 4)
	if r.s.Keep.Doubled != 0 {
		t.Errorf("the hold is still doubled %d times after a quiet time", r.s.Keep.Doubled)
	}
}

// Whatever the distance between spikes of one pulse, once there was time to learn it the
// border moves four times a minute at most.
func TestAnyRhythm(t *testing.T) {
	for _, period := range []int64{1, 2, 3, 5, 8, 12, 20, 30, 33, 45, 90} {
		r := quiet(t, shape{1, 1, 32, 2}.topology(), 4)
		n, settled := int64(0), 0
		for range 35 * 60 / period {
			if n += period; n > 5*60 && settled == 0 {
				settled = r.resizes
			}
			r.step(50*msec, 20)
			r.run(period*sec-50*msec, 4)
		}
		if got := r.resizes - settled; got > 4*30 {
			t.Errorf("a spike each %d s: %d moves in half an hour", period, got)
		} else {
			t.Logf("a spike each %d s: %d moves in half an hour", period, got)
		}
	}
}

// What cannot be read is not zero: BE gets nothing, and its floor after a while.
func TestBlind(t *testing.T) {
	for _, o := range []model.Outcome{model.Unavailable, model.Absent, model.GoneBackwards} {
		r := quiet(t, shape{1, 1, 16, 2}.topology(), 2)
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
		n := len(r.said)
		r.run(60*sec, 2)
		if len(r.said) != n {
			t.Errorf("%s: said again: %+v", o, r.said[n:])
		}
		r.pulse.LCUsage = model.Read(0)
		r.used = 0
		r.run(9*sec, 2)
		if _, be := r.cores(); be != r.s.FloorCores {
			t.Errorf("%s: BE has %d cores within the hold after it", o, be)
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
	r := quiet(t, shape{1, 1, 16, 2}.topology(), 2)
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
	r.v.Pulse = nil
	r.tick()
	same("no pulse")
	r.pulse.MonoNsec -= sec
	r.v.Pulse = &r.pulse
	r.tick()
	same("a pulse of the past")
	r.run(sec, 2)
	same("a second of good ones")
}
