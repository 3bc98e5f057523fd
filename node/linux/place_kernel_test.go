package linux

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// These tests place real tasks on the running kernel, on cgroup v1 and v2 alike.

var releasePlace = model.Ask(model.CPUPlace)

// placedTask makes a task with groups below it and returns what was found by path. On v1
// the lists are both CPUs, both, the second; on v2 none but the last has one.
func (b *bed) placedTask() (task string, found map[string]string) {
	b.t.Helper()
	_, two, both := b.twoCPUs()
	if b.flat() {
		both = ""
	}
	task = b.mkdir("be-1")
	found = map[string]string{task: both}
	for _, name := range []string{"be-1/a", "be-1/a/x", "be-1/b"} {
		found[b.mkdir(name)] = both
	}
	found[task+"/a/x"] = two
	for _, path := range slices.Sorted(maps.Keys(found)) {
		b.setList(path, found[path])
	}
	return task, found
}

// A task and what runs below it are where they are put, also where old and new have nothing
// in common; a release leaves everything as it was found.
func TestPlaceOnTheKernel(t *testing.T) {
	b := newBed(t, "place")
	one, two, both := b.twoCPUs()
	task, found := b.placedTask()
	b.open(false)
	b.observe(0)
	pid := b.spin(task + "/a/x").PID()
	for _, list := range []string{one, two, both, one} {
		r := b.apply(model.Set, task, b.on(list), model.Applied)
		if r.Found != b.on(found[task]) || r.Now != b.on(list) || r.Error != "" {
			t.Errorf("on %s: %+v", list, r)
		}
		want, runs := maps.Clone(found), two // the group's own wish, within the task's
		want[task] = list
		if !b.flat() {
			want[task+"/a"], want[task+"/b"] = list, list
			if list == one {
				want[task+"/a/x"] = one
			}
		}
		if list == one {
			runs = one
		}
		b.lists("on "+list, want)
		b.until("the process runs on "+runs, func() bool { return b.allowed(pid) == runs })
	}
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Outcome != model.OK || k[0].Value != b.on(one) {
		t.Errorf("knobs read %+v", k)
	}
	r := b.apply(model.Release, task, releasePlace, model.Applied)
	if r.Now != b.on(b.list(task)) {
		t.Errorf("released: %+v", r)
	}
	b.putBack("released", task, found)
	if o := b.h.knobs.j.Outstanding(); len(o) > 0 {
		t.Errorf("the journal still holds %+v", o)
	}
}

// putBack says what a task that has processes must be like afterwards: on v2 a list does not
// become empty again, and all CPUs that could ever be are the same.
func (b *bed) putBack(when, task string, found map[string]string) {
	b.t.Helper()
	want := maps.Clone(found)
	if b.flat() && want[task] == "" {
		if now := b.list(task); now != "" {
			m, err := cpusOfMachine(b.fs)()
			if err != nil {
				b.t.Fatal(err)
			}
			want[task] = m.possible.String()
		}
	}
	b.lists(when, want)
}

// A group that comes while its task is held copies the task's list from us. It gets what it
// would have had without.
func TestGroupMadeWhilePlaced(t *testing.T) {
	b := newBed(t, "made")
	one, _, _ := b.twoCPUs()
	task, found := b.placedTask()
	b.open(false)
	b.observe(0)
	b.apply(model.Set, task, b.on(one), model.Applied)
	late, later := b.mkdir("be-1/late"), ""
	b.apply(model.Set, task, b.on(one), model.Applied)
	later = b.mkdir("be-1/late/r")
	found[late], found[later] = found[task], found[task]
	b.apply(model.Release, task, releasePlace, model.Applied)
	b.putBack("released", task, found)

	// The same when the agent is killed, and never saw it.
	b.apply(model.Set, task, b.on(one), model.Applied)
	last := b.mkdir("be-1/last")
	found[last] = found[task]
	if rep := b.restart(); !rep.Complete() {
		t.Errorf("%+v", rep)
	}
	b.putBack("restored", task, found)
}

// What a stranger writes is told and left, in a group below the task as in its own.
func TestForeignPlaceOnTheKernel(t *testing.T) {
	for _, at := range []string{"", "/a"} {
		t.Run("at"+at, func(t *testing.T) {
			b := newBed(t, "foreign"+strings.ReplaceAll(at, "/", "-"))
			if at != "" && b.flat() {
				t.Skip("on v2 lists below a task are their own business")
			}
			one, two, both := b.twoCPUs()
			task, found := b.placedTask()
			b.open(false)
			b.observe(0)
			b.apply(model.Set, task, b.on(one), model.Applied)
			if at == "" {
				b.setList(task, both)
				if k := b.h.Knobs(nil); len(k) != 1 || k[0].Value != b.on(both) || k[0].Outcome != model.OK {
					t.Errorf("knobs read %+v", k)
				}
				found[task] = both
			} else {
				b.setList(task, both)
				b.setList(task+at, both)
				b.setList(task, both)
				found[task], found[task+at] = both, both
			}
			b.apply(model.Set, task, b.on(two), model.Foreign)
			b.lists("after the stranger", found)
			if k := b.h.Knobs(nil); len(k) != 0 {
				t.Errorf("still held: %+v", k)
			}
			// Claims may come again: his value is what is found then.
			b.apply(model.Set, task, b.on(two), model.Applied)
			b.apply(model.Release, task, releasePlace, model.Applied)
			b.lists("released", found)
		})
	}
}

// Whoever comes after a kill puts places and raises back, what a stranger wrote since stays,
// and what is gone is gone; also when the kill came between the journal and the writes.
func TestRestorePlacesAndRaises(t *testing.T) {
	b := newBed(t, "restore")
	one, _, both := b.twoCPUs()
	task, found := b.placedTask()
	gone, foreign, lc := b.mkdir("be-2"), b.mkdir("be-3"), b.mkdir("victim")
	b.setLimit(lc, limit(20_000, 100_000, 0))
	b.open(false)
	b.observe(0)
	b.spin(task + "/a/x")
	changes := []model.Change{{Seq: 1, Target: model.OfTask(b.tasks[lc].Num), Kind: model.Set, Value: setting(limit(40_000, 100_000, 20_000))}}
	for i, path := range []string{task, gone, foreign} {
		changes = append(changes, model.Change{Seq: uint64(2 + i), Target: model.OfTask(b.tasks[path].Num), Kind: model.Set, Value: b.on(one)})
	}
	for _, r := range node.Do(b.h, changes...) {
		if r.Kind != model.Applied {
			t.Fatalf("%+v", r)
		}
	}
	if v := b.limit(lc); v != limit(40_000, 100_000, 20_000) {
		t.Errorf("raised to %s", v)
	}
	b.rmdir(gone)
	b.mkdir("be-2")
	b.setList(gone, one)
	b.setList(foreign, both)
	if rep, err := (Restoring{FS: b.fs, Journal: b.journal, Boot: boot}).Run(); err != nil || !rep.Complete() {
		t.Fatalf("%+v %v", rep, err)
	} else {
		kinds := map[string]node.RestoreKind{}
		for _, it := range rep.Items {
			kinds[it.Path] = it.Kind
		}
		if kinds[task] != node.Restored || kinds[lc] != node.Restored || kinds[gone] != node.LeftGone || kinds[foreign] != node.LeftForeign && both != found[task] {
			t.Errorf("restored %v", kinds)
		}
	}
	found[gone], found[foreign] = one, both
	b.putBack("restored", task, found)
	if v := b.limit(lc); v != limit(20_000, 100_000, 0) {
		t.Errorf("the raise is %s", v)
	}
	if rep := b.restart(); len(rep.Items) > 0 {
		t.Errorf("a second time: %+v", rep)
	}
}

// A wish is cut to what the group above has and what is online; of nothing nothing is made.
func TestPlaceOutOfReach(t *testing.T) {
	b := newBed(t, "reach")
	one, two, both := b.twoCPUs()
	b.setList(b.root, one)
	path := b.mkdir("be-1")
	found := b.list(path)
	b.open(false)
	b.observe(0)
	for _, c := range []struct{ wish, says string }{
		{"", "never emptied"}, {"1000", "offline"}, {two, "CPUs " + one + " of cgroup " + b.root},
	} {
		if r := b.apply(model.Set, path, b.on(c.wish), model.Refused); !strings.Contains(r.Error, c.says) {
			t.Errorf("%q: %s", c.wish, r.Error)
		}
	}
	if now := b.list(path); now != found || len(b.h.knobs.j.Outstanding()) > 0 {
		t.Errorf("refused, and %q; journal %+v", now, b.h.knobs.j.Outstanding())
	}
	if r := b.apply(model.Set, path, b.on(both+",1000"), model.Applied); r.Now != b.on(one) || !strings.Contains(r.Error, two+",1000") {
		t.Errorf("%+v", r)
	}
	b.apply(model.Release, path, releasePlace, model.Applied)
	if now := b.list(path); now != found {
		t.Errorf("released to %q, found %q", now, found)
	}
}

// A cgroup that a runtime is just making has no CPUs yet (v1), or no directory among the
// cpusets: it is listed as Unavailable until it has.
func TestHalfMadePlace(t *testing.T) {
	b := newBed(t, "half")
	one, _, both := b.twoCPUs()
	if b.flat() {
		t.Skip("on v2 a group without a list has that of the group above")
	}
	empty, bare := b.mkdir("be-1"), b.mkdir("be-2")
	b.setList(empty, "")
	dir := b.mounts.V1[cgroup.CPUSet] + bare
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	b.open(false)
	b.h.opt.Places = true
	b.observe(0)
	for path, says := range map[string]string{empty: "no CPUs yet", bare: "no such group in the hierarchy"} {
		if r := b.setting(path, model.CPUPlace); r == nil || r.Outcome != model.Unavailable || r.Value != releasePlace {
			t.Errorf("%s is listed as %+v", path, r)
		}
		if why := b.lacks(path, LackPlace); !strings.Contains(why, says) {
			t.Errorf("%s lacks %q", path, why)
		}
		b.apply(model.Set, path, b.on(one), model.Refused)
	}
	b.observe(0)
	if n := strings.Count(b.logs.String(), "cannot be kept to CPUs"); n != 2 || len(b.snap.Settings) > 0 {
		t.Errorf("told %d times; listed again: %+v\n%s", n, b.snap.Settings, b.logs.String())
	}
	b.setList(empty, both)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.setList(bare, one)
	b.observe(0)
	for path, list := range map[string]string{empty: both, bare: one} {
		if r := b.setting(path, model.CPUPlace); r == nil || r.Outcome != model.OK || r.Value != b.on(list) || b.lacks(path, LackPlace) != "" {
			t.Errorf("%s is listed as %+v, lacks %q", path, r, b.lacks(path, LackPlace))
		}
		b.apply(model.Set, path, b.on(one), model.Applied)
	}
}

// setting returns what the last snapshot lists of a task's knob.
func (b *bed) setting(path string, kind model.KnobKind) *model.KnobReading {
	i := slices.IndexFunc(b.snap.Settings, func(r model.KnobReading) bool {
		return r.Task() == b.tasks[path].Num && r.Value.Knob == kind
	})
	if i < 0 {
		return nil
	}
	return &b.snap.Settings[i]
}

// Settings are listed when they are not held and differ from what was listed last.
func TestSettingsAreListedOnChange(t *testing.T) {
	b := newBed(t, "settings")
	one, _, both := b.twoCPUs()
	lc, be := b.mkdir("victim"), b.mkdir("be-1")
	b.setLimit(lc, limit(20_000, 100_000, 0))
	b.setList(lc, both)
	b.setList(be, both)
	b.open(false)
	expect := func(when string, want ...model.Setting) {
		t.Helper()
		b.observe(0)
		var got []model.Setting
		for _, r := range b.snap.Settings {
			if r.Outcome != model.OK {
				t.Errorf("%s: %+v", when, r)
			}
			got = append(got, r.Value)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: listed %v, want %v", when, got, want)
		}
	}
	order := []model.Setting{b.on(both), setting(limit(20_000, 100_000, 0)), b.on(both)}
	if b.tasks[lc].Num < b.tasks[be].Num {
		order = []model.Setting{setting(limit(20_000, 100_000, 0)), b.on(both), b.on(both)}
	}
	b.observe(0)
	if len(b.snap.Settings) != len(order) || b.snap.Topology == nil {
		t.Fatalf("first: %+v, topology %v", b.snap.Settings, b.snap.Topology)
	}
	expect("nothing changed")
	if b.snap.Topology != nil {
		t.Error("the topology was listed again")
	}
	b.setList(be, one)
	expect("somebody wrote it", b.on(one))
	b.apply(model.Set, be, b.on(both), model.Applied)
	expect("held")
	b.apply(model.Release, be, releasePlace, model.Applied)
	expect("released", b.on(one))
	b.apply(model.Set, lc, setting(limit(30_000, 100_000, 0)), model.Applied)
	expect("raised")
	node.Do(b.h, model.Change{Target: model.OfTask(b.tasks[lc].Num), Kind: model.Disown})
	expect("disowned", setting(limit(20_000, 100_000, 0)))
}

// A task that forks without end is where it was put, to the last process.
func TestPlaceWhileForking(t *testing.T) {
	b := newBed(t, "fork")
	one, two, _ := b.twoCPUs()
	task := b.mkdir("be-1")
	b.open(false)
	b.observe(0)
	child := testchild.Start(t, "forks")
	if err := b.cg.MovePID(task, child.PID()); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Second)
	for i := 0; i < 40 || time.Now().Before(end); i++ {
		b.apply(model.Set, task, b.on([]string{one, two}[i%2]), model.Applied)
		if i > 2000 {
			break
		}
	}
	b.apply(model.Set, task, b.on(two), model.Applied)
	b.until("the processes that were seen run on "+two, func() bool {
		pids, err := b.cg.Procs(task)
		if err != nil {
			t.Fatal(err)
		}
		return len(pids) > 0 && b.allAllowed(pids, two)
	})
	child.End()
	b.until("the task is empty", func() bool {
		pids, err := b.cg.Procs(task)
		return err == nil && len(pids) == 0 || errors.Is(err, cgroup.ErrVanished)
	})
	b.apply(model.Release, task, releasePlace, model.Applied)
}

// allAllowed says whether all of the processes that are still there may use just a list.
func (b *bed) allAllowed(pids []int32, list string) bool {
	for _, pid := range pids {
		if now := b.allowed(int(pid)); now != "" && now != list {
			return false
		}
	}
	return true
}

// A group that is made anew at a held task's path is another one: it is not written, and its
// list is none of ours.
func TestPlaceMadeAnew(t *testing.T) {
	b := newBed(t, "anew")
	one, two, both := b.twoCPUs()
	path := b.mkdir("be-1")
	b.open(false)
	b.observe(0)
	b.apply(model.Set, path, b.on(one), model.Applied)
	b.rmdir(path)
	b.mkdir("be-1")
	b.setList(path, both)
	if k := b.h.Knobs(nil); len(k) != 1 || k[0].Outcome != model.Unavailable {
		t.Errorf("knobs read %+v", k)
	}
	b.apply(model.Set, path, b.on(two), model.Vanished)
	if now := b.list(path); now != both || len(b.h.knobs.j.Outstanding()) > 0 {
		t.Errorf("the new one is %q; journal %+v", now, b.h.knobs.j.Outstanding())
	}
}
