package engine_test

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/beside"
	"github.com/commensal-io/commensal/policy/memory"
)

// The hard cap raises no cap while another policy looks what came of a step on the same task, and does so afterwards; it lowers it all the
// same where the victim suffers.
func TestLoosenOnTrial(t *testing.T) {
	n := restless(t, 2.4, 400)
	n.e.Params.CPU.MemoryMode, n.e.Params.CPU.Memory = model.ModeEnforce, memory.Defaults()
	n.e.Params.CPU.Memory.SearchWindows = 1000
	n.task("/web/1").hurtBy("/grind/1", 3)
	loosened := func() (steps int) {
		for i := range n.e.State.Hardcap.Incidents {
			if inc := &n.e.State.Hardcap.Incidents[i]; inc.State == model.Recovered && len(inc.Rounds) > 0 {
				steps += inc.Rounds[len(inc.Rounds)-1].Steps
			}
		}
		return steps
	}
	for s := 0; s < 300 && loosened() == 0; s++ {
		n.run(n.s + 1)
	}
	task := n.task("/grind/1").Num
	had := n.task("/grind/1").limit.Ratio()
	mild := []beside.Incident{{Mild: true, Incident: model.Incident{
		ID: "m1", Victim: n.task("/web/1").Num, State: model.Verifying, Source: model.SourceMemory, Rounds: []model.Round{{Chosen: &task}},
	}}}
	n.e.State.CPU.Memory.Incidents = slices.Clone(mild)
	n.run(n.s + 30)
	if now := n.task("/grind/1").limit.Ratio(); loosened() == 0 || now > had {
		t.Errorf("the cap went from %.2f to %.2f, %d steps", had, now, loosened())
	}
	n.e.State.CPU.Memory.Incidents = nil
	n.run(n.s + 40)
	if now := n.task("/grind/1").limit.Ratio(); now <= had {
		t.Errorf("the cap went from %.2f to %.2f afterwards", had, now)
	}
}
