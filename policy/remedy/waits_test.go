package remedy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// queue is how the service of a world waits for CPUs.
type queue struct {
	had    map[model.TaskNum]float64 // CPU-seconds a second that it waits for each while that has its weight, of which idle is left when it gives way
	idle   float64
	placed bool                      // and that goes by how much of its CPUs are the service's
	alike  bool                      // what one of them leaves the others take
	untold bool                      // nobody tells who had the CPU
	poor   bool                      // the machine has no counters
	uses   map[model.TaskNum]float64 // CPUs, of who does not run two
	delay  map[model.TaskNum]float64
}

// idle reports whether a task gives way to everybody.
func (w *world) idle(num model.TaskNum) bool {
	return w.Task(num).Knobs[model.CPUWeight].Value == model.Weight(model.WeightIdle)
}

// wait adds how the service waited to a snapshot, and returns by how many milliseconds its figure is the higher.
func (w *world) wait(s *model.Snapshot) (ms float64) {
	q := &w.queue
	left, awake := 0.0, 0
	for num, had := range q.had {
		switch {
		case num == model.NumUnmanaged:
		case w.idle(num):
			left += (1 - q.idle) * had
		default:
			awake++
		}
	}
	waiting := model.Waiting{Num: service, Waits: 100}
	for _, num := range slices.Sorted(func(yield func(model.TaskNum) bool) {
		for num := range q.had {
			if !yield(num) {
				return
			}
		}
	}) {
		had, share := q.had[num], model.WaitShare{Party: model.WaitTask, Task: num}
		if q.placed {
			had *= w.on(num, false)
		}
		switch {
		case num == model.NumUnmanaged:
			share = model.WaitShare{Party: model.WaitUnmanaged}
		case w.idle(num):
			had *= q.idle * w.cpus(num) / 2
		default:
			if had *= w.cpus(num) / 2; q.alike {
				had += left / float64(awake)
			}
		}
		ms += had
		share.Nsec = int64(had * 1e9)
		waiting.Shares, waiting.Nsec = append(waiting.Shares, share), waiting.Nsec+share.Nsec
	}
	if q.delay == nil {
		q.delay = map[model.TaskNum]float64{}
	}
	if q.delay[service] += ms * 1e9; !q.untold {
		s.Waiting = []model.Waiting{waiting}
	}
	return ms
}

// poor makes of a machine one without resctrl and without counters.
func poor(w *world) { w.Topology.Classes, w.queue.poor = nil, true }

// demoted are the tasks that give way.
func (w *world) demoted() (list []model.TaskNum) {
	for _, t := range w.Tasks {
		if w.idle(t.Num) {
			list = append(list, t.Num)
		}
	}
	return list
}

// Who has the CPU that the service waits for gives way, where that is what is contended, and nobody else does. It is verified on the service.
func TestDemotion(t *testing.T) {
	had := func(list ...float64) map[model.TaskNum]float64 {
		m := map[model.TaskNum]float64{}
		for i, x := range list {
			m[model.TaskNum(i+2)] = x
		}
		return m
	}
	outside := map[model.TaskNum]float64{model.NumUnmanaged: 0.9, 2: 0.05}
	for name, tt := range map[string]struct {
		first   func(w *world) // of the machine; nil: nothing
		begin   func(w *world)
		demoted []model.TaskNum // and still are after a minute
		holds   string
		kinds   []model.DecisionKind // that are taken
		never   []model.DecisionKind
	}{
		"who has it, not who computes": {nil, func(w *world) { w.queue.had = had(0.02, 0.8) }, []model.TaskNum{3}, free, []model.DecisionKind{model.DecideKept}, []model.DecisionKind{model.DecideCap, model.DecideDivide, model.DecideTakenBack}},
		"neither resctrl nor counters": {poor, func(w *world) { w.queue.had = had(0.02, 0.8) }, []model.TaskNum{3}, free, []model.DecisionKind{model.DecideKept}, []model.DecisionKind{model.DecideCap}},
		"nobody tells who":             {func(w *world) { poor(w); w.queue.untold = true }, func(w *world) { w.queue.had = had(0.8) }, []model.TaskNum{2, 3, 4}, free, []model.DecisionKind{model.DecideKept}, []model.DecisionKind{model.DecideCap}},
		"nobody tells who, and one has begun": {func(w *world) {
			poor(w)
			w.queue.untold, w.queue.uses = true, map[model.TaskNum]float64{2: 0.1}
		}, func(w *world) { w.queue.had, w.queue.uses = had(0.8), nil }, []model.TaskNum{2}, free, []model.DecisionKind{model.DecideKept}, []model.DecisionKind{model.DecideCap}},
		"the cache": {nil, func(w *world) { w.harms[2] = harm{ways: 0.5, misses: 100} }, nil, "2/100/2 11/100/2 11/100/2", []model.DecisionKind{model.DecideKept}, []model.DecisionKind{model.DecideDemote}},
		"the cache, beside little waiting": {nil, func(w *world) {
			w.queue.had, w.harms[2] = had(0.01), harm{ways: 0.5, misses: 100}
		}, nil, "2/100/2 11/100/2 11/100/2", []model.DecisionKind{model.DecideKept}, []model.DecisionKind{model.DecideDemote}},
		"both": {nil, func(w *world) {
			w.queue.had, w.harms[2] = had(0, 0.5), harm{ways: 0.5, misses: 100}
		}, []model.TaskNum{3}, "2/100/2 11/100/2 11/100/2", []model.DecisionKind{model.DecideDivide}, []model.DecisionKind{model.DecideCap}},
		"nobody's who can be held": {poor, func(w *world) { w.queue.had, w.params().CPULeast = outside, 1 }, nil, free, []model.DecisionKind{model.DecideCannotFix}, []model.DecisionKind{model.DecideDemote, model.DecideCap}},
		"several that are alike":   {nil, func(w *world) { w.queue.alike, w.queue.had = true, had(0.3, 0.3, 0.3) }, []model.TaskNum{2, 3, 4}, free, []model.DecisionKind{model.DecideKept}, []model.DecisionKind{model.DecideTakenBack, model.DecideCap}},
		"a critical one goes last": {nil, func(w *world) {
			five := enginetest.NewTask(5, model.BE)
			five.Importance = model.Critical
			w.Add(five)
			w.count[5], w.queue.had = new([3]float64), had(0.45, 0, 0, 0.25)
		}, []model.TaskNum{2}, free + " 11/100/2", []model.DecisionKind{model.DecideKept}, nil},
		"it does not help: CPU time does": {poor, func(w *world) { w.queue.had, w.queue.idle = had(0.8), 1 }, nil, "11/100/1 11/100/2 11/100/2", []model.DecisionKind{model.DecideTakenBack, model.DecideCap, model.DecideKept}, nil},
		"it was found idle": {nil, func(w *world) {
			w.Task(2).Knobs[model.CPUWeight].Value = model.Weight(model.WeightIdle)
			w.queue.had, w.queue.idle = had(0.8), 1
			w.List(2)
		}, []model.TaskNum{2}, "11/100/1 11/100/2 11/100/2", []model.DecisionKind{model.DecideCap}, []model.DecisionKind{model.DecideDemote}},
		"it is switched off": {nil, func(w *world) { w.params().Demote, w.queue.had = false, had(0.8) }, nil, "", nil, []model.DecisionKind{model.DecideDemote}},
	} {
		w := newWorld(model.ModeEnforce, xeon(8))
		if tt.first != nil {
			tt.first(w)
		}
		w.seconds(10)
		tt.begin(w)
		for range 60 {
			if w.play(); w.Count(model.DecideKept) > 0 && w.state().Trial == nil && slices.Equal(w.demoted(), tt.demoted) && w.holds() == tt.holds {
				break
			}
		}
		if got := w.demoted(); !slices.Equal(got, tt.demoted) {
			t.Errorf("%s: %v give way, want %v", name, got, tt.demoted)
		}
		if tt.holds != "" {
			w.expect(t, name, tt.holds)
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
		if t.Failed() {
			w.Dump(t)
			return
		}
	}
}

// Batch work that begins to be harmless gets its weight back, the last that lost it first; it is remembered, and tried first another time.
func TestDemotionStory(t *testing.T) {
	var text strings.Builder
	w := newWorld(model.ModeObserve, xeon(8))
	poor(w)
	w.Log, w.queue.idle = &text, 0.02
	w.Shadow(t, 7)
	w.Chapter("mode observe: the service is well, then it waits for CPUs that task 3 has")
	w.seconds(20)
	w.queue.had = map[model.TaskNum]float64{2: 0.02, 3: 0.8}
	w.seconds(10)
	if w.Writes > 0 {
		t.Errorf("%d writes in mode observe", w.Writes)
	}
	w.Chapter("mode enforce: task 3 gives way, which is verified, and enough")
	w.Engine.Params.CPU.RemedyMode = model.ModeEnforce
	w.seconds(20)
	if got := w.demoted(); !slices.Equal(got, []model.TaskNum{3}) {
		t.Errorf("%v give way", got)
	}
	w.Chapter("task 2 has the CPU as well: it gives way too")
	w.queue.had[2] = 0.9
	w.seconds(20)
	if got := w.demoted(); !slices.Equal(got, []model.TaskNum{2, 3}) {
		t.Errorf("%v give way", got)
	}
	w.Chapter("both rest: the weights are given back, one at a time, that of task 2 first")
	w.queue.had = nil
	for range 400 {
		if w.play(); !w.idle(2) {
			break
		}
	}
	if w.idle(2) || !w.idle(3) {
		t.Errorf("%v give way", w.demoted())
	}
	w.seconds(700)
	if got := w.demoted(); len(got) > 0 || len(w.state().Holds) > 0 {
		t.Errorf("%v give way", got)
	}
	if k := w.state().Known; len(k) != 2 || k[0].Job != "t3" {
		t.Errorf("%+v", k)
	}
	w.Chapter("the kill switch, while task 3 gives way")
	w.queue.had = map[model.TaskNum]float64{3: 0.8}
	w.seconds(20)
	if got := w.demoted(); !slices.Equal(got, []model.TaskNum{3}) {
		t.Errorf("%v give way", got)
	}
	w.Kill = true
	w.seconds(3)
	if got := w.demoted(); len(got) > 0 {
		t.Errorf("%v give way under the kill switch", got)
	}
	story := enginetest.Story{
		About: "/t1 is a service with a target of 1 ms, /t2 to /t4 are batch work beside it, on a machine without counters and resctrl; times since the agent began",
		Want: []string{
			"mode observe", "demote", "mode enforce", "-> hold cpu.weight of /t3", "kept", "task 2 has the CPU as well", "-> hold cpu.weight of /t2", "both rest",
			"-> release cpu.weight of /t2", "-> release cpu.weight of /t3", "the kill switch", "it helped these jobs before",
		},
		Never: []string{"cpu.weight of /t1", "cpu.weight of /t4"},
	}
	story.Check(t, "demotion", text.String(), *rewrite)
}

// A service without a target and without counters is helped by how it waits, before the hard cap begins, which holds nobody meanwhile: no two
// remedies pull at a task. Without the policy the hard cap does.
func TestBesideTheHardCap(t *testing.T) {
	for _, mode := range []model.Mode{model.ModeEnforce, model.ModeOff} {
		c, _ := config.Defaults(config.ProfileSingleNode)
		p := c.Params("test")
		p.Mode, p.CPU.RemedyMode = model.ModeEnforce, mode
		w := newWorldOf(p, xeon(8))
		poor(w)
		w.silent, w.queue.idle = true, 0.02
		w.seconds(60)
		w.queue.had = map[model.TaskNum]float64{3: 3}
		both, ladder, other := 0, 0, 0
		for range 60 {
			w.play()
			mine, cap, weight := w.Claim(model.PolicyRemedy, 3, model.CPUWeight) != nil, w.Claim(model.PolicyHardcap, 3, model.CPUBandwidth) != nil, w.Claim(model.PolicyHardcap, 3, model.CPUWeight) != nil
			both, ladder, other = both+policy.One(mine && (cap || weight)), ladder+policy.One(mine), other+policy.One(cap || weight)
		}
		if on := mode == model.ModeEnforce; both > 0 || (ladder > 30) != on || (other == 0) != on {
			w.Dump(t)
			t.Errorf("remedy %s: the ladder holds for %d s, the hard cap %d, both %d", mode, ladder, other, both)
		}
	}
}

// Who gives way already by policy demote is not demoted again: the next rung is its turn.
func TestBesidePolicyDemote(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	poor(w)
	w.Engine.Params.CPU.DemoteMode = model.ModeEnforce
	w.queue.idle = 1
	tick := func() {
		w.Pulse = &model.Pulse{MonoNsec: w.NowNsec + enginetest.Sec}
		w.play()
	}
	for range 10 {
		tick()
	}
	w.queue.had = map[model.TaskNum]float64{3: 0.8}
	for range 60 {
		tick()
		if w.Claim(model.PolicyRemedy, 3, model.CPUWeight) != nil {
			t.Fatal("both pull at one weight")
		}
	}
	if w.cpus(3) >= 2 {
		w.Dump(t)
		t.Errorf("%s", w.holds())
	}
}

// Batch work that begins to harm a service of which hardly more than its spec is known gives way, also where it harms most at first: the readings above the
// threshold that are not trouble yet do not tell what is usual.
func TestWhoBeginsEarly(t *testing.T) {
	for quiet := range 4 {
		c, _ := config.Defaults(config.ProfileSingleNode)
		p := c.Params("test")
		p.Mode, p.CPU.RemedyMode = model.ModeEnforce, model.ModeEnforce
		w := newWorldOf(p, xeon(8))
		poor(w)
		w.silent, w.queue.idle = true, 0.02
		for range 60 {
			if w.play(); len(w.state().Victims) > 0 {
				break
			}
		}
		w.seconds(quiet)
		for _, had := range []float64{0.9, 4, 1.1} { // the first is not above the threshold
			w.queue.had = map[model.TaskNum]float64{3: had}
			w.seconds(1)
		}
		for range 10 {
			if w.play(); w.Claim(model.PolicyHardcap, 3, model.CPUWeight) != nil || w.Claim(model.PolicyHardcap, 3, model.CPUBandwidth) != nil {
				t.Fatalf("after %d quiet windows the hard cap holds it", quiet)
			}
		}
		if got := w.demoted(); !slices.Equal(got, []model.TaskNum{3}) || w.Count(model.DecideCannotFix) > 0 {
			w.Dump(t)
			t.Errorf("after %d quiet windows %v give way, want task 3", quiet, got)
		}
	}
}
