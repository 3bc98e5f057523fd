package firstlight

import (
	"math"
	"strings"
	"testing"
)

func TestSeedsOfOneKind(t *testing.T) {
	for _, c := range []struct {
		first uint64
		n     int
		ok    bool
	}{{0, 1000, true}, {0, 1001, false}, {999, 1, true}, {999, 2, false}, {1000, 500, true}} {
		if err := CheckSeeds(c.first, c.n); (err == nil) != c.ok {
			t.Errorf("%d from %d: %v", c.n, c.first, err)
		}
	}
	if _, err := Run(t.Context(), Options{FirstSeed: 990, Rounds: 20}); err == nil {
		t.Error("seeds of both kinds were played")
	}
}

// With the greater share another may be named first: each has the greatest at which it still was.
func TestScoresOfARound(t *testing.T) {
	var s Scores
	for share, named := range map[float64]Score{0.05: {Wrong: 1}, 0.1: {Wrong: 1}, 0.2: {Right: 1}, 0.4: {Right: 1}, 0.6: {}} {
		s.note(share, &named)
	}
	if s != (Scores{Right: 0.4, Wrong: 0.1}) {
		t.Errorf("%+v", s)
	}
}

func TestOperatingCurve(t *testing.T) {
	rounds := []Round{
		{Seed: 1, Antagonist: "a", Scores: Scores{0.7, 0.1}}, {Seed: 2, Antagonist: "a", Scores: Scores{0.15, 0.15}},
		{Seed: 3, Scores: Scores{0, 0.25}}, {Seed: 4},
	}
	list, positives, area := operating(rounds)
	for _, p := range list {
		want := map[float64][2]int{0.05: {2, 3}, 0.1: {2, 3}, 0.2: {1, 1}, 0.3: {1, 0}, 0.4: {1, 0}, 0.6: {1, 0}, 0.8: {0, 0}}[p.share]
		if p.found != want[0] || p.wrong != want[1] {
			t.Errorf("at %g: %d found, %d wrong, want %v", p.share, p.found, p.wrong, want)
		}
	}
	// Of eight pairs the first antagonist wins four; the second wins two, and one is even.
	if positives != 2 || math.Abs(area-6.5/8) > 1e-12 {
		t.Errorf("%d positives, area %g", positives, area)
	}
	if _, n, area := operating(nil); n != 0 || area != 0 {
		t.Errorf("of nothing: %d, %g", n, area)
	}
}

func TestArmsTable(t *testing.T) {
	arm := func(p99 float64) []Arm {
		return []Arm{{Way: armIdle, P99Before: 1, P99: p99, BEWork: 1.5, Innocent: 0.5}}
	}
	rounds := []Round{{Antagonist: "a", Arms: arm(1.2)}, {Antagonist: "a", Arms: arm(4)}, {Arms: arm(7)}}
	var b strings.Builder
	if err := WriteText(&b, rounds); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cpu.idle for all BE", "1 of 2", "2.60", "7.00", "no control", "Seeds below 1000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}
