package blockio_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A limit that is verified while somebody else changes something of the held task says nothing: after an action it is looked at from the beginning, and
// what stays ends the incident with nothing held or remembered.
func TestDisturbed(t *testing.T) {
	for _, deed := range []model.Command{
		{Kind: model.CommandReclaim, Task: 3, Bytes: 1 << 20}, {Kind: model.CommandDemote, Task: 3, DurationNsec: 600e9},
	} {
		w := newWorld(model.ModeEnforce, 30*mb, 60*mb)
		w.run(30)
		w.io[3].bytes = 480 * mb
		state := func() model.IncidentState {
			if list := w.Engine.State.CPU.IO.Incidents; len(list) == 1 {
				return list[0].State
			}
			return model.Searching
		}
		for w.seconds < 100 && state() != model.Holding {
			w.second()
		}
		w.io[3].bytes = 1 * mb // it stops by itself
		w.Tell(deed)
		w.second()
		w.second()
		text := ""
		for _, d := range w.Said {
			text += d.Kind.String() + ": " + d.Reason + "\n"
		}
		if !strings.Contains(text, "void: the trial says nothing: an operator") || strings.Contains(text, "verified") {
			t.Errorf("%s:\n%s", deed.Kind, text)
		}
		if deed.Kind == model.CommandDemote {
			w.run(10)
			if list := w.Engine.State.CPU.IO.Incidents; len(list) > 0 || len(w.Engine.State.CPU.IO.Peace) > 0 || w.Claim(model.PolicyIO, 3, model.IOMaxKnob) != nil {
				t.Errorf("%+v", list)
			}
			continue
		}
		if w.run(6); state() != model.Recovered {
			t.Errorf("it is not verified afterwards: %v", state())
		}
	}
}
