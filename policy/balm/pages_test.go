package balm_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// newPagesWorld is a world in which each socket has a memory node, and pages that move go where they are sent.
func newPagesWorld(pages bool) *world {
	w := newWorld(model.ModeEnforce, xeon(1))
	w.params().Pages = pages
	w.gone = map[model.TaskNum]float64{}
	for _, t := range w.Tasks {
		t.Knobs[model.MemoryPages].Write = func(ask model.Setting) string {
			w.gone[t.Num] = max(w.gone[t.Num], 1-float64(ask.Amount)/1000)
			return ""
		}
	}
	return w
}

// With its pages elsewhere who had the lowest level has everything again, and the service is late no longer for that.
func TestPagesMakeRoom(t *testing.T) {
	work, red := map[bool]float64{}, map[bool]int{}
	for _, pages := range []bool{false, true} {
		w := newPagesWorld(pages)
		w.asks[4] = 5
		w.seconds(400)
		for range 200 {
			w.second()
			work[pages] += w.moves(3) / 200
		}
		red[pages] = w.red
		said := w.Count(model.DecidePages)
		if pages != (said > 0) || said > 10 {
			t.Errorf("pages: %v: %d moves", pages, said)
		}
		if pages && (w.level(3) != 100 || len(w.state().Rungs) != 0 || w.gone[3] < 0.2 || w.gone[3] > 0.9) {
			t.Errorf("level %d, %+v, %.0f %% of its pages are gone", w.level(3), w.state().Rungs, 100*w.gone[3])
		}
	}
	if work[true] < 1.5*work[false] || red[true] > red[false] {
		t.Errorf("it moves %v GB/s, the service is late for %v seconds", work, red)
	}
}

// Who asks for less than the lowest level leaves is not held by it. Its pages help.
func TestPagesWhereLevelsDoNot(t *testing.T) {
	for _, pages := range []bool{false, true} {
		w := newPagesWorld(pages)
		w.asks, w.own = map[model.TaskNum]float64{2: 8, 3: 8, 4: 1}, 46
		w.seconds(120)
		last := w.red
		w.seconds(60)
		helped := w.Count(model.DecideCannotFix) == 0 && w.red == last && w.gone[2]+w.gone[3] > 0.3
		if helped != pages {
			t.Errorf("pages: %v: said %d times that it cannot be fixed, %d seconds late at the end, gone %v", pages, w.Count(model.DecideCannotFix), w.red-last, w.gone)
		}
	}
}

// Pages stay where they are while services at all memories are in trouble, where the machine has one memory, and where they
// cannot be moved; that is found out once.
func TestPagesStay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		moves  int
	}{
		"services at both": {func(w *world) { w.Tasks[0].Knobs[model.CPUPlace].Value.CPUs = model.CPUSet{}; w.List(service) }, 0},
		"one memory node":  {func(w *world) { w.Topology.CPUs[1].Node = 0 }, 0},
		"refused": {func(w *world) {
			for _, t := range w.Tasks {
				t.Refuse(model.MemoryPages, "no room")
			}
		}, 1},
	} {
		w := newPagesWorld(true)
		c.change(w)
		w.asks[2], w.asks[4] = 5, 5
		w.seconds(200)
		if n := w.Count(model.DecidePages); n != c.moves {
			t.Errorf("%s: %d moves, expected %d", name, n, c.moves)
		}
	}
}

// A step that comes off but for a little (huge pages are moved whole, and a task takes new ones) is followed by the next one; one of which less than half comes off is the last.
func TestPagesThatCameOffInPart(t *testing.T) {
	for over, goesOn := range map[int64]bool{0: true, 20: true, 60: false} {
		w := newPagesWorld(true)
		w.asks[2], w.asks[4] = 5, 5
		for _, task := range w.Tasks {
			task.Knobs[model.MemoryPages].Did = func(ask model.Setting) int64 { return min(1000, ask.Amount+over) }
			task.Knobs[model.MemoryPages].Write = nil
		}
		w.seconds(100)
		if n := w.Count(model.DecidePages); (n > 1) != goesOn || n == 0 {
			t.Errorf("%d per mille too many are left: %d moves", over, n)
		}
	}
}
