package linux

import (
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// A task is held within what was found, which a crash or a release puts back; what another program wrote stays. On v1 there is no such limit.
func TestMemoryHighOnTheKernel(t *testing.T) {
	b := newBed(t, "high")
	task := b.mkdir("be-1")
	m, err := reclaim.Open(b.fs, b.mounts)
	if err != nil {
		t.Skip("this kernel has no memory controller: ", err)
	}
	const mib = 1 << 20
	if !m.V2() {
		b.open(false)
		b.observe(model.WindowStart)
		if r := b.apply(model.Hold, task, model.HighMemory(64*mib), model.Refused); r.Error == "" {
			t.Error("refused, and not said why")
		}
		return
	}
	if d, ok := b.cg.(*cgroup.V2); ok {
		if err := d.Enable(b.root, cgroup.Memory); err != nil {
			t.Skip("the root of cgroup v2 does not hand the memory controller down: ", err)
		}
	}
	b.open(false)
	b.observe(model.WindowStart)
	if err := m.WriteHigh(task, 512*mib); err != nil {
		t.Fatal(err)
	}
	if r := b.apply(model.Hold, task, model.HighMemory(64*mib+100), model.Applied); r.Found != model.HighMemory(512*mib) || r.Now != model.HighMemory(64*mib) {
		t.Errorf("%+v", r)
	}
	if r := b.apply(model.Hold, task, model.HighMemory(1024*mib), model.Applied); r.Now != model.HighMemory(512*mib) {
		t.Errorf("more than was found: %+v", r)
	}
	b.apply(model.Hold, task, model.HighMemory(64*mib), model.Applied)
	if err := m.WriteHigh(task, 100*mib); err != nil {
		t.Fatal(err)
	}
	b.apply(model.Hold, task, model.HighMemory(32*mib), model.Foreign)
	if got, err := m.ReadHigh(task); err != nil || got != 100*mib {
		t.Errorf("a stranger's limit: %d, %v", got, err)
	}
	b.apply(model.Hold, task, model.HighMemory(64*mib), model.Applied) // what the stranger wrote is what is found
	rep := b.restart()
	if got, err := m.ReadHigh(task); err != nil || len(rep.Items) != 1 || got != 100*mib {
		t.Errorf("restored %+v; limit %d, %v", rep, got, err)
	}
}
