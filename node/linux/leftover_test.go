package linux

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// errDisk stands for EIO and ENOSPC.
var errDisk = errors.New("input/output error")

// TestRefusedAndStuck: a hold that is refused half way, and whose taking back is refused
// as well, is put back later, at growing pauses, although the ledger knows of no hold.
func TestRefusedAndStuck(t *testing.T) {
	found := shapes["nested"]
	b := newBench(t, newTree(t, found))
	b.before = func(n int, _ string) error {
		if n >= 2 {
			return errDisk
		}
		return nil
	}
	b.expect(b.k.hold(b.task, cpus(0.01)), model.Refused)
	if maps.Equal(b.limits, found) || len(b.k.j.Outstanding()) == 0 {
		t.Fatal("nothing is stuck: the test proves nothing")
	}
	tries := 0
	for at := int64(1e9); at <= 100e9; at += 1e9 {
		before := b.writes
		b.k.putBackLeftovers(at, true)
		if b.writes > before {
			tries++
		}
	}
	if tries < 4 || tries > 9 {
		t.Errorf("%d tries in 100 s; expected a pause that doubles", tries)
	}
	b.before = nil
	b.k.putBackLeftovers(1000e9, true)
	b.asFound(found)
	if n := testing.AllocsPerRun(100, func() { b.k.putBackLeftovers(2000e9, true) }); n > 0 {
		t.Errorf("%v allocations with nothing left over", n)
	}
}

// TestLeftoversWaitAlone: what the kernel refuses one task for long keeps no other waiting.
func TestLeftoversWaitAlone(t *testing.T) {
	found := shapes["nested"]
	b := newBench(t, newTree(t, found))
	other := &model.Task{Num: 2, Path: "/u", Inode: b.inodes["/u"]}
	b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
	b.expect(b.k.hold(other, cpus(0.01)), model.Applied)
	refused := "/t"
	b.before = func(_ int, path string) error {
		if strings.HasPrefix(path, refused) {
			return errDisk
		}
		return nil
	}
	b.k.disown("/t", model.CPUBandwidth)
	for at := int64(1e9); at <= 100e9; at += 1e9 {
		b.k.putBackLeftovers(at, true)
	}
	refused = "/"
	b.k.disown("/u", model.CPUBandwidth)
	refused = "/t"
	before := b.writes
	b.k.putBackLeftovers(101e9, true)
	if b.limits["/u"] != found["/u"] || b.writes > before+3 {
		t.Errorf("/u is %s after %d writes; found was %s", b.limits["/u"], b.writes-before, found["/u"])
	}
	refused = "nothing"
	b.k.putBackLeftovers(1000e9, true)
	b.asFound(found)
}

// TestStrangerSeenByRefusedRelease: a release leaves a stranger's setting to him and is then refused below it. The
// journal knows no more of that setting; yet the task is not held over it, and the caller learns of the stranger.
func TestStrangerSeenByRefusedRelease(t *testing.T) {
	found := shapes["nested"]
	for _, next := range []string{"hold", "release"} {
		t.Run(next, func(t *testing.T) {
			b := newBench(t, newTree(t, found))
			b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
			theirs := limit(300_000, 100_000, 0)
			b.limits["/t"] = theirs
			b.before = func(int, string) error { return errDisk }
			b.expect(b.k.release(b.task), model.Refused)
			b.before = nil
			if next == "hold" {
				b.expect(b.k.hold(b.task, cpus(0.005)), model.Foreign)
			} else {
				b.expect(b.k.release(b.task), model.Foreign)
			}
			if b.limits["/t"] != theirs {
				t.Errorf("the stranger's limit is %s now", b.limits["/t"])
			}
			if left := b.k.j.Of("/t", model.CPUBandwidth); len(left) > 0 {
				t.Errorf("still in the journal: %+v", left)
			}
			b.expect(b.k.hold(b.task, cpus(0.005)), model.Applied) // who was told decides anew
		})
	}
}

// TestHeldIsNoLeftover: what the ledger holds, also while a change of it or its release is
// refused, is left to the ledger.
func TestHeldIsNoLeftover(t *testing.T) {
	found := shapes["nested"]
	b := newBench(t, newTree(t, found))
	b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
	held := maps.Clone(b.limits)
	same := func(when string) {
		t.Helper()
		if items := b.k.putBackLeftovers(1e9, true); len(items) > 0 || !maps.Equal(held, b.limits) {
			t.Fatalf("%s: %+v, limits %v", when, items, b.limits)
		}
	}
	same("held")
	b.before = func(int, string) error { return errDisk }
	b.expect(b.k.hold(b.task, cpus(0.01)), model.Refused)
	same("a tighter hold was refused")
	b.expect(b.k.release(b.task), model.Refused)
	same("the release was refused")
	b.before = nil
	b.expect(b.k.release(b.task), model.Applied)
	b.asFound(found)
}

// TestLeftByAnEarlierAgent: what the journal holds from before is nobody's hold.
func TestLeftByAnEarlierAgent(t *testing.T) {
	found := shapes["nested"]
	b := newBench(t, newTree(t, found))
	b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
	left := b.k.j.Outstanding()
	j, err := journal.Continue(b.path, "boot-1", left)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // the test is over
	b.k = b.knobs(j)
	b.k.putBackLeftovers(1e9, true)
	b.asFound(found)
}

// TestStaleEntryOfThePathBefore: what the journal could not yet forget of a group that is
// gone says nothing of the one that has its path now.
func TestStaleEntryOfThePathBefore(t *testing.T) {
	b := newBench(t, newTree(t, shapes["limit, burst"]))
	b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
	// Made anew, with another limit.
	b.inodes["/t"] = 999
	b.limits["/t"] = limit(50_000, 100_000, 0)
	b.task.Inode = 999
	r := b.k.hold(b.task, cpus(0.1))
	b.expect(r, model.Applied)
	if want := setting(limit(50_000, 100_000, 0)); r.Found != want {
		t.Errorf("found %+v; expected %+v", r.Found, want)
	}
	b.expect(b.k.release(b.task), model.Applied)
	if b.limits["/t"] != limit(50_000, 100_000, 0) {
		t.Errorf("the new group was left at %s", b.limits["/t"])
	}
}

// TestStrangerInTheMidst: another program writes one of the three numbers between two of
// our writes. His stands, and nothing of ours does.
func TestStrangerInTheMidst(t *testing.T) {
	found := limit(200_000, 100_000, 50_000)
	for _, tc := range []struct {
		name  string
		write func(v *cgroup.CPUMax)
		same  func(v cgroup.CPUMax) bool // his word stands
	}{
		{"quota", func(v *cgroup.CPUMax) { v.QuotaUsec = 77_000 }, func(v cgroup.CPUMax) bool { return v.QuotaUsec == 77_000 }},
		{"period", func(v *cgroup.CPUMax) { v.PeriodUsec = 40_000 }, func(v cgroup.CPUMax) bool { return v.PeriodUsec == 40_000 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := 1; n <= 3; n++ {
				b := newBench(t, newTree(t, map[string]cgroup.CPUMax{"/t": found}))
				told := cgroup.CPUMax{}
				b.after = func(i int) {
					if i == n {
						v := b.limits["/t"]
						tc.write(&v)
						b.limits["/t"], told = v, v
					}
				}
				r := b.k.hold(b.task, cpus(0.1))
				b.after = nil
				now := b.limits["/t"]
				if r.Kind == model.Applied {
					// Our next write was of the same number: his never was to be seen.
					b.expect(b.k.release(b.task), model.Applied)
					b.asFound(map[string]cgroup.CPUMax{"/t": found})
					continue
				}
				b.expect(r, model.Foreign)
				if !tc.same(now) {
					t.Errorf("after write %d he left %s, and now there is %s", n, told, now)
				}
				ours := cpus(0.1)
				if now.QuotaUsec == ours.QuotaUsec || now.PeriodUsec == ours.PeriodUsec {
					t.Errorf("after write %d something of ours stands: %s", n, now)
				}
				if o := b.k.j.Outstanding(); len(o) > 0 {
					t.Errorf("the journal still holds %+v", o)
				}
			}
		})
	}
}

// TestStrangerPutsItBack: what was found stands there at the release, and we had written
// something else: that is a stranger's word like any other, and the ledger hears of it.
func TestStrangerPutsItBack(t *testing.T) {
	found := shapes["limit, burst"]
	b := newBench(t, newTree(t, found))
	b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
	b.limits["/t"] = found["/t"]
	r := b.k.release(b.task)
	b.expect(r, model.Foreign)
	if r.Now != setting(found["/t"]) {
		t.Errorf("now %s", r.Now)
	}
	b.asFound(found)
	// At the end it is as found, whoever wrote it; and so it is where our write did not take.
	b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
	b.limits["/t"] = found["/t"]
	if items := b.k.putBackAll(); len(items) != 1 || items[0].Kind != node.AsFound {
		t.Errorf("%+v", items)
	}
	b.k.letGo("/t", model.CPUBandwidth)
	b.expect(b.k.hold(b.task, setting(found["/t"])), model.Applied)
	b.expect(b.k.release(b.task), model.Applied)
}

// TestRenamed: a group of v1 that is renamed keeps our limit, and whoever puts things back
// finds it under its new name: when it is released, when its task is gone, after a crash.
func TestRenamed(t *testing.T) {
	found := shapes["nested"]
	for _, how := range []string{"released", "gone", "crash"} {
		b := newBench(t, newTree(t, found))
		b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
		want := b.rename(found)
		switch how {
		case "released":
			b.expect(b.k.release(b.task), model.Applied)
		case "gone":
			b.k.disown("/t", model.CPUBandwidth)
		case "crash":
			b.restoreTwice(want, how)
			continue
		}
		b.asFound(want)
		if c, err := journal.Read(b.path); err != nil || len(c.Limits) > 0 {
			t.Errorf("%s: %+v, %v", how, c, err)
		}
	}
}

// rename gives the task's groups the names that are returned, with the limits that were found.
func (b *bench) rename(found map[string]cgroup.CPUMax) (want map[string]cgroup.CPUMax) {
	want = map[string]cgroup.CPUMax{}
	for path, v := range found {
		to := strings.Replace(path, "/t", "/was-t", 1)
		want[to] = v
		if to != path {
			b.limits[to], b.inodes[to] = b.limits[path], b.inodes[path]
			delete(b.limits, path)
			delete(b.inodes, path)
		}
	}
	return want
}

// TestRenamedUnlisted: a group that has another name now is not gone because no list of groups
// could be had.
func TestRenamedUnlisted(t *testing.T) {
	found := shapes["nested"]
	b := newBench(t, newTree(t, found))
	b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
	want := b.rename(found)
	for _, b.unlisted = range []error{errDisk, &cgroup.PartialError{Err: errDisk}} {
		if items := b.k.putBackAll(); len(items) == 0 || slices.ContainsFunc(items, func(it node.Restoration) bool { return it.Kind != node.NotRestored }) {
			t.Errorf("%v: %+v", b.unlisted, items)
		}
	}
	b.unlisted = nil
	b.once = errDisk // nor because it could not be told who is at the old one
	b.k.putBackAll()
	b.k.putBackAll()
	b.asFound(want)
}

// TestRenamedStuck: what was found in a group that could not be put back, or was not yet, is known
// when the group comes as another task, under another name.
func TestRenamedStuck(t *testing.T) {
	found := shapes["nested"]
	for _, tried := range []bool{true, false} {
		b := newBench(t, newTree(t, found))
		b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
		want := b.rename(found)
		if tried {
			b.before = func(int, string) error { return errDisk }
			b.k.disown("/t", model.CPUBandwidth)
			b.before = nil
		}
		b.task.Path = "/was-t"
		r := b.k.hold(b.task, cpus(0.02))
		b.expect(r, model.Applied)
		if r.Found != setting(found["/t"]) {
			t.Errorf("found %s; expected %s", r.Found, found["/t"])
		}
		b.expect(b.k.release(b.task), model.Applied)
		b.asFound(want)
	}
}

// TestUnlistedIsNotTaken: what we left in a group under another name, and cannot find, is not taken
// for what was found there.
func TestUnlistedIsNotTaken(t *testing.T) {
	found := shapes["nested"]
	b := newBench(t, newTree(t, found))
	b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
	want := b.rename(found)
	held := maps.Clone(b.limits)
	b.task.Path, b.unlisted = "/was-t", errDisk
	b.expect(b.k.hold(b.task, cpus(0.02)), model.Refused)
	if !maps.Equal(b.limits, held) {
		t.Errorf("limits %v", b.limits)
	}
	b.unlisted = nil
	b.expect(b.k.hold(b.task, cpus(0.02)), model.Applied)
	b.expect(b.k.release(b.task), model.Applied)
	b.asFound(want)
}

// TestStrangerIsToldOfOnce: of who wrote a limit the caller knows when it lets go. That his could not
// be read just then does not make him another stranger at the next hold.
func TestStrangerIsToldOfOnce(t *testing.T) {
	b := newBench(t, newTree(t, map[string]cgroup.CPUMax{"/t": limit(200_000, 100_000, 0)}))
	b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
	his := limit(50_000, 40_000, 700)
	b.limits["/t"] = his
	b.unread = errDisk
	b.k.apply([]op{{&model.Change{Target: model.OfTask(b.task.Num), Kind: model.Disown, Value: model.Ask(model.CPUBandwidth)}, b.task}}, nil)
	b.unread = nil
	if len(b.k.j.Outstanding()) == 0 {
		t.Fatal("nothing is left over: the test proves nothing")
	}
	r := b.k.hold(b.task, cpus(0.1))
	b.expect(r, model.Applied)
	if r.Found != setting(his) {
		t.Errorf("found %s", r.Found)
	}
	b.expect(b.k.release(b.task), model.Applied)
	b.asFound(map[string]cgroup.CPUMax{"/t": his})
}

// TestStrangerAtLeftover: somebody writes where a refused hold had left a part of ours. He stands,
// and the next hold says so; the one after it is another's to ask for.
func TestStrangerAtLeftover(t *testing.T) {
	b := newBench(t, newTree(t, shapes["nested"]))
	b.before = func(n int, _ string) error {
		if n >= 2 {
			return errDisk
		}
		return nil
	}
	b.expect(b.k.hold(b.task, cpus(0.01)), model.Refused)
	b.before = nil
	if len(b.k.j.Outstanding()) == 0 {
		t.Fatal("nothing is left over: the test proves nothing")
	}
	for path := range b.limits {
		if path != "/" {
			b.limits[path] = limit(800_000, 100_000, 700)
		}
	}
	his := maps.Clone(b.limits)
	b.k.putBackLeftovers(1e9, true)
	b.expect(b.k.hold(b.task, cpus(0.01)), model.Foreign)
	b.asFound(his)
	b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
	b.expect(b.k.release(b.task), model.Applied)
	b.asFound(his)
}

// TestStrangerWritesAPart: another program writes one file of a held limit, as systemd writes
// cpu.max at daemon-reload. What it wrote stands, and the other files are as they were found;
// also when we die in the midst of that.
func TestStrangerWritesAPart(t *testing.T) {
	found := limit(200_000, 100_000, 50_000)
	for name, tc := range map[string]struct {
		flat  bool
		write func(v *cgroup.CPUMax)
		want  cgroup.CPUMax
	}{
		"v2 cpu.max":               {true, func(v *cgroup.CPUMax) { v.QuotaUsec, v.PeriodUsec = 300_000, 100_000 }, limit(300_000, 100_000, 50_000)},
		"v2 our period":            {true, func(v *cgroup.CPUMax) { v.QuotaUsec = 300_000 }, limit(300_000, 250_000, 50_000)},
		"v2 cpu.max.burst":         {true, func(v *cgroup.CPUMax) { v.BurstUsec = 1_000 }, limit(200_000, 100_000, 1_000)},
		"v1 quota":                 {false, func(v *cgroup.CPUMax) { v.QuotaUsec = 300_000 }, limit(300_000, 100_000, 50_000)},
		"v1 period":                {false, func(v *cgroup.CPUMax) { v.PeriodUsec = 40_000 }, limit(200_000, 40_000, 50_000)},
		"too little for the burst": {true, func(v *cgroup.CPUMax) { v.QuotaUsec, v.PeriodUsec = 30_000, 100_000 }, limit(30_000, 100_000, 0)},
	} {
		for _, crash := range []bool{false, true} {
			b := newBench(t, newTree(t, map[string]cgroup.CPUMax{"/t": found}))
			b.k.kinds[model.CPUBandwidth].(*bandwidth).flat = tc.flat
			b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
			v := b.limits["/t"]
			tc.write(&v)
			b.limits["/t"] = v
			if crash {
				b.before = func(int, string) error { return errDisk }
				b.k.putBackAll()
				b.before = nil
			}
			for _, it := range b.k.putBackAll() {
				if it.Kind == node.NotRestored || it.Kind == node.LeftGone {
					t.Errorf("%s: %+v", name, it)
				}
			}
			if now := b.limits["/t"]; now != tc.want || len(b.k.j.Outstanding()) > 0 {
				t.Errorf("%s, crash %t: %s; expected %s; outstanding %+v", name, crash, now, tc.want, b.k.j.Outstanding())
			}
		}
	}
}
