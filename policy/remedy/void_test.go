package remedy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/pressure"
)

// short has policy pressure see that memory is used up, and task 2 for the one that has it.
func (w *world) short() {
	w.Engine.Params.CPU.PressureMode, w.Engine.Params.CPU.Pressure = model.ModeEnforce, pressure.Defaults()
	w.UseUp(2)
}

// A trial during which somebody else changed something of its task says nothing: what was taken is given back, nothing is remembered of it, and
// the service's being well is not put down to it.
func TestDisturbed(t *testing.T) {
	for why, deed := range map[string]func(w *world){
		"pressure froze /t2": (*world).short,
		"an operator changed cpu.weight of /t2": func(w *world) {
			w.Tell(model.Command{Kind: model.CommandDemote, Task: 2, DurationNsec: 600e9})
		},
		"an operator took memory of /t2 back": func(w *world) {
			w.Tell(model.Command{Kind: model.CommandReclaim, Task: 2, Bytes: 1 << 20})
		},
		"a new configuration came": func(w *world) { w.Change(w.Engine.Params) },
	} {
		t.Run(why, func(t *testing.T) {
			w := newWorld(model.ModeEnforce, xeon(8))
			w.seconds(10)
			w.harms[2] = harm{ways: 0.5, misses: 100}
			for w.second < 60 && (w.state().Trial == nil || w.state().SetNsec == 0) {
				w.play()
			}
			w.expect(t, "on trial", "2/100/2 11/100/2 11/100/2")
			w.harms[2] = harm{misses: 100} // it is well for another reason
			deed(w)
			w.seconds(20)
			if w.expect(t, "given back", free); len(w.state().Known) > 0 || len(w.state().Tried) > 0 || w.state().Trial != nil {
				t.Errorf("%+v", w.state())
			}
			told := slices.ContainsFunc(w.Said, func(d model.Decision) bool {
				return d.Kind == model.DecideVoid && d.Task == 2 && strings.Contains(d.Reason, "the trial says nothing: "+why)
			})
			if !told || w.Count(model.DecideKept) > 0 || w.Count(model.DecideTakenBack) > 0 {
				t.Errorf("told: %v, %d kept, %d taken back", told, w.Count(model.DecideKept), w.Count(model.DecideTakenBack))
			}
			w.harms[2] = harm{ways: 0.5, misses: 100}
			for i := 0; i < 40 && len(w.state().Known) == 0; i++ {
				w.play()
			}
			if strings.HasPrefix(why, "pressure") {
				if !strings.HasPrefix(w.holds(), strings.Fields(free)[0]) {
					t.Errorf("who is frozen is not left alone: %s", w.holds())
				}
			} else if len(w.state().Known) != 1 || w.has(2, model.CacheWays, 11) != 2 {
				t.Errorf("it does not begin again: %s, %+v", w.holds(), w.state().Known)
			}
		})
	}
}

// givingBack is a world in which task 2 has ways back by a step that is on trial.
func givingBack(t *testing.T) *world {
	t.Helper()
	w := newWorld(model.ModeEnforce, xeon(8))
	w.seconds(10)
	w.harms[2] = harm{ways: 0.5, misses: 100}
	w.seconds(30)
	w.harms[2] = harm{misses: 100}
	for w.second < 600 && (w.state().Trial == nil || !w.state().Trial.Back || w.state().SetNsec == 0) {
		w.play()
	}
	if w.state().Trial == nil {
		t.Fatal("nothing is given back")
	}
	return w
}

// A step back during which a task is frozen says nothing while that lasts, and is looked at from then on.
func TestDisturbedBack(t *testing.T) {
	w := givingBack(t)
	had := w.has(2, model.CacheWays, 11)
	w.short()
	w.seconds(200)
	if now := w.has(2, model.CacheWays, 11); w.state().Trial == nil || now != had {
		t.Errorf("%g ways, had %g: %+v", now, had, w.state().Trial)
	}
	if w.Count(model.DecideVoid) != 1 {
		t.Errorf("told %d times", w.Count(model.DecideVoid))
	}
	w.Engine.Params.CPU.PressureMode = model.ModeOff
	w.seconds(400)
	w.expect(t, "afterwards", free)
}

// Each time that somebody does something during a step back it is told that this says nothing: who reads it goes by that.
func TestDisturbedBackAgain(t *testing.T) {
	w := givingBack(t)
	for n := range 3 {
		since := w.state().Trial.SinceNsec
		w.Tell(model.Command{Kind: model.CommandReclaim, Task: 2, Bytes: 1 << 20})
		for i := 0; i < 10 && w.state().Trial.SinceNsec == since; i++ {
			w.play()
		}
		if w.state().Trial.SinceNsec == since || w.Count(model.DecideVoid) != n+1 {
			t.Fatalf("disturbed %d times, told %d: %+v", n+1, w.Count(model.DecideVoid), w.state().Trial)
		}
	}
}

// An operator who demotes whom remedy has just demoted changes nothing, and it is his word from then on all the same.
func TestOperatorAsksWhatStands(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	poor(w)
	w.seconds(10)
	w.queue.had = map[model.TaskNum]float64{3: 0.8}
	for w.second < 60 && (w.state().Trial == nil || w.state().SetNsec == 0) {
		w.play()
	}
	w.Tell(model.Command{Kind: model.CommandDemote, Task: 3, DurationNsec: 600e9})
	for w.second < 120 && w.state().Trial != nil {
		w.play()
	}
	if w.Count(model.DecideVoid) != 1 || w.Count(model.DecideKept) > 0 || len(w.state().Known) > 0 || !w.idle(3) {
		t.Errorf("void %d, kept %d; known %+v; demoted %v", w.Count(model.DecideVoid), w.Count(model.DecideKept), w.state().Known, w.demoted())
	}
}
