package slo

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/quick"
	"time"
)

// dumbWindow is what Window must agree with: it keeps everything and sorts each time.
type dumbWindow struct {
	length   time.Duration
	capacity int
	all      []sample
}

func (d *dumbWindow) reading(now time.Time, ages []time.Duration) Reading {
	var in []sample
	for _, s := range d.all {
		if now.Sub(s.at) < d.length {
			in = append(in, s)
		}
	}
	if len(in) > d.capacity {
		in = in[len(in)-d.capacity:]
	}
	r := Reading{Window: d.length}
	var lat []time.Duration
	for _, s := range in {
		lat = append(lat, s.latency)
		if s.failed {
			r.Errors++
		}
	}
	slices.Sort(lat)
	known := nearestRank(lat, 99, 100)
	for _, a := range ages {
		if a > known {
			lat = append(lat, a)
			r.Overdue++
		}
	}
	slices.Sort(lat)
	r.Samples = len(lat)
	r.Status.State = StateTooFew
	if len(lat) >= 2 {
		r.Valid, r.P50 = r.Valid|HasP50, nearestRank(lat, 50, 100)
	}
	if len(lat) >= 100 {
		r.Valid, r.P99, r.Status.State = r.Valid|HasP99, nearestRank(lat, 99, 100), StateOK
	}
	if len(lat) >= 1000 {
		r.Valid, r.P999 = r.Valid|HasP999, nearestRank(lat, 999, 1000)
	}
	return r
}

// nearestRank uses whole numbers, so that it also guards against the rounding of q.
func nearestRank(sorted []time.Duration, num, den int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*num+den-1)/den, 1)-1]
}

func TestWindowAgreesWithSorting(t *testing.T) {
	check := func(seed uint64) bool {
		rng := rand.New(rand.NewPCG(seed, 1))
		length := time.Duration(1+rng.IntN(3000)) * time.Millisecond
		capacity := 1 + rng.IntN(1500)
		w, d := NewWindow(length, capacity), &dumbWindow{length: length, capacity: capacity}
		now := time.Unix(1_700_000_000, 0)
		for range 200 + rng.IntN(2000) {
			// Few distinct values, so that equal latencies meet.
			s := sample{now, time.Duration(rng.IntN(1 + rng.IntN(5000))), rng.IntN(10) == 0}
			w.Add(s.at, s.latency, s.failed)
			d.all = append(d.all, s)
			now = now.Add(time.Duration(rng.IntN(4)) * time.Millisecond)
			if rng.IntN(500) == 0 {
				now = now.Add(time.Duration(rng.IntN(4000)) * time.Millisecond)
			}
			if rng.IntN(50) != 0 {
				continue
			}
			ages := make([]time.Duration, rng.IntN(60))
			for i := range ages {
				ages[i] = time.Duration(rng.IntN(8000))
			}
			slices.Sort(ages)
			slices.Reverse(ages)
			var got Reading
			w.Fill(&got, now, len(ages), func(i int) time.Duration { return ages[i] })
			if want := d.reading(now, ages); got != want {
				t.Logf("seed %d:\ngot  %+v\nwant %+v", seed, got, want)
				return false
			}
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 40}); err != nil {
		t.Error(err)
	}
}

func TestWindowValidity(t *testing.T) {
	t0 := time.Unix(0, 0)
	for _, c := range []struct {
		n     int
		valid Percentiles
		state State
	}{
		{0, 0, StateTooFew}, {1, 0, StateTooFew}, {2, HasP50, StateTooFew}, {99, HasP50, StateTooFew},
		{100, HasP50 | HasP99, StateOK}, {999, HasP50 | HasP99, StateOK}, {1000, HasP50 | HasP99 | HasP999, StateOK},
	} {
		w := NewWindow(time.Second, 2000)
		for i := range c.n {
			w.Add(t0, time.Duration(i+1), false)
		}
		var r Reading
		w.Fill(&r, t0, 0, nil)
		if r.Valid != c.valid || r.Status.State != c.state || r.Samples != c.n {
			t.Errorf("%d samples: %+v", c.n, r)
		}
	}
}

// A service that stops answering must look worse at once, not after the timeout.
func TestWindowCountsOverdue(t *testing.T) {
	t0 := time.Unix(0, 0)
	w := NewWindow(3*time.Second, 200)
	for i := range 150 {
		w.Add(t0.Add(time.Duration(i)*20*time.Millisecond), time.Millisecond, false)
	}
	ages := []time.Duration{60 * time.Millisecond, 40 * time.Millisecond, 20 * time.Millisecond, 100 * time.Microsecond}
	var r Reading
	w.Fill(&r, t0.Add(2990*time.Millisecond), len(ages), func(i int) time.Duration { return ages[i] })
	if r.Overdue != 3 || r.Samples != 153 || r.P99 != 40*time.Millisecond || r.P50 != time.Millisecond {
		t.Errorf("got %+v", r)
	}
}

func TestWindowDoesNotAllocate(t *testing.T) {
	w := NewWindow(time.Second, 128)
	now := time.Unix(0, 0)
	var r Reading
	age := func(i int) time.Duration { return time.Duration(math.MaxInt32 - i) }
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(9 * time.Millisecond)
		w.Add(now, time.Duration(now.Nanosecond()), false)
		w.Fill(&r, now, 5, age)
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func TestNames(t *testing.T) {
	if s := (Status{StateUnavailable, "connection refused"}).String(); s != "unavailable: connection refused" {
		t.Error(s)
	}
	if s := (Status{State: StateTooFew}).String(); s != "too-few" {
		t.Error(s)
	}
	if s := State(9).String(); s != "state(9)" {
		t.Error(s)
	}
	if (Reading{}).Status.State != StateUnavailable {
		t.Error("the zero reading must not pass for a measurement")
	}
}
