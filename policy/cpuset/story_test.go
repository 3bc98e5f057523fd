package cpuset_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpuset"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

// TestStory is the life of a partition: who is placed, what is told, what is written, what is
// left alone.
func TestStory(t *testing.T) {
	var text strings.Builder
	r := newRig(t, cpuset.Machine(1, 1, 8, 2), task(1, model.LC), task(2, model.BE), task(3, model.BE))
	r.Log = &text
	r.Engine.Params.Hardcap.DurationNsec = 10 * sec
	place := func(num model.TaskNum) *enginetest.Knob { return &r.Task(num).Knobs[model.CPUPlace] }

	r.mode(model.ModeObserve)
	r.Chapter("mode observe")
	r.run(5*sec, 1)
	r.Chapter("mode enforce")
	r.mode(model.ModeEnforce)
	r.run(10*sec, 1)
	r.Chapter("a surge comes")
	r.run(2*sec, 9)
	r.Chapter("and goes")
	r.run(20*sec, 1)
	r.Chapter("a stranger lets /t3 run everywhere")
	r.Stranger(3, model.Place(model.FullSet(16)))
	r.run(5*sec, 1)
	r.Chapter("an operator frees /t3, and ten seconds later it is placed again")
	r.Tell(model.Command{Kind: model.CommandUncap, Task: 3})
	r.run(11*sec, 1)
	r.Chapter("/t4 comes, and the kernel refuses its cpuset")
	r.Add(task(4, model.BE).Refuse(model.CPUPlace, "no space left on device"))
	r.run(5*sec, 1)
	r.Chapter("the kernel takes it")
	r.Task(4).Refuse(model.CPUPlace, "")
	r.run(10*sec, 1)
	r.Chapter("mode observe")
	r.mode(model.ModeObserve)
	r.run(sec, 1)

	for _, task := range r.Tasks {
		if k := place(task.Num); k.Ours || task.Num != 3 && !k.Value.CPUs.Empty() {
			t.Errorf("%s is left with %s", task.Path, k.Value)
		}
	}
	story := enginetest.Story{
		About: "8 cores of two threads; /t1 is a service, the others are batch tasks; times since the agent began",
		Want: []string{
			"mode observe", "BE begins at its floor",
			"mode enforce", "-> set cpuset.cpus of /t1: applied",
			"a surge comes", "a full set hides what it needs", "-> set cpuset.cpus of /t2: applied, now CPUs 7,15", "-> set cpuset.cpus of /t1",
			"and goes", "does not need its",
			"a stranger", "foreign     /t3", "left-alone  /t3: another program sets its CPUs",
			"an operator frees", "left-alone  /t3: an operator freed it", "-> set cpuset.cpus of /t3: applied",
			"/t4 comes", "refused     /t4", "left-alone  /t4: the kernel refused its CPUs",
			"the kernel takes it", "-> set cpuset.cpus of /t4: applied",
			"mode observe", "-> release cpuset.cpus of /t1: applied, now CPUs of the group above",
		},
		Never: []string{"-> hold"},
		Once:  []string{"foreign     /t3", "refused     /t4", "left-alone  /t4"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}
