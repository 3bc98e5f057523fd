package rdt

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/labtest"
)

// A short run is the same twice; alone nothing runs beside, and beside something does.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	r := labtest.Twice(t, func() (*Result, error) { return Run(context.Background(), Options{Seed: 3, Quick: true}) })
	if len(r.Workloads) != 3 || len(r.Sums) != 9 || len(r.Goals) != 5 {
		t.Fatalf("%d workloads, %d sums, %d goals", len(r.Workloads), len(r.Sums), len(r.Goals))
	}
	for i := range r.Workloads {
		of := r.Sums[3*i : 3*i+3]
		if of[Beside].P99 <= of[Alone].P99 || of[Alone].OfAlone != 1 {
			t.Errorf("%+v", of)
		}
		for _, s := range of {
			if !(s.Mean > 0) || s.Worst < s.Mean || math.IsNaN(s.Blocks.Mean) {
				t.Errorf("%+v", s)
			}
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "web-search-leaf") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// One slot of all instances runs the same, the others do not.
func TestProgramme(t *testing.T) {
	a, b := programme(5, 1, 100), programme(5, 2, 100)
	for slot := range slots {
		if same := slices.Equal(a[slot], b[slot]); same != (slot == wave) {
			t.Errorf("slot %d: the same: %v", slot, same)
		}
		if idle := slices.Index(a[slot], ""); idle < 0 || len(slices.Compact(slices.Clone(a[slot]))) < 10 {
			t.Errorf("slot %d runs %q", slot, a[slot])
		}
	}
}

func TestFluctuations(t *testing.T) {
	if got := fluctuations([]float64{10, 20, 16}); !slices.Equal(got, []float64{0.5, 0.25}) {
		t.Errorf("%v", got)
	}
}

// The goals can be missed, each by itself.
func TestGoals(t *testing.T) {
	series := func(swing float64) (list [][]float64) {
		for range blocks + 1 {
			list = append(list, []float64{10, 10 * (1 + swing), 10, 10 * (1 + swing), 10})
		}
		return list
	}
	good := [3][NumArms]float64{{0.01, 0.05, 0.011}, {0.01, 0.05, 0.011}, {0.01, 0.02, 0.0201}}
	for i, spoil := range []func(*[3][NumArms]float64){
		func(s *[3][NumArms]float64) { s[0][Beside] = 0.012 },
		func(s *[3][NumArms]float64) { s[0][TwoWays] = 0.02 },
		func(s *[3][NumArms]float64) { s[1][Beside] = 0.012 },
		func(s *[3][NumArms]float64) { s[1][TwoWays] = 0.02 },
		func(s *[3][NumArms]float64) { s[2][TwoWays] = 0.03 },
		func(*[3][NumArms]float64) {},
	} {
		swings := good
		spoil(&swings)
		r := &Result{}
		for k := range swings {
			w := Workload{Name: string(rune('A' + k))}
			for arm := range NumArms {
				w.P99[arm] = series(swings[k][arm])
			}
			r.Workloads = append(r.Workloads, w)
		}
		r.sum()
		for k := range r.Goals {
			if r.Goals[k].Met == (k == i) {
				t.Errorf("goal %d with figure %d spoilt: %+v", k, i, r.Goals[k])
			}
		}
	}
}
