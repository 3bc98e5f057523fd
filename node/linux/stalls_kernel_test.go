package linux

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/model"
)

// thrashBytes is more than the limit of the group in which it is read.
const (
	thrashBytes = 96 << 20
	thrashLimit = 24 << 20
)

// thrash reads a file again and again once it is told to, until it is killed, and half a minute at most.
func thrash(p *testchild.Parent, args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	p.Say("ready")
	p.Line()
	if err := f.Sync(); err != nil {
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil { // it is in memory on another group's account
		return err
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, struct{ io.Reader }{f}); err != nil {
			return err
		}
	}
	return nil
}

// groupsOf returns where groups with pressure files are made, and where the limit of memory is written: in the same group, or
// below another mount.
func groupsOf(t *testing.T, b *bed) (pressure, limit, file string) {
	t.Helper()
	name := fmt.Sprintf("/commensal-test-%d-pressed", os.Getpid())
	pressure = b.mounts.Unified + name
	if limit, file = pressure, "memory.max"; b.mounts.V1[cgroup.Memory] != "" {
		limit, file = b.mounts.V1[cgroup.Memory]+name, "memory.limit_in_bytes"
	}
	for _, dir := range slices.Compact([]string{pressure, limit}) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("no group of this test's own: %v", err)
		}
		t.Cleanup(func() {
			err := unix.Rmdir(dir)
			for range 300 {
				if !errors.Is(err, unix.EBUSY) {
					break
				}
				time.Sleep(10 * time.Millisecond)
				err = unix.Rmdir(dir)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	return pressure, limit, file
}

// Real triggers on the pressure file of a group of the test's own: they say nothing while nobody waits, and wake whoever waits for
// them once a program of the group has to wait for memory.
func TestStallTriggersOnTheKernel(t *testing.T) {
	b := newBed(t, "stalls")
	if b.mounts.Unified == "" {
		t.Skip("no cgroup2 mount: only there groups have pressure files")
	}
	pressure, limit, bound := groupsOf(t, b)
	if err := os.WriteFile(limit+"/"+bound, fmt.Append(nil, thrashLimit), 0); err != nil {
		t.Skipf("no limit of memory: %v", err)
	}
	if _, err := psi.OfGroup(b.fs, pressure).Read(psi.Memory); err != nil {
		t.Skipf("no pressure file: %v", err)
	}
	data := filepath.Join(rigtest.DiskDir(t), "data")
	if err := os.WriteFile(data, make([]byte, thrashBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	b.inUse = true
	b.mkdir("be-1")
	b.open(false)
	b.h.opt.Stalls = func(some, full float64) (StallSource, error) {
		return watchStalls(some, full, func(kind psi.Kind, stall, window time.Duration) (waiter, error) {
			return psi.OfGroup(b.fs, pressure).OpenTrigger(psi.Memory, kind, stall, window)
		})
	}
	if err := b.h.Watch(0.001, 0.001); err != nil {
		t.Skipf("arming triggers is not allowed here: %v", err)
	}
	select {
	case <-b.h.Stalls():
		t.Error("it is woken although nobody runs")
	case <-time.After(300 * time.Millisecond):
	}
	child := testchild.Start(t, "thrash "+data).Await("ready")
	for _, dir := range slices.Compact([]string{pressure, limit}) {
		if err := os.WriteFile(dir+"/cgroup.procs", fmt.Append(nil, child.PID()), 0); err != nil {
			t.Fatal(err)
		}
	}
	child.Say("now")
	select {
	case <-b.h.Stalls():
	case <-time.After(20 * time.Second):
		p, err := psi.OfGroup(b.fs, pressure).Read(psi.Memory)
		t.Fatalf("nobody is woken; %+v, %v", p, err)
	}
}

// A look on the running kernel says of the machine and of best-effort tasks what a reading says, and allocates nothing.
func TestLookOnTheKernel(t *testing.T) {
	b := newBed(t, "look")
	if b.mounts.V1[cgroup.Memory] == "" && !slices.Contains(b.mounts.UnifiedControllers, cgroup.Memory) {
		t.Skip("this kernel has no memory controller")
	}
	task := b.mkdir("be-1")
	b.mkdir("victim")
	b.inUse = true
	b.open(false)
	child := testchild.Start(t, "grow").Await("ready")
	if err := b.cg.MovePID(task, child.PID()); err != nil {
		t.Fatal(err)
	}
	child.Say("now")
	child.Await("grown")
	b.observe(model.WindowStart)
	var l model.Look
	b.h.Look(&l)
	if n := l.Node.C; n[model.CountMemoryTotal].Outcome != model.OK || n[model.CountMemoryAvailable].Value == 0 || n[model.CountBusy].Outcome == model.OK {
		t.Errorf("%+v", n)
	}
	if len(l.Tasks) != 1 || l.Tasks[0].Num != b.sample(task).Num || l.Tasks[0].Bytes < growBytes {
		t.Errorf("%+v", l.Tasks)
	}
	if a := testing.AllocsPerRun(10, func() { b.h.Look(&l) }); a > 0 {
		t.Errorf("a look allocates %v times", a)
	}
	// A file that cannot be read for some time is missing, and not zero.
	file := b.h.room.memory
	b.h.room.memory = nil
	if b.h.Look(&l); l.Node.C[model.CountMemoryTotal] != (model.Counter{}) {
		t.Errorf("%+v", l.Node.C)
	}
	b.h.room.memory = file
	if b.h.Look(&l); l.Node.C[model.CountMemoryTotal].Outcome != model.OK {
		t.Errorf("%+v", l.Node.C)
	}
}
