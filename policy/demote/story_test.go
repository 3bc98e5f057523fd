package demote_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// wishes are reused from step to step, as the engine does.
var wishes policy.Wishes

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

// node is a service, two BE tasks and one that is important, under the policy in a mode.
func node(mode model.Mode) *enginetest.Node {
	p := enginetest.Params()
	p.CPU.DemoteMode = mode
	p.Hardcap.DurationNsec = 20 * enginetest.Sec
	n := enginetest.New(p, enginetest.Flat(2), enginetest.NewTask(1, model.LC))
	for num, importance := range map[int]model.Importance{2: model.BestEffort, 3: model.Batch, 4: model.Critical} {
		t := enginetest.NewTask(num, model.BE)
		t.Importance = importance
		n.Add(t)
	}
	return n
}

// run lets seconds pass with a pulse each.
func run(n *enginetest.Node, seconds int) {
	for range seconds {
		n.Pulse = &model.Pulse{MonoNsec: n.NowNsec + enginetest.Sec}
		n.Beat(enginetest.Sec)
	}
}

// weight is what a task's knob says.
func weight(n *enginetest.Node, task model.TaskNum) model.Setting {
	return n.Task(task).Knobs[model.CPUWeight].Value
}

var idle = model.Weight(model.WeightIdle)

// TestStory: who is demoted in which mode, what a stranger, an operator and a task that comes
// change about it, and that each gets back what it had.
func TestStory(t *testing.T) {
	var text strings.Builder
	n := node(model.ModeObserve)
	n.Log = &text
	n.Task(3).Knobs[model.CPUWeight].Value = model.Weight(4096)
	n.Chapter("mode observe: it says what it would do")
	run(n, 3)
	if n.Writes > 0 {
		t.Errorf("%d writes in mode observe", n.Writes)
	}
	n.Chapter("mode enforce, up to batch")
	n.Engine.Params.CPU.DemoteMode, n.Engine.Params.CPU.Demote.UpTo = model.ModeEnforce, model.Batch.String()
	run(n, 40) // claims are renewed meanwhile
	if weight(n, 2) != idle || weight(n, 3) != idle || weight(n, 4) == idle || weight(n, 1) == idle {
		t.Error("not those are demoted that should be")
	}
	n.Chapter("another program gives one a weight; it keeps that")
	n.Stranger(3, model.Weight(512))
	run(n, 3)
	n.Chapter("an operator frees it; 20 s later it is demoted again")
	n.Tell(model.Command{Kind: model.CommandUncap, Task: 3})
	run(n, 25)
	n.Chapter("a new task comes")
	late := enginetest.NewTask(5, model.BE)
	n.Add(late)
	run(n, 3)
	n.Chapter("the kill switch")
	n.Kill = true
	run(n, 2)

	want := map[model.TaskNum]int64{1: model.WeightDefault, 2: model.WeightDefault, 3: 512, 4: model.WeightDefault, 5: model.WeightDefault}
	for task, w := range want {
		if now := weight(n, task); now != model.Weight(w) {
			t.Errorf("task %d is left with %s", task, now)
		}
	}
	story := enginetest.Story{
		About: "/t1 is a service, /t2 best-effort, /t3 batch of weight 4096, /t4 critical; times since the agent began",
		Want: []string{
			"mode observe", "demote      /t2", "demote      /t3", "demote      /t4",
			"mode enforce", "-> hold cpu.weight of /t2: applied, now cpu.idle", "-> hold cpu.weight of /t3: applied, now cpu.idle",
			"another program", "foreign     /t3", "left-alone  /t3",
			"an operator frees it", "-> hold cpu.weight of /t3: applied, now cpu.idle",
			"a new task", "-> hold cpu.weight of /t5",
			"the kill switch", "-> release cpu.weight of /t2: applied, now weight 1024", "-> release cpu.weight of /t3: applied, now weight 512",
		},
		Never: []string{"cpu.weight of /t1", "cpu.weight of /t4", "demote      /t1"},
		Once:  []string{"foreign     /t3", "demote      /t4"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}

// A kernel that refuses is asked again, ever later, and it is said once.
func TestRefused(t *testing.T) {
	n := node(model.ModeEnforce)
	n.Task(2).Refuse(model.CPUWeight, "no")
	run(n, 60)
	if c := n.Count(model.DecideRefused); c != 1 {
		t.Errorf("said %d times that it was refused", c)
	}
	n.Task(2).Knobs[model.CPUWeight].Write = nil
	run(n, 120)
	if weight(n, 2) != idle {
		t.Error("once the kernel takes it, it is not demoted")
	}
}

// To demote all does not count against what may be held at once, and is done once.
func TestManyAreDemoted(t *testing.T) {
	n := node(model.ModeEnforce)
	n.Engine.Params.Limits.MaxHeldTasks = 1
	for num := 10; num < 40; num++ {
		n.Add(enginetest.NewTask(num, model.BE))
	}
	run(n, 2)
	if n.Writes != 33 || n.Count(model.DecideLimit) > 0 {
		t.Errorf("%d of 33 were demoted", n.Writes)
	}
	before := n.Writes
	run(n, 100)
	if n.Writes != before {
		t.Errorf("%d more writes while nothing changed", n.Writes-before)
	}
}

// A step in which nothing is new costs no allocation.
func TestSteadyStep(t *testing.T) {
	n := node(model.ModeEnforce)
	run(n, 5)
	v := n.View(model.ModeEnforce)
	state, params := &n.Engine.State.CPU.Demote, &n.Engine.Params.CPU.Demote
	w := &wishes
	if a := testing.AllocsPerRun(100, func() { w.Reset(); state.Step(params, v, w) }); a > 0 {
		t.Errorf("%.1f allocations", a)
	}
	if !w.AsBefore {
		t.Error("it wishes anew although nothing changed")
	}
}
