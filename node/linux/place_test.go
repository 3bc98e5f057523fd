package linux

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// cpusets is a fake cpuset hierarchy that enforces the kernel's rules on every write. v1: a
// list is within that of the group above (EACCES), around those below (EBUSY), of CPUs that
// are online (EINVAL). Both: a group with processes, which all have here, keeps some
// (ENOSPC). What it does not verify: that the real kernel has no other rules; the tests on
// real cgroups do that.
type cpusets struct {
	lists            map[string]model.CPUSet
	inodes           map[string]uint64
	online, possible model.CPUSet
	flat             bool
	writes           int
	before           func(n int, path string) error // called before each write; may panic
	unread           string                         // of this path no list can be read ...
	unreadAt         int                            // ... or of its readings only that one
	unlisted         string                         // below this path groups cannot be listed
	unknown          string                         // a group that cannot be identified
}

func list(t testing.TB, text string) model.CPUSet {
	t.Helper()
	s, err := model.ParseCPUSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newCPUSets(t testing.TB, flat bool, lists map[string]string) *cpusets {
	f := &cpusets{lists: map[string]model.CPUSet{}, inodes: map[string]uint64{}, online: model.FullSet(8), possible: model.FullSet(8), flat: flat}
	for i, p := range slices.Sorted(maps.Keys(lists)) {
		f.lists[p], f.inodes[p] = list(t, lists[p]), uint64(200+i)
	}
	return f
}

func (f *cpusets) gone(path string) error { return fmt.Errorf("%s: %w", path, cgroup.ErrVanished) }

func (f *cpusets) Inode(path string) (uint64, error) { return f.PlaceInode(path) }

func (f *cpusets) PlaceInode(path string) (uint64, error) {
	if path == f.unknown {
		return 0, errDisk
	}
	if ino, ok := f.inodes[path]; ok {
		return ino, nil
	}
	return 0, f.gone(path)
}

func (f *cpusets) PlacesBelow(path string) ([]string, error) {
	if path == f.unlisted {
		return nil, errDisk
	}
	var out []string
	for _, p := range slices.Sorted(maps.Keys(f.lists)) {
		if strings.HasPrefix(p, strings.TrimSuffix(path, "/")+"/") {
			out = append(out, p)
		}
	}
	return out, nil
}

func (f *cpusets) ReadCPUs(path string) (string, error) {
	if path == f.unread {
		if f.unreadAt <= 1 {
			if f.unreadAt == 1 {
				f.unread = ""
			}
			return "", errDisk
		}
		f.unreadAt--
	}
	if path == "/" {
		return f.online.String(), nil
	}
	if l, ok := f.lists[path]; ok {
		return l.String(), nil
	}
	return "", f.gone(path)
}

// fakeList is an open list.
type fakeList struct {
	f     *cpusets
	path  string
	inode uint64
}

func (f *cpusets) OpenCPUs(path string) (cgroup.CPUList, error) {
	ino, err := f.PlaceInode(path)
	return &fakeList{f, path, ino}, err
}

func (l *fakeList) Inode() uint64 { return l.inode }
func (l *fakeList) Close() error  { return nil }

func (l *fakeList) Read() (string, error) {
	if l.f.inodes[l.path] != l.inode {
		return "", l.f.gone(l.path)
	}
	return l.f.ReadCPUs(l.path)
}

func (f *cpusets) ReadEffectiveCPUs(path string) (string, error) { return f.ReadCPUs(path) }

func (f *cpusets) WriteCPUs(path, text string) error {
	f.writes++
	if f.before != nil {
		if err := f.before(f.writes, path); err != nil {
			return err
		}
	}
	to, err := model.ParseCPUSet(text)
	if err != nil {
		return err
	}
	was, ok := f.lists[path]
	switch up, above := f.lists[parentOf(path)]; {
	case !ok:
		return f.gone(path)
	case to.Empty() && !was.Empty():
		return unix.ENOSPC
	case f.flat:
	case !to.Within(f.online):
		return unix.EINVAL
	case above && !to.Within(up):
		return unix.EACCES
	}
	for p, l := range f.lists {
		if !f.flat && strings.HasPrefix(p, path+"/") && !l.Within(to) {
			return unix.EBUSY
		}
	}
	f.lists[path] = to
	return nil
}

// unplug takes CPUs offline, as v1 does: they are struck from every list for good.
func (f *cpusets) unplug(cpus model.CPUSet) {
	f.online = f.online.Without(cpus)
	for p, l := range f.lists {
		if !f.flat {
			f.lists[p] = l.Without(cpus)
		}
	}
}

func (f *cpusets) knobs(j *journal.Journal) *Knobs {
	return &Knobs{cg: f, clock: RealClock{}, j: j, held: map[heldKey]*holding{}, refused: map[heldKey]bool{}, displaced: map[heldKey]bool{}, kinds: [model.NumKnobs]knob{
		model.CPUBandwidth: &bandwidth{},
		model.CPUPlace: &place{cg: f, flat: f.flat, cpus: func() (machineCPUs, error) {
			return machineCPUs{f.online, f.possible}, nil
		}},
		model.CPUWeight:   &weight{},
		model.GroupFreeze: &freezing{},
		model.IOMaxKnob:   &ioMax{no: cgroup.ErrUnsupported},
		model.MemoryHigh:  &memoryHigh{no: cgroup.ErrUnsupported},
	}}
}

// placeBench is a task /t of fake cpusets with its knobs and journal.
type placeBench struct {
	*cpusets
	t    *testing.T
	task *model.Task
	k    *Knobs
	path string
}

func newPlaceBench(t *testing.T, f *cpusets) *placeBench {
	t.Helper()
	b := &placeBench{cpusets: f, t: t, path: filepath.Join(t.TempDir(), "journal"), task: &model.Task{Num: 1, Path: "/t", Inode: f.inodes["/t"]}}
	j, err := journal.Create(b.path, "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() }) //nolint:errcheck // may be closed already
	b.k = f.knobs(j)
	return b
}

func (b *placeBench) one(kind model.ChangeKind, cpus string, want model.ResultKind) model.Result {
	b.t.Helper()
	r := b.k.one(b.task, kind, model.Place(list(b.t, cpus)))
	if r.Kind != want {
		b.t.Fatalf("%s %q: %s (%s), want %s; lists %v", kind, cpus, r.Kind, r.Error, want, b.texts())
	}
	return r
}

func (f *cpusets) texts() map[string]string {
	m := map[string]string{}
	for p, l := range f.lists {
		m[p] = l.String()
	}
	return m
}

func (b *placeBench) are(when string, want map[string]string) {
	b.t.Helper()
	if got := b.texts(); !maps.Equal(got, want) {
		b.t.Fatalf("%s: %v\nwant %v", when, got, want)
	}
	if o := b.k.j.Outstanding(); len(o) > 0 {
		b.t.Fatalf("%s: the journal still holds %+v", when, o)
	}
}

// placeShapes are trees on which the tests run; the task is /t.
var placeShapes = map[string]struct {
	flat  bool
	lists map[string]string
}{
	"alone":          {false, map[string]string{"/t": "0-7"}},
	"followers":      {false, map[string]string{"/t": "0-7", "/t/a": "0-7", "/t/a/x": "0-7", "/t/b": "0-7"}},
	"own wishes":     {false, map[string]string{"/t": "0-5", "/t/a": "0-3", "/t/a/x": "1", "/t/a/y": "", "/t/b": "4-5", "/t/b/x": "4-5"}},
	"v2, no list":    {true, map[string]string{"/t": "", "/t/a": "2"}},
	"v2, own wishes": {true, map[string]string{"/t": "0-3", "/t/a": "2-5"}},
}

// places is where the tests put a task, one after the other.
var places = []string{"0-1", "2-3", "0-7", "4-7", "5", "1,6"}

// afterwards returns what must stand there when a task was put back.
func afterwards(flat bool, lists map[string]string) map[string]string {
	want := maps.Clone(lists)
	if flat && want["/t"] == "" {
		want["/t"] = "0-7" // a list with processes cannot be emptied
	}
	return want
}

func TestPlaceAndRelease(t *testing.T) {
	for name, shape := range placeShapes {
		t.Run(name, func(t *testing.T) {
			b := newPlaceBench(t, newCPUSets(t, shape.flat, shape.lists))
			for _, to := range places {
				r := b.one(model.Set, to, model.Applied)
				if r.Now != model.Place(list(t, to)) || r.Found != model.Place(list(t, shape.lists["/t"])) || b.lists["/t"].String() != to {
					t.Fatalf("%s: %+v, lists %v", to, r, b.texts())
				}
				for p, l := range b.lists {
					if !shape.flat && (!l.Within(b.lists["/t"]) || l.Empty() != (shape.lists[p] == "")) {
						t.Fatalf("at %s: %v", to, b.texts())
					}
				}
				writes := b.writes
				b.one(model.Set, to, model.Applied)
				if b.writes != writes {
					t.Fatalf("the same place again was written")
				}
			}
			b.one(model.Release, "", model.Applied)
			b.are("released", afterwards(shape.flat, shape.lists))
		})
	}
}

// A write that is refused, whichever, leaves nothing of a first place, and leaves a held one
// to be released.
func TestRefusedPlaces(t *testing.T) {
	for name, shape := range placeShapes {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, held %v", name, held), func(t *testing.T) {
				for n := 1; ; n++ {
					b := newPlaceBench(t, newCPUSets(t, shape.flat, shape.lists))
					if held {
						b.one(model.Set, "0-1", model.Applied)
					}
					was := b.texts()
					b.writes = 0
					b.before = func(i int, _ string) error {
						if i == n {
							return errInvalid
						}
						return nil
					}
					r := b.k.one(b.task, model.Set, model.Place(list(t, "2-4")))
					if b.writes < n {
						return
					}
					b.before = nil
					if r.Kind != model.Refused {
						t.Fatalf("write %d refused: %+v", n, r)
					}
					if !held && shape.lists["/t"] != "" {
						b.are("refused", shape.lists)
						continue
					}
					if got := b.texts(); held && !maps.Equal(got, was) {
						t.Fatalf("write %d refused: %v, was %v", n, got, was)
					}
					b.one(model.Release, "", model.Applied)
					want := afterwards(shape.flat, shape.lists)
					if !held {
						want["/t"] = b.texts()["/t"]
					}
					b.are("released", want)
				}
			})
		}
	}
}

// The process ends before any single write; whoever comes next puts every list back.
func TestCrashWhilePlacing(t *testing.T) {
	for name, shape := range placeShapes {
		if rigtest.Inside() && name != "own wishes" {
			continue // the fake is the same everywhere, and an emulated machine is slow
		}
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				b := newPlaceBench(t, newCPUSets(t, shape.flat, shape.lists))
				done := b.crashAt(n, func() {
					for _, to := range places[:4] {
						b.one(model.Set, to, model.Applied)
					}
					b.one(model.Release, "", model.Applied)
				})
				for again := 1; !b.crashAt(again, b.restoreAll); again++ {
				}
				want := afterwards(shape.flat, shape.lists)
				if b.texts()["/t"] == shape.lists["/t"] {
					want["/t"] = shape.lists["/t"] // the crash came before the first write
				}
				c, err := journal.Read(b.path)
				if err != nil || len(c.Limits) > 0 || !maps.Equal(b.texts(), want) {
					t.Fatalf("crash before write %d: %v, want %v; journal %+v %v", n, b.texts(), want, c, err)
				}
				if done {
					return
				}
			}
		})
	}
}

// The disk takes no note any more, and whoever puts lists back, which does not wait for it, ends before any
// single write: the next one puts every list back, from a journal that does not know that it was begun.
func TestCrashOnTheWayBackUnnoted(t *testing.T) {
	for name, shape := range placeShapes {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				b := newPlaceBench(t, newCPUSets(t, shape.flat, shape.lists))
				b.one(model.Set, "6-7", model.Applied)
				noted, err := os.ReadFile(b.path)
				if err != nil {
					t.Fatal(err)
				}
				done := b.crashAt(n, b.restoreAll)
				if err := os.WriteFile(b.path, noted, 0o600); err != nil {
					t.Fatal(err)
				}
				b.restoreAll()
				if want := afterwards(shape.flat, shape.lists); !maps.Equal(b.texts(), want) {
					t.Fatalf("crash before write %d: %v, want %v", n, b.texts(), want)
				}
				if done {
					return
				}
			}
		})
	}
}

// The same where what was found does not fit into the group above any more: a list that is on its way back, and wider than both ends
// of it because a group below has ours still, is known again.
func TestCrashOnTheWayBackCut(t *testing.T) {
	for n := 1; ; n++ {
		b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/b": "4-6", "/t/b/x": "4"}))
		b.one(model.Set, "2-3", model.Applied)
		noted, err := os.ReadFile(b.path)
		if err != nil {
			t.Fatal(err)
		}
		b.lists["/t"] = list(t, "0-4,6-7") // by a stranger
		done := b.crashAt(n, func() { b.putBackAll(node.LeftForeign) })
		if err := os.WriteFile(b.path, noted, 0o600); err != nil {
			t.Fatal(err)
		}
		b.putBackAll(node.LeftForeign)
		if want := map[string]string{"/t": "0-4,6-7", "/t/b": "4,6", "/t/b/x": "4"}; !maps.Equal(b.texts(), want) {
			t.Fatalf("crash before write %d: %v, want %v", n, b.texts(), want)
		}
		if done {
			return
		}
	}
}

// Who puts lists back ends while it notes that it did: whichever of its notes the disk has, the next one
// leaves every list as it was found.
func TestCrashWhileNotingTheWayBack(t *testing.T) {
	const other = "/other" // a task's that is still held: who holds nothing begins a new journal
	for name, shape := range placeShapes {
		for _, to := range append(places, "4-5") {
			t.Run(name+" "+to, func(t *testing.T) {
				for cut, notes := 0, 1; cut <= notes; cut++ {
					lists := maps.Clone(shape.lists)
					lists[other] = "0-7"
					b := newPlaceBench(t, newCPUSets(t, shape.flat, lists))
					b.one(model.Set, to, model.Applied)
					all := model.Place(list(t, "0-7"))
					if err := b.k.j.Intent([]journal.Limit{{Task: other, Path: other, Inode: b.inodes[other], Found: all, Before: all, Intended: all}}); err != nil {
						t.Fatal(err)
					}
					b.one(model.Release, "", model.Applied)
					want := b.texts()
					text, err := os.ReadFile(b.path)
					if err != nil {
						t.Fatal(err)
					}
					notes = bytes.Count(text, []byte(`{"kind":"done"`))
					lines := bytes.SplitAfter(text, []byte("\n"))
					lines = lines[:len(lines)-1-cut] // behind the last end of a line is nothing
					if err := os.WriteFile(b.path, bytes.Join(lines, nil), 0o600); err != nil {
						t.Fatal(err)
					}
					b.restoreAll()
					if !maps.Equal(b.texts(), want) {
						t.Fatalf("%d of %d notes: %v, want %v", notes-cut, notes, b.texts(), want)
					}
				}
			})
		}
	}
}

// crashAt runs f and ends it before write n.
func (b *placeBench) crashAt(n int, f func()) (done bool) {
	b.writes = 0
	b.before = func(i int, _ string) error {
		if i == n {
			panic(crash{})
		}
		return nil
	}
	defer func() {
		b.before = nil
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
		}
	}()
	f()
	return true
}

// restoreAll is what the next start does where everything is ours.
func (b *placeBench) restoreAll() { b.putBackAll("") }

// putBackAll is what the next start does. The first group may be so.
func (b *placeBench) putBackAll(first node.RestoreKind) {
	c, err := journal.Read(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := journal.Continue(b.path, "boot-1", c.Limits)
	if err != nil {
		b.t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // the test is over
	for _, it := range b.knobs(j).putBackAll() {
		if it.Kind != node.Restored && it.Kind != node.AsFound && (it.Path != "/t" || it.Kind != first) {
			b.t.Fatalf("%+v; lists %v; journal %+v", it, b.texts(), c.Limits)
		}
	}
}

// A CPU that goes offline is struck from every list on v1. That is no stranger's doing, and
// what was found is put back as far as it can be, once.
func TestUnpluggedWhilePlaced(t *testing.T) {
	lists := map[string]string{"/t": "0-7", "/t/a": "2-3", "/t/b": "0-7"}
	b := newPlaceBench(t, newCPUSets(t, false, lists))
	watched := []*watched{{task: *b.task}}
	b.one(model.Set, "2-5", model.Applied)
	b.unplug(list(t, "3,5"))
	b.k.begin()
	if k := b.k.compare(watched, nil); len(k) != 1 || k[0].Outcome != model.OK || k[0].Value != model.Place(list(t, "2-5")) {
		t.Errorf("compared: %+v", k)
	}
	// 5 comes back and stays struck: still nobody's doing.
	b.online.Add(5)
	b.k.begin()
	if k := b.k.compare(watched, nil); len(k) != 1 || k[0].Value != model.Place(list(t, "2-5")) {
		t.Errorf("compared: %+v", k)
	}
	if r := b.one(model.Set, "3-6", model.Applied); r.Now != model.Place(list(t, "4-6")) || !strings.Contains(r.Error, "CPUs 3") {
		t.Errorf("%+v", r)
	}
	r := b.one(model.Release, "", model.Applied)
	if r.Now != model.Place(list(t, "0-2,4-7")) {
		t.Errorf("%+v", r)
	}
	b.are("released", map[string]string{"/t": "0-2,4-7", "/t/a": "2", "/t/b": "0-2,4-7"})

	// All that a group below had found is gone: it has what is above.
	b = newPlaceBench(t, newCPUSets(t, false, lists))
	b.one(model.Set, "4-5", model.Applied)
	b.unplug(list(t, "2-3"))
	b.one(model.Release, "", model.Applied)
	b.are("released", map[string]string{"/t": "0-1,4-7", "/t/a": "0-1,4-7", "/t/b": "0-1,4-7"})

	// What a stranger took out was online all the time.
	b = newPlaceBench(t, newCPUSets(t, false, lists))
	b.one(model.Set, "4-7", model.Applied)
	b.unplug(list(t, "7"))
	b.lists["/t"], b.lists["/t/a"], b.lists["/t/b"] = list(t, "4"), list(t, "4"), list(t, "4")
	b.one(model.Set, "4-6", model.Foreign)
}

// A CPU that was offline for a while is known to have been, also where nothing but lists below the task is noted.
func TestUnpluggedForAWhile(t *testing.T) {
	b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/a": "2-4"}))
	b.one(model.Set, "0-7", model.Applied)
	b.unplug(list(t, "4"))
	b.k.compare([]*watched{{task: *b.task}}, nil)
	b.online.Add(4)
	b.one(model.Set, "0-3", model.Applied)
	b.one(model.Release, "", model.Applied)
	// Of /t nothing was noted before the kernel struck it.
	b.are("released", map[string]string{"/t": "0-3,5-7", "/t/a": "2-3"})
}

// A group below that has a list of its own keeps it, whatever the kernel strikes from the lists
// around it, and whoever puts things back: once both read alike nobody could tell any more.
func TestOwnListBelowIsKept(t *testing.T) {
	for _, crash := range []bool{false, true} {
		b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/a": "0-1", "/t/b": "0-7"}))
		b.one(model.Set, "0-3", model.Applied)
		b.unplug(list(t, "2-3"))
		if b.lists["/t"] != b.lists["/t/a"] {
			t.Fatal("they are not alike: the test proves nothing")
		}
		if crash {
			b.restoreAll()
			b.k.j, _ = journal.Create(b.path, "boot-1")
		} else {
			b.one(model.Release, "", model.Applied)
		}
		b.are("put back", map[string]string{"/t": "0-1,4-7", "/t/a": "0-1", "/t/b": "0-1,4-7"})
	}
}

// A list below that cannot be read is not passed over: once the one above it is ours it could be
// taken for a copy of that.
func TestUnreadBelow(t *testing.T) {
	lists := map[string]string{"/t": "0-7", "/t/a": "0-1"}
	b := newPlaceBench(t, newCPUSets(t, false, lists))
	b.unread = "/t/a"
	b.one(model.Set, "0-1", model.Refused)
	b.are("a list below cannot be read", lists)
	b.unread = ""
	for _, to := range places {
		b.one(model.Set, to, model.Applied)
	}
	b.one(model.Release, "", model.Applied)
	b.are("released", lists)
}

// What a stranger has given to a group below stays in the lists above it too, since v1 takes none
// that lacks it; the rest is as it was found.
func TestForeignListBelow(t *testing.T) {
	b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-1", "/t/a": "0-1", "/t/a/x": "0-1", "/t/b": "1"}))
	b.one(model.Set, "1,4-6", model.Applied)
	b.lists["/t/a/x"] = list(t, "4-5")
	b.one(model.Release, "", model.Foreign)
	b.are("released", map[string]string{"/t": "0-1,4-5", "/t/a": "0-1,4-5", "/t/a/x": "4-5", "/t/b": "1"})
}

// Where it cannot be told what the group above leaves room for, those below are put back with
// their task all the same.
func TestUnreadAbove(t *testing.T) {
	lists := map[string]string{"/t": "0-7", "/t/a": "0-7", "/t/a/x": "4-5"}
	b := newPlaceBench(t, newCPUSets(t, false, lists))
	b.one(model.Set, "1", model.Applied)
	b.unread = "/"
	b.one(model.Release, "", model.Applied)
	b.are("released", lists)
}

// What copied a list of ours below a group that has another name now is put back with it; a new
// group at the old name is left alone.
func TestCopiedBelowRenamed(t *testing.T) {
	for _, held := range []bool{false, true} { // as another task, under the new name
		b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/a": "0-7"}))
		b.one(model.Set, "1", model.Applied)
		b.lists["/t/copied"], b.inodes["/t/copied"] = list(t, "1"), 300
		b.rename("/t", "/was-t")
		b.lists["/t"], b.inodes["/t"] = list(t, "1,3"), 301
		b.lists["/t/a"], b.inodes["/t/a"] = list(t, "1"), 302
		if held {
			b.task.Path = "/was-t"
			if r := b.one(model.Set, "2", model.Applied); r.Found != model.Place(list(t, "0-7")) {
				t.Errorf("found %s", r.Found)
			}
			b.one(model.Release, "", model.Applied)
		} else {
			b.k.putBackAll()
		}
		b.are("put back", map[string]string{"/t": "1,3", "/t/a": "1", "/was-t": "0-7", "/was-t/a": "0-7", "/was-t/copied": "0-7"})
	}
}

// Of a task that was renamed only what lies below it may be left to be put back: that, too, is found
// under its new name before the task is held there, and is not taken for what was found.
func TestLeftBelowRenamed(t *testing.T) {
	b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/a": "0-7"}))
	b.one(model.Set, "1", model.Applied)
	b.before = func(_ int, path string) error {
		if path == "/t/a" {
			return errDisk
		}
		return nil
	}
	b.one(model.Release, "", model.Refused)
	if got, want := b.texts(), map[string]string{"/t": "0-7", "/t/a": "1"}; !maps.Equal(got, want) {
		t.Fatalf("released in part: %v, want %v", got, want)
	}
	b.rename("/t", "/was-t")
	b.task.Path, b.unlisted, b.before = "/was-t", "/", nil
	b.k.disown("/t", model.CPUPlace)
	if r := b.k.one(b.task, model.Set, model.Place(list(t, "2"))); r.Kind != model.Refused {
		t.Errorf("groups cannot be listed: %+v", r)
	}
	b.unlisted = ""
	b.one(model.Set, "2", model.Applied)
	b.one(model.Release, "", model.Applied)
	b.are("put back", map[string]string{"/was-t": "0-7", "/was-t/a": "0-7"})
	if left := b.k.j.Outstanding(); len(left) > 0 {
		t.Errorf("journal %+v", left)
	}
}

// A list below a renamed task that is found before the task itself is as near to what was found as that leaves room
// for, and is not done with.
func TestFoundBelowRenamedFirst(t *testing.T) {
	b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/a": "0-5"}))
	b.one(model.Set, "1", model.Applied)
	b.rename("/t", "/was-t")
	b.unknown = "/t"
	b.k.disown("/t", model.CPUPlace)
	if got := b.texts()["/was-t"]; got != "1" {
		t.Fatalf("/was-t is %s: the test proves nothing", got)
	}
	b.unknown = ""
	for at := int64(1); at < 5; at++ {
		b.k.putBackLeftovers(at<<40, true)
	}
	b.are("put back", map[string]string{"/was-t": "0-7", "/was-t/a": "0-5"})
}

// What was held in the group that had the path before, and is not found now, is no reason to put
// back what is held in the one that has it.
func TestLostDoesNotDisturb(t *testing.T) {
	b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/a": "0-3"}))
	b.one(model.Set, "1", model.Applied)
	b.rename("/t", "/was-t")
	b.k.letGo("/t", model.CPUPlace)
	b.lists["/t"], b.inodes["/t"], b.task.Inode = list(t, "0-5"), 301, 301
	b.lists["/t/a"], b.inodes["/t/a"] = list(t, "4-5"), 302
	b.unlisted = "/"
	b.one(model.Set, "4-5", model.Applied)
	writes := b.writes
	b.one(model.Set, "5", model.Applied)
	if b.writes != writes+2 {
		t.Errorf("%d writes for a list and the one below it", b.writes-writes)
	}
	b.k.putBackLeftovers(1<<40, true)
	if b.lists["/was-t"] == list(t, "0-7") {
		t.Error("it was found although nobody could list groups: the test proves nothing")
	}
	b.unlisted = ""
	b.k.putBackLeftovers(1<<41, true)
	if b.lists["/was-t"] != list(t, "0-7") || b.lists["/was-t/a"] != list(t, "0-3") || b.lists["/t"] != list(t, "5") {
		t.Errorf("once groups can be listed: %v", b.texts())
	}
	b.k.putBackAll()
	b.are("put back", map[string]string{"/t": "0-5", "/t/a": "4-5", "/was-t": "0-7", "/was-t/a": "0-3"})
}

// What a new group at the path holds is no copy of what we had left in the one before it.
func TestNewGroupHasNoCopies(t *testing.T) {
	b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7"}))
	b.one(model.Set, "1", model.Applied)
	for _, now := range []string{"0-7", "1"} { // as it was found, or as we left the other
		b.lists["/t"], b.inodes["/t"] = list(t, now), 301
		b.lists["/t/own"], b.inodes["/t/own"] = list(t, "1"), 302
		left := b.k.j.Outstanding()
		b.k.putBackAll()
		b.are(now, map[string]string{"/t": now, "/t/own": "1"})
		b.k.j.Assume(left)
	}
}

// A write that assumed another value than stands there now is not done: the limit is read again and decided anew.
func TestStaleBaseIsNotWrittenOver(t *testing.T) {
	found := map[string]string{"/t": "0-7", "/t/a": "2-3"}
	for _, kind := range []model.ChangeKind{model.Set, model.Hold} {
		b := newPlaceBench(t, newCPUSets(t, false, found))
		base := model.Place(list(t, "0-7"))
		set := func() model.Result {
			c := &model.Change{Target: model.OfTask(b.task.Num), Kind: kind, Value: model.Place(list(t, "2-3")), Base: &base}
			return b.k.apply([]op{{c, b.task}}, nil)[0]
		}
		b.lists["/t"] = list(t, "2-6") // a stranger, between the decision and its write
		if r := set(); r.Kind != model.Stale || r.Now != model.Place(list(t, "2-6")) || b.writes > 0 {
			t.Fatalf("%+v after %d writes", r, b.writes)
		}
		b.are("stale", map[string]string{"/t": "2-6", "/t/a": "2-3"})
		base = model.Place(list(t, "2-6"))
		if r := set(); r.Kind != model.Applied {
			t.Fatalf("from what stands there: %+v", r)
		}
	}
	// What is left of an earlier change, which nobody holds: what was found before that is the base.
	b := newPlaceBench(t, newCPUSets(t, false, found))
	b.one(model.Set, "2-3", model.Applied)
	assumed := model.Place(list(t, "2-3"))
	left := &model.Change{Target: model.OfTask(b.task.Num), Kind: model.Set, Value: model.Place(list(t, "2-4")), Base: &assumed}
	if r := b.k.apply([]op{{left, b.task}}, nil)[0]; r.Kind != model.Stale || r.Now != model.Place(list(t, "0-7")) {
		t.Fatalf("left over: %+v", r)
	}
	bw := newBench(t, newTree(t, shapes["limit, burst"]))
	base := setting(limit(1, 100_000, 0)) // not what was found
	c := &model.Change{Target: model.OfTask(bw.task.Num), Kind: model.Hold, Value: cpus(0.1), Base: &base}
	if r := bw.k.apply([]op{{c, bw.task}}, nil)[0]; r.Kind != model.Stale {
		t.Fatalf("a quota: %+v", r)
	}
	bw.asFound(shapes["limit, burst"])
}

// A list of ours that cannot be read for once is no stranger's for whose sake those above stay
// greater than they were found: whichever reading it is, the next tries put all of them back.
func TestUnreadForOnceIsNotAnothers(t *testing.T) {
	for at := 1; ; at++ {
		found := map[string]string{"/t": "0-5", "/t/a": "1", "/t/a/x": "1"}
		b := newPlaceBench(t, newCPUSets(t, false, found))
		b.one(model.Set, "2-3", model.Applied)
		b.unread, b.unreadAt = "/t/a/x", at
		items := b.k.putBackAll()
		if b.unread != "" {
			break // there are not so many
		}
		if (&node.Report{Items: items}).Complete() && !maps.Equal(b.texts(), found) {
			t.Errorf("reading %d fails: %+v, lists %v", at, items, b.texts())
		}
		for range 2 {
			b.k.putBackAll()
		}
		b.are(fmt.Sprintf("reading %d failed", at), found)
	}
}

// What copied a list of ours is put back as soon as it can be found, also when the list that it was
// copied from was put back before, by another process.
func TestCopiedAndNotSeen(t *testing.T) {
	for _, unseen := range []string{"unlisted", "unread"} {
		for _, crash := range []bool{false, true} {
			lists := map[string]string{"/t": "0-7", "/t/a": "0-7", "/t/own": "1-2"}
			b := newPlaceBench(t, newCPUSets(t, false, lists))
			b.one(model.Set, "1", model.Applied)
			b.lists["/t/copied"], b.inodes["/t/copied"] = list(t, "1"), 300
			if unseen == "unlisted" {
				b.unlisted = "/t"
			} else {
				b.unread = "/t/copied"
			}
			b.one(model.Release, "", model.Refused)
			if b.lists["/t"] != list(t, "0-7") || b.lists["/t/a"] != list(t, "0-7") {
				t.Errorf("%s: %v", unseen, b.texts())
			}
			b.unlisted, b.unread = "", ""
			if crash {
				b.restoreAll()
				b.k.j, _ = journal.Create(b.path, "boot-1")
			} else {
				b.one(model.Release, "", model.Applied)
			}
			lists["/t/copied"] = "0-7"
			b.are(unseen, lists)
		}
	}
}

// What copied a list of ours is put back also where a stranger has written another over that since.
func TestCopiedBelowForeign(t *testing.T) {
	for _, his := range []string{"0-7", "1-7", "1-3"} {
		b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/own": "2"}))
		b.one(model.Set, "1-2", model.Applied)
		b.lists["/t/copied"], b.inodes["/t/copied"] = list(t, "1-2"), 300
		b.lists["/t"] = list(t, his)
		b.one(model.Release, "", model.Foreign)
		all := b.lists["/t"].String()
		b.are(his, map[string]string{"/t": all, "/t/copied": all, "/t/own": "2"})
	}
}

// rename gives a group another name.
func (f *cpusets) rename(from, to string) {
	for p := range maps.Clone(f.lists) {
		if rest, ok := strings.CutPrefix(p, from); ok && (rest == "" || rest[0] == '/') {
			f.lists[to+rest], f.inodes[to+rest] = f.lists[p], f.inodes[p]
			delete(f.lists, p)
			delete(f.inodes, p)
		}
	}
}
