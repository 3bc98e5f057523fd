package cgrouptest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

func testV2Events(t *testing.T, b Bed) {
	d := v2Driver(t, b)
	top := ownGroup(t, b, d, "events")
	child := top + "/child"
	makeGroup(t, b, d, child)
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
	_, kill := start(t, b, d, child, "sleep")
	next(true)
	kill()
	next(false)
	removeGroup(t, b, d, child)
	removeGroup(t, b, d, top)
	if _, err := watch.Read(); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("events of a removed group: %v", err)
	}
	if changed, err := watch.Wait(patience); err != nil || !changed {
		t.Errorf("waiting at a removed group: %v, %v", changed, err)
	}
}

func testV2Kill(t *testing.T, b Bed) {
	d := v2Driver(t, b)
	top := ownGroup(t, b, d, "kill")
	child := top + "/child"
	makeGroup(t, b, d, child)
	must(t, d.Kill(top, 0)) // nobody there
	for _, task := range []string{"sleep", "spin"} {
		start(t, b, d, child, task)
	}
	must(t, d.WriteFreezer(child, cgroup.Frozen, patience))
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
	if err := d.Kill("/", 0); !errors.Is(err, cgroup.ErrRootGroup) {
		t.Errorf("killing the root: %v", err)
	}
	if err := d.Kill(top+"/gone", 0); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("killing a missing group: %v", err)
	}
}

func testV2FreezeNests(t *testing.T, b Bed) {
	d := v2Driver(t, b)
	top := ownGroup(t, b, d, "nest")
	child := top + "/child"
	makeGroup(t, b, d, child)
	start(t, b, d, child, "spin")
	t.Cleanup(func() { must(t, d.WriteFreezer(top, cgroup.Thawed, patience)) })
	must(t, d.WriteFreezer(top, cgroup.Frozen, patience))
	if got, err := d.ReadFreezer(child); err != nil || got != cgroup.Frozen {
		t.Errorf("below a frozen group: %s, %v", got, err)
	}
	err := d.WriteFreezer(child, cgroup.Thawed, 5*time.Millisecond)
	if !errors.Is(err, cgroup.ErrFreezerTimeout) || !strings.Contains(err.Error(), "an ancestor is frozen: "+top) {
		t.Errorf("thawing below a frozen group: %v", err)
	}
	// Its own wish outlives the parent's.
	must(t, d.WriteFreezer(child, cgroup.Frozen, patience))
	must(t, write(t, b, d, top, "cgroup.freeze", "0"))
	eventually(t, b, "the parent is not frozen", func() bool {
		e, err := d.ReadEvents(top)
		must(t, err)
		return !e.Frozen
	})
	if got, err := d.ReadFreezer(child); err != nil || got != cgroup.Frozen {
		t.Errorf("frozen by itself: %s, %v", got, err)
	}
	must(t, d.WriteFreezer(child, cgroup.Thawed, patience))
	if got, err := d.ReadFreezer(top); err != nil || got != cgroup.Thawed {
		t.Errorf("all thawed: %s, %v", got, err)
	}
}

// testV2Replaced: a watch and a directory stay bound to the group that they were
// opened on, also when it is made anew.
func testV2Replaced(t *testing.T, b Bed) {
	d := v2Driver(t, b)
	top := ownGroup(t, b, d, "replaced")
	watch, err := d.WatchEvents(top)
	must(t, err)
	t.Cleanup(func() { must(t, watch.Close()) })
	removeGroup(t, b, d, top)
	must(t, d.Mkdir(top))
	if _, err := watch.Read(); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("events of a replaced group: %v", err)
	}
	dir, err := d.Dir(top)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.FS().Inode(dir + "/cgroup.procs"); err != nil {
		t.Errorf("Dir names %s: %v", dir, err)
	}
}

// testV2HalfEnabled: a group whose parent keeps a controller has CPU time and
// processes and no limit, and the error names controller and parent.
func testV2HalfEnabled(t *testing.T, b Bed) {
	d := v2Driver(t, b, cgroup.CPU, cgroup.CPUSet, cgroup.Memory)
	top := ownGroup(t, b, d, "half")
	mid, leaf := top+"/mid", top+"/mid/leaf"
	plainMkdir(t, b, d, mid)
	plainMkdir(t, b, d, leaf)
	must(t, d.Enable(top, cgroup.Memory, cgroup.CPUSet))
	must(t, d.WriteCPUs(mid, "0"))
	for _, c := range []struct {
		path    string
		stopsAt string
		ctl     cgroup.Controller
		do      func(path string) error
	}{
		{mid, top, cgroup.CPU, func(p string) error { return second(d.ReadCPUMax(p)) }},
		{leaf, top, cgroup.CPU, func(p string) error { return d.WriteCPUMax(p, limit(20000, 100000, 0)) }},
		{leaf, top, cgroup.CPU, func(p string) error { return second(d.ReadShares(p)) }},
		{leaf, top, cgroup.CPU, func(p string) error { return d.WriteShares(p, 512) }},
		{leaf, top, cgroup.CPU, func(p string) error { return d.WriteIdle(p, true) }},
		{leaf, mid, cgroup.CPUSet, func(p string) error { return second(d.ReadCPUs(p)) }},
		{leaf, mid, cgroup.CPUSet, func(p string) error { return d.WriteCPUs(p, "0") }},
		{leaf, top, cgroup.CPU, func(p string) error { return d.Enable(p, cgroup.CPU) }},
	} {
		err := c.do(c.path)
		var absent *cgroup.AbsentControllerError
		if !errors.As(err, &absent) || !errors.Is(err, cgroup.ErrNoController) || errors.Is(err, cgroup.ErrUnsupported) || errors.Is(err, cgroup.ErrVanished) {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		if *absent != (cgroup.AbsentControllerError{Path: c.path, Controller: c.ctl, StopsAt: c.stopsAt}) || !strings.Contains(err.Error(), c.stopsAt+" lacks "+string(c.ctl)) {
			t.Errorf("%s: %+v: %v", c.path, *absent, err)
		}
	}
	// Where the group may run is known all the same.
	if got, err := d.ReadEffectiveCPUs(leaf); err != nil || got != "0" {
		t.Errorf("effective CPUs = %q, %v; want those of %s", got, err, mid)
	}
	start(t, b, d, leaf, "spin")
	g := open(t, d, leaf)
	eventually(t, b, "usage without the cpu controller grows", func() bool { return usage(t, g) > 1e6 })
	if th, err := g.Throttling(); err != nil || th != (cgroup.Throttling{}) {
		t.Errorf("throttling without the cpu controller = %+v, %v; want zero and HasQuota false", th, err)
	}
}

// testV2ThrottlingCountsOn: nr_throttled begins anew when the controller is
// disabled and enabled, and the sum over the tree does not fall.
func testV2ThrottlingCountsOn(t *testing.T, b Bed) {
	d := v2Driver(t, b, cgroup.CPU)
	top := ownGroup(t, b, d, "anew")
	leaf := top + "/leaf"
	makeGroup(t, b, d, leaf)
	start(t, b, d, leaf, "spin")
	parent, g := open(t, d, top), open(t, d, leaf)
	last := map[cgroup.Group]uint64{}
	for round := range 3 {
		must(t, d.WriteCPUMax(leaf, limit(1000, 10000, 0)))
		for _, g := range []cgroup.Group{g, parent} {
			eventually(t, b, "the quota throttles", func() bool {
				th, err := g.Throttling()
				must(t, err)
				if th.NrThrottledAround < last[g] {
					t.Fatalf("round %d: the sum fell from %d to %d", round, last[g], th.NrThrottledAround)
				}
				return th.NrThrottledAround >= last[g]+2
			})
		}
		must(t, d.Disable(top, cgroup.CPU))
		for _, g := range []cgroup.Group{g, parent} {
			th, err := g.Throttling()
			must(t, err)
			if (g != parent && th.Own.HasQuota) || th.NrThrottledAround < 2 {
				t.Errorf("round %d: disabled: %+v", round, th)
			}
			last[g] = th.NrThrottledAround
		}
		if _, err := d.ReadCPUMax(leaf); !errors.Is(err, cgroup.ErrNoController) {
			t.Errorf("limit while disabled: %v", err)
		}
		must(t, d.Enable(top, cgroup.CPU))
		if got, err := d.ReadCPUMax(leaf); err != nil || got.QuotaUsec != -1 {
			t.Errorf("limit after that = %s, %v; it is gone with the controller", got, err)
		}
	}
}

// testV2SubtreeControl: enabling, disabling, and what stands in the way.
func testV2SubtreeControl(t *testing.T, b Bed) {
	d := v2Driver(t, b, cgroup.CPU, cgroup.CPUSet, cgroup.Memory, cgroup.PIDs)
	top := ownGroup(t, b, d, "subtree")
	mid := top + "/mid"
	plainMkdir(t, b, d, mid)
	have, err := d.ReadControllers(top)
	if err != nil || !slices.Contains(have, cgroup.CPU) || !slices.Contains(have, cgroup.Memory) {
		t.Errorf("controllers = %v, %v", have, err)
	}
	if on, err := d.ReadSubtreeControl(top); err != nil || len(on) != 0 {
		t.Errorf("a new group hands on %v, %v", on, err)
	}
	must(t, d.Enable(top, cgroup.CPU, cgroup.Memory))
	if on, err := d.ReadSubtreeControl(top); err != nil || len(on) != 2 {
		t.Errorf("it hands on %v, %v", on, err)
	}
	must(t, d.Enable(mid, cgroup.CPU))
	if err := d.Disable(top, cgroup.CPU); !errors.Is(err, cgroup.ErrInUse) || !errors.Is(err, unix.EBUSY) {
		t.Errorf("disabling what a child hands on: %v", err)
	}
	pid, kill := b.Start(t, "sleep")
	if err := d.MovePID(mid, pid); !errors.Is(err, cgroup.ErrInnerGroup) {
		t.Errorf("a process into an inner group: %v", err)
	}
	// Where a domain controller is handed on, the kernel refuses it itself.
	must(t, d.Enable(mid, cgroup.Memory))
	if err := write(t, b, d, mid, "cgroup.procs", strconv.Itoa(pid)); !errors.Is(err, unix.EBUSY) {
		t.Errorf("the kernel takes a process in an inner group: %v", err)
	}
	must(t, d.Disable(mid, cgroup.Memory))
	must(t, d.Disable(mid, cgroup.CPU))
	must(t, d.MovePID(mid, pid))
	for _, c := range [][]cgroup.Controller{{cgroup.CPU}, {cgroup.Memory}, {cgroup.CPU, cgroup.Memory}} {
		if err := d.Enable(mid, c...); !errors.Is(err, cgroup.ErrHasProcesses) {
			t.Errorf("enabling %v below a group with processes: %v", c, err)
		}
	}
	if got, err := d.ReadType(mid); err != nil || got != cgroup.Domain {
		t.Errorf("that made it %q, %v", got, err)
	}
	if err := d.Mkdir(mid + "/leaf"); !errors.Is(err, cgroup.ErrHasProcesses) {
		t.Errorf("Mkdir below a group with processes: %v", err)
	}
	if list, err := d.Descendants(mid); err != nil || len(list) != 0 {
		t.Errorf("Mkdir left %v behind, %v", list, err)
	}
	if err := d.Enable(mid, "nosuch"); !errors.Is(err, cgroup.ErrNoController) {
		t.Errorf("a controller that does not exist: %v", err)
	}
	kill()
	eventually(t, b, "the process is gone", func() bool {
		pids, err := d.Procs(mid)
		must(t, err)
		return len(pids) == 0
	})
	makeGroup(t, b, d, mid+"/leaf")
	for _, path := range []string{top, mid} {
		on, err := d.ReadSubtreeControl(path)
		must(t, err)
		for _, c := range []cgroup.Controller{cgroup.CPU, cgroup.CPUSet, cgroup.Memory, cgroup.PIDs} {
			if !slices.Contains(on, c) {
				t.Errorf("Mkdir did not make %s hand on %s", path, c)
			}
		}
	}
}

// The files of a limit.
const (
	maxFile      = "cpu.max"
	maxBurstFile = "cpu.max.burst"
)

// testV2BandwidthEdges: what the kernel itself takes and refuses, unplanned.
func testV2BandwidthEdges(t *testing.T, b Bed) {
	d := v2Driver(t, b, cgroup.CPU)
	top := ownGroup(t, b, d, "edges")
	for _, c := range []struct {
		file, value string
		ok          bool
		want        string
	}{
		{maxFile, "999 100000", false, "max 100000 0"},
		{maxFile, "1000", true, "1000 100000 0"},
		{maxFile, "20000 50000", true, "20000 50000 0"},
		{maxBurstFile, "20001", false, "20000 50000 0"},
		{maxBurstFile, "20000", true, "20000 50000 20000"},
		{maxFile, "19999 50000", false, "20000 50000 20000"},
		{maxFile, "max", true, "max 50000 20000"},
		{maxBurstFile, "900000", true, "max 50000 900000"},
		{maxFile, "20000 50000", false, "max 50000 900000"},
		{maxFile, "max 999", false, "max 50000 900000"},
		{maxFile, "max 1000001", false, "max 50000 900000"},
		{maxFile, "max 1000000", true, "max 1000000 900000"},
		{maxFile, "-1 100000", false, "max 1000000 900000"},
	} {
		if err := write(t, b, d, top, c.file, c.value); (err == nil) != c.ok || (err != nil && !errors.Is(err, unix.EINVAL)) {
			t.Errorf("%s = %s: %v", c.file, c.value, err)
		}
		got := strings.ReplaceAll(strings.TrimSpace(read(t, b, d, top, maxFile)+read(t, b, d, top, maxBurstFile)), "\n", " ")
		if got != c.want {
			t.Errorf("after %s = %s it reads %q, want %q", c.file, c.value, got, c.want)
		}
	}
	// From there, with a burst far above, to a tight limit in one call.
	want := limit(1000, 100000, 1000)
	must(t, d.WriteCPUMax(top, want))
	if got, err := d.ReadCPUMax(top); err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	// Unlike on v1 a child may have more than its parent.
	makeGroup(t, b, d, top+"/child")
	must(t, d.WriteCPUMax(top+"/child", limit(500000, 100000, 0)))
	must(t, d.WriteCPUMax(top, limit(2000, 100000, 0)))
}

// testV2LesserQuotaBinds: a child with a wide quota is held by its parent's.
func testV2LesserQuotaBinds(t *testing.T, b Bed) {
	d := v2Driver(t, b, cgroup.CPU)
	top := ownGroup(t, b, d, "lesser")
	child := top + "/child"
	makeGroup(t, b, d, child)
	must(t, d.WriteCPUMax(top, limit(2000, 20000, 0)))
	must(t, d.WriteCPUMax(child, limit(400000, 20000, 0)))
	g := open(t, d, child)
	start(t, b, d, child, "spin")
	eventually(t, b, "the parent's quota throttles the child", func() bool {
		th, err := g.Throttling()
		must(t, err)
		return th.NrThrottledAround >= 3 && th.Own.NrThrottled == 0
	})
}
