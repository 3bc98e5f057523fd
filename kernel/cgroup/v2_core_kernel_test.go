package cgroup

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What every v2 hierarchy does, also one without controllers: these run on a hybrid host's
// cgroup2 mount as well.

func TestKernelV2Events(t *testing.T) {
	d := liveV2(t)
	top := ownGroup(t, d, "events")
	child := top + "/child"
	makeGroup(t, d, child)
	watch, err := d.WatchEvents(top)
	must(t, err)
	t.Cleanup(func() { must(t, watch.Close()) })
	next := func(populated bool) {
		t.Helper()
		if changed, err := watch.Wait(patience); err != nil || !changed {
			t.Fatalf("no change: %v, %v", changed, err)
		}
		e, err := watch.Read()
		if err != nil || e.Populated != populated || !e.HasFrozen {
			t.Errorf("events = %+v, %v; want populated %v", e, err, populated)
		}
		if again, err := d.ReadEvents(top); err != nil || again != e {
			t.Errorf("read otherwise: %+v, %v", again, err)
		}
	}
	if e, err := watch.Read(); err != nil || e.Populated {
		t.Errorf("a new group: %+v, %v", e, err)
	}
	if changed, err := watch.Wait(10 * time.Millisecond); err != nil || changed {
		t.Errorf("a change where nothing happens: %v, %v", changed, err)
	}
	_, kill := start(t, d, child, "sleep")
	next(true)
	kill()
	next(false)
	removeGroup(t, d, child)
	removeGroup(t, d, top)
	if _, err := watch.Read(); !errors.Is(err, ErrVanished) {
		t.Errorf("events of a removed group: %v", err)
	}
	if changed, err := watch.Wait(patience); err != nil || !changed {
		t.Errorf("waiting at a removed group: %v, %v", changed, err)
	}
}

func TestKernelV2Kill(t *testing.T) {
	d := liveV2(t)
	top := ownGroup(t, d, "kill")
	child := top + "/child"
	makeGroup(t, d, child)
	must(t, d.Kill(top, 0)) // nobody there
	for _, task := range []string{"sleep", "spin"} {
		start(t, d, child, task)
	}
	must(t, d.WriteFreezer(child, Frozen, patience))
	// The parent of the processes is this test: dead and not waited for they still
	// count, until the frozen ones are gone too.
	if err := d.Kill(top, patience); err != nil {
		t.Fatal(err)
	}
	if e, err := d.ReadEvents(top); err != nil || e.Populated {
		t.Errorf("events = %+v, %v", e, err)
	}
	if pids, err := d.Procs(child); err != nil || len(pids) != 0 {
		t.Logf("zombies that nobody waited for: %v, %v", pids, err)
	}
	if err := d.Kill("/", 0); !errors.Is(err, ErrRootGroup) {
		t.Errorf("killing the root: %v", err)
	}
	if err := d.Kill(top+"/gone", 0); !errors.Is(err, ErrVanished) {
		t.Errorf("killing a missing group: %v", err)
	}
}

func TestKernelV2FreezeNests(t *testing.T) {
	d := liveV2(t)
	top := ownGroup(t, d, "nest")
	child := top + "/child"
	makeGroup(t, d, child)
	start(t, d, child, "spin")
	t.Cleanup(func() { must(t, d.WriteFreezer(top, Thawed, patience)) })
	must(t, d.WriteFreezer(top, Frozen, patience))
	if got, err := d.ReadFreezer(child); err != nil || got != Frozen {
		t.Errorf("below a frozen group: %s, %v", got, err)
	}
	err := d.WriteFreezer(child, Thawed, 5*time.Millisecond)
	if !errors.Is(err, ErrFreezerTimeout) || !strings.Contains(err.Error(), "an ancestor is frozen: "+top) {
		t.Errorf("thawing below a frozen group: %v", err)
	}
	// Its own wish outlives the parent's.
	must(t, d.WriteFreezer(child, Frozen, patience))
	must(t, d.write(top, "cgroup.freeze", "0"))
	eventually(t, "the parent is not frozen", func() bool {
		e, err := d.ReadEvents(top)
		must(t, err)
		return !e.Frozen
	})
	if got, err := d.ReadFreezer(child); err != nil || got != Frozen {
		t.Errorf("frozen by itself: %s, %v", got, err)
	}
	must(t, d.WriteFreezer(child, Thawed, patience))
	if got, err := d.ReadFreezer(top); err != nil || got != Thawed {
		t.Errorf("all thawed: %s, %v", got, err)
	}
}

// TestKernelV2Threaded: what a threaded subtree refuses has a name.
func TestKernelV2Threaded(t *testing.T) {
	d := liveV2(t)
	top := ownGroup(t, d, "threaded")
	leaf, below := top+"/leaf", top+"/leaf/below"
	must(t, d.Mkdir(leaf))
	t.Cleanup(func() { removeGroup(t, d, leaf) })
	on, err := d.ReadSubtreeControl(top)
	must(t, err)
	if len(on) > 0 {
		must(t, d.Disable(top, on...)) // domain controllers do not go with threads
	}
	must(t, d.MakeThreaded(leaf))
	must(t, d.tree.fs.(interface {
		Mkdir(string, uint32) error
	}).Mkdir(d.top+below, groupPerm))
	t.Cleanup(func() { removeGroup(t, d, below) })
	for path, want := range map[string]Type{"/": Domain, top: DomainThreaded, leaf: Threaded, below: DomainInvalid} {
		if got, err := d.ReadType(path); err != nil || got != want {
			t.Errorf("type of %s = %q, %v; want %q", path, got, err, want)
		}
	}
	// The whole process joins the subtree by its root; then its threads may move.
	pid, _ := start(t, d, top, "sleep")
	must(t, d.write(leaf, "cgroup.threads", itoa(pid)))
	if _, err := d.Procs(leaf); !errors.Is(err, ErrThreaded) || !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), `"threaded"`) {
		t.Errorf("processes of a threaded group: %v", err)
	}
	if got, err := d.Procs(top); err != nil || !slices.Equal(got, []int32{pid}) {
		t.Errorf("processes of the threaded subtree: %v, %v", got, err)
	}
	g := open(t, d, top)
	if got := procs(t, g); !slices.Equal(got, []int32{pid}) {
		t.Errorf("Procs over a threaded descendant = %v", got)
	}
	threaded := open(t, d, leaf)
	if _, err := threaded.Procs(nil); !errors.Is(err, ErrThreaded) {
		t.Errorf("Procs of an open threaded group: %v", err)
	}
	if _, err := threaded.UsageNsec(); err != nil {
		t.Errorf("usage of a threaded group: %v", err)
	}
	if err := d.Kill(leaf, 0); !errors.Is(err, ErrThreaded) {
		t.Errorf("killing a threaded group: %v", err)
	}
	other, _ := startTask(t, "sleep")
	if err := d.MovePID(below, other); !errors.Is(err, ErrThreaded) || !strings.Contains(err.Error(), `"domain invalid"`) {
		t.Errorf("moving into an invalid domain: %v", err)
	}
}

// TestKernelV2Root: what the root group has not is named, and it is never written.
func TestKernelV2Root(t *testing.T) {
	d := liveV2(t)
	if d.Partial() {
		t.Skip("the true root of the hierarchy cannot be seen from this cgroup namespace")
	}
	for name, err := range map[string]error{
		"events": second(d.ReadEvents("/")), "limit": second(d.ReadCPUMax("/")), "cpus": second(d.ReadCPUs("/")),
		"memory": second(d.ReadMemoryCurrent("/")), "partition": second(d.ReadPartition("/")),
	} {
		if !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrNoController) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"enable": d.Enable("/", CPU), "disable": d.Disable("/", CPU), "bound": d.WriteMemoryBound("/", MemoryHigh, NoBound),
		"partition": d.WritePartition("/", Member), "threaded": d.MakeThreaded("/"), "weight": d.WriteWeight("/", 100),
	} {
		if !errors.Is(err, ErrRootGroup) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if usage, err := d.ReadCPUTime("/"); err != nil || usage.UsageNsec == 0 || usage.UserNsec == 0 {
		t.Errorf("CPU time = %+v, %v", usage, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestKernelV2Replaced: a watch and a directory stay bound to the group that they were
// opened on, also when it is made anew.
func TestKernelV2Replaced(t *testing.T) {
	d := liveV2(t)
	top := ownGroup(t, d, "replaced")
	watch, err := d.WatchEvents(top)
	must(t, err)
	t.Cleanup(func() { must(t, watch.Close()) })
	removeGroup(t, d, top)
	must(t, d.Mkdir(top))
	if _, err := watch.Read(); !errors.Is(err, ErrVanished) {
		t.Errorf("events of a replaced group: %v", err)
	}
	dir, err := d.Dir(top)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/cgroup.procs"); err != nil {
		t.Errorf("Dir names %s: %v", dir, err)
	}
}
