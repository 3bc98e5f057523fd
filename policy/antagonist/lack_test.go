package antagonist

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// counted are four good and four bad windows of a victim, whose misses rise, and what resctrl counts beside it: 2 has come with the harm, and is counted from
// the next window on; 3 is as ever; 4 fills another domain; nobody counts 5.
func counted(t *testing.T) *History {
	t.Helper()
	signal := []float64{1, 1, 1, 1, 3, 3, 3, 3}
	on := []float64{0.1, 0.1, 0.1, 0.1, 2, 2, 2, 2}
	h := fill(signal, on, on, on, on)
	at := func(domain int32, lines, moved float64) []model.DomainObservation {
		return []model.DomainObservation{{Domain: domain, Occupancy: model.Known(lines), Total: model.Known(moved)}, {Domain: 9, Occupancy: model.Known(0), Total: model.Known(0)}}
	}
	for k := range signal {
		h.Next = k
		h.PutMPKI(0, model.Known(2+float64(k/4)*4))
		if k > 4 {
			h.PutParts(1, at(0, 6e6, 1e9))
		}
		h.PutParts(2, at(0, 8e6, 3e9))
		h.PutParts(3, at(1, 20e6, 9e9*float64(k/4)))
	}
	h.Next = 0
	p := Params{Threshold: 0.35}
	var a Analysis
	h.Correlate(&p, 1, 1.5, &a)
	return h
}

func near(domain int32) bool { return domain == 0 }

// What tasks take is told of the domains of the victim, in bad windows and in good ones: who had none yet has it in the mean of those that know, and had
// nothing before.
func TestTakenOf(t *testing.T) {
	h := counted(t)
	if bad, good, ok := h.MPKI(1); !ok || bad != 6 || good != 2 {
		t.Errorf("the victim's misses: %g bad, %g good, %t", bad, good, ok)
	}
	if _, _, ok := h.MPKI(2); ok {
		t.Error("misses of one whose nobody asked for are known")
	}
	for _, c := range []struct {
		num       model.TaskNum
		of        model.Lack
		bad, good float64
		ok        bool
	}{
		{2, model.LackCache, 6e6, 0, true}, {2, model.LackMemory, 1e9, 0, true}, {3, model.LackCache, 8e6, 8e6, true}, {3, model.LackMemory, 3e9, 3e9, true},
		{4, model.LackMemory, 0, 0, false}, {5, model.LackCache, 0, 0, false}, {2, model.LackUnknown, 0, 0, false}, {99, model.LackCache, 0, 0, false},
	} {
		if bad, good, ok := h.TakenOf(c.num, c.of, near); bad != c.bad || good != c.good || ok != c.ok {
			t.Errorf("%d took %g of %s, %g before, %t; want %+v", c.num, bad, c.of, good, ok, c)
		}
	}
	if bad, good := h.AllTake(model.LackMemory, near); bad != 4e9 || good != 3e9 {
		t.Errorf("all move %g, %g before", bad, good)
	}
	if mean, ok := h.TookOf(2, model.LackCache, near, 2, 3); !ok || mean != 6e6 {
		t.Errorf("in windows of which two are known it had %g, %t", mean, ok)
	}
	if _, ok := h.TookOf(2, model.LackCache, near, 4, 3); ok {
		t.Error("it is known what it had before it was counted")
	}
	if n := len(h.Rows[1].Parts); n != 1 {
		t.Errorf("%d domains are kept of a task that was in one", n)
	}
	h.Begin(9)
	h.End()
	if h.Rows[0].MPKI[0] != NoEvidence || h.Rows[2].Parts[0].Lines[0] != NoEvidence {
		t.Error("a window in which nobody counted has the figures of the one whose place it took")
	}
}

// What cannot be is as good as none, and a history whose rows are of different lengths is not taken.
func TestCountedIsWhole(t *testing.T) {
	h := counted(t)
	h.PutParts(2, []model.DomainObservation{{Occupancy: model.Known(math.Inf(1)), Total: model.Known(math.NaN())}})
	h.PutMPKI(0, model.Known(-1))
	if p := h.Rows[2].Parts[0]; p.Lines[0] != NoEvidence || p.Moved[0] != NoEvidence || h.Rows[0].MPKI[0] != NoEvidence {
		t.Errorf("%+v", p)
	}
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var back History
	if err := json.Unmarshal(b, &back); err != nil || back.Check() != nil {
		t.Fatalf("%v %v", err, back.Check())
	}
	back.Rows[2].Parts[0].Moved = back.Rows[2].Parts[0].Moved[1:]
	if back.Check() == nil {
		t.Error("a part that is too short passes")
	}
	back.Rows[2].Parts, back.Rows[0].MPKI = nil, back.Rows[0].MPKI[1:]
	if back.Check() == nil {
		t.Error("misses that are too short pass")
	}
}
