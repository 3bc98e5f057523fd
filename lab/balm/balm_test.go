package balm

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/labtest"
)

// A short run is the same twice, and its arms did what they are called.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	r := labtest.Twice(t, func() (*Result, error) {
		return Run(context.Background(), Options{Seed: 3, Quick: true, loads: []float64{0.8}})
	})
	for i := range r.Services {
		if s := &r.Services[i]; s.Full <= s.Rates[0] || s.Full >= s.Rates[len(s.Rates)-1] || s.Target <= s.P99[0] {
			t.Errorf("%+v", s)
		}
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Place == Same && c.mean(Home, missed) < trouble {
			t.Errorf("%s at %.1f of the load as it is found misses its target %.2f of the time", c.Batch, c.Load, c.mean(Home, missed))
		}
		if c.mean(Fixed, work) >= c.mean(Home, work) || c.mean(Spread, p99) >= c.mean(Home, p99) {
			t.Errorf("%s at %.1f: %+v", c.Batch, c.Load, c.Arms)
		}
		for arm := range NumArms {
			if w := c.mean(arm, work); math.IsNaN(w) || w <= 0 || c.mean(arm, missed) > 1 {
				t.Errorf("%s: %+v", arm, c.Arms[arm])
			}
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "MBA and pages") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// The goals can be missed, each by itself, and nothing is reached where no cell counts.
func TestGoals(t *testing.T) {
	good := func() (c Cell) {
		for arm := range NumArms {
			c.Arms[arm] = []At{{Work: 1, Missed: 0.01}}
		}
		c.Arms[Home][0] = At{Work: 1.5, Missed: 1}
		return c
	}
	for i, spoil := range []func(a, b *Cell){
		func(a, _ *Cell) { a.Arms[Both][0].Missed = 0.2 },
		func(_, b *Cell) { b.Arms[Both][0].Work = 0.4 },
		func(a, _ *Cell) { a.Arms[Both][0].Work = 1.8 },
		func(*Cell, *Cell) {},
		func(a, b *Cell) { a.Arms[Home][0].Missed, b.Arms[Home][0].Missed = 0, 0 },
	} {
		a, b := good(), good()
		a.Arms[Both][0].Work, b.Arms[Both][0].Work = 2, 1.3
		spoil(&a, &b)
		quiet := good()
		quiet.Place, quiet.Arms[Home][0].Missed = Opposite, 0 // where nothing is in trouble nothing is reached
		r := &Result{Cells: []Cell{a, b, quiet}}
		r.sum()
		for k := range r.Goals {
			if met := k != i && i != 4 && k < 3; r.Goals[k].Met != met {
				t.Errorf("goal %d with figure %d spoilt: %+v", k, i, r.Goals[k])
			}
		}
	}
}
