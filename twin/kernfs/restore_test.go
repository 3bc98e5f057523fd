package kernfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// watched is a kernel whose tasks are under /c-stream, /b-registers and /a-web-*, with a
// node that has seen them.
type watched struct {
	k       *kernfs.Kernel
	d       cgroup.Driver
	h       *linux.Host
	journal string
	nums    map[string]model.TaskNum
}

func watch(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) *watched {
	t.Helper()
	w := &watched{k: k, d: d, journal: filepath.Join(t.TempDir(), "journal"), nums: map[string]model.TaskNum{}}
	w.h = openNode(t, k, w.journal)
	w.observe(t)
	return w
}

func (w *watched) observe(t *testing.T) *model.Snapshot {
	t.Helper()
	var snap model.Snapshot
	must(t, w.h.Observe(model.WindowStart|model.WindowEnd, &snap))
	for _, task := range snap.Added {
		w.nums[task.Path] = task.Num
	}
	return &snap
}

func (w *watched) apply(t *testing.T, kind model.ChangeKind, path string, want model.ResultKind) model.Result {
	t.Helper()
	res := node.Do(w.h, model.Change{Seq: 1, Target: model.OfTask(w.nums[path]), Kind: kind, Value: model.Bandwidth(model.CPUMax{QuotaUsec: 5000, PeriodUsec: 100_000})})
	if len(res) != 1 || res[0].Kind != want {
		t.Fatalf("%s of %s: %+v, want %s", kind, path, res, want)
	}
	return res[0]
}

func (w *watched) expect(t *testing.T, when string, want map[string]cgroup.CPUMax) {
	t.Helper()
	for path, v := range want {
		if now, err := w.d.ReadCPUMax(path); err != nil || now != v {
			t.Errorf("%s: %s is %s, %v; want %s", when, path, now, err, v)
		}
	}
}

// A hold is in force, also on groups below; whoever comes after a crash puts back what is
// still ours, and leaves what is a stranger's or another group's.
func TestRestoreAfterACrash(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		started(t, k, "/c-stream/a/x", cores(4))
		started(t, k, "/b-registers", cores(2))
		started(t, k, "/a-web-0", cores(2))
		found := map[string]cgroup.CPUMax{
			"/c-stream":     {QuotaUsec: 160_000, PeriodUsec: 200_000, BurstUsec: 20_000},
			"/c-stream/a":   {QuotaUsec: 50_000, PeriodUsec: 100_000, BurstUsec: 10_000},
			"/c-stream/a/x": {QuotaUsec: 20_000, PeriodUsec: 100_000, BurstUsec: 20_000},
		}
		for _, path := range []string{"/c-stream", "/c-stream/a", "/c-stream/a/x"} {
			must(t, d.WriteCPUMax(path, found[path]))
		}
		w := watch(t, k, d)
		for _, path := range []string{"/c-stream", "/b-registers", "/a-web-0"} {
			w.apply(t, model.Hold, path, model.Applied)
		}
		k.Advance(1e9)
		if got := used(t, k, d, "/c-stream"); !about(got, 0.05) {
			t.Errorf("held it uses %.3f CPUs", got)
		}
		// The agent is gone. Then a group is made anew, and a stranger writes another.
		must(t, k.Stop("/b-registers"))
		started(t, k, "/b-registers", cores(2))
		must(t, d.WriteCPUMax("/b-registers", limit(5000)))
		must(t, d.WriteCPUMax("/a-web-0", limit(44_000)))
		boot, err := procstat.ReadBootID(k)
		must(t, err)
		r := linux.Restoring{FS: k, Journal: w.journal, Boot: boot, Clock: k}
		rep, err := r.Run()
		if err != nil || !rep.Complete() {
			t.Fatalf("%+v, %v", rep, err)
		}
		kinds := map[string]node.RestoreKind{}
		for _, it := range rep.Items {
			kinds[it.Path] = it.Kind
		}
		if kinds["/c-stream"] != node.Restored || kinds["/b-registers"] != node.LeftGone || kinds["/a-web-0"] != node.LeftForeign {
			t.Errorf("%v", kinds)
		}
		found["/b-registers"], found["/a-web-0"] = limit(5000), limit(44_000)
		w.expect(t, "restored", found)
		if rep, err = r.Run(); err != nil || len(rep.Items) > 0 {
			t.Errorf("a second time: %+v, %v", rep, err)
		}
	})
}

// A journal that is damaged is kept, and what it still says is put back.
func TestRestoreFromADamagedJournal(t *testing.T) {
	k := newKernel(t, newMachine(t, 3), cgroup.LayoutV2)
	d := driver(t, k)
	started(t, k, "/c-stream", cores(4))
	w := watch(t, k, d)
	w.apply(t, model.Hold, "/c-stream", model.Applied)
	data, err := os.ReadFile(w.journal)
	must(t, err)
	must(t, os.WriteFile(w.journal, append(append([]byte("x"), data...), "half a li"...), 0o600))
	boot, err := procstat.ReadBootID(k)
	must(t, err)
	rep, err := linux.Restoring{FS: k, Journal: w.journal, Boot: boot, Clock: k}.Run()
	must(t, err)
	kept, err := filepath.Glob(w.journal + ".corrupt")
	if err != nil || len(kept) != 1 || rep.Unreadable == "" || rep.Count(node.Restored) != 1 {
		t.Errorf("%+v, kept %v, %v", rep, kept, err)
	}
	w.expect(t, "restored", map[string]cgroup.CPUMax{"/c-stream": unlimited})
}

// What happens to groups and controllers under a node is told, and nothing of ours stays.
func TestGroupsChangeUnderTheNode(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		started(t, k, "/c-stream", cores(4))
		w := watch(t, k, d)
		w.apply(t, model.Hold, "/c-stream", model.Applied)
		first := w.nums["/c-stream"]
		must(t, k.Stop("/c-stream"))
		w.apply(t, model.Hold, "/c-stream", model.Vanished)
		started(t, k, "/c-stream", cores(4))
		snap := w.observe(t)
		if len(snap.Removed) != 1 || snap.Removed[0] != first {
			t.Errorf("removed %v", snap.Removed)
		}
		w.observe(t)
		if w.nums["/c-stream"] == first {
			t.Error("a group made anew is the old task")
		}
		w.expect(t, "made anew", map[string]cgroup.CPUMax{"/c-stream": unlimited})
		w.apply(t, model.Hold, "/c-stream", model.Applied)
		must(t, d.WriteCPUMax("/c-stream", limit(70_000)))
		w.apply(t, model.Release, "/c-stream", model.Foreign)
		w.expect(t, "a stranger's", map[string]cgroup.CPUMax{"/c-stream": limit(70_000)})
		// The machine's counters may be lost under it.
		k.Advance(2e9)
		before := w.observe(t).Tasks[0].C[model.CountUsage]
		must(t, k.ResetCounters("/c-stream"))
		after := w.observe(t).Tasks[0].C[model.CountUsage]
		if _, outcome := model.Delta(before, after); outcome != model.GoneBackwards {
			t.Errorf("usage from %+v to %+v: %s", before, after, outcome)
		}
		v2, ok := d.(*cgroup.V2)
		if !ok {
			return
		}
		w.apply(t, model.Hold, "/c-stream", model.Applied)
		top, err := v2.Dir("/")
		must(t, err)
		must(t, k.WriteFile(top+"/cgroup.subtree_control", []byte("-cpu")))
		if list := w.h.Knobs(nil); len(list) != 1 || list[0].Outcome != model.Absent {
			t.Errorf("knobs: %+v", list)
		}
		w.apply(t, model.Release, "/c-stream", model.Applied)
		must(t, k.WriteFile(top+"/cgroup.subtree_control", []byte("+cpu")))
		w.expect(t, "handed down again", map[string]cgroup.CPUMax{"/c-stream": unlimited})
	})
}
