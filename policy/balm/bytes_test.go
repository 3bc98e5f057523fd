package balm_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Where levels are MiB/s (mba_MBps) without a bound, the lowest is a tenth of what the memory was seen to move, and the way back goes by
// ninths of it; who would have more than all of it is left.
func TestLevelsOfBytes(t *testing.T) {
	have := xeon(1)
	have.LeastLevel, have.MostLevel, have.LevelStep, have.LevelUnit = 1, 1<<32-1, 1, model.LevelMiB
	w := newWorld(model.ModeEnforce, have)
	w.own, w.asks = 10, map[model.TaskNum]float64{2: 15, 3: 60, 4: 5} // 85 GB/s on memory 0
	w.seconds(4)
	if got := w.level(3); got < 7500 || got > 8500 || w.level(2) != 1<<32-1 {
		t.Fatalf("levels %s, expected a tenth of 85 GB/s for task 3 alone", w.levels())
	}
	w.asks[3] = 20 // so that every step back is harmless
	last, steps := w.level(3), 0
	for range 200 {
		if w.second(); w.level(3) == last {
			continue
		}
		if steps++; w.level(3) < 1<<32-1 && (w.level(3) <= last || w.level(3)-last > 10000 || w.level(3) > 90000) {
			t.Fatalf("level %d after %d", w.level(3), last)
		}
		last = w.level(3)
	}
	if last != 1<<32-1 || len(w.state().Rungs) > 0 || steps < 9 || steps > 12 || w.state().CannotFix != nil {
		t.Errorf("level %d after %d steps, %+v", last, steps, w.state())
	}
}

// As long as nobody has counted what memory moves there is no such level: nothing is taken, that is said once, and nobody waits for it.
func TestNoPeakYet(t *testing.T) {
	have := xeon(1)
	have.LeastLevel, have.MostLevel, have.LevelStep, have.LevelUnit = 1, 2048, 1, model.LevelEighth
	w := newWorld(model.ModeEnforce, have)
	w.uncounted = true
	w.seconds(30)
	if w.Writes > 0 || w.state().Taking() || w.state().CannotFix != nil || w.Count(model.DecideLeftAlone) != 1 || w.red == 0 {
		t.Errorf("%d writes, %d decisions, %d seconds red, %+v", w.Writes, w.Count(model.DecideLeftAlone), w.red, w.state())
	}
	w.uncounted = false
	w.seconds(4)
	if got := w.level(3); got < 60 || got > 75 {
		t.Errorf("level %d, expected a tenth of 85 GB/s in eighths", got)
	}
}
