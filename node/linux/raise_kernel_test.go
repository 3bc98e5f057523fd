package linux

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// These tests raise real tasks on the running kernel, on cgroup v1 and v2 alike.

// pod makes an LC task with groups that have limits of their own, as a pod's containers do,
// and one that was given to another user.
func (b *bed) pod() (task string, found map[string]cgroup.CPUMax) {
	b.t.Helper()
	found = map[string]cgroup.CPUMax{}
	for name, v := range map[string]cgroup.CPUMax{
		"victim": limit(20_000, 100_000, 0), "victim/a": limit(10_000, 50_000, 0), "victim/a/x": limit(4_000, 100_000, 4_000),
		"victim/b": free, "victim/c": limit(5_000, 100_000, 0), "victim/d": limit(10_000, 100_000, 0), "victim/d/x": limit(5_000, 100_000, 0),
	} {
		found[b.root+"/"+name] = v
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		b.mkdir(strings.TrimPrefix(path, b.root+"/"))
		b.setLimit(path, found[path])
	}
	dir := b.mounts.V1[cgroup.CPU]
	if b.flat() {
		dir = b.mounts.Unified
	}
	if err := os.Chown(dir+b.root+"/victim/d", 1234, 1234); err != nil {
		b.t.Fatal(err)
	}
	return b.root + "/victim", found
}

// A raise is written as it is, and carries along what would bound it below; what somebody
// else manages is left. It can be changed, capped meanwhile, and put back.
func TestRaiseOnTheKernel(t *testing.T) {
	b := newBed(t, "raise")
	task, found := b.pod()
	b.open(false)
	b.observe(0)
	b.spin(task + "/a/x")
	set := func(v cgroup.CPUMax, below map[string]cgroup.CPUMax) {
		t.Helper()
		r := b.apply(model.Set, task, setting(v), model.Applied)
		if r.Found != setting(found[task]) || r.Now != setting(v) {
			t.Errorf("raised to %s: %+v", v, r)
		}
		want := maps.Clone(found)
		want[task] = v
		for name, v := range below {
			want[task+name] = v
		}
		b.same("raised to "+v.String(), want)
	}
	// Twice the quota: the first below gets all of the task's, which is twice of what it had.
	set(limit(40_000, 100_000, 0), map[string]cgroup.CPUMax{"/a": limit(20_000, 50_000, 0), "/a/x": limit(8_000, 100_000, 4_000), "/c": limit(10_000, 100_000, 0)})
	// With a burst, whose share of the quota is carried along as well.
	set(limit(40_000, 100_000, 40_000), map[string]cgroup.CPUMax{"/a": limit(20_000, 50_000, 20_000), "/a/x": limit(8_000, 100_000, 8_000), "/c": limit(10_000, 100_000, 10_000)})
	// Both down together, below the burst that stood there.
	set(limit(30_000, 100_000, 15_000), map[string]cgroup.CPUMax{"/a": limit(15_000, 50_000, 7_500), "/a/x": limit(6_000, 100_000, 4_000), "/c": limit(7_500, 100_000, 3_750)})
	// Burst alone.
	set(limit(20_000, 100_000, 10_000), map[string]cgroup.CPUMax{"/a": limit(10_000, 50_000, 5_000), "/c": limit(5_000, 100_000, 2_500)})
	// A cap on the same task goes before, and is of what was found.
	b.apply(model.Hold, task, cpus(0.05), model.Applied)
	b.held("capped", task, cgroup.CPUMax(cpus(0.05).CPUMax), found)
	set(limit(60_000, 100_000, 0), map[string]cgroup.CPUMax{"/a": limit(30_000, 50_000, 0), "/a/x": limit(12_000, 100_000, 4_000), "/c": limit(15_000, 100_000, 0)})
	b.apply(model.Release, task, model.Setting{}, model.Applied)
	b.same("released", found)
	if o := b.h.knobs.j.Outstanding(); len(o) > 0 {
		t.Errorf("the journal still holds %+v", o)
	}
}

// refusedRaise fails unless a raise is refused in certain words and leaves nothing.
func (b *bed) refusedRaise(task string, v cgroup.CPUMax, found map[string]cgroup.CPUMax, says ...string) {
	b.t.Helper()
	r := b.apply(model.Set, task, setting(v), model.Refused)
	for _, s := range says {
		if !strings.Contains(r.Error, s) {
			b.t.Errorf("%s is refused with %q, which lacks %q", v, r.Error, s)
		}
	}
	b.same("refused "+v.String(), found)
	if o := b.h.knobs.j.Outstanding(); len(o) > 0 {
		b.t.Errorf("refused, and the journal holds %+v", o)
	}
}

// A raise that a group above leaves no room for is refused alike where the kernel says no
// (v1) and where it would take it without effect (v2); below the kernel's minimum, and above
// its bound of a burst, with its own errno. Nothing remains of any.
func TestRefusedRaises(t *testing.T) {
	b := newBed(t, "norm")
	task, found := b.pod()
	b.setLimit(b.root, limit(30_000, 100_000, 0))
	b.open(false)
	b.observe(0)
	b.refusedRaise(task, limit(40_000, 100_000, 0), found, b.root, "30000/100000")
	b.refusedRaise(task, limit(500, 100_000, 0), found, "invalid argument")
	b.refusedRaise(task, limit(0, 100_000, 0), found, "invalid argument")
	b.refusedRaise(task, limit(20_000, 500, 0), found)
	b.apply(model.Set, task, setting(limit(30_000, 100_000, 0)), model.Applied)
	b.apply(model.Release, task, model.Setting{}, model.Applied)
	b.same("released", found)

	probe := b.mkdir("probe")
	b.setLimit(probe, limit(20_000, 100_000, 0))
	if err := b.cg.WriteCPUMax(probe, limit(20_000, 100_000, 20_001)); err == nil {
		t.Skip("this kernel takes a burst above the quota")
	}
	b.refusedRaise(task, limit(20_000, 100_000, 20_001), found, "invalid argument")
	b.refusedRaise(task, limit(25_000, 100_000, 25_001), found, "invalid argument")
	// Of a task that is raised already the raise stays as it was.
	b.apply(model.Set, task, setting(limit(24_000, 100_000, 0)), model.Applied)
	was := map[string]cgroup.CPUMax{}
	for path := range found {
		was[path] = b.limit(path)
	}
	b.apply(model.Set, task, setting(limit(28_000, 100_000, 28_001)), model.Refused)
	b.same("refused while raised", was)
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Outcome != model.OK || k[0].Value != setting(limit(24_000, 100_000, 0)) {
		t.Errorf("knobs read %+v", k)
	}
	b.apply(model.Release, task, model.Setting{}, model.Applied)
	b.same("released at last", found)
}

// A runtime that rewrites the quota of a raised task is told and left.
func TestForeignWriterOfARaise(t *testing.T) {
	b := newBed(t, "stranger")
	task, found := b.pod()
	b.open(false)
	b.observe(0)
	b.apply(model.Set, task, setting(limit(40_000, 100_000, 0)), model.Applied)
	stranger := limit(50_000, 100_000, 0)
	b.setLimit(task, stranger)
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Value != setting(stranger) || k[0].Outcome != model.OK {
		t.Errorf("knobs read %+v", k)
	}
	b.apply(model.Set, task, setting(limit(60_000, 100_000, 0)), model.Foreign)
	found[task] = stranger
	b.same("after the stranger", found)
}

// A stranger's burst that only the raised quota had room for is lowered with it, which is said: the kernel
// takes the quota that was found in no other way.
func TestForeignBurstOverARaise(t *testing.T) {
	b := newBed(t, "burst")
	task, found := b.pod()
	b.open(false)
	b.observe(0)
	b.apply(model.Set, task, setting(limit(60_000, 50_000, 0)), model.Applied)
	b.setLimit(task, limit(60_000, 50_000, 50_000))
	r := b.apply(model.Release, task, model.Setting{}, model.Foreign)
	found[task] = limit(20_000, 100_000, 20_000)
	if b.limit(task).BurstUsec == 50_000 {
		found[task] = limit(20_000, 100_000, 50_000) // a kernel that takes it
	} else if !strings.Contains(r.Error, "no burst of 50000 us") {
		t.Errorf("a burst was lowered, and it is not said: %+v", r)
	}
	b.same("released", found)
	if o := b.h.knobs.j.Outstanding(); len(o) > 0 {
		t.Errorf("the journal still holds %+v", o)
	}
}
