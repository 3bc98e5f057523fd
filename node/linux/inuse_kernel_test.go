package linux

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

const growBytes = 32 << 20

// grow takes so much anonymous memory once it is told to.
func grow(p *testchild.Parent, _ []string) error {
	p.Say("ready")
	p.Line()
	memory, err := unix.Mmap(-1, 0, growBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	p.Say("grown")
	return p.Stay()
}

// The kernel's own account of what a task takes, of groups below it too, and of the machine's memory; the task beside it
// has none of that, and where nobody asks nothing is said.
func TestInUseOnTheKernel(t *testing.T) {
	b := newBed(t, "inuse")
	if b.mounts.V1[cgroup.Memory] == "" && !slices.Contains(b.mounts.UnifiedControllers, cgroup.Memory) {
		t.Skip("this kernel has no memory controller")
	}
	task, inner, idle := b.mkdir("be-1"), b.mkdir("be-1/inner"), b.mkdir("victim")
	b.inUse = true
	b.open(false)
	if missing := strings.Join(b.h.Missing(), "; "); strings.Contains(missing, "memory of") {
		t.Fatal(missing)
	}
	child := testchild.Start(t, "grow").Await("ready")
	if err := b.cg.MovePID(inner, child.PID()); err != nil {
		t.Fatal(err)
	}
	b.observe(model.WindowStart)
	before := b.sample(task).C
	child.Say("now")
	child.Await("grown")
	var after model.TaskSample
	b.until("the kernel counts what it took", func() bool { // memory.stat may be two seconds old
		b.observe(model.WindowEnd)
		after = b.sample(task)
		return after.C[model.CountMemoryAnon].Value >= growBytes
	})
	// The kernel charges 64 pages ahead for each CPU, which may stand in what was before.
	if now := after.C[model.CountMemory]; now.Outcome != model.OK || now.Value < before[model.CountMemory].Value+growBytes*7/8 || now.Value > 8*growBytes {
		t.Errorf("in use are %+v, before %+v", now, before[model.CountMemory])
	}
	for _, c := range []model.TaskCounter{model.CountMemory, model.CountMemoryAnon, model.CountMemoryFile} {
		if v := b.sample(idle).C[c]; v.Outcome != model.OK || v.Value > growBytes/8 {
			t.Errorf("an empty group: %s %+v", model.TaskCounters()[c].Name, v)
		}
	}
	n := b.snap.Node.C
	if total, room := n[model.CountMemoryTotal], n[model.CountMemoryAvailable]; room.Outcome != model.OK || room.Value == 0 || room.Value > total.Value {
		t.Errorf("the machine has %+v of %+v", room, total)
	}
	if some, full := n[model.CountMemorySome], n[model.CountMemoryFull]; some.Outcome == model.OK && full.Value > some.Value {
		t.Errorf("all waited for %+v, somebody for %+v", full, some)
	}
	if a := testing.AllocsPerRun(10, func() {
		for _, w := range b.h.tasks {
			for _, r := range w.readers {
				r.observe(&after)
			}
		}
		b.h.room.observe(&b.snap.Node)
	}); a > 0 {
		t.Errorf("a reading allocates %v times", a)
	}
}

// Nobody asks: nothing is read, and nothing is open.
func TestInUseNotAsked(t *testing.T) {
	b := newBed(t, "notinuse")
	task := b.mkdir("be-1")
	b.open(false)
	b.observe(model.WindowStart)
	for c := model.CountMemory; c <= model.CountRefaults; c++ {
		if v := b.sample(task).C[c]; v != (model.Counter{}) {
			t.Errorf("%s is %+v", model.TaskCounters()[c].Name, v)
		}
	}
	if n := b.snap.Node.C; n[model.CountMemoryTotal] != (model.Counter{}) || n[model.CountMemorySome] != (model.Counter{}) || b.h.room != (room{}) {
		t.Errorf("%+v", n)
	}
}
