package cache_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/cache"
)

// skylakeOf is such a machine with so many classes of service, of which one is taken: that in which everybody begins.
func skylakeOf(ids int) *model.Classes {
	have := skylake()
	have.IDs, have.Taken = ids, 1
	return have
}

// exclusive is the node with ways of their own for services.
func exclusive(have *model.Classes) *enginetest.Node {
	n := node(model.ModeEnforce, have)
	n.Engine.Params.CPU.Cache.Share = cache.Exclusive
	return n
}

var inLC = model.InClass(model.ClassLC)

// waysOf is what stands of a class in the first cache, -1: nothing of ours.
func waysOf(n *enginetest.Node, class model.TaskNum) int64 {
	for _, w := range n.Wide {
		if w.Target == model.OfClass(class, 0) && w.Value.Knob == model.CacheWays && w.Ours {
			return w.Value.Amount
		}
	}
	return -1
}

// TestExclusiveStory: services give up ways only while BE stands in its own, and have all back whatever else happens.
func TestExclusiveStory(t *testing.T) {
	var text strings.Builder
	n := exclusive(skylakeOf(8))
	n.Log = &text
	n.Chapter("BE gets its ways, and then services those that are left")
	for class(n, 2) != inBE {
		run(n, 1)
		if class(n, 1) == inLC {
			t.Error("a service gave up ways before BE stood in its own")
		}
	}
	run(n, 60)
	if class(n, 1) != inLC || waysOf(n, model.ClassBE) != 2 || waysOf(n, model.ClassLC) != 9 {
		t.Errorf("the service is in %s; BE has %d ways, services %d", class(n, 1), waysOf(n, model.ClassBE), waysOf(n, model.ClassLC))
	}
	n.Chapter("a new service comes")
	n.Add(enginetest.NewTask(6, model.LC))
	run(n, 3)
	n.Chapter("another program sets what the class of services has")
	for _, w := range n.Wide {
		if w.Target == model.OfClass(model.ClassLC, 1) {
			w.Value = model.Ways(3)
			n.Foreign(w)
		}
	}
	run(n, 3)
	if class(n, 1) != asFound || class(n, 6) != asFound || class(n, 2) != inBE || waysOf(n, model.ClassLC) != -1 {
		t.Errorf("services are in %s, %s, BE in %s; services have %d ways", class(n, 1), class(n, 6), class(n, 2), waysOf(n, model.ClassLC))
	}
	n.Chapter("an operator frees a task; the class is made anew")
	for _, w := range n.Wide {
		if w.Target == model.OfClass(model.ClassLC, 1) {
			w.Value = model.Ways(11)
		}
	}
	n.Tell(model.Command{Kind: model.CommandUncap, Task: 3})
	run(n, 3)
	if class(n, 1) != inLC || class(n, 3) != asFound {
		t.Errorf("the service is in %s, the task in %s", class(n, 1), class(n, 3))
	}
	n.Chapter("the last batch work ends")
	n.Remove(2)
	n.Remove(3)
	run(n, 3)
	if class(n, 1) != asFound || waysOf(n, model.ClassLC) != -1 {
		t.Errorf("without batch work the service is in %s", class(n, 1))
	}
	n.Chapter("batch work comes, and the kill switch")
	n.Add(enginetest.NewTask(7, model.BE))
	run(n, 5)
	if class(n, 1) != inLC {
		t.Errorf("the service is in %s", class(n, 1))
	}
	n.Kill = true
	run(n, 3)
	for _, task := range n.Tasks {
		if now := class(n, task.Num); now != asFound {
			t.Errorf("task %d is left in %s", task.Num, now)
		}
	}
	for _, w := range n.Wide {
		if w.Ours {
			t.Errorf("%s of %s is left at %s", w.Value.Knob, w.Name(), w.Value)
		}
	}
	story := enginetest.Story{
		About: "/t1 is a service, /t2 and /t3 are batch work on a machine with two caches of 11 ways and eight classes of service; times since the agent began",
		Want: []string{
			"BE gets its ways", "-> set resctrl.tasks of /t2: applied, now class be", "-> set resctrl.tasks of /t1: applied, now class lc",
			"-> hold schemata.L3 of class lc, domain 0: applied, now 9 ways", "a new service", "-> set resctrl.tasks of /t6: applied, now class lc",
			"another program", "services keep all ways: another program sets what their class has", "-> release resctrl.tasks of /t1",
			"an operator frees", "-> set resctrl.tasks of /t1: applied, now class lc", "the last batch work ends", "-> release resctrl.tasks of /t1",
			"the kill switch", "-> release schemata.L3 of class lc, domain 0",
		},
		Never: []string{"schemata.MB of class lc"},
	}
	story.Check(t, "exclusive", text.String(), *rewrite)
}

// Where no class is left for services, or they would have fewer than half of the ways, they keep all; it is said once,
// and nothing comes and goes. One class that is left is enough, and then single tasks have none.
func TestServicesKeepAll(t *testing.T) {
	none, half := skylakeOf(3), skylakeOf(8)
	half.Ways = 5
	for name, tt := range map[string]struct {
		have *model.Classes
		ways int
		own  bool
		said string
	}{
		"no class":   {none, 2, false, "no class of service is left"},
		"half":       {half, 3, false, "fewer than half"},
		"one class":  {skylakeOf(4), 2, true, ""},
		"just half":  {skylakeOf(8), 5, true, ""},
		"not asked":  {skylake(), 2, false, "no class of service is left"}, // the machine does not say how many there are
		"every task": {skylakeOf(16), 2, true, ""},
	} {
		n := exclusive(tt.have)
		n.Engine.Params.CPU.Cache.Ways = tt.ways
		run(n, 60)
		writes := n.Writes
		run(n, 300)
		said := 0
		for i := range n.Said {
			if strings.Contains(n.Said[i].Reason, "services keep all ways") {
				said++
				if !strings.Contains(n.Said[i].Reason, tt.said) || tt.said == "" {
					t.Errorf("%s: %s", name, n.Said[i].Reason)
				}
			}
		}
		if note := n.Engine.State.CPU.Cache.Note(model.ModeEnforce); !strings.Contains(note, tt.said) || tt.said == "" && !strings.Contains(note, "services have the other") {
			t.Errorf("%s: %s", name, note)
		}
		if class(n, 2) != inBE || (class(n, 1) == inLC) != tt.own || said != map[bool]int{false: 1}[tt.own] || n.Writes != writes {
			t.Errorf("%s: BE in %s, the service in %s; said %d times, %d writes later", name, class(n, 2), class(n, 1), said, n.Writes-writes)
		}
	}
}

// Classes of service are counted once: who has one for itself leaves none to services, and they leave one less to
// single tasks.
func TestClassesAreCounted(t *testing.T) {
	have := skylakeOf(5) // two beside that of BE and the reserve
	for _, tt := range []struct {
		classes         []model.TaskNum
		alone, notAlone int
	}{
		{nil, 2, 2},
		{[]model.TaskNum{model.ClassBE, model.ClassLC}, 1, 2},
		{[]model.TaskNum{model.ClassBE, model.ClassLC, model.ClassOf(3)}, 1, 1},
		{[]model.TaskNum{model.ClassOf(3), model.ClassOf(4)}, 2, 0},
	} {
		v := policy.View{}
		for _, class := range tt.classes {
			for _, d := range have.Caches {
				v.Classes = append(v.Classes, policy.ClassView{Target: model.OfClass(class, d), Kind: model.CacheWays})
			}
		}
		if a, n := v.Alone(have), v.NotAlone(have); a != tt.alone || n != tt.notAlone {
			t.Errorf("%v: %d for single tasks, %d for services; want %d, %d", tt.classes, a, n, tt.alone, tt.notAlone)
		}
	}
}

// Services that were given fewer than half, whoever did that, leave their class for good.
func TestTooFewWays(t *testing.T) {
	n := exclusive(skylakeOf(8))
	n.Wide = append(n.Wide, &enginetest.WideKnob{Target: model.OfClass(model.ClassLC, 1), Knob: enginetest.Knob{Value: model.Ways(4)}})
	run(n, 60)
	writes := n.Writes
	run(n, 300)
	if class(n, 1) != asFound || class(n, 2) != inBE || n.Writes != writes {
		t.Errorf("the service is in %s, BE in %s; %d writes later", class(n, 1), class(n, 2), n.Writes-writes)
	}
}

// Ways of their own that do not help services are taken back first; then the division by itself is looked at.
func TestExclusiveIsComparedFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		apart, overlapping float64 // LC's CPI beside that without
		own, kept          bool
		said               []model.DecisionKind
	}{
		"better":              {0.85, 0.9, true, true, []model.DecisionKind{model.DecideKept}},
		"worse than all ways": {1.05, 0.9, false, true, []model.DecisionKind{model.DecideTakenBack, model.DecideKept}},
		"both worse":          {1.15, 1.1, false, false, []model.DecisionKind{model.DecideTakenBack, model.DecideTakenBack}},
	} {
		b := newBench(1)
		b.p.Share = cache.Exclusive
		b.v.Topology.Classes = skylakeOf(8)
		for range 200 {
			of := 1.0
			switch {
			case b.s.Apart:
				of = tt.apart
			case b.divided():
				of = tt.overlapping
			}
			b.window(of)
		}
		if b.s.Apart != tt.own || b.divided() != tt.kept || len(b.said) != len(tt.said) {
			t.Errorf("%s: services alone: %t, divided: %t, %+v", name, b.s.Apart, b.divided(), b.said)
			continue
		}
		for i, kind := range tt.said {
			if b.said[i].Kind != kind {
				t.Errorf("%s: %d: %+v", name, i, b.said[i])
			}
		}
		if text := b.said[0].Reason; !strings.Contains(text, "and the others for services") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// Services whose class is refused keep all ways, and the division by itself is compared.
func TestRefusedServices(t *testing.T) {
	n := exclusive(skylakeOf(8))
	n.Task(1).Refuse(model.ServiceClass, "CLOSIDs: used up")
	run(n, 120)
	s := &n.Engine.State.CPU.Cache
	if class(n, 1) != asFound || class(n, 2) != inBE || s.Apart || s.Stands != 2 || s.SinceNsec == 0 || !strings.Contains(s.Note(model.ModeEnforce), "are to have the other 9, and have all") {
		t.Errorf("the service is in %s, BE in %s; %+v", class(n, 1), class(n, 2), s)
	}
}

// A configuration that is read anew changes it there and back.
func TestShareIsChanged(t *testing.T) {
	n := exclusive(skylakeOf(8))
	for range 2 {
		n.Engine.Params.CPU.Cache.Share = cache.Exclusive
		if run(n, 5); class(n, 1) != inLC {
			t.Errorf("exclusive: the service is in %s", class(n, 1))
		}
		n.Engine.Params.CPU.Cache.Share = cache.Overlapping
		if run(n, 5); class(n, 1) != asFound || class(n, 2) != inBE {
			t.Errorf("overlapping: the service is in %s, BE in %s", class(n, 1), class(n, 2))
		}
	}
}
