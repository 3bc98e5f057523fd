package hardcap_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// The scene of room: task 2 keeps the CPUs busy from second 40 on and leaves its own as soon as the service wants it; tasks
// 3 and 4 run as before, and are charged with most of the waiting now that no other CPU is free.
func crowded(cpus float64) (func(second, task int, limit float64) float64, func(int) map[model.TaskNum]float64) {
	used := func(second, task int, limit float64) float64 {
		switch {
		case task == 1:
			return 0.1
		case task > 2:
			return min(limit, 0.2)
		case second < 40:
			return 0
		}
		return min(limit, cpus-0.6)
	}
	return used, sometimes(map[model.TaskNum]float64{1: 5, 2: 60, 3: 90, 4: 80})
}

func TestWhoTookTheRoom(t *testing.T) {
	t.Parallel()
	used, waits := crowded(2)
	var q *queue
	q = newFullQueue(t, 2, used, func(second int) map[model.TaskNum]float64 {
		if q.limit(2) < 1 {
			second = 0 // there is room again
		}
		return waits(second)
	})
	if got := q.held(60); len(got) != 1 || got[0] != 2 {
		q.Dump(t)
		t.Fatalf("held %v, want task 2 alone", got)
	}
	if !q.says(model.DecideCap, "had the CPU for 26 % of it, and used 100 % of what all use more than usual") {
		q.Dump(t)
		t.Error("the decision does not say why")
	}
	for _, s := range q.incidents[0].Rounds[0].Suspects {
		if s.Task == 2 && (s.Room != 1 || s.Ran < 0.2 || s.Score < (s.Ran+s.Room)*0.4) || s.Task == 3 && s.Room != 0 {
			t.Errorf("suspect %+v", s)
		}
	}
}

// Who ran decides alone where CPUs are free, where nobody uses more than before, and where nobody knows how many CPUs there are.
func TestNobodyTookTheRoom(t *testing.T) {
	t.Parallel()
	used, waits := crowded(2)
	steady := func(second, task int, limit float64) float64 { return used(max(40, second), task, limit) }
	roomy := newFullQueue(t, 64, used, waits)
	same := newFullQueue(t, 2, steady, waits)
	blind := newQueue(t, used, waits)
	for name, q := range map[string]*queue{"62 CPUs are free": roomy, "nobody uses more": same, "no topology": blind} {
		got := q.held(44)
		for _, s := range q.incidents[0].Rounds[0].Suspects {
			if name != "62 CPUs are free" && s.Room != 0 || s.Score > s.Ran+1e-9 {
				t.Errorf("%s: suspect %+v", name, s)
			}
		}
		if len(got) == 0 || got[0] != 3 {
			q.Dump(t)
			t.Errorf("%s: held %v, want task 3, who was charged most, first", name, got)
		}
	}
}

// Who began to run beside programs that nobody may hold took room, and hardly ever had the CPU that the service waited for:
// it is not held for their harm.
func TestRoomAloneIsNoGuilt(t *testing.T) {
	t.Parallel()
	used, _ := crowded(2)
	q := newFullQueue(t, 2, used, sometimes(map[model.TaskNum]float64{1: 5, 2: 10, 3: 4, model.NumUnmanaged: 220}))
	if got := q.held(80); len(got) != 0 {
		q.Dump(t)
		t.Errorf("held %v", got)
	}
	scored := false
	for _, inc := range q.incidents {
		for _, r := range inc.Rounds {
			for _, s := range r.Suspects {
				scored = scored || s.Task == 2
				if s.Task == 2 && (s.Room < 0.9 || s.Score > 2*s.Ran+1e-9) {
					t.Errorf("suspect %+v: all of the room, and a score of twice what it ran at most", s)
				}
			}
		}
	}
	if !scored {
		q.Dump(t)
		t.Error("no analysis scored it: the test proves nothing")
	}
}

// A service that fills the CPUs itself is nobody's victim for it.
func TestServiceTookTheRoom(t *testing.T) {
	t.Parallel()
	used := func(second, task int, limit float64) float64 {
		if task == 1 && second >= 40 {
			return 1.8
		}
		return min(limit, 0.1)
	}
	q := newFullQueue(t, 2, used, func(second int) map[model.TaskNum]float64 {
		if second < 40 {
			return map[model.TaskNum]float64{1: 5}
		}
		return map[model.TaskNum]float64{1: 600, 2: 110, 3: 100, 4: 90, model.NumUnmanaged: 300}
	})
	if got := q.held(80); len(got) != 0 {
		q.Dump(t)
		t.Errorf("held %v", got)
	}
}
