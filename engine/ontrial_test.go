package engine_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/beside"
	"github.com/commensal-io/commensal/policy/memory"
)

// memoryTries has policy memory at work, which does not give up what it has on trial.
func memoryTries(n *sim) {
	n.e.Params.CPU.MemoryMode, n.e.Params.CPU.Memory = model.ModeEnforce, memory.Defaults()
	n.e.Params.CPU.Memory.SearchWindows = 1000
}

// onTrial is policy memory's trial of a task for the sake of a service.
func onTrial(service, task model.TaskNum) []beside.Incident {
	return []beside.Incident{{Mild: true, Incident: model.Incident{
		ID: "m1", Victim: service, State: model.Verifying, Source: model.SourceMemory, Rounds: []model.Round{{Chosen: &task}},
	}}}
}

// The hard cap raises no cap while another policy looks what came of a step on the same task, and does so afterwards; it lowers it all the
// same where the victim suffers.
func TestLoosenOnTrial(t *testing.T) {
	n := restless(t, 2.4, 400)
	memoryTries(n)
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
	n.e.State.CPU.Memory.Incidents = onTrial(n.task("/web/1").Num, task)
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

// A task that gives way to everybody, which is not enough, and that another policy has on trial is not capped on top before that is over, and then at once.
func TestCapTooOnTrial(t *testing.T) {
	n := waiting(t, brief(t), between(40, 160, 3, 0), 1)
	n.task("/grind/1").free = 1.6
	memoryTries(n)
	says := func(text string) func() bool {
		return func() bool { return strings.Contains(n.out.String(), text) }
	}
	n.until(t, 130, says("the cap is over; for now it still gives way to everybody"))
	n.e.State.CPU.Memory.Incidents = onTrial(n.task("/web/1").Num, n.task("/grind/1").Num)
	n.until(t, 130, says("/grind/1 gives way to everybody already, and: policy memory looks what came of a step on it"))
	const capped = "/web/1 suffers although /grind/1 gives way to everybody, and nobody else stands out"
	if has := n.task("/grind/1").limit.Ratio(); has < 3 || says(capped)() {
		t.Errorf("it may use %.2f CPU:\n%s", has, n.out.String())
	}
	n.e.State.CPU.Memory.Incidents = nil
	n.until(t, n.s+3, says(capped))
}
