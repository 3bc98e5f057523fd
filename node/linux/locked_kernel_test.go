package linux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// lock takes so much anonymous memory as grow does, and locks it.
func lock(p *testchild.Parent, _ []string) error {
	p.Say("ready")
	p.Line()
	memory, err := unix.Mmap(-1, 0, growBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	if err := unix.Mlock(memory); err != nil {
		p.Say("%v", err)
		return nil
	}
	p.Say("locked")
	return p.Stay()
}

// A task that locks its pages gives hardly anything, within a bounded time, and the answer says why: on cgroup v1, that there is no such means,
// whose nearest one (memory.force_empty, which the agent does not use) takes nothing of it either.
func TestReclaimOfTheLocked(t *testing.T) {
	b := newBed(t, "locked")
	mem, err := reclaim.Open(b.fs, b.mounts)
	if err != nil {
		t.Skip("this kernel has no memory controller: ", err)
	}
	task := b.mkdir("be-1")
	b.open(false)
	child := testchild.Start(t, "lock").Await("ready")
	if err := b.cg.MovePID(task, child.PID()); err != nil {
		t.Fatal(err)
	}
	child.Say("now")
	if said := child.Line(); said != "locked" {
		t.Skip("this process may lock no memory: ", said)
	}
	meter, err := mem.OpenMeter(task)
	if err != nil {
		t.Fatal(err)
	}
	defer meter.Close() //nolint:errcheck // reading is over
	locked := func() uint64 {
		var s reclaim.Stat
		if err := meter.Stat(&s); err != nil {
			t.Fatal(err)
		}
		return s.Unevictable.Bytes
	}
	b.until("the kernel counts what is locked", func() bool { return locked() >= growBytes }) // memory.stat may be two seconds old
	b.observe(model.WindowStart)
	start := time.Now()
	b.h.Apply([]model.Change{{Seq: 11, Target: model.OfTask(b.tasks[task].Num), Kind: model.Run, Value: model.Reclaim(growBytes)}})
	var res []model.Result
	b.until("an answer", func() bool { res = b.h.Results(res); return len(res) > 0 })
	r, took := res[0], time.Since(start)
	t.Logf("%s: %d bytes in %v: %s", r.Kind, r.Now.Amount, took, r.Error)
	why := reclaim.ErrShort.Error()
	if !mem.V2() {
		why = reclaim.ErrNoReclaim.Error()
		file := filepath.Join(b.mounts.V1[cgroup.Memory], task, "memory.force_empty")
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			t.Logf("memory.force_empty: %v", err)
		}
	}
	if !strings.Contains(r.Error, why) || r.Now.Amount > growBytes/4 || took > 20*time.Second {
		t.Errorf("%+v, after %v", r, took)
	}
	if n := locked(); n < growBytes {
		t.Errorf("%d bytes are locked", n)
	}
	if n, err := meter.Current(); err != nil || n < growBytes {
		t.Errorf("%d bytes are left: %v", n, err)
	}
}
