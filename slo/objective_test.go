package slo

import (
	"testing"
	"time"
)

// The colours are BALM's: missed, less than thr_yellow below the target, at least thr_green below it, and
// grey between the two. What has no valid figure is grey, whatever else it says.
func TestColours(t *testing.T) {
	o := Objective{Target: 10 * time.Millisecond, Quantile: 0.99, Yellow: 0.05, Green: 0.2}
	ok := func(v, late time.Duration) Reading {
		return Reading{Asked: v, Valid: HasP50 | HasP99 | HasAsked, Samples: 150, Lateness: late, Status: Status{State: StateOK}}
	}
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	few := ok(ms(1), 0)
	few.Valid = HasP50
	for _, c := range []struct {
		name   string
		r      Reading
		want   Colour
		figure bool
	}{
		{"far below", ok(ms(1), 0), Green, true},
		{"at green's margin", ok(ms(8), 0), Green, true},
		{"between", ok(ms(8.5), 0), Grey, true},
		{"at yellow's margin", ok(ms(9.5), 0), Grey, true},
		{"soon", ok(ms(9.6), 0), Yellow, true},
		{"at the target", ok(ms(10), 0), Yellow, true},
		{"missed", ok(ms(10.1), 0), Red, true},
		{"missed, and the probe somewhat late", ok(ms(30), ms(10)), Red, true},
		{"the probe itself was late", ok(ms(12), ms(6)), Grey, false},
		{"well although the probe was late", ok(ms(2), ms(2)), Green, true},
		{"too few", few, Grey, false},
		{"unavailable", ok(ms(1), 0).Unavailable("gone"), Grey, false},
		{"nothing", Reading{}, Grey, false},
	} {
		got, v, figure, why := o.Judge(&c.r)
		if got != c.want || figure != c.figure || figure && v != c.r.Asked || !figure && why == "" && c.name != "nothing" {
			t.Errorf("%s: %s, %v, %v, %q", c.name, got, v, figure, why)
		}
	}
	var none Objective
	if c, _, figure, _ := none.Judge(&Reading{Valid: HasAsked, Status: Status{State: StateOK}}); c != Grey || figure {
		t.Errorf("without a target: %s", c)
	}
	for c := Grey; c <= Red; c++ {
		b, _ := c.MarshalText()
		var back Colour
		if err := back.UnmarshalText(b); err != nil || back != c {
			t.Errorf("%s: %v, %v", b, back, err)
		}
	}
	if err := new(Colour).UnmarshalText([]byte("blue")); err == nil {
		t.Error("blue is a colour")
	}
}

func TestMinSamples(t *testing.T) {
	for q, want := range map[float64]int{0.5: 2, 0.9: 10, 0.95: 20, 0.99: 100, 0.999: 1000, 0.9999: 10000} {
		if got := MinSamples(q); got != want {
			t.Errorf("%g: %d, want %d", q, got, want)
		}
	}
	w := NewWindow(time.Second, 100)
	w.Ask(0.95)
	for i := range 20 {
		w.Add(time.Unix(0, 0), time.Duration(i+1), false)
	}
	var r Reading
	if w.Fill(&r, time.Unix(0, 0), 0, nil); r.Asked != 19 || r.Valid != HasP50|HasAsked {
		t.Errorf("%+v", r)
	}
}
