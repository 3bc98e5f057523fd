package linux

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// A full disk: a place that cannot be journaled is not written, and one that could stands
// although what was read back could not be noted.
func TestPlaceOnAFullDisk(t *testing.T) {
	b := newPlaceBench(t, newCPUSets(t, false, map[string]string{"/t": "0-7"}))
	d := &stuckDisk{Disk: journal.RealDisk()}
	j, err := journal.ContinueOn(d, b.path, "boot-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.k = b.knobs(j)
	d.syncs, d.stuckAt = 0, 1
	b.one(model.Set, "0-1", model.Refused)
	if b.writes > 0 {
		t.Error("it was written without the journal")
	}
	d.syncs, d.stuckAt = 0, 2
	b.one(model.Set, "0-1", model.Applied)
	d.stuckAt = 0
	b.one(model.Release, "", model.Applied)
	b.are("released", map[string]string{"/t": "0-7"})
}

// stuckDisk counts what is synced, and refuses one of it.
type stuckDisk struct {
	journal.Disk
	syncs, stuckAt int
}

type stuckFile struct {
	journal.File
	d *stuckDisk
}

func (d *stuckDisk) Create(path string) (journal.File, error) {
	f, err := d.Disk.Create(path)
	return &stuckFile{f, d}, err
}

func (f *stuckFile) Sync() error {
	if f.d.syncs++; f.d.syncs == f.d.stuckAt {
		return errDisk
	}
	return nil
}

// A batch is one entry in the journal before its writes and one after, in the order of its
// changes; one that fails holds no other up, and two of one knob are one after the other.
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
			return f.gone(path)
		}
		return nil
	}
	d.syncs = 0
	res := k.apply(ops, nil)
	for i, r := range res {
		want := map[string]model.ResultKind{"/t50": model.Refused, "/t51": model.Vanished}[ops[i].task.Path]
		if r.Kind != want || r.Seq != uint64(i) || r.Task() != model.TaskNum(i) || order[i] != ops[i].task.Path {
			t.Fatalf("%s: %+v, written %s", ops[i].task.Path, r, order[i])
		}
	}
	// The two that failed are looked after by themselves.
	if d.syncs > 6 {
		t.Errorf("%d syncs", d.syncs)
	}
	f.before, d.syncs = nil, 0
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
	if got := f.lists[ops[1].task.Path].String(); got != "5" || d.syncs != 4 {
		t.Errorf("released and set again: %s, %d syncs", got, d.syncs)
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
