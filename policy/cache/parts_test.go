package cache_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cache"
)

// inParts is the node with a second and a third service, and parts.
func inParts(have *model.Classes, parts string) *enginetest.Node {
	n := exclusive(have)
	n.Engine.Params.CPU.Cache.Parts = parts
	n.Task(1).Job = "web"
	service(n, 4, "kafka")
	service(n, 6, "redis")
	return n
}

// service lets one come.
func service(n *enginetest.Node, num int, job string) {
	t := enginetest.NewTask(num, model.LC)
	t.Job = job
	n.Add(t)
}

var first, second = model.ClassOfPart(0), model.ClassOfPart(1)

// TestPartsStory: services of a part have ways of their own, the rest the others, whoever comes and goes.
func TestPartsStory(t *testing.T) {
	var text strings.Builder
	n := inParts(skylakeOf(8), "kafka=3,r*=2")
	n.Log = &text
	expect := func(when string, be, rest, one, two int64, of map[model.TaskNum]model.TaskNum) {
		t.Helper()
		run(n, 3)
		if got := [...]int64{waysOf(n, model.ClassBE), waysOf(n, model.ClassLC), waysOf(n, first), waysOf(n, second)}; got != [...]int64{be, rest, one, two} {
			t.Errorf("%s: ways %v", when, got)
		}
		for task, in := range of {
			if class(n, task) != model.InClass(in) {
				t.Errorf("%s: task %d is in %s", when, task, class(n, task))
			}
		}
	}
	n.Chapter("two services have parts of their own, the third has the rest")
	run(n, 5)
	expect("both", 2, 4, 3, 2, map[model.TaskNum]model.TaskNum{1: model.ClassLC, 4: first, 6: second})
	if note := n.Engine.State.CPU.Cache.Note(model.ModeEnforce); !strings.HasSuffix(note, "services have the other 9, of them kafka 3, r* 2") {
		t.Error(note)
	}
	n.Chapter("the last service of a part ends: the rest has its ways")
	n.Remove(4)
	expect("one ends", 2, 7, -1, 2, map[model.TaskNum]model.TaskNum{1: model.ClassLC, 6: second})
	n.Chapter("it comes back, and all that are of no part end")
	service(n, 8, "kafka")
	n.Remove(1)
	expect("no rest", 2, -1, 3, 2, map[model.TaskNum]model.TaskNum{8: first, 6: second})
	n.Chapter("another program sets what a part has")
	var his *enginetest.WideKnob
	for _, w := range n.Wide {
		if w.Target == model.OfClass(second, 1) {
			his = w
		}
	}
	his.Value = model.Ways(3)
	n.Foreign(his)
	expect("foreign", 2, 9, -1, -1, map[model.TaskNum]model.TaskNum{8: model.ClassLC, 6: model.ClassLC})
	n.Chapter("an operator frees a task; parts are made anew")
	his.Value = model.Ways(100)
	n.Tell(model.Command{Kind: model.CommandUncap, Task: 3})
	expect("freed", 2, -1, 3, 2, map[model.TaskNum]model.TaskNum{8: first, 6: second})
	n.Chapter("the parts are named otherwise")
	n.Engine.Params.CPU.Cache.Parts = "redis=4"
	expect("renamed", 2, 5, 4, -1, map[model.TaskNum]model.TaskNum{8: model.ClassLC, 6: first})
	n.Chapter("the last batch work ends")
	n.Remove(2)
	n.Remove(3)
	expect("no batch work", -1, -1, -1, -1, map[model.TaskNum]model.TaskNum{8: model.ClassFound, 6: model.ClassFound})
	story := enginetest.Story{
		About: "/t1, /t4 and /t6 are services, /t2 and /t3 batch work on a machine with two caches of 11 ways and eight classes of service; parts are kafka=3, r*=2; times since the agent began",
		Want: []string{
			"two services", "-> set resctrl.tasks of /t4: applied, now class lc1", "-> hold schemata.L3 of class lc, domain 0: applied, now 4 ways",
			"-> hold schemata.L3 of class lc1, domain 0: applied, now 3 ways", "the last service of a part", "applied, now 7 ways", "it comes back", "another program",
			"services share their ways: another program sets what r* has", "the parts are named otherwise", "-> set resctrl.tasks of /t8: applied, now class lc", "the last batch work ends",
		},
	}
	story.Check(t, "parts", text.String(), *rewrite)
}

// Where too few classes or ways are left those named last share with the rest, which is said once and in the note; nothing comes and goes.
func TestPartsThatFallBack(t *testing.T) {
	narrow := skylakeOf(8)
	narrow.Least = 4
	for name, tt := range map[string]struct {
		have     *model.Classes
		parts    string
		lc       int64
		one, two int64
		said     string
	}{
		"a class for each":   {skylakeOf(6), "kafka=3,redis=2", 4, 3, 2, ""},
		"one class":          {skylakeOf(5), "kafka=3,redis=2", 6, 3, -1, "no class of service is left for redis"},
		"no class":           {skylakeOf(4), "kafka=3,redis=2", 9, -1, -1, "no class of service is left for kafka"},
		"too many ways":      {skylakeOf(8), "kafka=3,redis=5", 6, 3, -1, "no 5 ways are left for redis and those named after it: they share their ways with the rest, who keep 2"},
		"just enough":        {skylakeOf(8), "kafka=3,redis=4", 2, 3, 4, ""},
		"least ways":         {narrow, "kafka=3,redis=2", 7, -1, -1, "no 4 ways are left for kafka"}, // BE has four
		"nobody is of it":    {skylakeOf(5), "mongo=3,redis=2", 7, -1, 2, ""},
		"the first that fit": {skylakeOf(8), "k*=3,kafka=2,redis=2", 4, 3, -1, ""},
	} {
		n := inParts(tt.have, tt.parts)
		run(n, 60)
		writes := n.Writes
		run(n, 300)
		said := 0
		for i := range n.Said {
			if r := n.Said[i].Reason; strings.Contains(r, "share their ways") {
				said++
				if tt.said == "" || !strings.Contains(r, tt.said) {
					t.Errorf("%s: %s", name, r)
				}
			}
		}
		note := n.Engine.State.CPU.Cache.Note(model.ModeEnforce)
		if got := [...]int64{waysOf(n, model.ClassLC), waysOf(n, first), waysOf(n, second)}; got != [...]int64{tt.lc, tt.one, tt.two} || said > 1 || (said == 1) != (tt.said != "") || !strings.Contains(note, tt.said) || n.Writes != writes {
			t.Errorf("%s: ways %v, said %d times, %d writes later; %s", name, got, said, n.Writes-writes, note)
		}
	}
}

// What the machine refuses to a part is not asked for again and again: services share their ways for an hour.
func TestRefusedParts(t *testing.T) {
	n := inParts(skylakeOf(8), "kafka=3")
	his := &enginetest.WideKnob{Target: model.OfClass(first, 1), Knob: enginetest.Knob{Value: model.Ways(11), Write: func(model.Setting) string { return "no room" }}}
	n.Wide = append(n.Wide, his)
	run(n, 60)
	writes := n.Writes
	run(n, 600)
	if s := &n.Engine.State.CPU.Cache; class(n, 4) != inLC || waysOf(n, model.ClassLC) != 9 || n.Writes != writes || !strings.Contains(s.Note(model.ModeEnforce), "services share their ways") {
		t.Errorf("the service is in %s, lc has %d ways, %d writes later; %s", class(n, 4), waysOf(n, model.ClassLC), n.Writes-writes, s.Note(model.ModeEnforce))
	}
	his.Write = nil
	if run(n, 3600); class(n, 4) != model.InClass(first) || waysOf(n, first) != 3 || waysOf(n, model.ClassLC) != 6 {
		t.Errorf("an hour later the service is in %s, with %d ways", class(n, 4), waysOf(n, first))
	}
}

// Parts are given up first, where all services together or those of one part fare worse; then ways of their own, then the division.
func TestPartsAreComparedFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		parted           [2]float64 // CPI of the service of the part and of the other, beside that without division
		apart, divided   float64    // of both, without parts and with all ways
		standing, own    bool
		kept             bool
		verdicts, reason string
	}{
		"better":            {[2]float64{0.8, 0.9}, 0.9, 0.95, true, true, true, "kept", "for services, in parts"},
		"one fares worse":   {[2]float64{0.7, 1.1}, 0.9, 0.95, false, true, true, "taken-back kept", "without, but that of services of no part 1.1"},
		"the part does":     {[2]float64{1.1, 0.7}, 0.9, 0.95, false, true, true, "taken-back kept", "without, but that of services of kafka 1.1"},
		"all do":            {[2]float64{1.2, 1.2}, 1.1, 0.9, false, false, true, "taken-back taken-back kept", "without, but that of"},
		"nothing is of use": {[2]float64{1.2, 1.2}, 1.1, 1.1, false, false, false, "taken-back taken-back taken-back", "services share their ways again"},
	} {
		b := newBench(1)
		b.p.Share, b.p.Parts = cache.Exclusive, "kafka=3"
		b.v.Topology.Classes = skylakeOf(8)
		b.v.Tasks[0].Task.Job, b.v.Tasks[1].Task.Job = "kafka", "web"
		for range 300 {
			of := [2]float64{1, 1}
			switch {
			case b.s.Parted != 0:
				of = tt.parted
			case b.s.Apart:
				of = [2]float64{tt.apart, tt.apart}
			case b.divided():
				of = [2]float64{tt.divided, tt.divided}
			}
			b.windowOf(of)
		}
		verdicts := ""
		for i := range b.said {
			verdicts += b.said[i].Kind.String() + " "
		}
		if (b.s.Parted != 0) != tt.standing || b.s.Apart != tt.own || b.divided() != tt.kept || strings.TrimSpace(verdicts) != tt.verdicts || !strings.Contains(b.said[0].Reason, tt.reason) {
			t.Errorf("%s: parts %b, services alone: %t, divided: %t, %+v", name, b.s.Parted, b.s.Apart, b.divided(), b.said)
		}
	}
}

// What an operator may say.
func TestPartsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "kafka=2": "", "web-* = 3 , k?=2": "", "a=2,b=2,c=2,d=2": "",
		"kafka": "expected JOB=WAYS", "=2": "expected JOB=WAYS", "a=x": "expected JOB=WAYS", "a=2,": "expected JOB=WAYS",
		"a=1": "expected 2 to 64", "a=65": "expected 2 to 64", "a=2,a=3": "twice", "a=2,b=2,c=2,d=2,e=2": "5 parts",
	} {
		p := cache.Defaults()
		p.Parts = text
		if key, why := p.Check(); (why == "") != (want == "") || !strings.Contains(why, want) || why != "" && key != "parts" {
			t.Errorf("%q: %s %q", text, key, why)
		}
	}
}

// Without exclusive there are no parts, and that is said.
func TestPartsNeedExclusive(t *testing.T) {
	var text strings.Builder
	n := inParts(skylakeOf(8), "kafka=3")
	n.Log, n.Engine.Params.CPU.Cache.Share = &text, cache.Overlapping
	run(n, 8)
	if waysOf(n, model.ClassBE) != 2 || waysOf(n, first) != -1 || !strings.Contains(text.String(), "cache.share is not exclusive") {
		t.Errorf("ways %d and %d:\n%s", waysOf(n, model.ClassBE), waysOf(n, first), text.String())
	}
}
