package remedy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A service that is slow for the clock of its cores is helped by CPU time of who uses most, and nothing else is tried before. Where the switch is off, the clock is as ever,
// or it fell by much less than what the CPI rose, the mildest is first.
func TestPower(t *testing.T) {
	for name, c := range map[string]struct {
		power bool
		clock float64
		cap   bool
	}{
		"the clock falls":     {true, 1.1, true},
		"by the switch":       {false, 1.1, false},
		"the clock is as was": {true, 1.5, false},
		"it hardly falls":     {true, 1.4, false},
	} {
		w := newWorld(model.ModeEnforce, xeon(8))
		w.params().Power, w.clock = c.power, 1.5
		w.seconds(20)
		w.harms[2], w.clock = harm{cpu: 0.5}, c.clock
		w.seconds(12)
		step := slices.IndexFunc(w.Said, func(d model.Decision) bool {
			return d.Kind == model.DecideDivide || d.Kind == model.DecideLevel || d.Kind == model.DecideCap || d.Kind == model.DecidePool
		})
		if step < 0 {
			t.Errorf("%s: nothing is done", name)
			continue
		}
		if d := w.Said[step]; (d.Kind == model.DecideCap && strings.HasSuffix(strings.Split(d.Reason, ";")[1], "power")) != c.cap {
			t.Errorf("%s: %s %d: %s", name, d.Kind, d.Task, d.Reason)
		}
	}
}
