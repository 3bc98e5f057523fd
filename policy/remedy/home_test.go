package remedy_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// runsOn has a task run on the service's socket alone, or on the other one.
func (w *world) runsOn(num model.TaskNum, far bool) {
	cpus := model.FullSet(4)
	if far {
		cpus = model.FullSet(8).Without(cpus)
	}
	w.Tasks[num-1].Knobs[model.CPUPlace].Value = model.Place(cpus)
	w.List(num)
}

// Pages that were moved for a service come home, by two steps, once they do it no harm any more; where they do they go away again, and are tried
// later and later; and they stay where the task runs there, too, and where the configuration says so.
func TestPagesComeHome(t *testing.T) {
	for name, c := range map[string]struct {
		runs   []bool // on the service's socket, on the other
		off    bool
		harm   harm // in the end
		gone   float64
		copies int // at most, over the time in which they may come home
	}{
		"no harm any more":     {[]bool{true, false}, false, harm{misses: 100}, 0, 2},
		"it would be the same": {[]bool{true, false}, false, harm{pages: 0.9, misses: 100}, 0.75, 12},
		"it runs there, too":   {[]bool{true, true}, false, harm{misses: 100}, 0.75, 0},
		"it is switched off":   {[]bool{true, false}, true, harm{misses: 100}, 0.75, 0},
	} {
		w := newSockets()
		w.params().Home = !c.off
		if !c.runs[1] {
			w.runsOn(2, false)
		}
		w.seconds(10)
		w.harms[2] = harm{pages: 0.9, misses: 100}
		w.seconds(100)
		if w.gone[2] != 0.75 {
			t.Fatalf("%s: %v of its pages are gone", name, w.gone[2])
		}
		w.harms[2] = c.harm
		moves, red := w.Count(model.DecidePages), w.red
		w.seconds(3600)
		if moves = w.Count(model.DecidePages) - moves; w.gone[2] != c.gone || moves > c.copies || moves < min(2, c.copies) || w.red-red > 60 {
			t.Errorf("%s: %v of its pages are gone after %d moves; %d seconds late\n%+v", name, w.gone[2], moves, w.red-red, w.state())
		}
		w.expect(t, name, free)
	}
}

// What is held beside one service is given back while one on the other socket is in trouble for which nobody can help it, also where the first one
// went there, too, so that nobody feels what is held.
func TestApart(t *testing.T) {
	for _, went := range []bool{false, true} {
		testApart(t, went)
	}
}

func testApart(t *testing.T, went bool) {
	for _, apart := range []bool{false, true} {
		w := newSockets()
		w.params().Apart = apart
		w.Tasks[3].Class, w.Snapshot().Added[3].Class = model.LC, model.LC
		for num := model.TaskNum(2); num <= 4; num++ {
			w.runsOn(num, num == 4)
		}
		w.beside = 0.5
		w.seconds(10)
		w.harms[2] = harm{ways: 0.5, misses: 100}
		w.seconds(30)
		if w.has(2, model.CacheWays, 11) == 11 {
			t.Fatalf("nothing is held: %s", w.holds())
		}
		w.harms[2] = harm{misses: 100}
		w.beside = 1.5
		if went {
			w.runsOn(service, true)
		}
		w.seconds(900)
		if given := w.has(2, model.CacheWays, 11) == 11; given != apart {
			t.Errorf("apart %v, went %v: %s, %+v", apart, went, w.holds(), w.state())
		}
	}
}
