package bandwidth

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

func intel() *model.Classes {
	return &model.Classes{Memory: []int32{0, 1}, LeastLevel: 10, MostLevel: 100, LevelStep: 10, LevelUnit: model.LevelPercent}
}

// Levels are the machine's own; where they are bytes a second they are tenths of the peak.
func TestLadder(t *testing.T) {
	for name, tt := range map[string]struct {
		c    *model.Classes
		peak float64
		want []int
	}{
		"Intel":         {intel(), 100e9, []int{10, 20, 30, 40, 50, 60, 70, 80, 90, 100}},
		"AMD":           {&model.Classes{LeastLevel: 1, MostLevel: 2048, LevelStep: 1, LevelUnit: model.LevelEighth}, 100e9, []int{80, 160, 240, 320, 400, 480, 560, 640, 720, 2048}},
		"AMD, no peak":  {&model.Classes{LeastLevel: 1, MostLevel: 2048, LevelStep: 1, LevelUnit: model.LevelEighth}, 0, []int{1, 2048}},
		"mba_MBps":      {&model.Classes{LeastLevel: 1, MostLevel: math.MaxUint32, LevelStep: 1, LevelUnit: model.LevelMiB}, 10 << 20, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, math.MaxUint32}},
		"no level":      {&model.Classes{}, 100e9, []int{0}},
		"one per cent":  {&model.Classes{LeastLevel: 1, MostLevel: 100, LevelUnit: model.LevelPercent}, 1, []int{1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 51, 56, 61, 66, 71, 76, 81, 86, 91, 100}},
		"wider than it": {&model.Classes{LeastLevel: 10, MostLevel: 20, LevelStep: 50, LevelUnit: model.LevelPercent}, 1, []int{20}},
	} {
		l := ladderOf(tt.c, tt.peak)
		if got := l.levels[:l.n]; !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		for i, level := range l.levels[:l.n] {
			if l.rung(level) != i {
				t.Errorf("%s: level %d is rung %d, want %d", name, level, l.rung(level), i)
			}
		}
	}
}

// The response of a machine on which the first three levels do everything is found, whatever is tried first.
func TestFitFindsASteepResponse(t *testing.T) {
	l := ladderOf(intel(), 100e9)
	response := func(rung int) float64 { return min(80e9, 26e9*float64(rung+1)) }
	for _, target := range []float64{20e9, 30e9, 60e9, 79e9, 90e9} {
		var f fit
		rung := l.top()
		for range 12 {
			f.add(rung, response(rung))
			rung = min(f.choose(&l, target), rung+1)
		}
		want := 0
		for i := range l.n {
			if response(i) <= target {
				want = i
			}
		}
		if rung != want {
			t.Errorf("target %.0f GB/s: rung %d, want %d; %+v", target/1e9, rung, want, f)
		}
	}
}

// Whatever is measured, a higher level is never expected to let BE move less, and no number is NaN.
func TestFitIsMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := ladderOf(intel(), 100e9)
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 1e300, 5e-324}
	for range 2000 {
		var f fit
		for range rng.IntN(40) {
			v := rng.Float64() * 1e11
			if rng.IntN(4) == 0 {
				v = odd[rng.IntN(len(odd))]
			}
			f.add(rng.IntN(maxRungs+2)-1, v)
		}
		last := 0.0
		for rung := range l.n {
			v, ok := f.predict(&l, rung)
			if ok && !(v >= last*(1-1e-12) && v < policy.Absurd) {
				t.Fatalf("rung %d: %v after %v; %+v", rung, v, last, f)
			}
			last = max(last, v)
		}
		if rung := f.choose(&l, odd[rng.IntN(len(odd))]); rung < 0 || rung > l.top() {
			t.Fatalf("rung %d", rung)
		}
	}
}

// Alibaba §4.2: P is 120 at U <= 20 % or L <= 200 ns, falls in a line, and is 20 at U >= 60 %.
func TestThresholdOfThePaper(t *testing.T) {
	p := Defaults()
	for _, tt := range []struct {
		u    float64
		slow bool
		want float64
	}{{0, true, 120}, {0.2, true, 120}, {0.3, true, 95}, {0.4, true, 70}, {0.5, true, 45}, {0.6, true, 20}, {0.9, true, 20}, {1.4, true, 20}, {0.9, false, 120}, {math.NaN(), true, 120}} {
		if got := p.threshold(model.Known(tt.u), tt.slow); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("U %v, slow %t: P %v, want %v", tt.u, tt.slow, got, tt.want)
		}
	}
	if got := p.threshold(model.Missing(model.Unavailable), true); got != 120 {
		t.Errorf("without U: P %v", got)
	}
}
