package hardcap_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// late is a queue whose service promises p99 of 5 ms. ms says what its latency source sees in a second, below 0
// where it has no valid figure; longest is the longest wait of a window, in milliseconds.
func late(q *queue, longest float64, ms func(second int) float64) *queue {
	q.longest = longest
	q.slo = func(second int) model.Latency {
		l := model.Latency{Job: q.Task(1).Job, Target: 0.005, Quantile: 0.99, Samples: 150, State: "grey", Why: "gone"}
		if v := ms(second); v >= 0 {
			l.Figure, l.State, l.Why = model.Known(v/1000), "green", ""
			if v > 5 {
				l.State = "red"
			}
		}
		return l
	}
	return q
}

// caused is 1 ms, and 20 ms from second 40 on while the task runs as it likes.
func caused(q *queue, by model.TaskNum) func(int) float64 {
	return func(second int) float64 {
		if second < 40 || q.limit(by) < 1 {
			return 1
		}
		return 20
	}
}

func (q *queue) incident() *model.Incident {
	for i := range q.Engine.State.Hardcap.Incidents {
		return &q.Engine.State.Hardcap.Incidents[i].Incident
	}
	return nil
}

// A job that misses its target is a victim, without a spec and without the floor of CPU. Its waits say who is
// to blame, as long as they are long enough to be the cause.
func TestLatencyByBlame(t *testing.T) {
	t.Parallel()
	little := func(second, task int, limit float64) float64 {
		if task == 1 {
			return 0.001
		}
		return from40(3, 1, 0)(second, task, limit)
	}
	q := newQueue(t, little, sometimes(map[model.TaskNum]float64{1: 5, 2: 10, 3: 900}))
	late(q, 15, caused(q, 3))
	if got := q.held(70); len(got) != 1 || got[0] != 3 || q.Count(model.DecideVerified) != 1 {
		q.Dump(t)
		t.Fatalf("held %v, want task 3 alone, verified", got)
	}
	inc := q.incident()
	if inc == nil || inc.Source != model.SourceLatency || inc.Threshold != 5 || inc.Signal != 20 || !inc.Rounds[0].ByBlame || !strings.Contains(inc.Spec.Origin(), "promises") {
		t.Errorf("%+v", inc)
	}
	if !q.says(model.DecideAnomaly, "latency 20 is above 5") {
		q.Dump(t)
	}
}

// Waits that are short beside what the answers take, or no longer than usual, are not the cause: correlation
// decides, though somebody else had the CPU meanwhile.
func TestLatencyByCorrelation(t *testing.T) {
	t.Parallel()
	rhythm := func(second, task int, limit float64) float64 {
		switch {
		case task == 1:
			return 1
		case task == 3: // runs all the time
			return min(limit, 1)
		case task == 2 && second >= 40 && (second-40)%6 < 4:
			return min(limit, 3)
		}
		return 0
	}
	for name, c := range map[string]struct {
		longest float64
		waits   func(int) map[model.TaskNum]float64
	}{
		"short waits": {2, sometimes(map[model.TaskNum]float64{3: 900})},
		"as usual":    {15, func(int) map[model.TaskNum]float64 { return map[model.TaskNum]float64{3: 300, 2: 1} }},
	} {
		q := newQueue(t, rhythm, c.waits)
		late(q, c.longest, func(second int) float64 {
			if second >= 40 && (second-40)%6 < 4 && q.limit(2) > 1 {
				return 20
			}
			return 1
		})
		if got := q.held(90); len(got) != 1 || got[0] != 2 {
			q.Dump(t)
			t.Errorf("%s: held %v, want task 2 alone", name, got)
		} else if inc := q.incident(); inc == nil || inc.Rounds[0].ByBlame {
			t.Errorf("%s: %+v", name, inc)
		}
	}
}

// A service that asks again once it was answered waits all the time beside a neighbour that leaves it little, whether the target is met or not: what
// tells is that each wait is longer. Who it waited for is held; without that comparison nobody is, since the neighbour ran in good windows, too.
func TestLatencyByTheWaitsLength(t *testing.T) {
	t.Parallel()
	steady := func(_, task int, limit float64) float64 {
		switch task {
		case 1:
			return 0.001
		case 3:
			return min(limit, 1)
		}
		return 0
	}
	for each, want := range map[bool]int{true: 1, false: 0} {
		var q *queue
		q = newQueue(t, steady, func(second int) map[model.TaskNum]float64 {
			if q.many = 60; second%10 > 6 { // each wait is three times as long
				q.many = 20
			}
			return map[model.TaskNum]float64{1: 5, 2: 10, 3: 900}
		})
		q.Engine.Params.Hardcap.Blame.EachWait = each
		late(q, 15, func(int) float64 {
			switch {
			case q.limit(3) < 1:
				return 1
			case q.many < 60:
				return 20
			}
			return 4
		})
		if got := q.held(70); len(got) != want || want > 0 && (got[0] != 3 || q.Count(model.DecideVerified) != 1) {
			q.Dump(t)
			t.Errorf("for as many waits: %t; held %v, want %d of task 3", each, got, want)
		}
	}
}

// While policy balm or remedy takes something for the service nobody is held by correlation; by blame somebody is.
func TestLatencyLeavesItToOthers(t *testing.T) {
	t.Parallel()
	for says, work := range map[string]func(s *engine.CPUState){
		// Policies that are off forget it each time.
		"policy balm takes memory bandwidth": func(s *engine.CPUState) { s.Balm.Healing = true },
		"policy remedy takes what is milder": func(s *engine.CPUState) { s.Remedy.Victim = 1 },
	} {
		for longest, want := range map[float64]int{2: 0, 15: 1} {
			q := newQueue(t, from40(3, 1, 0), sometimes(map[model.TaskNum]float64{1: 5, 2: 10, 3: 900}))
			late(q, longest, caused(q, 3))
			noted := q.After
			q.After = func(in *engine.Input, out *engine.Output) {
				work(&q.Engine.State.CPU)
				noted(in, out)
			}
			if got := q.held(80); len(got) != want || want == 0 && !q.says(model.DecideSearch, says) {
				q.Dump(t)
				t.Errorf("longest wait %g ms, %s: held %v, expected %d", longest, says, got, want)
			}
		}
	}
}

// A service whose threads wait for each other, while it has more to do, is late by its own load: a neighbour
// that is busy at the same times is not accused. With as much to do as ever, or with more waiting for others, it is.
func TestLatencyByOwnLoad(t *testing.T) {
	t.Parallel()
	busy := func(second int) bool { return second >= 40 && (second-40)%6 < 4 }
	for name, c := range map[string]struct {
		load, own, other float64
		held             int
	}{
		"own load":         {3, 900, 10, 0},
		"as much to do":    {1.1, 900, 10, 1}, // by correlation: as by who takes the cache
		"waits for others": {3, 300, 900, 1},
	} {
		used := func(second, task int, limit float64) float64 {
			switch {
			case task == 1 && busy(second):
				return c.load
			case task == 1:
				return 1
			case task == 2 && busy(second):
				return min(limit, 3)
			}
			return 0
		}
		q := newQueue(t, used, func(second int) map[model.TaskNum]float64 {
			if busy(second) {
				return map[model.TaskNum]float64{1: c.own, 2: c.other}
			}
			return map[model.TaskNum]float64{1: 50}
		})
		late(q, 15, func(second int) float64 {
			if busy(second) {
				return 20
			}
			return 1
		})
		if got := q.held(90); len(got) != c.held || c.held == 0 && !q.says(model.DecideSearch, "it is its own load") {
			q.Dump(t)
			t.Errorf("%s: held %v, want %d of task 2", name, got, c.held)
		}
	}
}

// While its source has no valid figure the service is neither well nor a victim: nobody is accused, and no hold is
// verified. After the window of outliers it is judged by its waiting again, and the incident is over.
func TestLatencyWithoutFigure(t *testing.T) {
	t.Parallel()
	q := newQueue(t, from40(3, 1, 0), sometimes(map[model.TaskNum]float64{1: 5, 3: 900}))
	was, gone := caused(q, 3), 1<<30
	late(q, 15, func(second int) float64 {
		if second >= gone {
			return -1
		}
		return was(second)
	})
	for q.limit(3) > 1 && q.second < 60 {
		q.tick()
	}
	gone = q.second // held, and not yet verified
	q.held(gone + 6)
	inc := q.incident()
	if inc == nil || inc.State != model.Verifying || q.Count(model.DecideVerified) != 0 {
		q.Dump(t)
		t.Fatalf("%+v", inc)
	}
	q.held(gone + 11)
	if !q.says(model.DecideRelease, "is judged by slowdown now, not by latency") || q.Count(model.DecideVerified) != 0 {
		q.Dump(t)
		t.Error("the incident is not over")
	}
	never := newQueue(t, from40(3, 1, 0), sometimes(map[model.TaskNum]float64{1: 20, 2: 10, 3: 900}))
	late(never, 15, func(int) float64 { return -1 })
	if got := never.held(70); len(got) != 1 || got[0] != 3 {
		never.Dump(t)
		t.Errorf("with a source that never had a figure: held %v, want task 3 as without one", got)
	}
}

// A service that its own quota throttles is late by its own doing.
func TestLatencyOfItself(t *testing.T) {
	t.Parallel()
	q := newQueue(t, from40(3, 1, 0), sometimes(map[model.TaskNum]float64{1: 5, 2: 10, 3: 900}))
	late(q, 15, caused(q, 3))
	q.throttled = true
	if got := q.held(70); len(got) != 0 || !q.says(model.DecideOwnDoing, "latency 20, but it was throttled by its own quota") {
		q.Dump(t)
		t.Errorf("held %v", got)
	}
}
