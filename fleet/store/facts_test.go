package store

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// The facts of a decision come out of the column as they went in, also of the least and the greatest numbers; of a decision without any it is null.
func TestFactsComeBack(t *testing.T) {
	s := open(t, t.TempDir())
	s.From("a")
	facts := []model.Fact{
		{Name: "correlation", Value: 0.1 + 0.2}, {Name: "usage", Value: 1.7976931348623157e308, Unit: "CPU-sec/sec"}, {Name: "least", Value: 5e-324}, {Name: "none", Value: 0},
		{Name: `a "name" with \ <b>signs</b>, ü and ` + "\u2028", Value: -1, Unit: "%"},
	}
	b := batch("n", "s", 1, noon, 2)
	b.Decisions = append(b.Decisions, b.Decisions[0])
	b.Decisions[1].Facts = facts
	if !s.Put(1, b) {
		t.Fatal("not taken")
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, s, "decisions")
	if len(rows) != 2 || rows[0]["facts"] != "null" {
		t.Fatalf("%v", rows)
	}
	var got []model.Fact
	if err := json.Unmarshal([]byte(rows[1]["facts"]), &got); err != nil || !slices.Equal(got, facts) {
		t.Errorf("%+v, %v\nwant %+v", got, err, facts)
	}
}
