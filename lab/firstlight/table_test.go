package firstlight

import (
	"math"
	"strings"
	"testing"
)

// TestProportion holds the interval against published values: prop.test(k, n, correct = FALSE)
// of R gives these.
func TestProportion(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{
		{12, 12, 0.7575, 1}, {0, 8, 0, 0.3244}, {11, 12, 0.6461, 0.9851}, {5, 10, 0.2366, 0.7634},
	} {
		p := proportion(c.k, c.n)
		if math.Abs(p.Low-c.low) > 5e-5 || math.Abs(p.High-c.high) > 5e-5 {
			t.Errorf("%d of %d: [%.4f, %.4f], want [%.4f, %.4f]", c.k, c.n, p.Low, p.High, c.low, c.high)
		}
	}
	if p := proportion(0, 0); p.Share != -1 || p.text() != "none" {
		t.Errorf("no trials: %+v", p)
	}
}

// Every kind is played in eight rounds, and the victim's own fault is each of the two in turn.
func TestKindsCoverEverything(t *testing.T) {
	seen, held := map[Kind]int{}, 0
	for seed := range uint64(len(programme)) {
		seen[KindOf(seed)]++
		if programme[seed].held {
			held++
		}
		if KindOf(seed) == OwnFault && surges(seed) == surges(seed+uint64(len(programme))) {
			t.Errorf("seeds %d and %d play the same fault", seed, seed+uint64(len(programme)))
		}
	}
	if len(seen) != 8 || held != 5 {
		t.Errorf("eight rounds play %d kinds, %d of them with somebody to hold", len(seen), held)
	}
}

func TestSummarise(t *testing.T) {
	none := Score{ToName: -1, ToRecover: -1}
	rounds := []Round{
		{Kind: EqualWeights, Antagonist: "a", Ours: Score{Named: []string{"a"}, Right: 1, ToName: 2, ToRecover: 5}},
		{Kind: EqualWeights, Antagonist: "a", Ours: Score{Named: []string{"x", "a"}, Right: 1, Wrong: 1, ToName: 6, ToRecover: -1, Lost: 0.5}},
		{Kind: EqualWeights, Antagonist: "a", Ours: none},
		{Kind: NoAntagonist, Ours: Score{Named: []string{"x"}, Wrong: 1, ToName: -1, ToRecover: -1, Lost: 1}},
		{Kind: OwnFault, Ours: none},
	}
	rounds[0].Asked = []Score{{Named: []string{"a"}, Right: 1, ToName: 3}}
	rounds[3].Asked = []Score{{Named: []string{"x"}, Wrong: 1, ToName: -1}}
	s := Summarise(rounds)[0]
	if s.Right != 2 || s.Wrong != 2 || s.Positives != 3 || s.Found != 2 || s.Negatives != 2 || s.FalseIn != 1 {
		t.Errorf("counts %+v", s)
	}
	if s.Precision.Share != 0.5 || math.Abs(s.Recall.Share-2.0/3) > 1e-12 || s.ToName != 4 || s.ToRecover != 5 || s.Lost != 1.5 {
		t.Errorf("figures %+v", s)
	}
	var b strings.Builder
	if err := WriteText(&b, rounds, nil); err != nil || !strings.Contains(b.String(), "1 innocent") {
		t.Errorf("%v\n%s", err, b.String())
	}
	if row := askedTable(rounds).Rows[0]; row[1].Text != "1 of 3" || row[2].Text != "0" || row[3].Text != "1 of 2" || row[4].Text != "3.0" {
		t.Errorf("the row of a share: %+v", row)
	}
}
