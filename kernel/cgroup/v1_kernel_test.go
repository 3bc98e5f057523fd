package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// These tests run on the kernel they are started on, as root, in groups of their own.

// patience bounds every wait; a healthy kernel needs a small part of it.
const patience = 20 * time.Second

func liveDriver(t *testing.T) *V1 {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups takes root")
	}
	fs := hostfs.NewRoot("/")
	m, err := Discover(fs)
	if err != nil {
		t.Fatal(err)
	}
	if m.Layout != LayoutV1 && m.Layout != LayoutHybrid {
		t.Skipf("the cpu controller is not on cgroup v1 here: layout %s, refused %v", m.Layout, m.Refused)
	}
	return openV1(fs, m)
}

// liveGroup makes a group that the test owns and removes it at the end, after whatever
// was registered later (children, processes).
func liveGroup(t *testing.T, d *V1, name string) string {
	t.Helper()
	path := fmt.Sprintf("/commensal-test-%d-%s", os.Getpid(), name)
	makeGroup(t, d, path)
	return path
}

func makeGroup(t *testing.T, d *V1, path string) {
	t.Helper()
	if err := d.Mkdir(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeGroup(t, d, path) })
}

// removeGroup removes a group; a process that was killed a moment ago may hold it still.
func removeGroup(t *testing.T, d *V1, path string) {
	t.Helper()
	err := d.Rmdir(path)
	for end := time.Now().Add(patience); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		err = d.Rmdir(path)
	}
	if err != nil && !errors.Is(err, ErrVanished) {
		t.Errorf("cleaning up: %v", err)
	}
}

// start runs a command in a group until the returned function or the test's end kills it.
func start(t *testing.T, d *V1, path string, command ...string) (pid int32, kill func()) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	kill = func() {
		if done {
			return
		}
		done = true
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("kill %d: %v", cmd.Process.Pid, err)
		}
		_ = cmd.Wait() // "signal: killed" is what was asked for
	}
	t.Cleanup(kill)
	if err := d.MovePID(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return int32(cmd.Process.Pid), kill
}

func open(t *testing.T, d *V1, path string) Group {
	t.Helper()
	g, err := d.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close %s: %v", path, err)
		}
	})
	return g
}

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func procs(t *testing.T, g Group) []int32 {
	t.Helper()
	list, err := g.Procs(nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var spin = []string{"sh", "-c", "while :; do :; done"}

// TestKernelUsageAndThrottling holds a spinner two levels below a quota: usage grows in
// each ancestor, and throttling shows from above, from below and from the group itself.
func TestKernelUsageAndThrottling(t *testing.T) {
	d := liveDriver(t)
	top := liveGroup(t, d, "throttle")
	mid, leaf := top+"/mid", top+"/mid/leaf"
	makeGroup(t, d, mid)
	makeGroup(t, d, leaf)
	if err := d.WriteCPUMax(mid, CPUMax{QuotaUsec: 2000, PeriodUsec: 20000}); err != nil {
		t.Fatal(err)
	}
	groups := map[string]Group{top: open(t, d, top), mid: open(t, d, mid), leaf: open(t, d, leaf)}
	before := map[string]Throttling{}
	for path, g := range groups {
		got, err := g.Throttling()
		if err != nil {
			t.Fatal(err)
		}
		before[path] = got
	}
	start(t, d, leaf, spin...)
	for path, g := range groups {
		eventually(t, path+" is throttled and has used CPU", func() bool {
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

// TestKernelProcsAreFresh: a process that joins is seen at once however often the group
// is read. Through a kept descriptor it would not be (see cgroup_procs.go).
func TestKernelProcsAreFresh(t *testing.T) {
	d := liveDriver(t)
	top := liveGroup(t, d, "fresh")
	child := top + "/child"
	makeGroup(t, d, child)
	g := open(t, d, top)
	var want []int32
	for i := range 6 {
		if got := procs(t, g); !slices.Equal(got, want) {
			t.Fatalf("Procs = %v, want %v", got, want)
		}
		pid, _ := start(t, d, []string{top, child}[i%2], "sleep", "1000")
		want = append(want, pid)
		slices.Sort(want)
	}
	if got := procs(t, g); !slices.Equal(got, want) {
		t.Errorf("Procs = %v, want %v", got, want)
	}
	own, err := d.Procs(top)
	if err != nil || len(own) != 3 {
		t.Errorf("Procs of the group alone = %v, %v", own, err)
	}
}

// TestKernelVanishing removes and remakes groups under open handles.
func TestKernelVanishing(t *testing.T) {
	d := liveDriver(t)
	top := liveGroup(t, d, "vanish")
	child := top + "/child"
	makeGroup(t, d, child)
	parent, g := open(t, d, top), open(t, d, child)
	inode, err := d.Inode(child)
	if err != nil || g.Identity() != (Identity{Path: child, Inode: inode}) {
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
			removeGroup(t, d, child)
		}
		_, usageErr := g.UsageNsec()
		_, throttlingErr := g.Throttling()
		_, procsErr := g.Procs(nil)
		for name, err := range map[string]error{"usage": usageErr, "throttling": throttlingErr, "procs": procsErr, "refresh": g.Refresh()} {
			if !errors.Is(err, ErrVanished) {
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
	makeGroup(t, d, child+"/late")
	pid, _ := start(t, d, child+"/late", "sleep", "1000")
	if err := parent.Refresh(); err != nil {
		t.Error(err)
	}
	if got := procs(t, parent); !slices.Equal(got, []int32{pid}) {
		t.Errorf("Procs = %v, want %d", got, pid)
	}
}

// TestKernelListWhileGroupsComeAndGo lists while another goroutine makes and removes.
func TestKernelListWhileGroupsComeAndGo(t *testing.T) {
	d := liveDriver(t)
	top := liveGroup(t, d, "churn")
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
	for range 300 {
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
		if err := d.Rmdir(path); err != nil && !errors.Is(err, ErrVanished) {
			t.Error(err)
		}
	}
}

func TestKernelSharesAndIdle(t *testing.T) {
	d := liveDriver(t)
	top := liveGroup(t, d, "shares")
	for write, want := range map[uint64]uint64{512: 512, 1: 2, 1 << 30: 262144} {
		if err := d.WriteShares(top, write); err != nil {
			t.Error(err)
		}
		if got, err := d.ReadShares(top); err != nil || got != want {
			t.Errorf("shares written %d, read %d, %v; want %d", write, got, err, want)
		}
	}
	if _, err := d.ReadIdle(top); errors.Is(err, ErrUnsupported) {
		t.Skip("this kernel has no cpu.idle")
	}
	if err := d.WriteShares(top, 512); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteIdle(top, true); err != nil {
		t.Fatal(err)
	}
	if idle, err := d.ReadIdle(top); err != nil || !idle {
		t.Errorf("idle = %v, %v", idle, err)
	}
	if got, err := d.ReadShares(top); err != nil || got != 3 {
		t.Errorf("shares of an idle group = %d, %v; the file's header says 3", got, err)
	}
	if err := d.WriteShares(top, 512); !errors.Is(err, unix.EINVAL) {
		t.Errorf("shares of an idle group were written: %v", err)
	}
	if err := d.WriteIdle(top, false); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadShares(top); err != nil || got != 1024 {
		t.Errorf("shares after idle = %d, %v; the file's header says 1024", got, err)
	}
}

func TestKernelCPUSet(t *testing.T) {
	d := liveDriver(t)
	if _, ok := d.mounts[CPUSet]; !ok {
		t.Skip("no v1 cpuset hierarchy here")
	}
	top := liveGroup(t, d, "cpuset")
	all, err := d.ReadCPUs("/")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadCPUs(top); err != nil || got != all || all == "" {
		t.Errorf("a new group's cpus = %q, %v; want the parent's %q", got, err, all)
	}
	if got, err := d.ReadMems(top); err != nil || got == "" {
		t.Errorf("a new group's mems = %q, %v", got, err)
	}
	if err := d.WriteMems(top, "0"); err != nil {
		t.Error(err)
	}
	if err := d.WriteCPUs(top, "0"); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadCPUs(top); err != nil || got != "0" {
		t.Errorf("cpus = %q, %v", got, err)
	}
	if got, err := d.ReadEffectiveCPUs(top); err != nil || got != "0" {
		t.Errorf("effective cpus = %q, %v", got, err)
	}
	if err := d.WriteCPUs(top, "4000"); err == nil {
		t.Error("a CPU that is not there was taken")
	}
	if err := d.WriteCPUs(top, ""); err != nil {
		t.Errorf("emptying: %v", err)
	}
	if got, err := d.ReadCPUs(top); err != nil || got != "" {
		t.Errorf("cpus = %q, %v; want none", got, err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := d.MovePID(top, cmd.Process.Pid); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a group without CPUs took a process: %v", err)
	}
}

func TestKernelFreezer(t *testing.T) {
	d := liveDriver(t)
	if _, ok := d.mounts[Freezer]; !ok {
		t.Skip("no v1 freezer hierarchy here")
	}
	top := liveGroup(t, d, "freezer")
	child := top + "/child"
	makeGroup(t, d, child)
	start(t, d, child, spin...)
	t.Cleanup(func() { // a frozen process does not die
		if err := d.WriteFreezer(top, Thawed, patience); err != nil {
			t.Error(err)
		}
	})
	g := open(t, d, child)
	if got, err := d.ReadFreezer(top); err != nil || got != Thawed {
		t.Errorf("state = %s, %v", got, err)
	}
	if err := d.WriteFreezer(top, Frozen, patience); err != nil {
		t.Fatal(err)
	}
	before, err := g.UsageNsec()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if after, err := g.UsageNsec(); err != nil || after != before {
		t.Errorf("a frozen group used %d ns, %v", after-before, err)
	}
	err = d.WriteFreezer(child, Thawed, 5*time.Millisecond)
	if !errors.Is(err, ErrFreezerTimeout) || !strings.Contains(err.Error(), "an ancestor is frozen") {
		t.Errorf("thawing below a frozen group: %v", err)
	}
	if err := d.WriteFreezer(top, Thawed, patience); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a thawed group runs", func() bool {
		after, err := g.UsageNsec()
		if err != nil {
			t.Fatal(err)
		}
		return after > before
	})
	if err := d.WriteFreezer(top, Freezing, 0); !errors.Is(err, ErrUnsupported) {
		t.Errorf("writing FREEZING: %v", err)
	}
}

func TestKernelMkdirIsWholeOrNothing(t *testing.T) {
	d := liveDriver(t)
	top := liveGroup(t, d, "mkdir")
	for _, dir := range d.hierarchies() {
		if _, err := os.Stat(dir + top); err != nil {
			t.Error(err)
		}
	}
	// One hierarchy, the last in order, holds the name already.
	dirs := d.hierarchies()
	foreign := dirs[len(dirs)-1] + top + "/x"
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(foreign) })
	if err := d.Mkdir(top + "/x"); !errors.Is(err, unix.EEXIST) {
		t.Errorf("Mkdir beside a directory of that name: %v", err)
	}
	for _, dir := range dirs[:len(dirs)-1] {
		if _, err := os.Stat(dir + top + "/x"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was left behind: %v", dir+top+"/x", err)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("the directory that was there is gone: %v", err)
	}
	if err := d.Rmdir(top); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Rmdir with a child: %v", err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	if err := d.Rmdir(top); err != nil && !errors.Is(err, ErrVanished) {
		t.Error(err)
	}
	if err := d.Rmdir(top); !errors.Is(err, ErrVanished) {
		t.Errorf("second Rmdir: %v", err)
	}
}

func TestKernelHotPathsDoNotAllocate(t *testing.T) {
	d := liveDriver(t)
	top := liveGroup(t, d, "allocs")
	for i := range 3 {
		makeGroup(t, d, fmt.Sprintf("%s/%d", top, i))
		start(t, d, fmt.Sprintf("%s/%d", top, i), "sleep", "1000")
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
