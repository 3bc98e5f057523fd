package antagonist

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Of two suspects with one rhythm the one that misses the cache more took more; one that misses as much all the time took
// less than one that does so while the victim suffers.
func TestTaken(t *testing.T) {
	signal := []float64{1, 1, 1, 1, 3, 3, 3, 3}
	on := []float64{0.1, 0.1, 0.1, 0.1, 2, 2, 2, 2}
	h := fill(signal, on, on, on)
	for k := range signal {
		h.Next = k
		for num, misses := range map[model.TaskNum]float64{2: 1e6 * on[k], 3: 9e6 * on[k], 4: 4e6} {
			i, _ := h.find(num)
			h.PutMisses(i, misses)
		}
	}
	h.Next = 0
	var a Analysis
	p := Params{Threshold: 0.35}
	h.Correlate(&p, 1, 1.5, &a)
	small, large, even := h.Taken(2), h.Taken(3), h.Taken(4)
	if !(large > 8*small && small > 0 && even < large/2) {
		t.Errorf("taken: small %g, large %g, steady %g", small, large, even)
	}
	if scoreOf(t, &a, 2) != scoreOf(t, &a, 3) {
		t.Errorf("the score looks at size: %+v", a.Scores)
	}
	if want := 0.5; math.Abs(a.Perfect-want) > 1e-9 || scoreOf(t, &a, 3) > a.Perfect {
		t.Errorf("the perfect suspect scores %g, want %g: %+v", a.Perfect, want, a.Scores)
	}
	if h.Taken(99) != 0 || h.Taken(1) != 0 {
		t.Error("who missed nothing took something")
	}
	usage, misses := h.Took(3, 0, 4)
	if usage != 2 || misses != 18e6 {
		t.Errorf("took %g CPU, %g misses", usage, misses)
	}
	if mean, n := h.MeanSignal(1, 4, 100); mean != 1 || n != 4 {
		t.Errorf("signal %g over %d windows before", mean, n)
	}
}

// A history of before misses were counted is read, and one with a row of the wrong length is not.
func TestHistoryWithoutMisses(t *testing.T) {
	h := fill([]float64{1, 2}, []float64{1, 1})
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var old History
	if err := json.Unmarshal(b, &old); err != nil || old.Check() != nil {
		t.Fatalf("%v %v", err, old.Check())
	}
	old.PutMisses(0, 5)
	if old.Check() != nil || len(old.Rows[0].Misses) != old.Cap {
		t.Errorf("%+v: %v", old.Rows[0], old.Check())
	}
	old.Rows[0].Misses = old.Rows[0].Misses[:1]
	if old.Check() == nil {
		t.Error("a row of the wrong length passes")
	}
}
