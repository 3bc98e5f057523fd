package remedy_test

import (
	"math"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// What counts otherwise from now on, or is not there any more (resctrl was mounted anew, or unmounted), is not held as it was counted before.
func TestCountedOtherwise(t *testing.T) {
	for name, change := range map[string]func(c *model.Classes){
		"mba_MBps": func(c *model.Classes) {
			c.LeastLevel, c.MostLevel, c.LevelStep, c.LevelUnit = 1, math.MaxUint32, 1, model.LevelMiB
		},
		"unmounted": func(c *model.Classes) { *c = model.Classes{} },
	} {
		w := newWorld(model.ModeEnforce, xeon(8))
		w.seconds(10)
		w.harms[2] = harm{level: 0.6, misses: 100}
		w.seconds(30)
		w.expect(t, "a level", "11/10/2 11/100/2 11/100/2")
		w.harms[2] = harm{misses: 100}
		machine := *w.Topology
		machine.Classes = xeon(8)
		change(machine.Classes)
		w.Plug(&machine)
		if w.seconds(3); w.holds() != free || len(w.state().Holds) > 0 {
			t.Errorf("%s: %s, %+v", name, w.holds(), w.state().Holds)
		}
	}
}

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

// Where levels are MiB/s (mba_MBps) without a bound, a task has a tenth of what the memory was seen to move, and gets it back by steps
// of that; while nobody has counted it, that rung is not there, which is said once.
func TestLevelsOfBytes(t *testing.T) {
	for _, counted := range []bool{true, false} {
		have := xeon(8)
		have.LeastLevel, have.MostLevel, have.LevelStep, have.LevelUnit = 1, math.MaxUint32, 1, model.LevelMiB
		w := newWorld(model.ModeEnforce, have)
		w.uncounted = !counted
		w.seconds(10)
		w.harms[2] = harm{level: 0.6, misses: 100}
		w.seconds(30)
		most := float64(math.MaxUint32)
		level := func() float64 { return w.has(2, model.MemoryBandwidth, most) }
		if !counted {
			if level() != most || w.Count(model.DecideLeftAlone) != 1 {
				t.Errorf("level %v, %d times left alone", level(), w.Count(model.DecideLeftAlone))
			}
			continue
		}
		if level() < 850 || level() > 1000 {
			t.Fatalf("level %v, expected a tenth of 9.7 GB/s", level())
		}
		w.harms[2] = harm{misses: 100}
		last, steps := level(), 0
		for range 600 {
			if w.play(); level() == last {
				continue
			}
			if steps++; level() < most && (level() < last || level() > last+1100 || level() > 10000) {
				t.Fatalf("level %v after %v", level(), last)
			}
			last = level()
		}
		if last != most || len(w.state().Holds) > 0 || steps < 8 || steps > 10 {
			t.Errorf("level %v after %d steps, %+v", last, steps, w.state().Holds)
		}
	}
}
