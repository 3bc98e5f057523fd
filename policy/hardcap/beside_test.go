package hardcap_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// always is CPU used from the beginning on, by task, bounded by its cap.
func always(list ...float64) func(second, task int, limit float64) float64 {
	return func(_, task int, limit float64) float64 {
		if task == 1 {
			return 1
		}
		return min(limit, list[task-2])
	}
}

// TestBeginsBeside: an agent that starts beside the antagonist finds it, steady or in bursts, and holds nobody
// else; without the rule it learns the distress as normal.
func TestBeginsBeside(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]func(second int) map[model.TaskNum]float64{
		"steady": func(second int) map[model.TaskNum]float64 {
			return map[model.TaskNum]float64{2: 60, 3: 900 + 20*float64(second%5), 4: 50, 1: 10, model.NumUnmanaged: 80}
		},
		"in bursts of 3 of 5 windows": func(second int) map[model.TaskNum]float64 {
			if second%5 < 2 {
				return map[model.TaskNum]float64{2: 60, 4: 50}
			}
			return map[model.TaskNum]float64{2: 80, 3: 1500, 4: 70}
		},
	} {
		q := newQueue(t, always(0.5, 2, 0.5), waits)
		q.Shadow(t, 7)
		got := q.held(60)
		if len(got) == 0 || q.Count(model.DecideVerified) == 0 {
			q.Dump(t)
			t.Fatalf("%s: held %v, want task 3, verified", name, got)
		}
		for _, num := range got {
			if num != 3 {
				q.Dump(t)
				t.Fatalf("%s: held %v, want task 3 alone", name, got)
			}
		}
		if !q.says(model.DecideSpec, "without what /t3 had of the waiting") {
			q.Dump(t)
			t.Errorf("%s: the spec does not say what it leaves out", name)
		}
		before := newQueue(t, always(0.5, 2, 0.5), waits)
		before.Engine.Params.Spec.Alone = false
		if got := before.held(60); len(got) != 0 {
			t.Errorf("%s: without the rule %v is held: the scene shows nothing", name, got)
		}
	}
}

// TestNeighboursThatAreNormal: what is always there and shared by several, or is nobody's who may be held, is normal.
func TestNeighboursThatAreNormal(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]map[model.TaskNum]float64{
		"three alike":  {2: 300, 3: 320, 4: 280},
		"a little":     {3: 40},
		"unmanaged":    {model.NumUnmanaged: 900, 3: 300},
		"its own work": {1: 900, 3: 20},
	} {
		q := newQueue(t, always(1, 1, 1), func(second int) map[model.TaskNum]float64 {
			shaken := map[model.TaskNum]float64{}
			for num, ms := range waits {
				shaken[num] = ms * (1 + 0.1*float64(second%3))
			}
			return shaken
		})
		if got := q.held(100); len(got) != 0 {
			q.Dump(t)
			t.Errorf("%s: held %v", name, got)
		}
	}
}

// TestInVain: a neighbour that had most of the blame is held, and others take the CPU that it leaves: the service
// waits as before. It is let go, the spec becomes what was measured, and nobody is held any more.
func TestInVain(t *testing.T) {
	t.Parallel()
	var q *queue
	q = newQueue(t, always(2, 2, 2), func(int) map[model.TaskNum]float64 {
		if q.limit(3) < 1 {
			return map[model.TaskNum]float64{model.NumUnmanaged: 1000}
		}
		return map[model.TaskNum]float64{3: 800, model.NumUnmanaged: 200}
	})
	q.Shadow(t, 7)
	got := q.held(200)
	if len(got) != 1 || got[0] != 3 || q.Count(model.DecideTakenBack) != 1 {
		q.Dump(t)
		t.Fatalf("held %v, want task 3 once, taken back", got)
	}
	if !q.says(model.DecideSpec, "as measured beside /t3, for holding it did not help") {
		q.Dump(t)
		t.Error("the spec was not taken back")
	}
}

// TestKeptSpecBesideIt: a spec of an earlier run is used, so that an agent that restarts beside the antagonist
// finds it in seconds.
func TestKeptSpecBesideIt(t *testing.T) {
	t.Parallel()
	hog := func(second int) map[model.TaskNum]float64 {
		if second < 30 {
			return map[model.TaskNum]float64{3: 20}
		}
		return map[model.TaskNum]float64{3: 900, 2: 30}
	}
	before := newQueue(t, always(0.5, 2, 0.5), hog)
	before.held(30)
	kept := before.Engine.Keep(before.NowNsec, 1e18)
	if len(kept.Specs) == 0 {
		t.Fatal("nothing was learned")
	}
	q := newQueue(t, always(0.5, 2, 0.5), hog)
	q.second = 30
	q.Engine.Step(&engine.Input{MonoNsec: q.NowNsec, WallNsec: 1e18, Restored: &kept})
	if got := q.held(40); len(got) != 1 || got[0] != 3 {
		q.Dump(t)
		t.Errorf("held %v within ten seconds, want task 3", got)
	}
}
