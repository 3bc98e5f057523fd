package hardcap_test

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Windows that lost a part of what was waited are evidence, and the decision says how much; of those that lost more than
// is known nobody is blamed, and they are counted.
func TestBlameOfWindowsThatLost(t *testing.T) {
	t.Parallel()
	for lost, counts := range map[float64]bool{0: true, 0.3: true, model.MaxWaitLost: true, 0.6: false, 1: false} {
		q := newQueue(t, from40(3, 1, 0), sometimes(map[model.TaskNum]float64{1: 20, 2: 10, 3: 900}))
		q.lost = lost
		held := q.held(70)
		if got := len(held) == 1 && held[0] == 3; got != counts {
			q.Dump(t)
			t.Fatalf("with %g lost: held %v", lost, held)
		}
		told := slices.ContainsFunc(q.Said, func(d model.Decision) bool {
			v, ok := d.Fact(model.FactLost)
			return ok && v == lost
		})
		if told != (counts && lost > 0) {
			q.Dump(t)
			t.Errorf("with %g lost: a decision says so: %t", lost, told)
		}
		of := q.Engine.State.Hardcap.Waiters[0]
		if (len(of.LeftOut) > 0) == counts || len(of.LeftOut) > q.Engine.Params.Hardcap.Blame.Windows {
			t.Errorf("with %g lost: left out %v", lost, of.LeftOut)
		}
	}
}
