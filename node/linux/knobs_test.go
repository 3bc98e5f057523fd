package linux

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// errInvalid is the kernel's no.
var errInvalid error = unix.EINVAL

// crash is what the fake panics with where a test ends the process.
type crash struct{}

// tree is a fake cgroup v1 hierarchy that enforces the kernel's rules of CFS bandwidth on
// every single file that is written: quota >= 1000, 1000 <= period <= 1000000, burst <=
// quota, and no ratio above that of the nearest ancestor with a quota or below that of a
// descendant with one. What it does not verify: that the real kernel has no other rules;
// kernel/cgroup and the tests on real cgroups do that.
type tree struct {
	t      *testing.T
	limits map[string]cgroup.CPUMax
	inodes map[string]uint64
	writes int
	before func(n int, path string) error // called before each write of a file; may panic
	after  func(n int)
	// unlisted is why groups cannot be listed, unread why limits cannot be read.
	unlisted, unread error
	once             error // of the next look which group is at a path
}

func newTree(t *testing.T, limits map[string]cgroup.CPUMax) *tree {
	f := &tree{t: t, limits: maps.Clone(limits), inodes: map[string]uint64{}}
	for i, p := range slices.Sorted(maps.Keys(limits)) {
		f.inodes[p] = uint64(100 + i)
	}
	return f
}

func (f *tree) Inode(path string) (uint64, error) {
	if err := f.once; err != nil {
		f.once = nil
		return 0, err
	}
	ino, ok := f.inodes[path]
	if !ok {
		return 0, fmt.Errorf("%s: %w", path, cgroup.ErrVanished)
	}
	return ino, nil
}

func (f *tree) ReadCPUMax(path string) (cgroup.CPUMax, error) {
	if f.unread != nil {
		return cgroup.CPUMax{}, f.unread
	}
	v, ok := f.limits[path]
	if !ok {
		return v, fmt.Errorf("%s: %w", path, cgroup.ErrVanished)
	}
	return v, nil
}

func (f *tree) Descendants(path string) ([]string, error) {
	if f.unlisted != nil {
		return nil, f.unlisted
	}
	var out []string
	for _, p := range slices.Sorted(maps.Keys(f.limits)) {
		if strings.HasPrefix(p, strings.TrimSuffix(path, "/")+"/") {
			out = append(out, p)
		}
	}
	return out, nil
}

// legal says whether the hierarchy would take v at path.
func (f *tree) legal(path string, v cgroup.CPUMax) bool {
	if v.PeriodUsec < 1000 || v.PeriodUsec > 1_000_000 || (v.QuotaUsec >= 0 && (v.QuotaUsec < 1000 || v.BurstUsec > v.QuotaUsec)) {
		return false
	}
	for p, o := range f.limits {
		up, down := strings.HasPrefix(path, p+"/"), strings.HasPrefix(p, path+"/")
		if v.QuotaUsec >= 0 && o.QuotaUsec >= 0 && (up && v.Ratio() > o.Ratio() || down && v.Ratio() < o.Ratio()) {
			return false
		}
	}
	return true
}

// put writes one file.
func (f *tree) put(path string, change func(*cgroup.CPUMax)) error {
	f.writes++
	if f.before != nil {
		if err := f.before(f.writes, path); err != nil {
			return err
		}
	}
	v := f.limits[path]
	change(&v)
	if !f.legal(path, v) {
		return fmt.Errorf("%s = %s: %w", path, v, errInvalid)
	}
	f.limits[path] = v
	if f.after != nil {
		f.after(f.writes)
	}
	return nil
}

// OpenCPUMax implements limiter: here everything is read by path.
func (f *tree) OpenCPUMax(string) (cgroup.CPUMaxReader, error) { return nil, cgroup.ErrUnsupported }

func (f *tree) Delegated(string) (bool, error) { return false, nil }

func (f *tree) CapAbove(path string) (at string, v cgroup.CPUMax, err error) {
	v = free
	for p, o := range f.limits {
		if strings.HasPrefix(path, p+"/") && v.Exceeds(o) {
			at, v = p, o
		}
	}
	return at, v, nil
}

// ChangeCPUMax writes file after file, as kernel/cgroup does.
func (f *tree) ChangeCPUMax(path string, _, to cgroup.CPUMax) error {
	from, ok := f.limits[path]
	if !ok {
		return fmt.Errorf("%s: %w", path, cgroup.ErrVanished)
	}
	quota := func(v *cgroup.CPUMax) { v.QuotaUsec = to.QuotaUsec }
	period := func(v *cgroup.CPUMax) { v.PeriodUsec = to.PeriodUsec }
	burst := func(v *cgroup.CPUMax) { v.BurstUsec = to.BurstUsec }
	if !f.legal(path, limit(to.QuotaUsec, to.PeriodUsec, 0)) { // refused before anything is written
		return fmt.Errorf("%s = %s: %w", path, to, errInvalid)
	}
	var steps []func(*cgroup.CPUMax)
	if to.BurstUsec < from.BurstUsec {
		steps = append(steps, burst)
	}
	base := cgroup.CPUMax{QuotaUsec: from.QuotaUsec, PeriodUsec: from.PeriodUsec, BurstUsec: min(from.BurstUsec, to.BurstUsec)}
	quotaFirst, periodFirst := base, base
	quotaFirst.QuotaUsec, periodFirst.PeriodUsec = to.QuotaUsec, to.PeriodUsec
	switch {
	case from.PeriodUsec == to.PeriodUsec && from.QuotaUsec == to.QuotaUsec:
	case from.PeriodUsec == to.PeriodUsec:
		steps = append(steps, quota)
	case from.QuotaUsec >= 0 && f.legal(path, quotaFirst):
		steps = append(steps, quota, period)
	case f.legal(path, periodFirst):
		steps = append(steps, period, quota)
	default: // as kernel/cgroup: through no limit at all
		lift := func(v *cgroup.CPUMax) { v.QuotaUsec = -1 }
		settle := func(v *cgroup.CPUMax) { v.QuotaUsec = to.QuotaUsec }
		steps = append(steps, lift, period, settle)
	}
	for _, s := range steps {
		if err := f.put(path, s); err != nil {
			return err
		}
	}
	if to.BurstUsec > from.BurstUsec {
		if err := f.put(path, burst); err != nil {
			return &cgroup.CPUMaxError{Path: path, File: "cpu.cfs_burst_us", Err: err}
		}
	}
	return nil
}

func limit(quota, period, burst int64) cgroup.CPUMax {
	return cgroup.CPUMax{QuotaUsec: quota, PeriodUsec: period, BurstUsec: burst}
}

// setting is a limit as the ledger has it.
func setting(v cgroup.CPUMax) model.Setting { return model.Bandwidth(model.CPUMax(v)) }

var free = limit(-1, 100_000, 0)

// shapes are the trees that the tests run on; the task is /t.
var shapes = map[string]map[string]cgroup.CPUMax{
	"no limits":    {"/t": free, "/t/a": free, "/t/a/x": free},
	"limit, burst": {"/t": limit(200_000, 100_000, 50_000)},
	"nested": {
		"/t": limit(200_000, 100_000, 0), "/t/a": limit(150_000, 100_000, 20_000), "/t/a/x": free,
		"/t/a/y": limit(30_000, 50_000, 5_000), "/t/b": limit(2_000, 100_000, 0), "/u": limit(5_000, 10_000, 0),
	},
	"only children limited": {"/t": free, "/t/a": limit(90_000, 100_000, 0), "/t/a/b": limit(8_000, 10_000, 8_000), "/t/a/b/c": limit(4_000, 10_000, 0)},
	"below the cap":         {"/t": limit(4_000, 100_000, 1_000), "/t/a": limit(2_000, 100_000, 0)},
	"burst without quota":   {"/t": limit(-1, 50_000, 70_000), "/t/a": limit(40_000, 50_000, 10_000)},
}

func cpus(v float64) model.Setting {
	return model.Bandwidth(model.CPUMax{QuotaUsec: int64(v * 250_000), PeriodUsec: 250_000})
}

// bench is a task of a tree with its knobs and journal.
type bench struct {
	*tree
	task *model.Task
	k    *Knobs
	path string // of the journal
}

func newBench(t *testing.T, f *tree) *bench {
	t.Helper()
	b := &bench{tree: f, task: &model.Task{Num: 1, Path: "/t", Inode: f.inodes["/t"]}, path: filepath.Join(t.TempDir(), "journal")}
	j, err := journal.Create(b.path, "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() }) //nolint:errcheck // may be closed already
	b.k = f.knobs(j)
	return b
}

// knobs are those of a tree, of v1.
func (f *tree) knobs(j *journal.Journal) *Knobs {
	return &Knobs{cg: f, clock: RealClock{}, j: j, held: map[heldKey]*holding{}, refused: map[heldKey]bool{}, displaced: map[heldKey]bool{}, kinds: [model.NumKnobs]knob{
		model.CPUBandwidth: &bandwidth{cg: f},
		model.CPUPlace:     &place{cg: noPlaces{}, cpus: func() (machineCPUs, error) { return machineCPUs{}, errInvalid }},
		model.CPUWeight:    &weight{},
		model.GroupFreeze:  &freezing{},
		model.IOMaxKnob:    &ioMax{no: cgroup.ErrUnsupported},
		model.MemoryHigh:   &memoryHigh{no: cgroup.ErrUnsupported},
	}}
}

// noPlaces is a kernel without cpusets.
type noPlaces struct{}

func (noPlaces) PlaceInode(string) (uint64, error)        { return 0, cgroup.ErrUnsupported }
func (noPlaces) PlacesBelow(string) ([]string, error)     { return nil, cgroup.ErrUnsupported }
func (noPlaces) ReadCPUs(string) (string, error)          { return "", cgroup.ErrUnsupported }
func (noPlaces) ReadEffectiveCPUs(string) (string, error) { return "", cgroup.ErrUnsupported }
func (noPlaces) OpenCPUs(string) (cgroup.CPUList, error)  { return nil, cgroup.ErrUnsupported }
func (noPlaces) WriteCPUs(string, string) error           { return cgroup.ErrUnsupported }

// one carries out one change.
func (k *Knobs) one(t *model.Task, kind model.ChangeKind, v model.Setting) model.Result {
	return k.apply([]op{{&model.Change{Target: model.OfTask(t.Num), Kind: kind, Value: v}, t}}, nil)[0]
}

func (k *Knobs) hold(t *model.Task, v model.Setting) model.Result { return k.one(t, model.Hold, v) }

func (k *Knobs) release(t *model.Task) model.Result {
	return k.one(t, model.Release, model.Setting{})
}

func (b *bench) expect(r model.Result, kind model.ResultKind) {
	b.t.Helper()
	if r.Kind != kind {
		b.t.Fatalf("%s (%s), want %s; limits %v", r.Kind, r.Error, kind, b.limits)
	}
}

func (b *bench) asFound(found map[string]cgroup.CPUMax) {
	b.t.Helper()
	if !maps.Equal(b.limits, found) {
		b.t.Fatalf("limits %v\nfound  %v", b.limits, found)
	}
	if o := b.k.j.Outstanding(); len(o) > 0 {
		b.t.Fatalf("the journal still holds %+v", o)
	}
}

func TestHoldTighterLooserRelease(t *testing.T) {
	for name, found := range shapes {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newTree(t, found))
			for _, c := range []float64{0.5, 0.1, 0.01, 0.1, 1.5, 0.02} {
				r := b.k.hold(b.task, cpus(c))
				b.expect(r, model.Applied)
				want := min(c, model.CPUMax(found["/t"]).Ratio())
				if got := r.Now.Ratio(); got != want || setting(b.limits["/t"]) != r.Now || r.Found != setting(found["/t"]) {
					t.Fatalf("cap %v: %+v, limit %v", c, r, b.limits["/t"])
				}
				for p, v := range b.limits {
					if strings.HasPrefix(p, "/t/") && v.Ratio() > model.CPUMax(found[p]).Ratio() {
						t.Fatalf("%s is %s, it was %s", p, v, found[p])
					}
				}
				writes := b.writes
				b.expect(b.k.hold(b.task, cpus(c)), model.Applied)
				if b.writes != writes {
					t.Fatalf("the same cap again was written")
				}
			}
			r := b.k.release(b.task)
			b.expect(r, model.Applied)
			b.asFound(found)
			b.expect(b.k.release(b.task), model.Applied)
		})
	}
}

// A first hold that is refused at any write leaves nothing of ours.
func TestRefusedMidPlanLeavesNothing(t *testing.T) {
	for name, found := range shapes {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				b := newBench(t, newTree(t, found))
				b.before = func(i int, _ string) error {
					if i == n {
						return errInvalid
					}
					return nil
				}
				r := b.k.hold(b.task, cpus(0.01))
				if b.writes < n {
					b.expect(r, model.Applied)
					return
				}
				b.expect(r, model.Refused)
				b.asFound(found)
			}
		})
	}
}

// A tighter hold that is refused at any write can still be released.
func TestRefusedWhileHeld(t *testing.T) {
	for name, found := range shapes {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				b := newBench(t, newTree(t, found))
				b.expect(b.k.hold(b.task, cpus(0.5)), model.Applied)
				b.writes = 0
				b.before = func(i int, _ string) error {
					if i == n {
						return errInvalid
					}
					return nil
				}
				r := b.k.hold(b.task, cpus(0.01))
				refused := b.writes >= n
				b.before = nil
				if refused {
					b.expect(r, model.Refused)
				}
				b.expect(b.k.release(b.task), model.Applied)
				b.asFound(found)
				if !refused {
					return
				}
			}
		})
	}
}

// A release that is refused at any write stays in the journal and succeeds later.
func TestRefusedReleaseIsTriedAgain(t *testing.T) {
	for name, found := range shapes {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				b := newBench(t, newTree(t, found))
				b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
				b.writes = 0
				b.before = func(i int, _ string) error {
					if i == n {
						return errInvalid
					}
					return nil
				}
				r := b.k.release(b.task)
				refused := b.writes >= n
				if refused {
					b.expect(r, model.Refused)
					b.expect(b.k.release(b.task), model.Applied)
				}
				b.asFound(found)
				if !refused {
					return
				}
			}
		})
	}
}

func TestForeignWriter(t *testing.T) {
	found := shapes["nested"]
	for victim, stranger := range map[string]cgroup.CPUMax{"/t": limit(300_000, 100_000, 0), "/t/a/y": limit(1_500, 100_000, 0), "/t/b": limit(1_500, 100_000, 0)} {
		for _, act := range []string{"hold", "release", "disown"} {
			t.Run(act+" after "+victim, func(t *testing.T) {
				b := newBench(t, newTree(t, found))
				b.expect(b.k.hold(b.task, cpus(0.01)), model.Applied)
				b.limits[victim] = stranger
				switch act {
				case "hold":
					b.expect(b.k.hold(b.task, cpus(0.005)), model.Foreign)
				case "release":
					b.expect(b.k.release(b.task), model.Foreign)
				default:
					b.k.disown("/t", model.CPUBandwidth)
				}
				want := maps.Clone(found)
				want[victim] = stranger
				b.asFound(want)
			})
		}
	}
}

// A stranger's limit that leaves no room for what was found below it: the children stay in
// the journal, and are put back once there is room.
func TestForeignWriterInTheWay(t *testing.T) {
	found := shapes["nested"]
	b := newBench(t, newTree(t, found))
	b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
	b.limits["/t/a"] = limit(1_500, 10_000, 0)
	b.limits["/t/a/y"] = cgroup.CPUMax(cpus(0.1).CPUMax)
	b.expect(b.k.release(b.task), model.Refused)
	if o := b.k.j.Outstanding(); len(o) != 1 || o[0].Path != "/t/a/y" {
		t.Fatalf("outstanding %+v", o)
	}
	b.limits["/t/a"] = found["/t/a"]
	b.expect(b.k.release(b.task), model.Applied)
	b.asFound(found)
}

// A stranger's quota that leaves no room for the period that was found, and none for the burst: once
// he lifts it, both are back.
func TestBurstUnderForeignQuota(t *testing.T) {
	for _, lifted := range []bool{true, false} {
		b := newBench(t, newTree(t, map[string]cgroup.CPUMax{"/t": limit(-1, 50_000, 60_000)}))
		b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
		b.limits["/t"] = limit(50_000, 250_000, 0)
		noRoom := true
		b.before = func(int, string) error {
			if noRoom { // as an ancestor's quota would
				return errInvalid
			}
			return nil
		}
		b.expect(b.k.release(b.task), model.Refused)
		noRoom = false
		want := limit(50_000, 50_000, 0) // the kernel takes no burst above a quota
		if lifted {
			b.limits["/t"] = limit(-1, 250_000, 0)
			want = limit(-1, 50_000, 60_000)
		}
		b.expect(b.k.release(b.task), map[bool]model.ResultKind{true: model.Foreign, false: model.Applied}[lifted])
		b.asFound(map[string]cgroup.CPUMax{"/t": want})
	}
}

func TestVanished(t *testing.T) {
	found := shapes["nested"]
	remove := func(b *bench, path string) {
		for _, p := range slices.Collect(maps.Keys(b.limits)) {
			if p == path || strings.HasPrefix(p, path+"/") {
				delete(b.limits, p)
				delete(b.inodes, p)
			}
		}
	}
	t.Run("before the hold", func(t *testing.T) {
		b := newBench(t, newTree(t, found))
		remove(b, "/t")
		b.expect(b.k.hold(b.task, cpus(0.1)), model.Vanished)
	})
	t.Run("while held", func(t *testing.T) {
		b := newBench(t, newTree(t, found))
		b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
		remove(b, "/t")
		b.expect(b.k.release(b.task), model.Vanished)
		if o := b.k.j.Outstanding(); len(o) > 0 {
			t.Errorf("the journal still holds %+v", o)
		}
	})
	t.Run("made anew", func(t *testing.T) {
		b := newBench(t, newTree(t, found))
		b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
		remove(b, "/t")
		b.limits["/t"], b.inodes["/t"] = cgroup.CPUMax(cpus(0.1).CPUMax), 999
		writes := b.writes
		b.expect(b.k.release(b.task), model.Vanished)
		b.expect(b.k.hold(b.task, cpus(0.05)), model.Vanished)
		if b.writes != writes {
			t.Error("the new cgroup was written")
		}
	})
	t.Run("the controller alone", func(t *testing.T) {
		b := newBench(t, newTree(t, found))
		b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
		b.unread = cgroup.ErrNoController
		held := []*watched{{task: *b.task}}
		if list := b.k.compare(held, nil); len(list) != 1 || list[0].Outcome != model.Absent {
			t.Errorf("compared: %+v", list)
		}
		b.expect(b.k.hold(b.task, cpus(0.05)), model.Refused)
		b.expect(b.k.release(b.task), model.Applied)
		if o := b.k.j.Outstanding(); len(o) > 0 || b.k.isHeld("/t", model.CPUBandwidth) {
			t.Errorf("the journal still holds %+v", o)
		}
	})
	t.Run("a child while held", func(t *testing.T) {
		b := newBench(t, newTree(t, found))
		b.expect(b.k.hold(b.task, cpus(0.1)), model.Applied)
		remove(b, "/t/a")
		b.expect(b.k.hold(b.task, cpus(0.05)), model.Applied)
		b.expect(b.k.release(b.task), model.Applied)
		if b.limits["/t"] != found["/t"] || b.limits["/t/b"] != found["/t/b"] || len(b.k.j.Outstanding()) > 0 {
			t.Errorf("%v %+v", b.limits, b.k.j.Outstanding())
		}
	})
}
