package remedy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// threads is a machine of four cores, of two threads each: 0 to 3, and 4 to 7.
func (w *world) threads() *world {
	for i := range w.Topology.CPUs {
		w.Topology.CPUs[i].Core = i % 4
	}
	return w
}

// runs says on which CPUs a task may run.
func (w *world) runs(num model.TaskNum) model.CPUSet {
	if set := w.Task(num).Knobs[model.CPUPlace].Value.CPUs; !set.Empty() {
		return set
	}
	return w.Topology.Online()
}

// on is how much of a task's CPUs are the service's, or of its cores.
func (w *world) on(num model.TaskNum, core bool) float64 {
	mine, his, both := w.runs(num).Members(), w.runs(service).Members(), 0
	for _, cpu := range mine {
		if slices.ContainsFunc(his, func(o int) bool {
			return o == cpu || core && w.Topology.CPUs[o].Core == w.Topology.CPUs[cpu].Core
		}) {
			both++
		}
	}
	return float64(both) / float64(len(mine))
}

func (w *world) bind(num model.TaskNum, cpus string) {
	set, _ := model.ParseCPUSet(cpus)
	w.Task(num).CPUs(set)
	w.List(num)
}

// Who uses the service's CPUs, or its cores' other threads, goes elsewhere where that is what is contended. It is verified on the service, and costs CPU time where that may be taken alone.
func TestPool(t *testing.T) {
	core := func(w *world) { w.harms[2] = harm{core: 1.8, misses: 1} }
	waits := func(w *world) {
		w.queue.had, w.queue.idle, w.queue.placed = map[model.TaskNum]float64{2: 1.5}, 1, true
	}
	all := "0-7"
	for name, tt := range map[string]struct {
		first  func(w *world)
		begin  func(w *world)
		bound  [3]string // CPUs of the service, of task 2 and of task 3; "": everywhere
		two    string    // has task 2 after two minutes
		three  string
		kinds  []model.DecisionKind
		never  []model.DecisionKind
		reason string
	}{
		"the core": {nil, core, [3]string{"0-1", "2-7"}, "2-3,6-7", all, []model.DecisionKind{model.DecidePool, model.DecideKept}, []model.DecisionKind{model.DecideDivide, model.DecideCap}, "the core, which"},
		"the core, of a service that runs everywhere": {nil, core, [3]string{}, all, all, []model.DecisionKind{model.DecidePool, model.DecideTakenBack}, nil, "CPUs 3,7, had all of its own"},
		"two that are alike": {nil, func(w *world) {
			core(w)
			w.harms[3], w.queue.uses[3] = w.harms[2], 2
		}, [3]string{"0-1", "2-7", "2-7"}, "2-3,6-7", "2-3,6-7", []model.DecisionKind{model.DecidePool, model.DecideKept}, nil, "1 others with it"},
		"one thread a core": {func(w *world) {
			for i := range w.Topology.CPUs {
				w.Topology.CPUs[i].Core = i
			}
		}, core, [3]string{"0-1", "0-7"}, all, all, []model.DecisionKind{model.DecideDivide}, []model.DecisionKind{model.DecidePool}, ""},
		"a reason of its own":            {nil, func(w *world) { w.own = 0.5 }, [3]string{"0-1", "2-7"}, "2-7", all, []model.DecisionKind{model.DecidePool, model.DecideTakenBack, model.DecideDivide}, nil, ""},
		"the cache":                      {nil, func(w *world) { w.harms[2] = harm{ways: 0.5, misses: 100} }, [3]string{"0-1", "2-7"}, "2-7", all, []model.DecisionKind{model.DecideDivide}, []model.DecisionKind{model.DecidePool}, ""},
		"no counters":                    {poor, core, [3]string{"0-1", "2-7"}, "2-7", all, nil, []model.DecisionKind{model.DecidePool}, ""},
		"nobody tells what memory moves": {func(w *world) { w.uncounted = true }, core, [3]string{"0-1", "2-7"}, "2-7", all, nil, []model.DecisionKind{model.DecidePool}, ""},
		"it has no CPUs beside":          {nil, core, [3]string{"0-1", "0-1,4-5"}, "0-1,4-5", all, nil, []model.DecisionKind{model.DecidePool}, "it has no CPUs beside those of"},
		"policy cpuset enforces":         {func(w *world) { w.Engine.Params.CPU.CPUSetMode = model.ModeEnforce }, core, [3]string{"0-1", "2-7"}, "2-7", all, nil, []model.DecisionKind{model.DecidePool}, "policy cpuset enforces"},
		"it is switched off":             {func(w *world) { w.params().Pool = false }, core, [3]string{"0-1", "2-7"}, "2-7", all, nil, []model.DecisionKind{model.DecidePool}, ""},
		"refused":                        {func(w *world) { w.Task(2).Refuse(model.CPUPlace, "no") }, core, [3]string{"0-1", "2-7"}, "2-7", all, []model.DecisionKind{model.DecidePool, model.DecideDivide, model.DecideRefused}, nil, ""},
		"it is not known where it runs":  {func(w *world) { w.Task(2).Knobs[model.CPUPlace].Unreadable = true; w.List(2) }, core, [3]string{"0-1", ""}, all, all, nil, []model.DecisionKind{model.DecidePool}, ""},
		"waits, and weights do nothing":  {poor, waits, [3]string{"0-1", "0-5"}, "2-5", all, []model.DecisionKind{model.DecideDemote, model.DecideTakenBack, model.DecidePool, model.DecideKept}, []model.DecisionKind{model.DecideCap}, ""},
		"waits, and it is dear":          {poor, waits, [3]string{"0-1", "0-2"}, "2", all, []model.DecisionKind{model.DecidePool, model.DecideKept}, []model.DecisionKind{model.DecideCap}, ""},
		"the core, and it is dear":       {nil, core, [3]string{"0-1", "1-2,5"}, "2", all, []model.DecisionKind{model.DecidePool, model.DecideKept}, []model.DecisionKind{model.DecideDivide, model.DecideCap}, ""},
		"waits, and it is too dear":      {func(w *world) { poor(w); w.params().CPULeast = 1 }, waits, [3]string{"0-1", "0-2"}, "0-2", all, nil, []model.DecisionKind{model.DecidePool, model.DecideCap}, "fewer than what it uses"},
		"another service's CPUs": {func(w *world) {
			w.Add(enginetest.NewTask(5, model.LC))
			w.count[5] = new([3]float64)
			w.bind(5, "2-3")
		}, core, [3]string{"0-1", ""}, "6-7", all, []model.DecisionKind{model.DecidePool, model.DecideKept}, nil, ""},
	} {
		w := newWorld(model.ModeEnforce, xeon(8)).threads()
		w.harms = map[model.TaskNum]harm{2: {misses: 1}, 3: {misses: 1}, 4: {misses: 1}}
		w.queue.uses = map[model.TaskNum]float64{3: 0, 4: 0}
		for i, cpus := range tt.bound {
			if cpus != "" {
				w.bind(model.TaskNum(i+1), cpus)
			}
		}
		if tt.first != nil {
			tt.first(w)
		}
		w.seconds(15)
		tt.begin(w)
		w.After = nil
		for range 120 {
			if w.play(); w.state().Trial == nil && w.Count(model.DecideKept) > 0 && w.runs(2).String() == tt.two {
				break
			}
		}
		if two, three := w.runs(2).String(), w.runs(3).String(); two != tt.two || three != tt.three {
			t.Errorf("%s: task 2 has CPUs %s, task 3 %s", name, two, three)
		}
		for _, k := range tt.kinds {
			if w.Count(k) == 0 {
				t.Errorf("%s: no %s", name, k)
			}
		}
		for _, k := range tt.never {
			if w.Count(k) > 0 {
				t.Errorf("%s: %d times %s", name, w.Count(k), k)
			}
		}
		if !slices.ContainsFunc(w.Said, func(d model.Decision) bool { return strings.Contains(d.Reason, tt.reason) }) {
			t.Errorf("%s: nobody says %q", name, tt.reason)
		}
		if t.Failed() {
			w.Dump(t)
			return
		}
	}
}

// Who was moved has its CPUs back when that does not hurt any more; at once when another program sets them, an operator frees it, policy cpuset begins to enforce, or the kill switch is there.
func TestPoolStory(t *testing.T) {
	var text strings.Builder
	w := newWorld(model.ModeObserve, xeon(8)).threads()
	w.Log, w.harms, w.queue.uses = &text, map[model.TaskNum]harm{2: {misses: 1}}, map[model.TaskNum]float64{3: 0, 4: 0}
	w.params().QuietNsec = 60 * enginetest.Sec
	w.Shadow(t, 7)
	w.bind(1, "0-1")
	w.bind(2, "2-7")
	moved := func(when string, want bool) {
		t.Helper()
		if got := w.runs(2).String(); (got == "2-3,6-7") != want || !want && got != "2-7" {
			t.Errorf("%s: task 2 has CPUs %s", when, got)
		}
	}
	w.Chapter("mode observe: the service is well, then task 2 computes on its cores")
	w.seconds(20)
	w.harms[2] = harm{core: 1.8, misses: 1}
	w.seconds(10)
	if w.Writes > 0 {
		t.Errorf("%d writes in mode observe", w.Writes)
	}
	w.Chapter("mode enforce: it goes off them, which is verified, and enough")
	w.Engine.Params.CPU.RemedyMode = model.ModeEnforce
	w.seconds(20)
	moved("enforce", true)
	w.Chapter("it rests: it has its CPUs back")
	w.harms[2] = harm{misses: 1}
	w.seconds(400)
	moved("well", false)
	w.Chapter("again, and remembered; then an operator frees it")
	w.harms[2] = harm{core: 1.8, misses: 1}
	w.seconds(20)
	moved("again", true)
	w.Tell(model.Command{Kind: model.CommandUncap, Task: 2})
	w.seconds(3)
	moved("freed", false)
	w.Chapter("the operator's word is over, and it goes again; then policy cpuset enforces")
	w.seconds(300)
	w.state().Tried = nil
	w.seconds(20)
	moved("after the word", true)
	w.Engine.Params.CPU.CPUSetMode = model.ModeEnforce
	w.seconds(3)
	moved("cpuset", false)
	w.Engine.Params.CPU.CPUSetMode, w.state().Tried = model.ModeOff, nil
	w.seconds(20)
	moved("alone again", true)
	w.Chapter("the kill switch")
	w.Kill = true
	w.seconds(3)
	moved("killed", false)
	w.Chapter("and gone; then another program binds it elsewhere, and that stands")
	w.Kill, w.state().Tried = false, nil
	w.seconds(30)
	moved("armed", true)
	w.Stranger(2, model.Place(model.FullSet(6)))
	w.seconds(15)
	if got := w.runs(2).String(); got != "0-5" {
		t.Errorf("task 2 has CPUs %s", got)
	}
	story := enginetest.Story{
		About: "/t1 is a service with a target of 1 ms on CPUs 0 and 1, whose cores have the threads 4 and 5 as well; /t2 is batch work on CPUs 2 to 7; times since the agent began",
		Want: []string{
			"mode observe", "pool", "mode enforce", "-> set cpuset.cpus of /t2", "kept", "it rests", "-> release cpuset.cpus of /t2", "an operator frees it", "policy cpuset enforces", "the kill switch", "another program",
		},
		Never: []string{"cpuset.cpus of /t1", "cpuset.cpus of /t3"},
	}
	story.Check(t, "pool", text.String(), *rewrite)
}
