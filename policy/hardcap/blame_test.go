package hardcap_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// queue is a node without hardware counters: a service (task 1) that waits for a CPU from second 40 on, and who
// else runs. Each second is a window.
type queue struct {
	*enginetest.Node
	second int
	counts [4]model.TaskSample
	busy   float64
	cpus   int
	// incidents as they stood when they were told of.
	incidents []*model.Incident
	// used says how much CPU a task uses in a second, given its cap; waits who is charged how much of the service's
	// waiting then, in milliseconds. unmeasured: nobody can tell.
	used       func(second, task int, limit float64) float64
	waits      func(second int) map[model.TaskNum]float64
	unmeasured bool
	lost       float64 // share of the scheduler's events that windows lose from second 40 on

	slo       func(second int) model.Latency // nil: the service promises nothing
	longest   float64                        // wait of a window, in milliseconds
	many      int64                          // waits of a window; 0: 100
	throttled bool                           // the service, by its own quota
	beside    float64                        // it is delayed for so many seconds a second more, which nobody is charged with
}

// newFullQueue is one on so many CPUs.
func newFullQueue(t *testing.T, cpus int, used func(second, task int, limit float64) float64, waits func(second int) map[model.TaskNum]float64) *queue {
	q := newQueue(t, used, waits)
	q.Plug(enginetest.Flat(cpus))
	q.cpus = cpus
	return q
}

func newQueue(t *testing.T, used func(second, task int, limit float64) float64, waits func(second int) map[model.TaskNum]float64) *queue {
	t.Helper()
	c, _ := config.Defaults(config.ProfileSingleNode)
	c.Policies.Hardcap.Demote.Enabled = false // whom it holds is the matter here
	c.Policies.Mode = model.ModeEnforce
	n := enginetest.New(c.Params("test"), nil, enginetest.NewTask(1, model.LC), enginetest.NewTask(2, model.BE), enginetest.NewTask(3, model.BE), enginetest.NewTask(4, model.BE))
	q := &queue{Node: n, used: used, waits: waits, cpus: 16}
	n.After = func(_ *engine.Input, out *engine.Output) { q.incidents = append(q.incidents, out.Incidents...) }
	return q
}

func (q *queue) limit(num model.TaskNum) float64 {
	if r := q.Task(num).Knobs[model.CPUBandwidth].Value.Ratio(); r > 0 {
		return r
	}
	return 16
}

func (q *queue) tick() {
	s := q.Snapshot()
	s.Mark, s.Node.CPUs = model.WindowStart|model.WindowEnd, q.cpus
	delay, waiting := 0.02*float64(q.second%3), model.Waiting{Num: 1, LongestNsec: int64(q.longest * 1e6)}
	for num, ms := range q.waits(q.second) {
		share := model.WaitShare{Party: model.WaitTask, Task: num}
		switch num {
		case model.NumUnmanaged:
			share = model.WaitShare{Party: model.WaitUnmanaged, Process: "cc1"}
		default:
			// Who is capped runs less, and so delays less.
			if u := q.used(q.second, int(num), 16); u > 0 {
				ms *= min(1, q.used(q.second, int(num), q.limit(num))/u)
			}
		}
		share.Nsec = int64(ms * 1e6)
		waiting.Nsec += share.Nsec
		waiting.Shares = append(waiting.Shares, share)
		if num != 1 {
			delay += ms / 1000
		}
	}
	waiting.Waits = cmp.Or(q.many, 100)
	if q.second >= 40 {
		waiting.Lost.Events = q.lost
	}
	delay += q.beside
	if !q.unmeasured {
		s.Waiting = []model.Waiting{waiting}
	}
	for i := range q.counts {
		c := &q.counts[i]
		c.Num = model.TaskNum(i + 1)
		add := func(which model.TaskCounter, by float64) { c.C[which] = model.Read(c.C[which].Value + uint64(by)) }
		u := q.used(q.second, i+1, q.limit(c.Num))
		add(model.CountUsage, u*1e9)
		add(model.CountThrottled, 0)
		if q.throttled && i == 0 {
			add(model.CountThrottled, 3)
		}
		add(model.CountRun, u*1e9)
		d := 0.0
		if i == 0 {
			d = delay * 1e9
		}
		add(model.CountDelay, d)
		q.busy += u
		s.Tasks = append(s.Tasks, *c)
	}
	if q.slo != nil {
		q.SLO = []model.Latency{q.slo(q.second)}
	}
	if q.cpus == 16 {
		q.busy += 4 // of nobody's
	}
	s.Node.C[model.CountBusy], s.Node.C[model.CountSteal] = model.Read(uint64(q.busy*1e9)), model.Read(0)
	q.Beat(enginetest.Sec)
	q.second++
}

// held plays until a second and returns which tasks were ever chosen, in order.
func (q *queue) held(until int) (tasks []model.TaskNum) {
	for q.second < until {
		q.tick()
	}
	for i := range q.Said {
		if d := &q.Said[i]; d.Kind == model.DecideCap {
			tasks = append(tasks, d.Task)
		}
	}
	return tasks
}

func (q *queue) says(kind model.DecisionKind, text string) bool {
	for i := range q.Said {
		if d := &q.Said[i]; d.Kind == kind && strings.Contains(d.Reason, text) {
			return true
		}
	}
	return false
}

// from40 is CPU used from second 40 on, by task, bounded by its cap.
func from40(list ...float64) func(second, task int, limit float64) float64 {
	return func(second, task int, limit float64) float64 {
		if task == 1 {
			return 1
		}
		if second < 40 {
			return 0
		}
		return min(limit, list[task-2])
	}
}

func sometimes(shares map[model.TaskNum]float64) func(int) map[model.TaskNum]float64 {
	return func(second int) map[model.TaskNum]float64 {
		if second < 40 {
			return map[model.TaskNum]float64{1: 5}
		}
		return shares
	}
}

// A bystander uses three times the CPU, elsewhere, in the antagonist's very rhythm. Correlation cannot tell them apart; who ran while the
// service waited can.
func TestBlameTellsApart(t *testing.T) {
	t.Parallel()
	shares := map[model.TaskNum]float64{1: 20, 2: 10, 3: 900}
	q := newQueue(t, from40(3, 1, 0), sometimes(shares))
	if got := q.held(70); len(got) != 1 || got[0] != 3 {
		q.Dump(t)
		t.Fatalf("held %v, want task 3 alone", got)
	}
	if !q.says(model.DecideCap, "had the CPU for 99 % of what /t1 waits for others more than usual") || q.Count(model.DecideVerified) != 1 {
		q.Dump(t)
		t.Error("the decision does not say why, or the service did not recover")
	}
	blind := newQueue(t, from40(3, 1, 0), sometimes(shares))
	blind.unmeasured = true
	if got := blind.held(70); len(got) > 0 && got[0] == 3 {
		t.Errorf("correlation holds %v at once: the scene shows nothing", got)
	}
}

// An antagonist that was there before anybody looked gives no contrast: the service is bad in all windows.
func TestBlameNeedsNoContrast(t *testing.T) {
	t.Parallel()
	always := func(_, task int, limit float64) float64 { return min(limit, []float64{1, 0.5, 2, 0.5}[task-1]) }
	q := newQueue(t, always, func(second int) map[model.TaskNum]float64 {
		if second < 40 {
			return map[model.TaskNum]float64{3: 40} // on other CPUs until then
		}
		return map[model.TaskNum]float64{3: 800, 2: 40}
	})
	if got := q.held(70); len(got) != 1 || got[0] != 3 {
		q.Dump(t)
		t.Fatalf("held %v, want task 3 alone", got)
	}
}

// What nobody may hold has its share and is named; the task that is charged with at least half as much is held all the same.
func TestBlameOfTheUnmanaged(t *testing.T) {
	t.Parallel()
	q := newQueue(t, from40(0.3, 1, 0), sometimes(map[model.TaskNum]float64{model.NumUnmanaged: 600, 3: 400, 2: 10}))
	got := q.held(60)
	if len(got) == 0 || got[0] != 3 {
		q.Dump(t)
		t.Fatalf("held %v, want task 3 first", got)
	}
	if !q.says(model.DecideLeftAlone, "no task of ours used this CPU") {
		q.Dump(t)
		t.Error("the unmanaged share is not told")
	}
	for _, shares := range []map[model.TaskNum]float64{{model.NumUnmanaged: 900, 3: 60, 2: 10}, {model.NumUnmanaged: 700, 3: 300, 2: 10}} {
		few := newQueue(t, from40(0.3, 1, 0), sometimes(shares))
		if got := few.held(60); len(got) != 0 {
			few.Dump(t)
			t.Errorf("held %v for a share below what is asked for, or below half of what nobody can hold", got)
		}
	}
}

// Among equal antagonists the harm is divided: all three are held together, since the third would take what two leave, and each
// is released on trial: the one that is not needed is given back.
func TestBlameOfEquals(t *testing.T) {
	t.Parallel()
	q := newQueue(t, from40(1, 1, 1), sometimes(map[model.TaskNum]float64{2: 300, 3: 310, 4: 290}))
	got := q.held(60)
	if len(got) < 3 || got[0] != 3 || got[1] != 2 || got[2] != 4 {
		q.Dump(t)
		t.Errorf("held %v, want 3, 2 and 4", got)
	}
	if !q.says(model.DecideGroup, "/t3, /t2 and /t4: together they answer for 100 % of what /t1 waits for others more than usual") || q.Count(model.DecideVerified) == 0 || q.Count(model.DecideTrial) != 3 {
		q.Dump(t)
		t.Error("they are not held together, verified and tried")
	}
}

// A share that is below what is asked for counts as a part of the harm, and a bystander's does not: five that are alike are
// held, the one that has its share of busy CPUs is not.
func TestBlameDivided(t *testing.T) {
	t.Parallel()
	q := newQueue(t, from40(1, 1, 0.3), sometimes(map[model.TaskNum]float64{model.NumUnmanaged: 350, 2: 280, 3: 270, 4: 100}))
	got := q.held(60)
	if len(got) < 2 || got[0] != 2 || got[1] != 3 || slices.Contains(got, 4) {
		q.Dump(t)
		t.Errorf("held %v, want 2 and 3 and not 4", got)
	}
	if !q.says(model.DecideLeftAlone, "no task of ours used this CPU") {
		q.Dump(t)
		t.Error("the unmanaged share is not told")
	}
}

// Antagonists that take turns: the first one's cap is kept when the service suffers under the second, since it helped.
func TestBlameOfTurns(t *testing.T) {
	t.Parallel()
	turn := func(second int) model.TaskNum { return model.TaskNum(2 + second/6%2) }
	q := newQueue(t, func(second, task int, limit float64) float64 {
		switch {
		case task == 1:
			return 1
		case second < 40 || model.TaskNum(task) != turn(second):
			return 0.02
		}
		return min(limit, 3)
	}, func(second int) map[model.TaskNum]float64 {
		if second < 40 {
			return map[model.TaskNum]float64{1: 5}
		}
		return map[model.TaskNum]float64{turn(second): 900}
	})
	q.held(100)
	if q.Count(model.DecideKept) == 0 || q.Count(model.DecideTakenBack) != 0 {
		q.Dump(t)
		t.Error("the first one's cap is not kept")
	}
	for _, num := range []model.TaskNum{2, 3} {
		if q.limit(num) == 16 {
			q.Dump(t)
			t.Errorf("task %d is free at the end", num)
		}
	}
}

// A bystander whose one burst fell into the first of three bad windows had half of all the waiting in
// them, and nothing in the others: the one that lasts is held, alone.
func TestBlameOfOneBurst(t *testing.T) {
	t.Parallel()
	waits := func(second int) map[model.TaskNum]float64 {
		switch {
		case second < 40:
			return map[model.TaskNum]float64{1: 5}
		case second == 40:
			return map[model.TaskNum]float64{2: 1700, model.NumUnmanaged: 100}
		}
		return map[model.TaskNum]float64{3: 400, model.NumUnmanaged: 600}
	}
	q := newQueue(t, from40(1, 1, 0), waits)
	if got := q.held(46); len(got) != 1 || got[0] != 3 {
		q.Dump(t)
		t.Errorf("held %v, want task 3 alone", got)
	}
	rash := newQueue(t, from40(1, 1, 0), waits)
	rash.Engine.Params.Hardcap.Blame.Lasting = false
	if got := rash.held(46); len(got) == 0 || got[0] != 2 {
		t.Errorf("without the rule %v is held: the scene shows nothing", got)
	}
}

// Beside a compiler that nobody can hold, bystanders take turns in what is left: two bursts of one in three bad windows are chance.
func TestBlameBesideACompiler(t *testing.T) {
	t.Parallel()
	q := newQueue(t, from40(1, 1, 1), func(second int) map[model.TaskNum]float64 {
		if second < 40 {
			return map[model.TaskNum]float64{1: 5}
		}
		shares := map[model.TaskNum]float64{model.NumUnmanaged: 1000}
		// Each has two windows of five, the second following the first.
		for k, num := range []model.TaskNum{2, 3} {
			if p := (second + 2*k) % 5; p < 2 {
				shares[num] = 1000
			}
		}
		return shares
	})
	if got := q.held(100); len(got) != 0 {
		q.Dump(t)
		t.Errorf("held %v", got)
	}
}

// Task 2 has a rhythm of its own, and what nobody can hold comes in second 40. Where the service waits for most of that
// time without task 2 as well, to hold it would gain little; where it hardly waits without it, the two make the harm together.
func TestBlameOfWhoHasAnAlibi(t *testing.T) {
	t.Parallel()
	on := func(second int) bool { return second%10 >= 5 }
	play := func(alone float64) *queue {
		return newQueue(t, func(second, task int, limit float64) float64 {
			switch {
			case task == 1:
				return 1
			case task == 2 && on(second):
				return min(limit, 0.5)
			}
			return 0.1
		}, func(second int) map[model.TaskNum]float64 {
			switch {
			case second < 40:
				return map[model.TaskNum]float64{1: 5}
			case on(second):
				return map[model.TaskNum]float64{2: 600, model.NumUnmanaged: 1000}
			}
			return map[model.TaskNum]float64{2: 1, model.NumUnmanaged: alone}
		})
	}
	q := play(1000)
	if got := q.held(120); len(got) != 0 {
		q.Dump(t)
		t.Errorf("held %v", got)
	}
	seen := false
	for _, inc := range q.incidents {
		for _, r := range inc.Rounds {
			seen = seen || slices.ContainsFunc(r.Suspects, func(s model.Suspect) bool { return s.Task == 2 && s.State == model.SuspectAlibi })
		}
	}
	if !seen {
		t.Error("nobody had an alibi: the scene shows nothing")
	}
	if got := play(300).held(120); len(got) == 0 || got[0] != 2 {
		t.Errorf("held %v beside harm that is small without it, want task 2 first", got)
	}
}

// A service that waits for its own threads has nobody to blame.
func TestBlameOfItself(t *testing.T) {
	t.Parallel()
	q := newQueue(t, from40(3, 3, 0), sometimes(map[model.TaskNum]float64{1: 900}))
	if got := q.held(80); len(got) != 0 {
		q.Dump(t)
		t.Errorf("held %v", got)
	}
}
