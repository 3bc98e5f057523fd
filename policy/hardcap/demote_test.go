package hardcap_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A demoted antagonist that no longer has the CPU when the service waits is not capped for what others still
// do, and neither is it given back. One for which the service still waits is.
func TestWhoStepsAsideIsNotCapped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		left   map[model.TaskNum]float64 // what the service waits for, while task 2 is demoted
		capped bool
	}{
		"others are left":                     {map[model.TaskNum]float64{1: 5, 2: 20, 3: 250, model.NumUnmanaged: 550}, false},
		"it still has the CPU":                {map[model.TaskNum]float64{1: 5, 2: 800, model.NumUnmanaged: 30}, true},
		"as much is waited for others as was": {map[model.TaskNum]float64{1: 5, 2: 20, model.NumUnmanaged: 1600}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var q *queue
			q = newQueue(t, from40(2, 0.5, 0), func(second int) map[model.TaskNum]float64 {
				switch {
				case second < 40:
					return map[model.TaskNum]float64{1: 5}
				case q.Task(2).Knobs[model.CPUWeight].Value == model.Weight(model.WeightIdle):
					return c.left
				}
				return map[model.TaskNum]float64{1: 5, 2: 2000, model.NumUnmanaged: 30}
			})
			q.Engine.Params.Hardcap.Demote.Enabled = true
			capped := q.held(200)
			// A bystander has a third of what is left, which is little of what was.
			if demoted := q.Count(model.DecideDemote); !c.capped && demoted != 1 || c.capped != slices.Contains(capped, 2) {
				q.Dump(t)
				t.Fatalf("demoted %d times, capped %v", demoted, capped)
			}
			idle := q.Task(2).Knobs[model.CPUWeight].Value == model.Weight(model.WeightIdle)
			if kept := q.says(model.DecideKept, "not capped"); kept == c.capped || kept && (!idle || q.Count(model.DecideCannotFix) > 0) {
				q.Dump(t)
				t.Errorf("kept: %v, demoted at the end: %v", kept, idle)
			}
		})
	}
}

// A held antagonist that took most of the waiting away is not given back because the service suffers now and then as
// badly as before from somebody else: a tail says that it is back, not of whom.
func TestWhoTookMostOfTheWaitingAwayStaysHeld(t *testing.T) {
	t.Parallel()
	var q *queue
	q = newQueue(t, from40(2, 0.5, 0), func(second int) map[model.TaskNum]float64 {
		switch {
		case second < 40:
			return map[model.TaskNum]float64{1: 5}
		case q.limit(2) > 1:
			return map[model.TaskNum]float64{2: 2000}
		case (second+2)%10 < 3:
			return map[model.TaskNum]float64{2: 20, model.NumUnmanaged: 2000}
		}
		return map[model.TaskNum]float64{2: 20}
	})
	q.Engine.Params.Hardcap.Groups.MaxMembers = 1 // else it is kept by its signal's mean
	if got := q.held(75); len(got) != 1 || got[0] != 2 || q.limit(2) > 1 || q.Count(model.DecideRelapse) == 0 {
		q.Dump(t)
		t.Fatalf("held %v, limit %v at the end", got, q.limit(2))
	}
	if r := q.incidents[len(q.incidents)-1].Rounds[0]; r.State != model.RoundHelped || !strings.HasPrefix(r.Verdict, "helped: half") {
		t.Errorf("the round: %v, %s", r.State, r.Verdict)
	}
}
