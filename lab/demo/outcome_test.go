package demo

import "testing"

// TestDecide: the demo passes only when the antagonist, and nobody else, was held and p99
// fell below half; it cannot tell when there was nothing to prevent or the host disturbed
// the measurement.
func TestDecide(t *testing.T) {
	rows := func(quiet, none, ours, late float64) []Row {
		return []Row{{Way: wayQuiet, P99: quiet}, {Way: wayNone, P99: none, Lateness: late}, {Way: wayOurs, P99: ours, Lateness: late}}
	}
	right, wrong := HoldRow{Task: "a", Antagonist: true}, HoldRow{Task: "b"}
	for name, c := range map[string]struct {
		rows   []Row
		holds  []HoldRow
		stolen float64
		code   int
	}{
		"passes":                     {rows(2, 30, 3, 0.1), []HoldRow{right}, 0, 0},
		"just not half":              {rows(2, 30, 15, 0.1), []HoldRow{right}, 0, 1},
		"nobody held":                {rows(2, 30, 3, 0.1), nil, 0, 1},
		"a bystander as well":        {rows(2, 30, 3, 0.1), []HoldRow{right, wrong}, 0, 1},
		"a bystander, and no harm":   {rows(2, 3, 3, 0.1), []HoldRow{wrong}, 0, 1},
		"no interference":            {rows(2, 3.9, 1, 0.1), []HoldRow{right}, 0, 3},
		"late client":                {rows(2, 30, 3, 9), []HoldRow{right}, 0, 3},
		"stolen CPU":                 {rows(2, 30, 3, 0.1), []HoldRow{right}, 0.3, 3},
		"nothing measured":           {rows(0, 0, 0, 0), nil, 0, 1},
		"no interference, none held": {rows(2, 3, 3, 0.1), nil, 0, 3},
	} {
		o := Outcome{Rows: c.rows, Holds: c.holds, Antagonist: "a"}
		o.decide(c.stolen)
		if o.Code != c.code || o.Why == "" {
			t.Errorf("%s: exit %d (%s: %s), want %d", name, o.Code, o.Verdict, o.Why, c.code)
		}
	}
}
