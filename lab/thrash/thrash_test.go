package thrash

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
		t.Skip("a quarter of a minute")
	}
	r := labtest.Twice(t, func() (*Result, error) { return run(context.Background(), Options{Seed: 3, Quick: true}, 5) })
	for i := range r.Rounds {
		s := &r.Rounds[i].Scenes
		if s[Nothing].Alone != s[Policy].Alone || s[AgainNothing].Alone != s[Again].Alone || s[AgainNothing].AfterSec >= 0 || s[AgainNothing].GiB <= 0 || s[Nothing].AfterSec >= 0 || len(s[Nothing].Others) > 0 || s[Nothing].GiB <= 0 || s[Itself].GiB != 0 || s[Other].GiB <= 0 || s[Nothing].Waits > waitsLeast && s[Itself].Waits <= s[Itself].Alone {
			t.Errorf("%+v", r.Rounds[i])
		}
	}
	if !(r.Scenes[rowPolicy].Waits.Mean < r.Scenes[rowNothing].Waits.Mean) {
		t.Errorf("%+v", r.Scenes)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "nothing to") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// The goals can be missed, each by itself, and nothing is reached where no round counts.
func TestGoals(t *testing.T) {
	for i, spoil := range []func(r, mild *Round){
		func(r, _ *Round) { r.Scenes[Policy].AfterSec = -1 },
		func(r, _ *Round) { r.Scenes[Policy].Others = []string{"reader"} },
		func(r, _ *Round) { r.Scenes[Other].AfterSec = 9 },
		func(r, _ *Round) { r.Scenes[Itself].Others = []string{"batch"} },
		func(r, _ *Round) { r.Scenes[Policy].Waits = 0.5 },
		func(r, _ *Round) { r.Scenes[Policy].GiB = 1 },
		func(r, other *Round) { r.Scenes[Again].AfterSec, other.Scenes[AgainNothing].Waits = -1, 0.9 }, // of two
		func(r, _ *Round) { r.Scenes[Again].AfterSec = mostAfter + 1 },
		func(r, _ *Round) { r.Scenes[Again].Others = []string{"reader"} },
		func(r, _ *Round) { r.Scenes[Again].Waits = 0.5 },
		func(r, _ *Round) { r.Scenes[Itself].Restored = false },
		func(_, mild *Round) { mild.Scenes[Policy].AfterSec = -1 },
		func(_, mild *Round) { mild.Scenes[Policy].Waits = 0.1 },
		func(_, _ *Round) {},
		func(r, _ *Round) { r.Scenes[Nothing].Waits = 0.1 },
		func(r, _ *Round) { r.Scenes[Nothing].Alone = 0.5 },
		func(r, other *Round) { r.File, other.Scenes[AgainNothing].Waits = false, 0.9 },
	} {
		var rounds [2]Round
		for k := range rounds {
			rounds[k].File = true
			for s := range NumScenes {
				rounds[k].Scenes[s] = Found{Alone: 0.01, Waits: 0.05, GiB: 5, AfterSec: 3, Restored: true}
				if s.blameless() {
					rounds[k].Scenes[s].AfterSec = -1
				}
			}
			rounds[k].Scenes[Nothing].Waits, rounds[k].Scenes[Nothing].GiB = []float64{0.9, 0.12}[k], 8
			rounds[k].Scenes[AgainNothing].Waits, rounds[k].Scenes[AgainNothing].GiB = []float64{0.9, 0.12}[k], 8
		}
		spoil(&rounds[0], &rounds[1])
		r := &Result{Rounds: rounds[:]}
		r.sum()
		if len(r.Goals) != 13 {
			t.Fatalf("%d goals", len(r.Goals))
		}
		for k := range r.Goals {
			if met := k != i && i < 14; r.Goals[k].Met != met {
				t.Errorf("goal %d with figure %d spoilt: %+v", k, i, r.Goals[k])
			}
		}
	}
}
