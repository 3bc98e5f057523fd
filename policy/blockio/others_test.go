package blockio_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/remedy"
)

// A limit is not raised while policy remedy looks what came of a step on the same task, and is afterwards.
func TestOnTrialElsewhere(t *testing.T) {
	w := newWorld(model.ModeEnforce, 30*mb, 60*mb)
	w.Engine.Params.CPU.RemedyMode, w.Engine.Params.CPU.Remedy = model.ModeEnforce, remedy.Defaults()
	state := func() *model.Incident {
		if list := w.Engine.State.CPU.IO.Incidents; len(list) > 0 {
			return &list[0].Incident
		}
		return &model.Incident{}
	}
	w.run(30)
	w.io[3].bytes = 480 * mb
	for range 60 {
		if w.second(); state().State == model.Recovered {
			break
		}
	}
	if state().State != model.Recovered {
		t.Fatalf("%+v", state())
	}
	steps := state().Rounds[0].Steps
	for range 40 {
		w.Engine.State.CPU.Remedy.Trial = &remedy.Trial{Task: 3, Means: remedy.Ways}
		w.second()
	}
	if state().Rounds[0].Steps != steps {
		t.Errorf("%d steps while another policy looks what came of its own", state().Rounds[0].Steps-steps)
	}
	w.Engine.State.CPU.Remedy.Trial = nil
	w.run(20)
	if state().Rounds[0].Steps == steps {
		t.Error("no step afterwards")
	}
}
