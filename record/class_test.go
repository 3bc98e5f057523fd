package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// TestWritesOfTheClass: what is written to a class of service is told of a task while it is in the
// class, with what the class had been given before; and not of a task that is in none.
func TestWritesOfTheClass(t *testing.T) {
	domain := func(n int32) model.Target {
		return model.Target{Scope: model.ScopeCLOS, Num: model.ClassBE, Domain: n}
	}
	ways := func(n int32, found, now int64) model.Result {
		return model.Result{Target: domain(n), Found: model.Ways(found), Now: model.Ways(now)}
	}
	joins := func(task, class model.TaskNum) model.Result {
		return model.Result{Target: model.OfTask(task), Found: model.InClass(model.ClassFound), Now: model.InClass(class)}
	}
	refused := ways(0, 11, 9)
	refused.Kind = model.Refused
	ticks := [][]model.Result{
		{ways(0, 11, 2), ways(1, 11, 2)},   // 1: before the task joins
		{joins(7, model.ClassBE)},          // 2: another task does
		{joins(3, model.ClassBE)},          // 3
		{refused, ways(1, 11, 4)},          // 4: one of two
		{joins(3, model.ClassFound)},       // 5
		{ways(0, 11, 11), ways(1, 11, 11)}, // 6: when it has left
		{joins(3, model.ClassOf(3)), {Target: model.OfClass(model.ClassOf(3), 1), Found: model.Level(100), Now: model.Level(10)}}, // 7: a class of its own
		{{Target: model.OfClass(model.ClassOf(7), 1), Found: model.Level(100), Now: model.Level(20)}},                             // 8: of another task
	}
	c := &taskCollector{path: "/be", by: map[string]*PolicyStory{}, parts: map[string]*TaskPart{}}
	c.meet(&model.Task{Num: 3, Path: "/be", Job: "be", Class: model.BE})
	for i, results := range ticks {
		c.visit(&Tick{Input: engine.Input{WallNsec: int64(i + 1), Results: results}})
	}
	found, be := model.InClass(model.ClassFound), model.InClass(model.ClassBE)
	want := []Write{
		{1, "class be, domain 0", model.Ways(11), model.Ways(2)},
		{1, "class be, domain 1", model.Ways(11), model.Ways(2)},
		{3, "", found, be},
		{4, "class be, domain 1", model.Ways(11), model.Ways(4)},
		{5, "", found, found},
		{7, "", found, model.InClass(model.ClassOf(3))},
		{7, "class of its own, domain 1", model.Level(100), model.Level(10)},
	}
	if d := cmp.Diff(want, c.story(0).Writes); d != "" {
		t.Errorf("(-expected +told):\n%s", d)
	}
}

// TestClassAtTheBeginning: a record that begins while a task is in a class says so in its checkpoint.
func TestClassAtTheBeginning(t *testing.T) {
	be := model.Target{Scope: model.ScopeCLOS, Num: model.ClassBE}
	l := &engine.Ledger{Knobs: []engine.Knob{
		{Target: model.OfTask(3), Kind: model.ServiceClass, Ours: true, Written: model.InClass(model.ClassBE)},
		{Target: be, Kind: model.CacheWays, Ours: true, Found: model.Ways(11), Written: model.Ways(2)},
	}}
	for task, want := range map[model.TaskNum]int{3: 1, 4: 0} {
		var c classCollector
		c.begin(l, task)
		if felt := c.take(&model.Result{Target: be, Found: model.Ways(11), Now: model.Ways(11)}, false, 9); len(felt) != want {
			t.Errorf("task %d feels %+v", task, felt)
		}
	}
}
