package balm_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
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
