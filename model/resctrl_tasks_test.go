package model

import (
	"encoding/json"
	"testing"
)

// TestClassOfOneTask: a task's own class is told from those of many and from those of other tasks, it comes through a
// record, and people read it by the task's name.
func TestClassOfOneTask(t *testing.T) {
	tasks := TaskTable{}
	tasks.Add(Task{Num: 7, Path: "/be/scan"})
	for class, task := range map[TaskNum]TaskNum{ClassFound: 0, ClassBE: 0, ClassOf(7): 7, ClassOf(1): 1} {
		if got := Alone(class); got != task {
			t.Errorf("class %d is that of task %d, not %d", class, got, task)
		}
		var back Setting
		b, err := json.Marshal(InClass(class))
		if err != nil || json.Unmarshal(b, &back) != nil || back != InClass(class) {
			t.Errorf("%s became %v, %v", b, back, err)
		}
	}
	for of, want := range map[Target]string{
		OfTask(7): "/be/scan", OfClass(ClassOf(7), 1): "class of /be/scan, domain 1", OfClass(ClassBE, 0): "class be, domain 0",
		OfClass(ClassOf(8), 0): "class of (gone task 8), domain 0",
	} {
		if got := tasks.NameOf(of); got != want {
			t.Errorf("%v is called %q, not %q", of, got, want)
		}
	}
	if name, text := ClassName(ClassOf(7)), InClass(ClassOf(7)).String(); name != "task7" || text != "a class of its own" {
		t.Errorf("%q, %q", name, text)
	}
}

// TestClassesOfServices: those of parts are services', for services alone, and lie in their order.
func TestClassesOfServices(t *testing.T) {
	names, down := "", ""
	for class := range NumClasses {
		of := OfServices(class)
		if of {
			names += ClassName(class) + " "
		}
		if suits := Knobs[ServiceClass].Suits; suits(InClass(class), LC) != of || suits(InClass(class), BE) == of {
			t.Errorf("class %s: for services %v", ClassName(class), of)
		}
	}
	for class := range ServicesDown {
		down += ClassName(class) + " "
	}
	if names != "lc lc1 lc2 lc3 lc4 " || down != "lc1 lc2 lc3 lc4 lc " || OfServices(ClassOf(7)) {
		t.Errorf("%s; %s", names, down)
	}
	every := OfClass(ClassBE, EveryDomain)
	if name := every.Name(); name != "class be, every domain" || !every.Before(OfClass(ClassBE, 0)) {
		t.Error(name)
	}
}

// TestClassesLeft: what others hold, a class of many and one in reserve are no task's; a machine that does not say has
// none.
func TestClassesLeft(t *testing.T) {
	for _, c := range []struct{ ids, taken, alone int }{{16, 1, 13}, {4, 1, 1}, {4, 3, 0}, {8, 8, 0}, {0, 0, 0}} {
		if got := (&Classes{IDs: c.ids, Taken: c.taken}).Alone(); got != c.alone {
			t.Errorf("%d of %d taken: %d tasks can have one alone, not %d", c.taken, c.ids, got, c.alone)
		}
	}
}
