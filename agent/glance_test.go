package agent

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// What LC used is spread over the pulses that were passed over as its CPUs worked, and the last
// moments have as much of it as those did. Strangers' work on its CPUs is none of LC's.
func TestGlanceTellsOfLC(t *testing.T) {
	at := func(lc ...uint64) (list []model.Passed) {
		for i, v := range lc {
			list = append(list, model.Passed{MonoNsec: int64(i + 1), LCUsage: v})
		}
		return list
	}
	for _, c := range []struct {
		what string
		busy []uint64 // LC's CPUs at each look and at the pulse; 1000 at the one before
		lc   uint64   // at the pulse; 500 at the one before
		want []model.Passed
	}{
		{"nobody but LC", []uint64{1010, 1020, 1070}, 570, at(510, 520)},
		{"strangers take half of it", []uint64{1020, 1040, 1060}, 530, at(505, 510)},
		{"and might have taken all but the end", []uint64{1100, 1200, 1260}, 530, at(500, 500)},
		{"a file that was set back", []uint64{1010, 1020, 5}, 570, at(510, 520)},
		{"none was passed over", []uint64{1010}, 510, nil},
	} {
		g := glance{busy: model.Read(1000), lc: model.Read(500)}
		n := len(c.busy) - 1
		for i, v := range c.busy[:n] {
			g.passed = append(g.passed, look{int64(i + 1), v})
		}
		p := model.Pulse{LCUsage: model.Read(c.lc)}
		if g.tell(c.busy[n], &p); !slices.Equal(p.Passed, c.want) {
			t.Errorf("%s: %v, want %v", c.what, p.Passed, c.want)
		}
	}
	g := glance{busy: model.Read(1000), passed: []look{{1, 1010}}}
	if p := (model.Pulse{LCUsage: model.Read(9)}); true {
		if g.tell(1020, &p); p.Passed != nil {
			t.Errorf("nobody knows what LC had used: %v", p.Passed)
		}
	}
}
