package drc

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
	r := labtest.Twice(t, func() (*Result, error) { return Run(context.Background(), Options{Seed: 3, Quick: true}) })
	if len(r.Mixes) != quickCatalogues*quickMixes {
		t.Errorf("%d mixes", len(r.Mixes))
	}
	for i := range r.Mixes {
		m := &r.Mixes[i]
		base, off := &m.Arms[Level10], &m.Arms[Off]
		if base.CPI != 1 || base.Work != 1 || off.Work < 1 || off.Use < base.Use || m.Idle < 100 || m.Idle > 130 {
			t.Errorf("%+v", m)
		}
		for arm := range m.Arms {
			if a := &m.Arms[arm]; a.Work < 0.95 || math.IsNaN(a.CPI) || a.Latency < m.Idle {
				t.Errorf("%s: %+v", Arm(arm), a)
			}
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "heuristic") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// The goals can be missed, each by itself.
func TestGoals(t *testing.T) {
	good := [NumArms]Outcome{
		Off: {CPI: 1.3, Work: 12, Use: 0.5, Latency: 180}, Level10: {CPI: 1, Work: 1, Use: 0.15, Latency: 100},
		Heuristic: {CPI: 1.02, Work: 11, Use: 0.4, Latency: 130}, Adaptive: {CPI: 1.01, Work: 10.5, Use: 0.4, Latency: 130},
	}
	for i, spoil := range []func(*[NumArms]Outcome){
		func(a *[NumArms]Outcome) { a[Heuristic].Work = 9.5 },
		func(a *[NumArms]Outcome) { a[Heuristic].CPI = 1.06 },
		func(a *[NumArms]Outcome) { a[Heuristic].Use = 0.29 },
		func(a *[NumArms]Outcome) { a[Heuristic].Latency = 141 },
		func(a *[NumArms]Outcome) { a[Adaptive].CPI = 1.03 },
		func(a *[NumArms]Outcome) { a[Adaptive].CPI, a[Heuristic].CPI = 1.06, 1.07 },
		func(a *[NumArms]Outcome) { a[Adaptive].Work = 9 },
		func(*[NumArms]Outcome) {},
	} {
		arms := good
		spoil(&arms)
		r := &Result{Mixes: []Mix{{Seed: 1, Arms: arms}, {Seed: 2, Arms: arms}}}
		r.sum()
		for k := range r.Goals {
			if beside := i == 5 && k == 1; r.Goals[k].Met == (k == i) && !beside {
				t.Errorf("goal %d with figure %d spoilt: %+v", k, i, r.Goals[k])
			}
		}
		if want := i == 7; (r.Outcome().Code() == 0) != want {
			t.Errorf("figure %d spoilt: outcome %v", i, r.Outcome())
		}
	}
}
