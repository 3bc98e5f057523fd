package firstlight

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/scenarios"
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
		{Seed: 1001, Antagonist: "a", Scores: Scores{0.7, 0.1}}, {Seed: 1002, Antagonist: "a", Scores: Scores{0.15, 0.15}},
		{Seed: 1003, Scores: Scores{0, 0.25}}, {Seed: 1004},
	}
	list := scoredRounds(rounds)
	for share, want := range map[float64][2]int{0.05: {2, 3}, 0.1: {2, 3}, 0.2: {1, 1}, 0.3: {1, 0}, 0.4: {1, 0}, 0.6: {1, 0}, 0.8: {0, 0}} {
		if p := at(list, share); p.found != want[0] || p.wrong != want[1] {
			t.Errorf("at %g: %d found, %d wrong, want %v", share, p.found, p.wrong, want)
		}
	}
	// Of eight pairs the first antagonist wins four; the second wins two, and one is even.
	if area := areaUnder(list); positives(list) != 2 || math.Abs(area-6.5/8) > 1e-12 {
		t.Errorf("%d positives, area %g", positives(list), area)
	}
	c, ok := Chart(rounds, nil)
	if !ok || len(c.Series) != 1 {
		t.Fatalf("%+v", c)
	}
	x, y := c.Series[0].X, c.Series[0].Y
	if n := len(x); n != steps || x[0] != 0 || y[0] != 0 || x[n-1] != 0.75 || y[n-1] != 1 || !slices.IsSorted(x) || !slices.IsSorted(y) {
		t.Errorf("from %v to %v", x, y)
	}
	if _, ok := Chart(rounds[2:], nil); ok {
		t.Error("a curve of rounds in which nobody is to be held")
	}
}

// The goals are those of the share that the profile asks for: who is named at less, or not any more at it, does not count.
func TestGoalsOfSimulatedRounds(t *testing.T) {
	var rounds []TwinRound
	for seed := range uint64(20) {
		rounds = append(rounds, TwinRound{Seed: seed, Guilty: []string{"a"}, Scores: Scores{Right: profileAsks, Wrong: 0.15}}, TwinRound{Seed: seed})
	}
	met := func() (list []bool) {
		for _, g := range TwinGoals(rounds) {
			list = append(list, g.Met)
		}
		return list
	}
	if got := met(); !slices.Equal(got, []bool{true, true, true}) {
		t.Errorf("%v: %+v", got, TwinGoals(rounds))
	}
	rounds[0].Scores, rounds[2].Scores.Right, rounds[4].Scores.Wrong = Scores{Right: 0.15, Wrong: profileAsks}, 0.15, 0.3
	if got := met(); !slices.Equal(got, []bool{false, false, true}) {
		t.Errorf("18 of 20 found, 2 of 40 wrong: %v: %+v", got, TwinGoals(rounds))
	}
}

// The interval is over seeds: where all are alike it is a point, one seed alone has none, and it holds the area.
func TestAreaAndItsInterval(t *testing.T) {
	rounds := func(right ...float64) (list []TwinRound) {
		for seed, r := range right {
			list = append(list, TwinRound{Seed: uint64(seed), Guilty: []string{"a"}, Scores: Scores{Right: r}}, TwinRound{Seed: uint64(seed), Scores: Scores{Wrong: 0.3}})
		}
		return list
	}
	if _, a := Areas(nil, rounds(0.5, 0.5, 0.5)); a.Area != 1 || a.Low != 1 || a.High != 1 {
		t.Errorf("all alike: %+v", a)
	}
	if _, a := Areas(nil, rounds(0.5)); !a.Area.Known() || a.Low.Known() || a.High.Known() {
		t.Errorf("one seed: %+v", a)
	}
	_, a := Areas(nil, rounds(0.5, 0.1, 0.5, 0.1, 0.5, 0.5))
	if !(a.Low < a.Area && a.Area < a.High && a.High <= 1) {
		t.Errorf("%+v", a)
	}
	if _, again := Areas(nil, rounds(0.5, 0.1, 0.5, 0.1, 0.5, 0.5)); again != a {
		t.Errorf("%+v, and again %+v", a, again)
	}
	if none, _ := Areas(nil, nil); none.Area.Known() {
		t.Errorf("of nothing: %+v", none)
	}
}

// A scene on a seed has the same scores each time it is played, and who is named is one of its own tasks.
func TestTwinRound(t *testing.T) {
	for scene, guilty := range map[string]bool{"wait-equal": true, "wait-itself": false} {
		r := TwinRound{Seed: 3, Scene: scene, Guilty: scenarios.Guilty(scene)}
		s, err := r.named(sharesAsked())
		if err != nil {
			t.Fatal(err)
		}
		if guilty != (s.Right == 1) || s.Wrong != 0 || guilty && s.ToName <= 0 {
			t.Errorf("%s: %+v", scene, s)
		}
		if most, err := r.named(1); err != nil || most.Right+most.Wrong != 0 {
			t.Errorf("%s with all of the blame asked for: %+v, %v", scene, most, err)
		}
	}
	var b strings.Builder
	rounds := []TwinRound{{Seed: 1, Scene: "wait-equal", Guilty: []string{"hog"}, Ours: Score{Right: 1}, Scores: Scores{Right: 0.6}}, {Seed: 1, Scene: "wait-itself"}}
	if err := WriteText(&b, nil, rounds); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"wait-equal         1      1", "area under the curve 1.000", "Seeds below 1000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestArmsTable(t *testing.T) {
	arm := func(p99 float64) []Arm {
		return []Arm{{Way: armIdle, P99Before: 1, P99: p99, BEWork: 1.5, Innocent: 0.5}}
	}
	rounds := []Round{{Antagonist: "a", Arms: arm(1.2)}, {Antagonist: "a", Arms: arm(4)}, {Arms: arm(7)}}
	var b strings.Builder
	if err := WriteText(&b, rounds, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cpu.idle for all BE", "1 of 2", "2.60", "7.00", "no control", "Seeds below 1000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}
