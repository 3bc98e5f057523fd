package localspec

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// fewParams are as the profile single-node has them, and minRise as slowdown has it.
var fewParams = Params{RecalculateNsec: 3600e9, AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 20, OnDoubling: true, RobustFirst: true}

const minRise = 0.5

func limitOf(mean, stddev float64) float64 { return mean + max(2*stddev, minRise) }

// quiet are signals of a service that nobody disturbs; each has a deviation of a tenth of its
// mean at most.
var quiet = map[string]func(rng *rand.Rand) float64{
	"the same in every window": func(*rand.Rand) float64 { return 1.3 },
	"normal, narrow":           func(rng *rand.Rand) float64 { return 1.2 + 0.03*rng.NormFloat64() },
	"normal":                   func(rng *rand.Rand) float64 { return 1.5 + 0.15*rng.NormFloat64() },
	"skewed to the right":      func(rng *rand.Rand) float64 { return 1 + 0.12*rng.ExpFloat64() },
	"sum of waits":             func(rng *rand.Rand) float64 { return 1 + 0.07*(rng.ExpFloat64()+rng.ExpFloat64()+rng.ExpFloat64()) },
}

// noise turns a quiet window into a noisy one; limit is the threshold of the quiet windows.
var noise = map[string]func(rng *rand.Rand, v, limit float64) float64{
	"a spike":                func(_ *rand.Rand, v, _ float64) float64 { return 10 * v },
	"spikes of any size":     func(rng *rand.Rand, v, _ float64) float64 { return v * math.Exp(5*rng.Float64()) },
	"twice as much":          func(_ *rand.Rand, v, _ float64) float64 { return 2 * v },
	"just over the limit":    func(_ *rand.Rand, _, limit float64) float64 { return 1.05 * limit },
	"nothing at all":         func(*rand.Rand, float64, float64) float64 { return 1 },
	"a counter's wild value": func(rng *rand.Rand, _, _ float64) float64 { return [...]float64{0, 1e-9, 1e9, 1e18}[rng.IntN(4)] },
}

// TestThreeNoisyWindowsOfThirty: up to three noisy windows of thirty, of whatever kind and in
// whatever place, move no threshold by more than a tenth, and CPI²'s formula they do move.
func TestThreeNoisyWindowsOfThirty(t *testing.T) {
	const seed = 21
	for qn, draw := range quiet {
		for nn, spoil := range noise {
			worst, paper := 0.0, 0.0
			for run := range uint64(300) {
				rng := rand.New(rand.NewPCG(seed, run))
				v := make([]float64, 30)
				for i := range v {
					v[i] = draw(rng)
				}
				clean, plain := thresholds(v)
				for _, i := range rng.Perm(len(v))[:1+rng.IntN(3)] {
					v[i] = spoil(rng, v[i], clean)
				}
				noisy, moved := thresholds(v)
				if d := math.Abs(noisy/clean - 1); d > 0.1 {
					t.Fatalf("%s, %s, seed %d run %d: %.3f became %.3f", qn, nn, seed, run, clean, noisy)
				} else if d > worst {
					worst = d
				}
				paper = max(paper, math.Abs(moved/plain-1))
			}
			t.Logf("%-26s %-24s moved by %4.1f %% at most, mean + 2 sigma by %.0f %%", qn, nn, 100*worst, 100*paper)
			if nn == "a spike" && paper < 0.5 {
				t.Errorf("%s: the noise moves the paper's formula by %v only: this tests nothing", qn, paper)
			}
		}
	}
}

// thresholds are those of the first spec that is published over all windows, robust and by CPI²'s formula.
func thresholds(v []float64) (robust, paper float64) {
	p := fewParams
	p.MinSamplesPerTask = len(v)
	of := func(p Params) float64 {
		var s State
		for _, x := range v {
			s.Add(p, &model.Task{Num: 1, Job: "web"}, model.SourceSlowdown, x, 1, inf)
		}
		sp := s.Recalculate(p, 0)[0]
		return limitOf(sp.Mean, sp.StdDev)
	}
	robust = of(p)
	p.RobustFirst = false
	return robust, of(p)
}

// play feeds windows to a learner the way the engine does, and returns what it published.
func play(s *State, p Params, n int, from int64, draw func() float64) (published []model.Spec) {
	for i := range int64(n) {
		limit := inf
		if sp := s.Lookup("web", model.SourceSlowdown); sp != nil {
			limit = limitOf(sp.Mean, sp.StdDev)
		}
		s.Add(p, &model.Task{Num: 1, Job: "web"}, model.SourceSlowdown, draw(), 1, limit)
		for _, sp := range s.Recalculate(p, from+i*1e9) {
			published = append(published, *sp)
		}
	}
	return published
}

// TestBroadSignals: a service whose waiting varies by a third of its mean when nothing is wrong is
// as safe from noise that stands out (five times as much and more): its threshold moves by less than a fifth in
// 19 of 20 runs. Noise that looks like its own worst windows cannot be told from them.
func TestBroadSignals(t *testing.T) {
	const seed, runs = 23, 400
	for qn, draw := range map[string]func(rng *rand.Rand) float64{
		"normal": func(rng *rand.Rand) float64 { return max(1, 1.5+0.3*rng.NormFloat64()) },
		"skewed": func(rng *rand.Rand) float64 { return 1 + 0.4*rng.ExpFloat64() },
	} {
		far, high := 0, 0
		for run := range uint64(runs) {
			rng := rand.New(rand.NewPCG(seed, run))
			v := make([]float64, 30)
			for i := range v {
				v[i] = draw(rng)
			}
			clean, _ := thresholds(v)
			for range 100 {
				if draw(rng) > clean {
					high++
				}
			}
			for _, i := range rng.Perm(len(v))[:3] {
				v[i] *= 5 + 25*rng.Float64()
			}
			if noisy, _ := thresholds(v); math.Abs(noisy/clean-1) > 0.2 {
				far++
			}
		}
		t.Logf("%s: moved by more than a fifth in %d of %d runs; %.1f %% of quiet windows are above the first threshold", qn, far, runs, float64(high)/runs)
		if far > runs/20 || high > 15*runs {
			t.Errorf("%s, seed %d: %d of %d runs, %.1f %%", qn, seed, far, runs, float64(high)/runs)
		}
	}
}

// TestLearnedInNoise: a spec that was learned while most windows were noisy is learned anew once
// they are quiet, is said to be so once, and from then on learns as any.
func TestLearnedInNoise(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 7))
		loud := func() float64 { return 2.5 + 3*rng.Float64() }
		calm := func() float64 { return 1.2 + 0.05*rng.NormFloat64() }
		var s State
		if first := play(&s, fewParams, 24, 0, loud); len(first) != 1 || first[0].Mean < 2.5 {
			t.Fatalf("seed %d: %+v", seed, first)
		}
		anew, after := 0, play(&s, fewParams, 200, 24e9, calm)
		for i := range after {
			if after[i].Refuted != 0 {
				anew++
			}
		}
		if sp := s.Lookup("web", model.SourceSlowdown); anew != 1 || math.Abs(sp.Mean-1.2) > 0.05 || sp.StdDev > 0.1 {
			t.Fatalf("seed %d: learned anew %d times, now %+v", seed, anew, sp)
		}
	}
}

// TestQuietIsNotRefuted: of a signal that stays as it is, in no more than one life of a hundred
// is a spec ever taken for one of noise.
func TestQuietIsNotRefuted(t *testing.T) {
	const lives = 300
	for name, draw := range quiet {
		refuted := 0
		for seed := range uint64(lives) {
			rng := rand.New(rand.NewPCG(seed, 9))
			var s State
			for _, sp := range play(&s, fewParams, 1000, 0, func() float64 { return draw(rng) }) {
				if sp.Refuted != 0 {
					refuted++
				}
			}
		}
		t.Logf("%s: %d of %d", name, refuted, lives)
		if refuted > lives/100 {
			t.Errorf("%s: refuted %d times in %d lives", name, refuted, lives)
		}
	}
}

// TestFewOutlivesACheckpoint: a learner that is stored and read back half way says the same, and
// one whose parameters change while it learns goes on.
func TestFewOutlivesACheckpoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	draw := func() float64 { return 1 + rng.ExpFloat64() }
	var s, back State
	play(&s, fewParams, 11, 0, draw)
	b, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	v := draw()
	was, is := play(&s, fewParams, 9, 11e9, func() float64 { return v }), play(&back, fewParams, 9, 11e9, func() float64 { return v })
	if len(was) != 1 || len(is) != 1 || was[0] != is[0] {
		t.Errorf("%+v, read back %+v", was, is)
	}
	plain := fewParams
	plain.RobustFirst = false
	var late State
	play(&late, plain, 15, 0, draw)
	if got := play(&late, fewParams, 5, 15e9, draw); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	var long State
	p := fewParams
	p.MinSamplesPerTask = 4 * maxFew
	play(&long, p, 3*maxFew, 0, draw)
	if n := len(long.Entries[0].Few); n != maxFew {
		t.Errorf("%d windows are kept", n)
	}
	if got := play(&long, p, maxFew, 0, draw); len(got) != 1 || len(long.Entries[0].Few) != 0 {
		t.Errorf("%+v", got)
	}
}
