package report

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	met := Goal{What: "a", Want: "1", Got: "1", Met: true}
	missed := Goal{Where: "host", What: "b", Want: "< 2", Got: "3"}
	unclear := Goal{What: "c", Want: "1", Got: "1", Met: true, Unclear: "too few"}
	for _, c := range []struct {
		name  string
		goals []Goal
		want  Outcome
		code  int
		text  string
	}{
		{"nothing", nil, CouldNotTell, 3, "Nothing was played."},
		{"met", []Goal{met, met}, Pass, 0, "All 2 goals are met."},
		{"missed", []Goal{met, missed}, Fail, 1, "1 of 2 goals are met. Missed: host: b is 3, asked for < 2."},
		{"unclear", []Goal{met, unclear}, CouldNotTell, 3, "1 of 2 goals are met. Unclear: c: too few."},
		{"both", []Goal{unclear, missed}, Fail, 1, "0 of 2 goals are met. Missed: host: b is 3, asked for < 2. Unclear: c: too few."},
	} {
		v := Judge(c.goals)
		if v.Outcome != c.want || v.Outcome.Code() != c.code || v.Text != c.text {
			t.Errorf("%s: %s (%d): %s", c.name, v.Outcome, v.Outcome.Code(), v.Text)
		}
	}
}

// A column of which no goal has anything is not there.
func TestGoalTable(t *testing.T) {
	heads := []Column{{Name: "goal"}, {Name: "wanted"}, {Name: "got"}, {Name: ""}}
	var b strings.Builder
	plain := GoalTable("Goals", heads, []Goal{{What: "a", Want: "1", Got: "0"}, {What: "b", Want: "1", Got: "1", Met: true}, {What: "c", Want: "1", Got: "1", Met: true, Unclear: "noise"}})
	if err := plain.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not met", "met", "noise"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if plain.Rows[0][3].Emphasis != Bad || plain.Rows[1][3].Emphasis != Good || len(plain.Rows[0]) != len(heads) {
		t.Errorf("%+v", plain.Rows)
	}
	full := GoalTable("", nil, []Goal{{Where: "host", What: "a", Seed: "4", Want: "1", Got: "0"}, {What: "b", Want: "1", Got: "1"}})
	for _, row := range full.Rows {
		if len(row) != 6 {
			t.Errorf("%+v", row)
		}
	}
}

func TestHeads(t *testing.T) {
	h := Heads("arm", "p99|ms", "steps")
	if h[0] != (Column{Name: "arm"}) || h[1] != Figures("p99", "ms") || h[2] != Figures("steps", "") {
		t.Errorf("%+v", h)
	}
}
