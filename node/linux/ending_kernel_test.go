package linux

import (
	"errors"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// end asks for a task's end and returns what came of it.
func (b *bed) end(path string) model.Result {
	b.t.Helper()
	b.h.Apply([]model.Change{{Seq: 11, Target: model.OfTask(b.tasks[path].Num), Kind: model.Run, Value: model.End(0)}})
	var res []model.Result
	b.until("an answer", func() bool { res = b.h.Results(res); return len(res) > 0 })
	return res[0]
}

func (b *bed) procs(path string) int {
	b.t.Helper()
	return len(b.ids(path))
}

// ids are the processes of a group, sorted.
func (b *bed) ids(path string) []int32 {
	b.t.Helper()
	g, err := b.cg.Open(path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer g.Close() //nolint:errcheck // reading is over
	ids, err := g.Procs(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(ids)
	return ids
}

// All processes of a task end, with those in groups below it, and nobody else's; one without processes has ended.
func TestEndOnTheKernel(t *testing.T) {
	b := newBed(t, "end")
	task, inner, deep, other := b.mkdir("be-1"), b.mkdir("be-1/inner"), b.mkdir("be-1/deep"), b.mkdir("be-2")
	b.open(false)
	b.spin(inner)
	b.spin(deep)
	b.spin(other)
	b.observe(model.WindowStart)
	for range 2 {
		if r := b.end(task); r.Kind != model.Applied || r.Now != model.End(0) {
			t.Fatalf("%+v", r)
		}
	}
	if n := b.procs(task); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if n := b.procs(other); n != 1 {
		t.Errorf("%d processes of another task", n)
	}
	b.until("the other one works", b.used(1e6, other))
}

// A task that is frozen ends once it is let go, which on cgroup v1 is what its end waits for.
func TestEndOfTheFrozen(t *testing.T) {
	b, task, _ := openFreezing(t, "end-frozen")
	b.observe(model.WindowStart)
	b.apply(model.Hold, task, model.Freeze(true), model.Applied)
	b.until("it has stopped", func() bool {
		state, err := b.cg.ReadFreezer(task)
		return err == nil && state == cgroup.Frozen
	})
	b.h.Apply([]model.Change{
		{Seq: 12, Target: model.OfTask(b.tasks[task].Num), Kind: model.Run, Value: model.End(0)},
		{Seq: 13, Target: model.OfTask(b.tasks[task].Num), Kind: model.Release, Value: model.Ask(model.GroupFreeze)},
	})
	var res []model.Result
	b.until("both answers", func() bool { res = b.h.Results(res); return len(res) > 1 })
	for _, r := range res {
		if r.Kind != model.Applied {
			t.Errorf("%+v", r)
		}
	}
	if n := b.procs(task); n != 0 || b.frozen(task) {
		t.Errorf("%d processes are left, frozen %v", n, b.frozen(task))
	}
}

// Who joined a group that was made anew, or whose number another process has by now, is not ended.
func TestEndMeansOne(t *testing.T) {
	b := newBed(t, "end-another")
	task := b.mkdir("be-1")
	b.open(false)
	child := b.spin(task)
	b.observe(model.WindowStart)
	if err := (cgroup.Pidfds{}).End(int32(child.PID()), func() bool { return false }); err != nil { //nolint:gosec // below 4 million
		t.Fatal(err)
	}
	b.until("it works on", b.used(1e6, task))
	made := b.tasks[task]
	made.Inode++
	_, did, err := (&ending{cg: b.cg, ender: cgroup.Pidfds{}, pause: rest}).run(t.Context(), made, model.End(0))
	if did || !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("did %v, %v", did, err)
	}
	if n := b.procs(task); n != 1 {
		t.Errorf("%d processes", n)
	}
}
