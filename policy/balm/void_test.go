package balm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/pressure"
)

// backing is a world in which task 3 has something back by a step that is on trial.
func backing(t *testing.T) *world {
	t.Helper()
	w := newWorld(model.ModeEnforce, xeon(1))
	w.seconds(5)
	w.asks[3] = 5
	for i := 0; i < 100 && (w.state().Trial == 0 || w.state().SetNsec == 0); i++ {
		w.second()
	}
	if w.state().Trial == 0 {
		t.Fatalf("nothing is given back: %+v", w.state())
	}
	return w
}

// demote is an operator's word, which changes something of a task meanwhile.
func (w *world) demote(num model.TaskNum) {
	w.Tell(model.Command{Kind: model.CommandDemote, Task: num, DurationNsec: 600 * enginetest.Sec})
}

// voids are the reasons that were given for a trial that says nothing.
func (w *world) voids() (list []string) {
	for _, d := range w.Said {
		if d.Kind == model.DecideVoid && d.Policy == model.PolicyBalm {
			list = append(list, d.Reason)
		}
	}
	return list
}

// A step back that is disturbed is taken back where services are in trouble, but that is not put down to it: it is tried again no later than the first time.
func TestDisturbedBack(t *testing.T) {
	for _, disturbed := range []bool{false, true} {
		w := backing(t)
		had := w.level(3)
		if disturbed {
			w.demote(3)
		}
		w.other = 2 // for a reason of its own
		for i := 0; i < 20 && w.state().Trial > 0; i++ {
			w.second()
		}
		w.second()
		patience := w.state().Rungs[0].Patience
		if now := w.level(3); now >= had || (patience == 0) != disturbed || (len(w.voids()) == 1) != disturbed {
			t.Errorf("disturbed %v: level %d, had %d; patience %d; %q", disturbed, now, had, patience, w.voids())
		}
	}
}

// While somebody is frozen what comes of a step back is not known, and no other is tried.
func TestFrozenBack(t *testing.T) {
	w := backing(t)
	had := w.level(3)
	w.Engine.Params.CPU.PressureMode, w.Engine.Params.CPU.Pressure = model.ModeEnforce, pressure.Defaults()
	w.UseUp(3)
	w.seconds(60)
	if w.level(3) != had || w.state().Trial == 0 || len(w.voids()) != 1 || !strings.Contains(w.voids()[0], "pressure froze /t3; it is looked at from now on") {
		t.Errorf("level %d, had %d: %+v; %q", w.level(3), had, w.state(), w.voids())
	}
	w.Engine.Params.CPU.PressureMode = model.ModeOff
	w.seconds(150)
	w.expect(t, "afterwards", "100 100 100")
}

// That nothing has helped is not said where somebody else did something to the service meanwhile: all is given back, and it begins anew.
func TestDisturbedCannotFix(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	w.asks = map[model.TaskNum]float64{2: 15, 3: 5, 4: 5}
	w.seconds(5)
	w.other = 2
	w.seconds(5)
	w.demote(2)
	for i := 0; i < 60 && len(w.voids()) == 0; i++ {
		w.second()
	}
	if w.seconds(2); w.Count(model.DecideCannotFix) > 0 || w.state().RestNsec > 0 {
		t.Errorf("cannot fix: %+v", w.state())
	}
	w.expect(t, "given back", "100 100 100")
	w.seconds(40)
	first := slices.IndexFunc(w.Said, func(d model.Decision) bool { return d.Kind == model.DecideCannotFix })
	if len(w.voids()) != 1 || first < 0 {
		t.Errorf("it is not said afterwards: %q", w.voids())
	}
}
