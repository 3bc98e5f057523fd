package linux

import (
	"errors"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// openFreezing is a task with a spinner inside, on a kernel that freezes.
func openFreezing(t *testing.T, name string) (b *bed, task, inner string) {
	t.Helper()
	b = newBed(t, name)
	task, inner = b.mkdir("be-1"), b.mkdir("be-1/inner")
	if _, err := b.cg.ReadFreezeAsked(task); errors.Is(err, cgroup.ErrNoController) || errors.Is(err, cgroup.ErrUnsupported) {
		t.Skipf("this kernel freezes no groups: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.cg.WriteFreezeAsked(task, false) }) // what is frozen cannot be ended on v1
	b.open(false)
	b.spin(inner)
	return b, task, inner
}

func (b *bed) frozen(path string) bool {
	b.t.Helper()
	frozen, err := b.cg.ReadFreezeAsked(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return frozen
}

// A task that is frozen stops with all that runs below it, is found so, and goes on when it is let go; whoever crashed
// meanwhile leaves a journal from which it is let go.
func TestFreezeOnTheKernel(t *testing.T) {
	b, task, inner := openFreezing(t, "freeze")
	b.observe(model.WindowStart)
	if r := b.apply(model.Hold, task, model.Freeze(true), model.Applied); r.Found != model.Freeze(false) || r.Now != model.Freeze(true) {
		t.Errorf("%+v", r)
	}
	b.until("it has stopped", func() bool {
		state, err := b.cg.ReadFreezer(task)
		return err == nil && state == cgroup.Frozen
	})
	if b.frozen(inner) {
		t.Error("the group below asks to be frozen itself")
	}
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Outcome != model.OK || k[0].Value != model.Freeze(true) {
		t.Errorf("knobs read %+v", k)
	}
	b.apply(model.Release, task, model.Ask(model.GroupFreeze), model.Applied)
	b.until("it works again", b.used(1e6, inner))
	b.apply(model.Hold, task, model.Freeze(true), model.Applied)
	rep, err := (Restoring{FS: b.fs, Journal: b.journal, Boot: boot}).Run()
	if err != nil || len(rep.Items) != 1 || b.frozen(task) {
		t.Errorf("restored %+v, %v; frozen %v", rep, err, b.frozen(task))
	}
	b.until("it works again", b.used(1e6, inner))
}

// Who was found frozen stays so, and what another program says meanwhile stands.
func TestFreezeBesideStrangers(t *testing.T) {
	b, task, _ := openFreezing(t, "freeze-foreign")
	if err := b.cg.WriteFreezeAsked(task, true); err != nil {
		t.Fatal(err)
	}
	b.observe(model.WindowStart)
	b.apply(model.Hold, task, model.Freeze(true), model.Applied)
	b.apply(model.Release, task, model.Ask(model.GroupFreeze), model.Applied)
	if !b.frozen(task) {
		t.Error("who was found frozen runs")
	}
	if err := b.cg.WriteFreezeAsked(task, false); err != nil {
		t.Fatal(err)
	}
	b.apply(model.Hold, task, model.Freeze(true), model.Applied)
	if err := b.cg.WriteFreezeAsked(task, false); err != nil { // a stranger's
		t.Fatal(err)
	}
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Value != model.Freeze(false) {
		t.Errorf("knobs read %+v", k)
	}
	b.apply(model.Release, task, model.Ask(model.GroupFreeze), model.Foreign)
	if b.frozen(task) {
		t.Error("it is frozen against another program's word")
	}
}
