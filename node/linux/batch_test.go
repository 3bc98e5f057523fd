package linux

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// A disk that fails: a place that cannot be journaled is not written, and one that could stands
// although what was read back could not be noted. From then on nothing new is taken, and
// whatever undoes us, or gives a service CPUs, goes ahead.
func TestPlaceOnAStuckDisk(t *testing.T) {
	for _, how := range []string{"release", "give and take", "end", "crash"} {
		t.Run(how, func(t *testing.T) {
			f := newCPUSets(t, false, map[string]string{"/t": "0-7", "/t/a": "2-3"})
			b := newPlaceBench(t, f)
			b.task.Class = model.LC
			d := &stuckDisk{Disk: journal.RealDisk()}
			j, err := journal.ContinueOn(d, b.path, "boot-1", nil)
			if err != nil {
				t.Fatal(err)
			}
			b.k = b.knobs(j)
			d.writes, d.stuckAt = 0, 1
			b.one(model.Set, "0-1", model.Refused)
			if b.writes > 0 {
				t.Error("it was written without the journal")
			}
			d.writes, d.stuckAt = 0, 2
			b.one(model.Set, "0-1", model.Applied)
			d.stuck = true
			b.one(model.Set, "0", model.Refused)
			b.one(model.Set, "1-2", model.Refused)
			switch how {
			case "release":
				b.one(model.Release, "", model.Applied)
			case "give and take":
				b.one(model.Set, "0-3", model.Applied)
				b.one(model.Set, "0-5", model.Applied)
				b.one(model.Set, "0-4", model.Refused)
				d.stuck = false
				b.one(model.Set, "0-4", model.Applied)
				d.stuck = true
				b.one(model.Set, "0-5", model.Applied)
				if items := b.k.putBackAll(); len(items) != 2 {
					t.Errorf("%+v", items)
				}
			case "end":
				b.k.putBackAll()
			case "crash": // whoever comes after cannot write either
				c, err := journal.ReadOn(d, b.path)
				if err != nil {
					t.Fatal(err)
				}
				if j, err = journal.ContinueOn(d, b.path, "boot-1", c.Limits); err == nil {
					t.Fatal("the disk is well")
				}
				b.k = b.knobs(j)
				b.k.putBackAll()
			}
			b.are("put back", map[string]string{"/t": "0-7", "/t/a": "2-3"})
			d.stuck = false
			if err := b.k.j.Tend(); err != nil {
				t.Error(err)
			}
			if c, err := journal.Read(b.path); err != nil || len(c.Limits) > 0 {
				t.Errorf("once the disk is well: %+v, %v", c, err)
			}
		})
	}
}

// What of a batch task is not to be taken away goes the same way, and no batch task is given
// CPUs that its service could not be moved from.
func TestBatchTaskOnAStuckDisk(t *testing.T) {
	b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7"}))
	b.task.Class = model.BE
	d := &stuckDisk{Disk: journal.RealDisk()}
	j, err := journal.ContinueOn(d, b.path, "boot-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.k = b.knobs(j)
	b.one(model.Set, "6-7", model.Applied)
	d.stuck = true
	b.one(model.Set, "5-7", model.Refused)
	b.one(model.Release, "", model.Applied)
	b.are("released", map[string]string{"/t": "0-7"})
}

// stuckDisk counts what is written, and refuses one of it, or everything.
type stuckDisk struct {
	journal.Disk
	writes, stuckAt int
	stuck           bool
}

type stuckFile struct {
	journal.File
	d *stuckDisk
}

func (d *stuckDisk) Rename(from, to string) error {
	if d.stuck {
		return errDisk
	}
	return d.Disk.Rename(from, to)
}

func (d *stuckDisk) Create(path string) (journal.File, error) {
	if d.stuck {
		return nil, errDisk
	}
	f, err := d.Disk.Create(path)
	return &stuckFile{f, d}, err
}

func (f *stuckFile) WriteAt(b []byte, off int64) (int, error) {
	if f.d.writes++; f.d.writes == f.d.stuckAt || f.d.stuck {
		return 0, errDisk
	}
	return f.File.WriteAt(b, off)
}

func (f *stuckFile) Truncate(size int64) error {
	if f.d.stuck {
		return errDisk
	}
	return f.File.Truncate(size)
}

// A batch of changes is written to the journal in one entry before the kernel's files, and in one
// after them. The files are written in the order of the changes. A write that fails does not keep
// the others from theirs, and two changes of the same knob are made one after the other.
func TestBatch(t *testing.T) {
	lists := map[string]string{}
	for i := range 100 {
		lists[fmt.Sprintf("/t%02d", i)] = "0-7"
	}
	f := newCPUSets(t, false, lists)
	d := &stuckDisk{Disk: journal.RealDisk()}
	j, err := journal.ContinueOn(d, filepath.Join(t.TempDir(), "journal"), "boot-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // the test is over
	k := f.knobs(j)
	var ops []op
	var order []string
	for i := range 100 {
		path := fmt.Sprintf("/t%02d", (i*37)%100)
		task := &model.Task{Num: model.TaskNum(i), Path: path, Inode: f.inodes[path]}
		ops = append(ops, op{&model.Change{Seq: uint64(i), Target: model.OfTask(task.Num), Kind: model.Set, Value: model.Place(list(t, "0-3"))}, task})
	}
	f.before = func(_ int, path string) error {
		order = append(order, path)
		if path == "/t50" {
			return errInvalid
		}
		if path == "/t51" {
			delete(f.inodes, path)
			return f.gone(path)
		}
		return nil
	}
	d.writes = 0
	res := k.apply(ops, nil)
	for i, r := range res {
		want := map[string]model.ResultKind{"/t50": model.Refused, "/t51": model.Vanished}[ops[i].task.Path]
		if r.Kind != want || r.Seq != uint64(i) || r.Task() != model.TaskNum(i) || order[i] != ops[i].task.Path {
			t.Fatalf("%s: %+v, written %s", ops[i].task.Path, r, order[i])
		}
	}
	// The two that failed are looked after by themselves.
	if d.writes > 6 {
		t.Errorf("%d appends", d.writes)
	}
	f.before, d.writes = nil, 0
	twice := []op{
		{&model.Change{Target: model.OfTask(1), Kind: model.Release, Value: model.Ask(model.CPUPlace)}, ops[1].task},
		{&model.Change{Target: model.OfTask(2), Kind: model.Set, Value: model.Place(list(t, "1"))}, ops[2].task},
		{&model.Change{Target: model.OfTask(1), Kind: model.Set, Value: model.Place(list(t, "5"))}, ops[1].task},
	}
	for _, r := range k.apply(twice, nil) {
		if r.Kind != model.Applied {
			t.Errorf("%+v", r)
		}
	}
	if got := f.lists[ops[1].task.Path].String(); got != "5" || d.writes != 4 {
		t.Errorf("released and set again: %s, %d appends", got, d.writes)
	}
}

// Many held knobs are compared in turns, a bounded number at a time, and none is left out.
func TestComparedInTurns(t *testing.T) {
	lists, tasks := map[string]string{}, []*watched{}
	for i := range 40 {
		lists[fmt.Sprintf("/t%02d", i)] = "0-7"
	}
	f := newCPUSets(t, false, lists)
	j, err := journal.Create(filepath.Join(t.TempDir(), "journal"), "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // the test is over
	k := f.knobs(j)
	var ops []op
	for i := range 40 {
		path := fmt.Sprintf("/t%02d", i)
		w := &watched{task: model.Task{Num: model.TaskNum(i), Path: path, Inode: f.inodes[path]}}
		tasks = append(tasks, w)
		ops = append(ops, op{&model.Change{Kind: model.Set, Value: model.Place(list(t, "0-3"))}, &w.task})
	}
	k.apply(ops[:3], nil)
	for range 3 {
		if got := k.compare(tasks, nil); len(got) != 3 {
			t.Fatalf("of three: %+v", got)
		}
	}
	k.apply(ops[3:], nil)
	seen := map[model.TaskNum]int{}
	for range 5 {
		got := k.compare(tasks, nil)
		if len(got) != maxCompared {
			t.Fatalf("%d compared", len(got))
		}
		for _, r := range got {
			seen[r.Task()]++
			if r.Outcome != model.OK || r.Value != model.Place(list(t, "0-3")) {
				t.Fatalf("%+v", r)
			}
		}
	}
	for i := range 40 {
		if n := seen[model.TaskNum(i)]; n != 2 {
			t.Errorf("task %d was compared %d times in 80 of 40", i, n)
		}
	}
}
