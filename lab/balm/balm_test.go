package balm

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/labtest"
	"github.com/commensal-io/commensal/lab/stat"
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

// While pages move every service feels it, by more than nothing and less than twice; the same is played twice. Pages across do what figure 1 is about.
func TestMovesAndShares(t *testing.T) {
	r := labtest.Twice(t, func() (*Result, error) {
		return Run(context.Background(), Options{Seed: 3, Quick: true, Only: PartMoves})
	})
	for i := range r.MoveSums {
		if m := &r.MoveSums[i]; m.Beside == Free && !(m.Ratios[0].Mean > 0 && m.Ratios[0].Mean < 1) {
			t.Errorf("%+v", m)
		}
	}
	for i := range r.Moves {
		if v := &r.Moves[i]; !(v.Seconds > 0 && v.GiB/v.Seconds < 10) || v.Huge != (i%2 == 1) {
			t.Errorf("%+v", v)
		}
	}
	shares, err := Run(context.Background(), Options{Seed: 3, Quick: true, Only: PartShares})
	if err != nil {
		t.Fatal(err)
	}
	for i := range shares.Across {
		if a := &shares.Across[i]; a.Share == 0 && a.Work.Mean != 1 || a.Share == 1 && !(a.Work.Mean < 1 && a.P99.Mean > 1) || a.Share == 0.3 && a.Work.Mean <= 1 {
			t.Errorf("%+v", a)
		}
	}
	var text bytes.Buffer
	if err := errors.Join(r.WriteText(&text), shares.WriteText(&text)); err != nil || !strings.Contains(text.String(), "pages moved for nothing") || !strings.Contains(text.String(), "Pages across") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// Moves fail where one percentile of one service is higher, and not where that may be chance or nothing was played; figure 1 where no share gives enough, or one program's
// every share does harm.
func TestMoveAndShareGoals(t *testing.T) {
	for i, test := range []struct {
		higher func(seed int) float64
		met    bool
	}{
		{func(int) float64 { return 0 }, true},
		{func(int) float64 { return 0.05 }, false},
		{func(int) float64 { return 0.019 }, true},
		{func(seed int) float64 { return []float64{1, -0.8}[seed%2] }, true},
	} {
		r := &Result{}
		for seed := range 10 {
			for _, huge := range [...]bool{false, true} {
				v := Move{Seed: uint64(seed), Huge: huge}
				for s := range v.Ratios {
					for b := range v.Ratios[s] {
						v.Ratios[s][b] = [len(quantiles)]float64{1, 1, 1}
					}
				}
				v.Ratios[1][Free][2] += test.higher(seed)
				r.Moves = append(r.Moves, v)
			}
		}
		r.sumMoves()
		for _, g := range r.Goals {
			if free := strings.Contains(g.What, besideNames[Free]); g.Met != (test.met || !free) {
				t.Errorf("%d: %+v", i, g)
			}
		}
	}
	none := &Result{}
	none.sumMoves()
	for _, g := range none.Goals {
		if g.Met {
			t.Errorf("%+v", g)
		}
	}
	for i, p99 := range []float64{1.1, 3} {
		r := &Result{}
		for k, batch := range heavy {
			a := Across{Batch: batch, Share: 0.3, Work: stat.Interval{Mean: 1.2}, P99: stat.Interval{Mean: 1.1}}
			if k == 0 {
				a.Work.Mean, a.P99.Mean = 1.4, p99
			}
			r.Across = append(r.Across, a)
		}
		r.sumAcross()
		if met := i == 0; r.Goals[0].Met != met || r.Goals[1].Met != met {
			t.Errorf("p99 %v: %+v", p99, r.Goals)
		}
	}
}
