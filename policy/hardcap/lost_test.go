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

// A suspect's share is told with what it would be without any one bad window: of one that harms in bursts it varies, of a
// steady one it does not.
func TestBlameOverWindows(t *testing.T) {
	t.Parallel()
	for _, steady := range []bool{true, false} {
		q := newQueue(t, from40(1, 1, 0), func(second int) map[model.TaskNum]float64 {
			if second < 40 {
				return map[model.TaskNum]float64{1: 5}
			}
			if shares := (map[model.TaskNum]float64{2: 300, 3: 900}); steady || second%2 == 0 {
				return shares
			}
			return map[model.TaskNum]float64{2: 900, 3: 900}
		})
		q.held(46)
		seen := 0
		for _, inc := range q.incidents {
			for i := range inc.Rounds {
				for _, s := range inc.Rounds[i].Suspects {
					seen++
					if s.Low > s.Score+1e-9 || s.High < s.Score-1e-9 || s.Low < 0 || s.High > 1 || (s.High-s.Low < 1e-9) != steady {
						t.Errorf("steady %t: task %d: %.3f, from %.3f to %.3f", steady, s.Task, s.Score, s.Low, s.High)
					}
				}
			}
		}
		if seen == 0 {
			q.Dump(t)
			t.Fatal("nobody was suspected")
		}
	}
}
