package remedy_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A step back that the machine refuses is no reason to let go of a task and to look away, nor not to hold it again: it is given all back
// at once, services are looked at as after any other step, and where that brings trouble it has what it had before.
func TestRefusedStepBack(t *testing.T) {
	for _, harmless := range []bool{true, false} {
		w := newWorld(model.ModeEnforce, xeon(8))
		w.seconds(10)
		w.harms[2] = harm{ways: 0.5, misses: 100}
		w.seconds(15)
		w.expect(t, "two ways", "2/100/2 11/100/2 11/100/2")
		for _, k := range w.Wide {
			k.Write = func(v model.Setting) string {
				if v.Knob == model.CacheWays && v.Amount > 6 && v.Amount <= 11 {
					return "no room in the cache"
				}
				return ""
			}
		}
		w.harms[2] = harm{misses: 100}
		for range 200 {
			if w.play(); w.has(2, model.CacheWays, 11) == 11 {
				break
			}
		}
		w.expect(t, "given back", free)
		if s := w.state(); s.Trial == nil || !s.Trial.Back || len(s.Tried) > 0 {
			t.Errorf("nobody looks what came of it: %+v, tried %+v", s.Trial, s.Tried)
		}
		if !harmless {
			w.harms[2] = harm{ways: 0.5, misses: 100}
			w.seconds(10)
			w.expect(t, "trouble", "6/100/2 11/100/2 11/100/2")
			continue
		}
		w.seconds(20)
		w.expect(t, "well", free)
		if said := w.Said[len(w.Said)-1]; len(w.state().Holds)+len(w.state().Tried) > 0 || w.Count(model.DecideLeftAlone) > 0 || strings.Contains(said.Reason, "no room") {
			t.Errorf("%+v; said at last %+v", w.state(), said)
		}
		w.harms[2] = harm{ways: 0.5, misses: 100}
		w.seconds(12)
		w.expect(t, "again", "2/100/2 11/100/2 11/100/2")
	}
}
