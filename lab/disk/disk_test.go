package disk

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/labtest"
)

// A short run is the same twice, and its scenes are what they are called.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	r := labtest.Twice(t, func() (*Result, error) { return Run(context.Background(), Options{Seed: 3, Quick: true}) })
	for i := range r.Rounds {
		s := &r.Rounds[i].Scenes
		if s[LightNothing].AloneMs <= 0 || s[LightNothing].AfterSec >= 0 || s[LightNothing].Waits > s[Nothing].Waits || s[LightSlow].MBPerSec != 0 || s[LightSlow].Ms < 1.5*s[LightSlow].AloneMs {
			t.Errorf("%+v", r.Rounds[i])
		}
		if s[Nothing].AloneMs <= 0 || s[Nothing].AloneMs != s[Policy].AloneMs || s[Nothing].MBPerSec <= 0 || s[Slow].MBPerSec != 0 {
			t.Errorf("%+v", r.Rounds[i])
		}
		if s[Nothing].AfterSec >= 0 || len(s[Nothing].Others) > 0 || s[Slow].Ms < 1.5*s[Slow].AloneMs {
			t.Errorf("%+v", r.Rounds[i])
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "policy io") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// The goals can be missed, each by itself, and nothing is reached where no round counts.
func TestGoals(t *testing.T) {
	for i, spoil := range []func(r, _ *Round){
		func(r, _ *Round) { r.Scenes[Policy].AfterSec = -1 },
		func(r, _ *Round) { r.Scenes[Policy].Others = []string{"backup"} },
		func(r, _ *Round) { r.Scenes[Slow].Others = []string{"backup"} },
		func(r, _ *Round) { r.Scenes[Policy].Ms = 4 },
		func(r, _ *Round) { r.Scenes[Policy].MBPerSec = 0 },
		func(r, _ *Round) { r.Scenes[LightPolicy].AfterSec = -1 },
		func(r, _ *Round) { r.Scenes[LightPolicy].Others = []string{"backup"} },
		func(r, _ *Round) { r.Scenes[LightSlow].Others = []string{"backup"} },
		func(_, little *Round) { little.Scenes[LightPolicy].AfterSec = -1 },
		func(r, _ *Round) { r.Scenes[Slow].Restored = false },
		func(_, _ *Round) {},
		func(r, _ *Round) { r.Scenes[Nothing].Ms = 1 },
		func(r, _ *Round) { r.Scenes[LightNothing].Waits = 0.05 },
	} {
		var round Round
		for s := range NumScenes {
			round.Scenes[s] = Found{AloneMs: 1, Ms: 1.5, MBPerSec: 30, AfterSec: 3, Waits: 0.2, Restored: true}
			if s.is(Nothing) {
				round.Scenes[s].Ms, round.Scenes[s].MBPerSec = 9, 100
			}
		}
		little := round // it waits little, and long an operation
		little.Scenes[Nothing].Ms, little.Scenes[LightNothing].Waits = 1, 0.05
		spoil(&round, &little)
		r := &Result{Rounds: []Round{round, little}}
		r.sum()
		if len(r.Goals) != 10 {
			t.Fatalf("%d goals", len(r.Goals))
		}
		for k := range r.Goals {
			if met := k != i && i < 11; r.Goals[k].Met != met {
				t.Errorf("goal %d with figure %d spoilt: %+v", k, i, r.Goals[k])
			}
		}
	}
}
