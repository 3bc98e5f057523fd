package balm_test

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/beside"
	"github.com/commensal-io/commensal/policy/memory"
)

// onTrial has policy memory look what came of its milder means on some tasks.
func (w *world) onTrial(tasks ...model.TaskNum) {
	p := &w.Engine.Params.CPU
	p.MemoryMode, p.Memory = model.ModeEnforce, memory.Defaults()
	p.Memory.SearchWindows = 1000
	w.Engine.State.CPU.Memory.Incidents = nil
	for _, task := range tasks {
		w.Engine.State.CPU.Memory.Incidents = append(w.Engine.State.CPU.Memory.Incidents, beside.Incident{Mild: true, Incident: model.Incident{
			ID: w.Task(task).Path, Victim: service, State: model.Verifying, Source: model.SourceMemory, Rounds: []model.Round{{Chosen: &task}},
		}})
	}
}

// Who is on trial with another policy has no less, and nothing back, until that is known: others who draw come first, and with nobody else it is
// not said that nothing helps.
func TestOnTrialElsewhere(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	w.asks = map[model.TaskNum]float64{2: 15, 3: 5, 4: 5}
	w.seconds(10)
	w.onTrial(2, 3, 4)
	w.asks[3] = 60
	w.seconds(20)
	if w.expect(t, "all are on trial", "100 100 100"); w.state().CannotFix != nil || w.Count(model.DecideCannotFix) > 0 {
		t.Errorf("%+v", w.state().CannotFix)
	}
	w.onTrial(3)
	w.seconds(4)
	w.expect(t, "who is not comes first", "10 100 100")
	w.onTrial()
	w.seconds(4)
	w.expect(t, "when it is known", "10 10 100")
	w.onTrial(2, 3)
	w.asks = map[model.TaskNum]float64{2: 5, 3: 5, 4: 5}
	w.seconds(100)
	w.expect(t, "nothing is given back", "10 10 100")
	w.onTrial()
	w.seconds(150)
	w.expect(t, "all is", "100 100 100")
}

// What is on trial says for the services of which memories: while it is healed, and in a step back; not while what was taken merely stays.
func TestTriedIn(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	w.seconds(5)
	tried := func() bool {
		list := w.state().OnTrial(nil)
		return len(list) == 1 && list[0].Task == 3 && len(list[0].Domains) == 1 && list[0].Domains[0] == 0
	}
	if !tried() {
		t.Fatalf("%+v", w.state())
	}
	rests := 0
	for range 40 {
		if w.second(); !tried() {
			rests++
		}
	}
	if w.state().Taking() && rests == 0 {
		t.Errorf("it is on trial all the time: %+v", w.state())
	}
}

// Who comes after it was said that nothing helps, and has less then, is on trial like everybody else.
func TestWhoComesAfterCannotFix(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	w.other = 0.7
	if w.seconds(60); w.state().CannotFix == nil {
		t.Fatalf("it helps: %+v", w.state())
	}
	w.Add(enginetest.NewTask(5, model.BE))
	w.asks[5] = 20
	for range 10 {
		if w.second(); w.level(5) == 10 {
			break
		}
	}
	if !slices.ContainsFunc(w.state().OnTrial(nil), func(o policy.OnTrial) bool { return o.Task == 5 && o.For == service }) || w.level(5) != 10 {
		t.Errorf("levels %s, on trial %+v", w.levels(), w.state().OnTrial(nil))
	}
	if w.seconds(30); w.state().CannotFix == nil || w.Count(model.DecideCannotFix) != 2 || w.state().Taking() {
		t.Errorf("that nothing helps is said %d times: %+v", w.Count(model.DecideCannotFix), w.state())
	}
}
