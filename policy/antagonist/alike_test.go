package antagonist

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Two tasks that come together are alike, whatever their size; one of another rhythm, a
// steady one and one that was never there are not, nor is anything in a young history.
func TestAlikePair(t *testing.T) {
	usage := map[model.TaskNum][]float64{
		1: {0, 0, 0, 0, 0, 2, 2.1, 1.9, 2},
		2: {0, 0, 0, 0, 0, 0.51, 0.5, 0.49, 0.5},
		3: {0, 0, 3, 3, 0, 0, 3, 3, 0},
		4: {1, 1, 1, 1, 1, 1, 1, 1, 1},
		5: {1, 1, 1, 1, 1, 1, 1, 1, 1},
	}
	build := func(windows int) *History {
		h := NewHistory(10)
		for n := range usage {
			h.Ensure(n)
		}
		for k := range windows {
			h.Begin(int64(k))
			for n, u := range usage {
				h.Put(n, u[k], 1)
			}
			h.End()
		}
		return h
	}
	h := build(9)
	for _, c := range []struct {
		a, b model.TaskNum
		want bool
	}{{1, 2, true}, {2, 1, true}, {1, 3, false}, {1, 4, false}, {4, 5, false}, {1, 9, false}, {9, 1, false}} {
		if got := h.Alike(c.a, c.b); got != c.want {
			t.Errorf("tasks %d and %d: alike is %v", c.a, c.b, got)
		}
	}
	if build(minGroupWindows-1).Alike(1, 2) {
		t.Error("alike in five windows")
	}
}
