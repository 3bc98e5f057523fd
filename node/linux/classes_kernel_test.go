package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// classBed is a bed on a kernel with resctrl, which is mounted for the test: a service, and two BE tasks of one
// thread or more.
type classBed struct {
	*bed
	victim, first, second string
	pids                  map[string]int
	seq                   uint64
}

func newClassBed(t *testing.T, name string) *classBed { return newCountedBed(t, name, false) }

// newCountedBed is such a bed, whose tasks are counted or not.
func newCountedBed(t *testing.T, name string, counted bool) *classBed {
	rigtest.NeedRDT(t)
	if !rigtest.Inside() {
		t.Skip("resctrl is mounted and unmounted: only in the rig")
	}
	if err := resctrl.Mount(resctrl.DefaultPoint, resctrl.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := resctrl.Unmount(resctrl.DefaultPoint); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	})
	b := &classBed{bed: newBed(t, name), pids: map[string]int{}}
	b.victim, b.first, b.second = b.mkdir("victim"), b.mkdir("be-1"), b.mkdir("be-2")
	for _, path := range []string{b.victim, b.first, b.second} {
		b.pids[path] = b.spin(path).PID()
	}
	b.classes, b.counted = true, counted
	b.open(false)
	b.until("the machine's classes are known", func() bool {
		b.observe(0)
		return b.h.classes.told != nil
	})
	return b
}

// ask hands changes in and waits for their results.
func (b *classBed) ask(want model.ResultKind, changes ...model.Change) (got []model.Result) {
	b.t.Helper()
	for i := range changes {
		b.seq++
		changes[i].Seq = b.seq
	}
	b.h.Apply(changes)
	b.until("the changes are done", func() bool {
		got = b.h.Results(got)
		return len(got) >= len(changes)
	})
	for i := range got {
		if got[i].Kind != want {
			b.t.Errorf("%+v; want %s", got[i], want)
		}
	}
	return got
}

func (b *classBed) into(path string) model.Change {
	return model.Change{Target: model.OfTask(b.tasks[path].Num), Kind: model.Set, Value: model.InClass(model.ClassBE)}
}

func (b *classBed) outOf(path string) model.Change {
	return model.Change{Target: model.OfTask(b.tasks[path].Num), Kind: model.Release, Value: model.Ask(model.ServiceClass)}
}

// limit is a change of the class in the domain 0.
func limitOf(kind model.ChangeKind, v model.Setting) model.Change {
	return model.Change{Target: model.Target{Scope: model.ScopeCLOS, Num: model.ClassBE}, Kind: kind, Value: v}
}

// groupsOf are the names of the control groups that the kernel has.
func (b *classBed) groupsOf() (names []string) {
	b.t.Helper()
	list, err := os.ReadDir(resctrl.DefaultPoint)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), resctrl.DefaultPrefix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// at is the group that a task's process is in, as the kernel says it.
func (b *classBed) at(path string) string {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cpu_resctrl_groups", b.pids[path]))
	if err != nil {
		b.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(strings.TrimPrefix(line, "res:"), "/")
}

// says is what the kernel says of a group.
func (b *classBed) says(group string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(resctrl.DefaultPoint, group, "schemata"))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), " ", "")
}

// TestClassesOnTheKernel: tasks are put into a class that has two ways, whoever comes after a crash gives all back, and
// so does a release.
func TestClassesOnTheKernel(t *testing.T) {
	b := newClassBed(t, "classes")
	have := b.h.classes.told
	if len(have.Caches) == 0 || have.Ways < 4 || have.Least < 1 {
		t.Fatalf("the machine has %+v", have)
	}
	hold := func() string {
		t.Helper()
		got := b.ask(model.Applied, b.into(b.first), b.into(b.second), limitOf(model.Hold, model.Ways(2)))
		group := b.groupsOf()
		if len(group) != 1 || b.at(b.first) != group[0] || b.at(b.second) != group[0] || b.at(b.victim) != "" {
			t.Fatalf("groups %q; the tasks are in %q, %q, the service in %q", group, b.at(b.first), b.at(b.second), b.at(b.victim))
		}
		if says := b.says(group[0]); !strings.Contains(says, "L3:0=") || resctrlWays(t, says) != 2 || got[2].Now != model.Ways(2) {
			t.Errorf("%q, %+v", says, got[2])
		}
		return group[0]
	}
	gone := func(when string) {
		t.Helper()
		if left := b.groupsOf(); len(left) > 0 || b.at(b.first) != "" || b.at(b.second) != "" {
			t.Errorf("%s: left %q; the tasks are in %q, %q", when, left, b.at(b.first), b.at(b.second))
		}
	}
	hold()
	if rep := b.restart(); !rep.Complete() || rep.Count(node.Restored) != 1 {
		t.Errorf("%+v", rep)
	}
	gone("after a crash")
	b.h.classes.worker.groups = map[model.TaskNum]*classGroup{} // as a new agent begins
	clear(b.h.classes.noted)
	group := hold()
	// A process that is started in the task's group follows at the next look.
	newcomer := b.spin(b.first).PID()
	b.h.discovered = 0
	b.until("a newcomer follows", func() bool {
		b.observe(0)
		b.h.Results(nil)
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cpu_resctrl_groups", newcomer))
		return err == nil && strings.Contains(string(text), group)
	})
	b.ask(model.Applied, b.outOf(b.first))
	if b.at(b.first) != "" || b.at(b.second) != group {
		t.Errorf("one is given back: the tasks are in %q, %q", b.at(b.first), b.at(b.second))
	}
	b.ask(model.Applied, b.outOf(b.second), limitOf(model.Release, model.Ask(model.CacheWays)))
	gone("released")
	hold()
	if rep, err := b.h.Restore(); err != nil || !rep.Complete() {
		t.Errorf("%+v, %v", rep, err)
	}
	gone("ended")
}

// resctrlWays counts the ways of the domain 0 in a text of schemata without blanks.
func resctrlWays(t *testing.T, text string) int {
	t.Helper()
	return resctrlMask(t, text).Ways()
}

// resctrlMask are those ways.
func resctrlMask(t *testing.T, text string) resctrl.Mask {
	t.Helper()
	s, err := resctrl.ParseSchemata(text)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := s.Get(resctrl.L3, 0)
	return resctrl.Mask(v)
}

// TestStrangersAtResctrl: another program's group, its lock on resctrl and its unmounting are told in words; what is
// its own stays, and no pulse waits.
func TestStrangersAtResctrl(t *testing.T) {
	b := newClassBed(t, "strangers")
	his := filepath.Join(resctrl.DefaultPoint, "COS1")
	if err := os.Mkdir(his, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(his) }) // with the mount, at the latest
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", b.pids[b.first]))
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range threads {
		if err := os.WriteFile(his+"/tasks", []byte(tid.Name()), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.ask(model.Refused, b.into(b.first)); !strings.Contains(got[0].Error, "other programs") {
		t.Errorf("%q", got[0].Error)
	}
	b.ask(model.Applied, b.into(b.second), limitOf(model.Hold, model.Ways(2)))
	// Somebody holds the lock on resctrl and gives it back only after it was waited for in vain.
	dir, err := os.Open(resctrl.DefaultPoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.seq++
	release := b.outOf(b.second)
	release.Seq = b.seq
	b.h.Apply([]model.Change{release})
	if took := time.Since(began); took > resctrl.DefaultLockWait/2 {
		t.Errorf("the loop waited for %s", took)
	}
	var got []model.Result
	b.until("the lock was waited for", func() bool { got = b.h.Results(got); return len(got) > 0 })
	if got[0].Kind != model.Refused || !strings.Contains(got[0].Error, "locked") || b.at(b.second) == "" {
		t.Errorf("%+v; the task is in %q", got[0], b.at(b.second))
	}
	if err := errors.Join(unix.Flock(int(dir.Fd()), unix.LOCK_UN), dir.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(resctrl.DefaultPoint, b.at(b.second), "schemata"), []byte("L3:0=f0\n"), 0); err != nil {
		t.Fatal(err)
	}
	told := func(what string, of model.Target) model.Setting {
		t.Helper()
		var v *model.Setting
		b.until(what, func() bool {
			b.h.discovered = 0
			b.observe(0)
			b.h.Results(nil)
			for _, r := range b.h.Knobs(nil) {
				if r.Target == of {
					v = &r.Value
				}
			}
			return v != nil
		})
		return *v
	}
	if v := told("his mask is told", limitOf(model.Hold, model.Ways(2)).Target); v != model.Ways(4) {
		t.Errorf("his mask is told as %s", v)
	}
	b.until("it is unmounted", func() bool { // EBUSY while the host's last look reads
		err := resctrl.Unmount(resctrl.DefaultPoint)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
		return err == nil
	})
	if v := told("that it is unmounted is told", model.OfTask(b.tasks[b.second].Num)); v != model.InClass(model.ClassFound) {
		t.Errorf("that is told as %s", v)
	}
	if rep, err := b.h.Restore(); err != nil || !rep.Complete() {
		t.Errorf("%+v, %v", rep, err)
	}
}

// TestServicesApartOnTheKernel: services have the ways that BE has not, in a class of their own, and the root group keeps all;
// whoever comes after a crash gives all of it back, and so does a release.
func TestServicesApartOnTheKernel(t *testing.T) {
	b := newClassBed(t, "apart")
	have := b.h.classes.told
	of := func(c model.Change) model.Change {
		c.Num = model.ClassLC
		return c
	}
	service := model.OfTask(b.tasks[b.victim].Num)
	hold := func() {
		t.Helper()
		b.ask(model.Applied, b.into(b.first), b.into(b.second), limitOf(model.Hold, model.Ways(2)))
		got := b.ask(model.Applied, model.Change{Target: service, Kind: model.Set, Value: model.InClass(model.ClassLC)},
			of(limitOf(model.Hold, model.Ways(int64(have.Ways)-2))))
		groups, be, lc := b.groupsOf(), b.at(b.first), b.at(b.victim)
		if len(groups) != 2 || be == "" || lc == "" || be == lc || b.at(b.second) != be || !strings.HasPrefix(lc, "commensal-lc-") {
			t.Fatalf("groups %q; BE is in %q, %q, the service in %q", groups, be, b.at(b.second), lc)
		}
		masks := [3]resctrl.Mask{resctrlMask(t, b.says(be)), resctrlMask(t, b.says(lc)), resctrlMask(t, b.says(""))}
		if masks[0]&masks[1] != 0 || masks[0]|masks[1] != masks[2] || masks[2].Ways() != have.Ways || got[1].Now != model.Ways(int64(have.Ways)-2) {
			t.Errorf("BE has %s, services %s, everybody else %s; %+v", masks[0], masks[1], masks[2], got)
		}
	}
	gone := func(when string) {
		t.Helper()
		if left := b.groupsOf(); len(left) > 0 || b.at(b.first) != "" || b.at(b.victim) != "" {
			t.Errorf("%s: left %q; BE is in %q, the service in %q", when, left, b.at(b.first), b.at(b.victim))
		}
	}
	hold()
	if rep := b.restart(); !rep.Complete() || rep.Count(node.Restored) != 2 {
		t.Errorf("%+v", rep)
	}
	gone("after a crash")
	b.h.classes.worker.groups = map[model.TaskNum]*classGroup{} // as a new agent begins
	clear(b.h.classes.noted)
	hold()
	b.ask(model.Applied, model.Change{Target: service, Kind: model.Release, Value: model.Ask(model.ServiceClass)}, of(limitOf(model.Release, model.Ask(model.CacheWays))))
	if len(b.groupsOf()) != 1 || b.at(b.victim) != "" || b.at(b.first) == "" {
		t.Errorf("services have all back: groups %q, BE is in %q, the service in %q", b.groupsOf(), b.at(b.first), b.at(b.victim))
	}
	if rep, err := b.h.Restore(); err != nil || !rep.Complete() {
		t.Errorf("%+v, %v", rep, err)
	}
	gone("ended")
}
