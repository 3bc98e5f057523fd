package remedy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// stuck is a world without resctrl whose service takes long for what three tasks compute, of which nothing may be taken but their ends: task 2, which does most harm, is
// critical, 3 is batch and 4 best-effort work.
func stuck(end string) (w *world, ended *[]model.TaskNum) {
	w = newWorld(model.ModeEnforce, &model.Classes{})
	w.Remove(2)
	critical := enginetest.NewTask(5, model.BE)
	critical.Importance = model.Critical
	w.Add(critical)
	w.count[5] = new([3]float64)
	worst := enginetest.NewTask(6, model.BE)
	worst.Importance = model.BestEffort
	w.Add(worst)
	w.count[6] = new([3]float64)
	p := w.params()
	p.CPULeast, p.End, p.EndAfterNsec = 1, end, 60*enginetest.Sec
	w.harms = map[model.TaskNum]harm{3: {misses: 80}, 4: {misses: 1}, 5: {misses: 100}, 6: {misses: 60}}
	w.seconds(10)
	w.harms = map[model.TaskNum]harm{3: {ways: 0.3, misses: 80}, 4: {misses: 1}, 5: {ways: 0.3, misses: 100}, 6: {ways: 0.3, misses: 60}}
	ended = new([]model.TaskNum)
	for _, t := range w.Tasks {
		t.Knobs[model.GroupKill].Write = func(model.Setting) string {
			*ended = append(*ended, t.Num)
			delete(w.harms, t.Num)
			return ""
		}
	}
	return w, ended
}

// A task is ended that the configuration gives up, where nothing else is left and the target is missed for as long as is said; one at a time, who takes most
// first; and none where the service is well meanwhile, without a target, or where the policy observes.
func TestEnd(t *testing.T) {
	for end, want := range map[string][]model.TaskNum{policy.EndNobody: nil, "": nil, policy.EndBestEffort: {6}, policy.EndBatch: {3, 6}} {
		w, ended := stuck(end)
		var at []int
		for range 400 {
			n := len(*ended)
			if w.play(); len(*ended) > n {
				at = append(at, w.second)
				if on := w.state().OnTrial(nil); len(on) != 1 || on[0].Task != (*ended)[n] {
					t.Errorf("%q: others may begin with who was told to end: %+v", end, on)
				}
				w.Remove((*ended)[n])
			}
		}
		if !slices.Equal(*ended, want) || w.Count(model.DecideEnd) != len(want) {
			w.Dump(t)
			t.Errorf("%q: ended %v, want %v", end, *ended, want)
		}
		for i, second := range at {
			if since := second - slices.Max(append([]int{15}, at[:i]...)); since < 60 {
				t.Errorf("%q: ended at %v", end, at)
			}
		}
		for _, d := range w.Said {
			if d.Kind == model.DecideEnd && (d.Policy != model.PolicyRemedy || !strings.Contains(d.Reason, "nothing was left to try")) {
				t.Errorf("%+v", d)
			}
		}
	}
	for name, tt := range map[string]func(w *world){
		"observe": func(w *world) { w.Engine.Params.CPU.RemedyMode = model.ModeObserve },
		"well":    func(w *world) { w.harms = nil },
		"a reason of its own": func(w *world) {
			for num, h := range w.harms {
				h.ways = 0
				w.harms[num] = h
			}
			w.own = 0.5
		},
		"refused": func(w *world) {
			for _, t := range w.Tasks {
				t.Refuse(model.GroupKill, "not permitted")
			}
		},
		"freed": func(w *world) {
			for _, num := range []model.TaskNum{3, 4, 5, 6} {
				w.Tell(model.Command{Kind: model.CommandUncap, Task: num})
			}
		},
	} {
		w, ended := stuck(policy.EndBatch)
		tt(w)
		w.seconds(250)
		if len(*ended) > 0 {
			w.Dump(t)
			t.Errorf("%s: ended %v", name, *ended)
		}
	}
}

// While something is left to try nobody is ended.
func TestEndComesLast(t *testing.T) {
	w, ended := stuck(policy.EndBatch)
	w.params().CPULeast = 0.25
	w.seconds(55)
	if len(*ended) > 0 || w.Count(model.DecideCap) == 0 {
		w.Dump(t)
		t.Errorf("ended %v; %d caps", *ended, w.Count(model.DecideCap))
	}
	red := w.red
	w.seconds(300)
	if len(*ended) > 0 && w.red-red > 100 {
		w.Dump(t)
		t.Errorf("ended %v, and late for %d s", *ended, w.red-red)
	}
}

// The end of who is not to blame helps nobody: there is no second one.
func TestEndInVain(t *testing.T) {
	w, ended := stuck(policy.EndBatch)
	for num, h := range w.harms {
		if h.ways = 0; num == 5 {
			h.ways = 0.9
		}
		w.harms[num] = h
	}
	for range 400 {
		n := len(*ended)
		if w.play(); len(*ended) > n {
			w.Remove((*ended)[n])
		}
	}
	said := slices.ContainsFunc(w.Said, func(d model.Decision) bool {
		return strings.Contains(d.Reason, "did not help /t1: nobody more is ended")
	})
	if !slices.Equal(*ended, []model.TaskNum{3}) || !said {
		w.Dump(t)
		t.Errorf("ended %v", *ended)
	}
}
