package spec

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
)

// A learner that takes a job over from its sheet goes on as the one before would: nothing is published until tasks and samples are enough, the revision
// counts on, and the figures are those of the learner that saw everything (but for what it published, and so capped samples by, in between). Its own threshold it has only once its own distribution is worth as much.
func TestAJobMoves(t *testing.T) {
	rng, p := rand.New(rand.NewPCG(4, 4)), Defaults()
	p.Fit = true
	skewed := func(int) float64 { return 1.5 + 0.1*rng.ExpFloat64() }
	old := New()
	fleet(old, &p, 8, 2000, skewed)
	sheets, _ := old.Calculate(&p, start)
	if len(sheets) != 1 || sheets[0].Specs[0].Tail == 0 {
		t.Fatalf("%+v", sheets)
	}
	b, err := json.Marshal(sheets[0]) // as it is in the bucket
	if err != nil {
		t.Fatal(err)
	}
	var sheet wire.SpecSheet
	if err := json.Unmarshal(b, &sheet); err != nil {
		t.Fatal(err)
	}
	heir := New()
	if !heir.Adopt(sheet) || heir.Adopt(sheet) {
		t.Fatal("not adopted, or twice")
	}
	at := start
	next := func(windows int) (a, b []wire.SpecSheet) {
		t.Helper()
		seed := rng.Uint64()
		for _, s := range []*State{old, heir} {
			rng = rand.New(rand.NewPCG(seed, 0)) // the same for both
			fleet(s, &p, 8, windows, skewed)
		}
		at += p.PeriodNsec
		a, _ = old.Calculate(&p, at)
		b, held := heir.Calculate(&p, at)
		if len(held) > 0 {
			t.Fatalf("held back: %+v", held)
		}
		return a, b
	}
	if _, early := next(p.MinSamplesPerTask - 1); len(early) != 0 {
		t.Fatalf("published too early: %+v", early)
	}
	if sp := &sheet.Specs[0]; math.Abs(sp.P50/1.5693-1) > 0.02 || math.Abs(sp.P90/1.7303-1) > 0.02 || sp.P99 < sp.P90 || math.Abs(sp.P99/1.96-1) > 0.02 { // of 1.5 and an exponential
		t.Errorf("quantiles %v, %v, %v", sp.P50, sp.P90, sp.P99)
	}
	a, got := next(5)
	if len(got) != 1 || got[0].Revision != sheet.Revision+1 {
		t.Fatalf("%+v", got)
	}
	want, sp := a[0].Specs[0], got[0].Specs[0]
	if sp.P50 != 0 || sp.P99 != 0 || want.P50 == 0 {
		t.Errorf("quantiles of few samples: %+v", sp)
	}
	if math.Abs(sp.Mean-want.Mean) > 1e-3 || math.Abs(float64(sp.StdDev)-want.StdDev) > 2e-3 || sp.NumSamples < 16500 || sp.NumSamples > want.NumSamples+100 || sp.Tail != sheet.Specs[0].Tail {
		t.Errorf("%+v\nwant %+v", sp, want)
	}
	a, got = next(4000) // now its own distribution is worth more than what was adopted
	if want, sp = a[0].Specs[0], got[0].Specs[0]; sp.Tail == sheet.Specs[0].Tail || math.Abs(sp.Tail/want.Tail-1) > 0.02 || math.Abs(sp.P50/want.P50-1) > 0.02 {
		t.Errorf("threshold %v, want about %v", sp.Tail, want.Tail)
	}
	// What an operator pinned stays pinned, and what moved away is forgotten.
	sheet.Pinned = true
	pinned := New()
	pinned.Adopt(sheet)
	fleet(pinned, &p, 8, 2000, skewed)
	if sheets, _ := pinned.Calculate(&p, at); len(sheets) != 0 {
		t.Errorf("published although it is pinned: %+v", sheets)
	}
	if n := pinned.Forget(func(k Key) bool { return k == web }); n != 1 || len(pinned.Jobs) != 0 {
		t.Errorf("%d forgotten", n)
	}
}
