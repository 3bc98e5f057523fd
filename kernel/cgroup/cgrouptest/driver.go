package cgrouptest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// What cgroup.Driver promises, on whichever layout this machine has.

// testUsageAndThrottling holds a spinner two levels below a quota: usage grows in
// each ancestor, and throttling shows from above, from below and from the group itself.
func testUsageAndThrottling(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "throttle")
	mid, leaf := top+"/mid", top+"/mid/leaf"
	makeGroup(t, b, d, mid)
	makeGroup(t, b, d, leaf)
	if err := d.WriteCPUMax(mid, cgroup.CPUMax{QuotaUsec: 2000, PeriodUsec: 20000}); err != nil {
		t.Fatal(err)
	}
	groups := map[string]cgroup.Group{top: open(t, d, top), mid: open(t, d, mid), leaf: open(t, d, leaf)}
	before := map[string]cgroup.Throttling{}
	for path, g := range groups {
		got, err := g.Throttling()
		if err != nil {
			t.Fatal(err)
		}
		before[path] = got
	}
	start(t, b, d, leaf, "spin")
	for path, g := range groups {
		eventually(t, b, path+" is throttled and has used CPU", func() bool {
			got, err := g.Throttling()
			if err != nil {
				t.Fatal(err)
			}
			usage, err := g.UsageNsec()
			if err != nil {
				t.Fatal(err)
			}
			return got.NrThrottledAround >= before[path].NrThrottledAround+3 && usage > uint64(time.Millisecond)
		})
		got, err := g.Throttling()
		if err != nil {
			t.Fatal(err)
		}
		if own := got.Own.NrThrottled > 0; own != (path == mid) {
			t.Errorf("%s: own nr_throttled %d; the quota is on %s", path, got.Own.NrThrottled, mid)
		}
	}
}

// testProcsAreFresh: a process that joins is seen at once however often the
// group is read. Through a kept descriptor it would not be on v1 (see cgroup_procs.go).
func testProcsAreFresh(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "fresh")
	leaves := []string{top + "/a", top + "/b"} // v2 takes no process in a group between
	for _, leaf := range leaves {
		makeGroup(t, b, d, leaf)
	}
	g := open(t, d, top)
	var want []int32
	for i := range 6 {
		if got := procs(t, g); !slices.Equal(got, want) {
			t.Fatalf("Procs = %v, want %v", got, want)
		}
		pid, _ := start(t, b, d, leaves[i%2], "sleep")
		want = append(want, pid)
		slices.Sort(want)
	}
	if got := procs(t, g); !slices.Equal(got, want) {
		t.Errorf("Procs = %v, want %v", got, want)
	}
	own, err := d.Procs(leaves[0])
	if err != nil || len(own) != 3 {
		t.Errorf("Procs of the group alone = %v, %v", own, err)
	}
}

// testVanishing removes and remakes groups under open handles.
func testVanishing(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "vanish")
	child := top + "/child"
	makeGroup(t, b, d, child)
	parent, g := open(t, d, top), open(t, d, child)
	inode, err := d.Inode(child)
	if err != nil || g.Identity() != (cgroup.Identity{Path: child, Inode: inode}) {
		t.Errorf("Identity = %+v, inode %d, %v", g.Identity(), inode, err)
	}
	if list, err := d.Descendants(top); err != nil || !slices.Equal(list, []string{child}) {
		t.Errorf("Descendants = %v, %v", list, err)
	}
	for _, again := range []bool{false, true} {
		if again { // the same path is another group
			if err := d.Mkdir(child); err != nil {
				t.Fatal(err)
			}
		} else {
			removeGroup(t, b, d, child)
		}
		_, usageErr := g.UsageNsec()
		_, throttlingErr := g.Throttling()
		_, procsErr := g.Procs(nil)
		for name, err := range map[string]error{"usage": usageErr, "throttling": throttlingErr, "procs": procsErr, "refresh": g.Refresh()} {
			if !errors.Is(err, cgroup.ErrVanished) {
				t.Errorf("%s of a removed group, made again %v: %v", name, again, err)
			}
		}
		// The parent reads on, refreshed or not.
		if _, err := parent.Throttling(); err != nil {
			t.Error(err)
		}
		if got := procs(t, parent); len(got) != 0 {
			t.Errorf("Procs of the parent = %v", got)
		}
	}
	if now, err := d.Inode(child); err != nil || now == inode {
		t.Errorf("the new group has inode %d like the old one, %v", now, err)
	}
	if err := parent.Refresh(); err != nil {
		t.Error(err)
	}
	// A grandchild that appears later is found by Refresh.
	makeGroup(t, b, d, child+"/late")
	pid, _ := start(t, b, d, child+"/late", "sleep")
	if err := parent.Refresh(); err != nil {
		t.Error(err)
	}
	if got := procs(t, parent); !slices.Equal(got, []int32{pid}) {
		t.Errorf("Procs = %v, want %d", got, pid)
	}
}

// testListWhileGroupsComeAndGo lists while another goroutine makes and removes.
func testListWhileGroupsComeAndGo(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "churn")
	stop, churned := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				churned <- nil
				return
			default:
			}
			err := errors.Join(d.Mkdir(top+"/a"), d.Mkdir(top+"/a/b"), d.Rmdir(top+"/a/b"), d.Rmdir(top+"/a"))
			if err != nil {
				churned <- err
				return
			}
		}
	}()
	parent := open(t, d, top)
	for range 60 {
		list, err := d.List()
		if err != nil {
			t.Error(err)
		}
		if !slices.Contains(list, top) || !slices.IsSorted(list) || slices.Contains(list, "/") {
			t.Errorf("List = %v", list)
		}
		if err := parent.Refresh(); err != nil {
			t.Error(err)
		}
		if _, err := parent.Procs(nil); err != nil {
			t.Error(err)
		}
		if _, err := parent.Throttling(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-churned; err != nil {
		t.Error(err)
	}
	for _, path := range []string{top + "/a/b", top + "/a"} {
		if err := d.Rmdir(path); err != nil && !errors.Is(err, cgroup.ErrVanished) {
			t.Error(err)
		}
	}
}

func testFreezer(t *testing.T, b Bed) {
	d := driver(t, b)
	lacksV1(t, b, cgroup.Freezer)
	top := ownGroup(t, b, d, "freezer")
	child := top + "/child"
	makeGroup(t, b, d, child)
	start(t, b, d, child, "spin")
	t.Cleanup(func() { // a frozen process does not die
		if err := d.WriteFreezer(top, cgroup.Thawed, patience); err != nil {
			t.Error(err)
		}
	})
	g := open(t, d, child)
	if got, err := d.ReadFreezer(top); err != nil || got != cgroup.Thawed {
		t.Errorf("state = %s, %v", got, err)
	}
	if err := d.WriteFreezer(top, cgroup.Frozen, patience); err != nil {
		t.Fatal(err)
	}
	// A task says that it is frozen a moment before it leaves its cgroup.CPU.
	var before uint64
	eventually(t, b, "a frozen group uses no CPU time", func() bool {
		before = usage(t, g)
		b.Sleep(50 * time.Millisecond)
		return usage(t, g) == before
	})
	err := d.WriteFreezer(child, cgroup.Thawed, 5*time.Millisecond)
	if !errors.Is(err, cgroup.ErrFreezerTimeout) || !strings.Contains(err.Error(), "an ancestor is frozen") {
		t.Errorf("thawing below a frozen group: %v", err)
	}
	if err := d.WriteFreezer(top, cgroup.Thawed, patience); err != nil {
		t.Fatal(err)
	}
	eventually(t, b, "a thawed group runs", func() bool { return usage(t, g) > before })
	if err := d.WriteFreezer(top, cgroup.Freezing, 0); !errors.Is(err, cgroup.ErrUnsupported) {
		t.Errorf("writing FREEZING: %v", err)
	}
}

func testHotPathsDoNotAllocate(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "allocs")
	for i := range 3 {
		makeGroup(t, b, d, fmt.Sprintf("%s/%d", top, i))
		start(t, b, d, fmt.Sprintf("%s/%d", top, i), "sleep")
	}
	g := open(t, d, top)
	pids := make([]int32, 0, 16)
	if n := testing.AllocsPerRun(100, func() {
		_, err1 := g.UsageNsec()
		_, err2 := g.Throttling()
		var err3 error
		pids, err3 = g.Procs(pids)
		if err1 != nil || err2 != nil || err3 != nil || len(pids) != 3 {
			t.Fatal(err1, err2, err3, pids)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func testSharesAndIdle(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "shares")
	wants := map[uint64]uint64{512: 512, 1: 2, 1 << 30: 262144, 1024: 1024}
	if d.Layout() == cgroup.LayoutV2 {
		wants = map[uint64]uint64{512: 512, 1: 10, 1 << 30: 102400, 1024: 1024, 1020: 1024, 110: 113}
	}
	for write, want := range wants {
		if err := d.WriteShares(top, write); err != nil {
			t.Error(err)
		}
		if got, err := d.ReadShares(top); err != nil || got != want {
			t.Errorf("shares written %d, read %d, %v; want %d", write, got, err, want)
		}
	}
	if _, err := d.ReadIdle(top); errors.Is(err, cgroup.ErrUnsupported) {
		t.Skip("this kernel has no cpu.idle")
	}
	must(t, d.WriteShares(top, 512))
	must(t, d.WriteIdle(top, true))
	if idle, err := d.ReadIdle(top); err != nil || !idle {
		t.Errorf("idle = %v, %v", idle, err)
	}
	if got, err := d.ReadShares(top); err != nil || got > 10 || (got != 3 && d.Layout() != cgroup.LayoutV2) {
		t.Errorf("shares of an idle group = %d, %v; want %d, or the least weight's", got, err, 3)
	}
	if err := d.WriteShares(top, 512); !errors.Is(err, unix.EINVAL) {
		t.Errorf("shares of an idle group were written: %v", err)
	}
	must(t, d.WriteIdle(top, false))
	if got, err := d.ReadShares(top); err != nil || got != 1024 {
		t.Errorf("shares after idle = %d, %v; want %d", got, err, 1024)
	}
	if idle, err := d.ReadIdle(top); err != nil || idle {
		t.Errorf("idle = %v, %v", idle, err)
	}
}

func testPlaces(t *testing.T, b Bed) {
	d := driver(t, b)
	lacksV1(t, b, cgroup.CPUSet)
	top := ownGroup(t, b, d, "cpuset")
	all, err := d.ReadEffectiveCPUs("/")
	if err != nil || all == "" {
		t.Fatalf("effective CPUs of the root = %q, %v", all, err)
	}
	if got, err := d.ReadEffectiveCPUs(top); err != nil || got != all {
		t.Errorf("a new group's effective CPUs = %q, %v; want the root's %q", got, err, all)
	}
	if got, err := d.ReadCPUs(top); err != nil || (got == "") != (d.Layout() == cgroup.LayoutV2) {
		t.Errorf("a new group asks for CPUs %q, %v", got, err)
	}
	must(t, d.WriteCPUs(top, "0"))
	if got, err := d.ReadCPUs(top); err != nil || got != "0" {
		t.Errorf("CPUs = %q, %v", got, err)
	}
	if got, err := d.ReadEffectiveCPUs(top); err != nil || got != "0" {
		t.Errorf("effective CPUs = %q, %v", got, err)
	}
	pid, _ := start(t, b, d, top, "sleep")
	if allowed := b.Allowed(t, int(pid)); !slices.Equal(allowed, []int{0}) {
		t.Errorf("a process in it may use the CPUs %v", allowed)
	}
	for _, bad := range []string{"x", "0-", "1-0"} {
		if err := d.WriteCPUs(top, bad); !errors.Is(err, unix.EINVAL) {
			t.Errorf("CPUs %q: %v", bad, err)
		}
	}
}

// testRefusals: what is not there or not allowed is named.
func testRefusals(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "refusals")
	gone := top + "/gone"
	limit := cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 100000}
	for name, f := range map[string]func(path string) error{
		"limit":         func(p string) error { return d.WriteCPUMax(p, limit) },
		"shares":        func(p string) error { return d.WriteShares(p, 100) },
		"idle":          func(p string) error { return d.WriteIdle(p, false) },
		"freezer":       func(p string) error { return d.WriteFreezer(p, cgroup.Thawed, patience) },
		"cpus":          func(p string) error { return d.WriteCPUs(p, "0") },
		"rmdir":         d.Rmdir,
		"open":          func(p string) error { _, err := d.Open(p); return err },
		"read limit":    func(p string) error { _, err := d.ReadCPUMax(p); return err },
		"read shares":   func(p string) error { _, err := d.ReadShares(p); return err },
		"read idle":     func(p string) error { _, err := d.ReadIdle(p); return err },
		"read freezer":  func(p string) error { _, err := d.ReadFreezer(p); return err },
		"read cpus":     func(p string) error { _, err := d.ReadCPUs(p); return err },
		"effective":     func(p string) error { _, err := d.ReadEffectiveCPUs(p); return err },
		"inode":         func(p string) error { _, err := d.Inode(p); return err },
		"descendants":   func(p string) error { _, err := d.Descendants(p); return err },
		"procs":         func(p string) error { _, err := d.Procs(p); return err },
		"move":          func(p string) error { return d.MovePID(p, os.Getpid()) },
		"mkdir nowhere": func(p string) error { return d.Mkdir(p + "/child") },
	} {
		if err := f(gone); !errors.Is(err, cgroup.ErrVanished) || errors.Is(err, cgroup.ErrUnsupported) || !strings.Contains(err.Error(), gone) {
			t.Errorf("%s of a missing group: %v", name, err)
		}
		if err := f("relative"); !errors.Is(err, hostfs.ErrBadPath) {
			t.Errorf("%s of a relative path: %v", name, err)
		}
		if strings.HasPrefix(name, "read ") || name == "effective" || name == "inode" || name == "descendants" || name == "procs" || name == "move" || name == "mkdir nowhere" {
			continue
		}
		if err := f("/"); !errors.Is(err, cgroup.ErrRootGroup) {
			t.Errorf("%s of the root: %v", name, err)
		}
	}
	if err := d.Mkdir("/"); !errors.Is(err, cgroup.ErrRootGroup) {
		t.Errorf("Mkdir of the root: %v", err)
	}
	if err := d.Mkdir(top); !errors.Is(err, unix.EEXIST) {
		t.Errorf("Mkdir of what is there: %v", err)
	}
	if _, err := d.Inode(top); err != nil {
		t.Errorf("it is gone after that: %v", err)
	}
	makeGroup(t, b, d, top+"/child")
	if err := d.Rmdir(top); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Rmdir with a child: %v", err)
	}
	if err := d.MovePID(top, 0); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("MovePID 0, which the kernel takes for the caller: %v", err)
	}
	if err := d.MovePID(top+"/child", 1<<22+1); !errors.Is(err, unix.ESRCH) {
		t.Errorf("MovePID of no process: %v", err)
	}
}

func testRootUsage(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "root")
	root, err := d.OpenRootUsage()
	must(t, err)
	t.Cleanup(func() { must(t, root.Close()) })
	g := open(t, d, top)
	before, err := root.UsageNsec()
	must(t, err)
	start(t, b, d, top, "spin")
	const work = 200 * time.Millisecond
	eventually(t, b, "the group has used 200 ms", func() bool { return usage(t, g) > uint64(work) })
	after, err := root.UsageNsec()
	must(t, err)
	// Ticks round, and the emulated machine loses some: half is enough to tell the unit.
	if after-before < uint64(work/2) {
		t.Errorf("the machine used %d ns while a group on it used %s", after-before, work)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := root.UsageNsec(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
