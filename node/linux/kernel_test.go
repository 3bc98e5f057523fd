package linux

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// These tests ask the running kernel, on cgroup v1 and v2 alike.

// A task's usage, run time and delay grow as it works; a group that goes is told, and a
// new one at its path is another task.
func TestTaskComesAndGoes(t *testing.T) {
	b := newBed(t, "life")
	path := b.mkdir("be-1")
	inner := b.mkdir("be-1/inner")
	idle := b.mkdir("victim")
	b.open(false)
	child := b.spin(inner)
	got := b.window(b.used(200*time.Millisecond, inner))
	if o := got[path]; o.CPU.Outcome != model.OK || o.CPU.V <= 0 || o.Raw[model.SourceSlowdown].Outcome == model.GoneBackwards {
		t.Errorf("a spinner in a group below: %+v", o)
	}
	if o := got[idle]; o.CPU.Outcome != model.OK || o.CPU.V != 0 || o.Raw[model.SourceSlowdown].Outcome != model.Absent {
		t.Errorf("an idle task: %+v", o)
	}
	got = b.window(b.used(200*time.Millisecond, inner))
	if o := got[path]; o.Raw[model.SourceSlowdown].Outcome != model.OK || o.Raw[model.SourceSlowdown].V < 1 || !o.ThrottledKnown || o.Throttled {
		t.Errorf("followed since the last reading: %+v", o)
	}
	first := b.tasks[path]
	child.End()
	b.rmdir(inner)
	b.rmdir(path)
	b.mkdir("be-1")
	b.observe(model.WindowStart)
	b.observe(model.WindowEnd)
	second, there := b.tasks[path]
	if !there || second.Num == first.Num || second.Inode == first.Inode || !slices.Contains(b.removed, first.Num) {
		t.Errorf("made anew: %+v, before %+v, removed %v", second, first, b.removed)
	}
}

// limitsBelow are limits of a task and of groups below it.
var limitsBelow = map[string]cgroup.CPUMax{
	"be-1": limit(160_000, 200_000, 20_000), "be-1/a": limit(50_000, 100_000, 10_000), "be-1/a/x": limit(20_000, 100_000, 20_000),
	"be-1/b": free,
}

// nestedTask makes them and returns what was found by path.
func (b *bed) nestedTask() (task string, found map[string]cgroup.CPUMax) {
	b.t.Helper()
	found = map[string]cgroup.CPUMax{}
	for _, name := range slices.Sorted(maps.Keys(limitsBelow)) {
		path := b.mkdir(name)
		b.setLimit(path, limitsBelow[name])
		found[path] = limitsBelow[name]
	}
	return b.root + "/be-1", found
}

func (b *bed) same(when string, want map[string]cgroup.CPUMax) {
	b.t.Helper()
	for path, v := range want {
		if now := b.limit(path); now != v {
			b.t.Errorf("%s: %s is %s, want %s", when, path, now, v)
		}
	}
}

// held says what a held task's groups must be: on v1 none may exceed the task's limit, on
// v2 those below are nobody's business.
func (b *bed) held(when, task string, cap cgroup.CPUMax, found map[string]cgroup.CPUMax) {
	b.t.Helper()
	want := maps.Clone(found)
	for path, v := range found {
		switch {
		case path == task:
			want[path] = cap
		case b.cg.Layout() != cgroup.LayoutV2 && v.QuotaUsec >= 0 && v.Ratio() > cap.Ratio():
			want[path] = cap
		}
	}
	b.same(when, want)
}

// A hold is in force, also on what runs below; it can be tightened and loosened, and a
// release leaves everything as it was found.
func TestHoldOnTheKernel(t *testing.T) {
	b := newBed(t, "hold")
	task, found := b.nestedTask()
	b.open(false)
	b.spin(task + "/a/x")
	b.observe(model.WindowStart)
	for _, c := range []float64{0.5, 0.01, 0.1} {
		r := b.apply(model.Hold, task, cpus(c), model.Applied)
		if r.Found != setting(found[task]) || r.Now != cpus(c) {
			t.Errorf("hold at %v: %+v", c, r)
		}
		b.held("held", task, cgroup.CPUMax(cpus(c).CPUMax), found)
	}
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Outcome != model.OK || k[0].Value != cpus(0.1) {
		t.Errorf("knobs read %+v", k)
	}
	throttled := b.window(func() bool { b.observe(0); return b.sample(task).C[model.CountThrottled].Value > 2 })[task]
	if !throttled.ThrottledKnown || !throttled.Throttled {
		t.Errorf("a spinner under 0.1 CPU: %+v", throttled)
	}
	b.apply(model.Release, task, model.Setting{}, model.Applied)
	b.same("released", found)
	// A cap above what was found leaves it.
	b.apply(model.Hold, task, cpus(1.5), model.Applied)
	b.same("held above what was found", found)
}

// What a stranger writes is told and left; what is ours elsewhere is put back.
func TestForeignWriterOnTheKernel(t *testing.T) {
	b := newBed(t, "foreign")
	task, found := b.nestedTask()
	b.open(false)
	b.observe(model.WindowStart)
	b.apply(model.Hold, task, cpus(0.05), model.Applied)
	stranger := limit(77_000, 100_000, 7_000)
	b.setLimit(task, stranger)
	r := b.apply(model.Hold, task, cpus(0.04), model.Foreign)
	if r.Now != setting(stranger) {
		t.Errorf("found %+v", r)
	}
	found[task] = stranger
	b.same("after the stranger", found)
	if k := b.h.Knobs(nil); len(k) != 0 {
		t.Errorf("still held: %+v", k)
	}
}

// Whoever comes after a crash puts back what is still ours, and what is gone is gone.
func TestRestoreOnTheKernel(t *testing.T) {
	b := newBed(t, "restore")
	task, found := b.nestedTask()
	gone, foreign := b.mkdir("be-2"), b.mkdir("be-3")
	stranger := limit(44_000, 100_000, 0)
	b.open(false)
	b.observe(model.WindowStart)
	for _, path := range []string{task, gone, foreign} {
		b.apply(model.Hold, path, cpus(0.05), model.Applied)
	}
	left, err := os.ReadFile(b.journal)
	if err != nil {
		t.Fatal(err)
	}
	b.rmdir(gone)
	b.mkdir("be-2")
	b.setLimit(gone, cgroup.CPUMax(cpus(0.05).CPUMax)) // only its inode is another one
	b.setLimit(foreign, stranger)
	rep, err := Restore(b.fs, b.journal, "another boot")
	if err != nil || !rep.Rebooted || len(rep.Items) > 0 {
		t.Errorf("after a boot: %+v %v", rep, err)
	}
	b.held("after a boot that was none", task, cgroup.CPUMax(cpus(0.05).CPUMax), found)
	if err := os.WriteFile(b.journal, left, 0o600); err != nil {
		t.Fatal(err)
	}
	if rep, err = Restore(b.fs, b.journal, boot); err != nil || !rep.Complete() {
		t.Fatalf("%+v %v", rep, err)
	}
	kinds := map[string]node.RestoreKind{}
	for _, it := range rep.Items {
		kinds[it.Path] = it.Kind
	}
	if kinds[task] != node.Restored || kinds[gone] != node.LeftGone || kinds[foreign] != node.LeftForeign {
		t.Errorf("restored %v", kinds)
	}
	found[gone], found[foreign] = cgroup.CPUMax(cpus(0.05).CPUMax), stranger
	b.same("restored", found)
	if rep, err = Restore(b.fs, b.journal, boot); err != nil || len(rep.Items) > 0 {
		t.Errorf("a second time: %+v %v", rep, err)
	}
}

// v2 returns the driver of cgroup v2, where a group may lack a controller.
func (b *bed) v2() *cgroup.V2 {
	b.t.Helper()
	d, ok := b.cg.(*cgroup.V2)
	if !ok {
		b.t.Skip("a group of cgroup v1 always has the controllers of its hierarchy")
	}
	return d
}

// A task whose cgroup has no cpu controller is watched, told by name, and can be capped
// from the discovery on that finds the controller there. The agent never enables it.
func TestNoController(t *testing.T) {
	b := newBed(t, "nocpu")
	d := b.v2()
	path := b.mkdir("be-1")
	if err := d.Disable(b.root, cgroup.CPU); err != nil {
		t.Fatal(err)
	}
	b.open(false)
	b.spin(path)
	b.window(b.used(100*time.Millisecond, path))
	o := b.window(b.used(100*time.Millisecond, path))[path]
	if o.CPU.Outcome != model.OK || o.CPU.V <= 0 || o.Raw[model.SourceSlowdown].Outcome != model.OK || !o.ThrottledKnown {
		t.Errorf("watched: %+v", o)
	}
	why := b.lacks(path, LackLimit)
	if why != "cgroup.subtree_control of "+b.root+" lacks cpu" {
		t.Errorf("lacks: %q, want the group that does not hand the controller down", why)
	}
	log := b.logs.String()
	if strings.Count(log, "cannot be limited") != 1 || !strings.Contains(log, path) {
		t.Errorf("the log names it once and no more:\n%s", log)
	}
	if r := b.apply(model.Hold, path, cpus(0.1), model.Refused); !strings.Contains(r.Error, "cpu") {
		t.Errorf("hold: %+v", r)
	}
	if on, err := d.ReadSubtreeControl(b.root); err != nil || slices.Contains(on, cgroup.CPU) {
		t.Fatalf("somebody enabled the controller: %v %v", on, err)
	}
	if err := d.Enable(b.root, cgroup.CPU); err != nil {
		t.Fatal(err)
	}
	b.observe(model.WindowStart)
	if why := b.lacks(path, LackLimit); why != "" || !strings.Contains(b.logs.String(), "CPU limit can be used again") {
		t.Errorf("enabled: %q\n%s", why, b.logs.String())
	}
	b.apply(model.Hold, path, cpus(0.1), model.Applied)
}

// A controller that goes takes the limit with it: there is nothing left to put back, and
// nothing that could stay behind.
func TestControllerGoesWhileHeld(t *testing.T) {
	b := newBed(t, "gone")
	d := b.v2()
	one, two := b.mkdir("be-1"), b.mkdir("be-2")
	b.setLimit(one, limit(90_000, 100_000, 0))
	b.open(false)
	b.observe(model.WindowStart)
	b.apply(model.Hold, one, cpus(0.05), model.Applied)
	b.apply(model.Hold, two, cpus(0.05), model.Applied)
	if err := d.Disable(b.root, cgroup.CPU); err != nil {
		t.Fatal(err)
	}
	if k := b.h.Knobs(nil); len(k) != 2 || k[0].Outcome != model.Absent {
		t.Errorf("knobs read %+v", k)
	}
	if r := b.apply(model.Hold, one, cpus(0.04), model.Refused); !strings.Contains(r.Error, "cpu") || b.lacks(one, LackLimit) == "" {
		t.Errorf("%+v, lacks %v", r, b.h.Lacks(nil))
	}
	b.apply(model.Release, one, model.Setting{}, model.Applied)
	rep, err := b.h.Restore()
	if err != nil || !rep.Complete() || len(rep.Items) != 1 || rep.Items[0].Path != two || rep.Items[0].Kind != node.LeftGone || rep.Items[0].Error == "" {
		t.Errorf("restore: %+v %v", rep, err)
	}
	if err := d.Enable(b.root, cgroup.CPU); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{one, two} {
		if v := b.limit(path); v != free {
			t.Errorf("the kernel kept %s of %s", v, path)
		}
	}
}

// On v1 a group can be renamed, in each hierarchy by itself, with our limit and our list in it.
// Both are put back under the new name, when the task is found to be gone, and after a crash.
func TestKernelRename(t *testing.T) {
	for _, how := range []string{"gone", "released", "ended", "crash"} {
		t.Run(how, func(t *testing.T) {
			b := newBed(t, "rename-"+how)
			if b.flat() {
				t.Skip("cgroup v2 renames no groups")
			}
			task, name := b.mkdir("be-0"), b.root+"/other"
			found, list := b.limit(task), b.list(task)
			one, _, _ := b.twoCPUs()
			b.open(false)
			b.observe(0)
			b.apply(model.Hold, task, cpus(0.1), model.Applied)
			b.apply(model.Set, task, b.on(one), model.Applied)
			for _, top := range b.mounts.V1 {
				if err := os.Rename(top+task, top+name); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err) // several controllers may have one hierarchy
				}
			}
			t.Cleanup(func() { b.rmdir(name) })
			if b.limit(name) == found || b.list(name) == list {
				t.Fatal("nothing of ours is in the renamed group: the test proves nothing")
			}
			switch how {
			case "gone":
				b.h.discovered = 0
				b.observe(0)
			case "released": // before anybody looked
				b.apply(model.Release, task, releasePlace, model.Applied)
				b.apply(model.Release, task, model.Ask(model.CPUBandwidth), model.Applied)
			case "ended":
				if rep, err := b.h.Restore(); err != nil || !rep.Complete() {
					t.Errorf("%+v, %v", rep, err)
				}
			case "crash":
				b.restart()
			}
			if b.limit(name) != found || b.list(name) != list {
				t.Errorf("the renamed group has %s and CPUs %s; found were %s and %s", b.limit(name), b.list(name), found, list)
			}
		})
	}
}
