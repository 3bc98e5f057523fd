package resctrl

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
)

// TestKernelSocketOffline: a socket whose CPUs go offline takes its domain away, under the
// driver's hands; it comes back with everything allowed to everybody.
func TestKernelSocketOffline(t *testing.T) {
	d := mounted(t, MountOptions{})
	be := ctrlGroup(t, d, "be")
	mon := must[*Monitor](t)(d.OpenMonitor(be.Name))
	defer mon.Close()
	var want Schemata
	want.Set(L3, 0, 0x3)
	want.Set(L3, 1, 0x3)
	want.Set(MB, 1, 20)
	must[Change](t)(d.WriteSchemata(be.Identity, want))
	if err := d.WriteCPUs(be.Identity, cpus.Of(3)); err != nil {
		t.Fatal(err)
	}
	stale := must[Schemata](t)(d.ReadSchemata(be.Name))

	online(t, false)
	defer online(t, true)
	now := must[Schemata](t)(d.ReadSchemata(be.Name))
	if !slices.Equal(now.Domains(L3), []int{0}) || !slices.Equal(now.Domains(MB), []int{0}) {
		t.Errorf("schemata without socket 1: %s", now)
	}
	if u := must[*Info](t)(d.Info()).Cache(L3).Usage; len(u) != 1 {
		t.Errorf("bit_usage = %+v", u)
	}
	got := must[[]Monitored](t)(mon.Read(nil))
	if len(got) != 2 || got[0].Total.State != Counted || got[1] != (Monitored{Domain: 1}) {
		t.Errorf("read = %+v, want domain 1 absent", got)
	}
	allocs := testing.AllocsPerRun(5, func() { got = must[[]Monitored](t)(mon.Read(got)) })
	if allocs != 0 || len(got) != 2 {
		t.Errorf("%v allocations with a domain gone; %+v", allocs, got)
	}
	if err := mon.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got = must[[]Monitored](t)(mon.Read(nil)); len(got) != 1 {
		t.Errorf("read after Refresh = %+v", got)
	}
	if cpus := must[[]int](t)(d.CPUs(be.Name)); len(cpus) != 0 {
		t.Errorf("cpus = %v", cpus)
	}
	wantError(t, "an offline CPU", d.WriteCPUs(be.Identity, cpus.Of(3)), `kernel says "Can only assign online CPUs"`, unix.EINVAL)
	want.Set(L3, 0, 0x7)
	c, err := d.WriteSchemata(be.Identity, want)
	if err != nil || c.Written != "L3:0=7\n" || !slices.Equal(c.Missing, []Ref{{L3, 1}, {MB, 1}}) {
		t.Errorf("write = %+v, %v", c, err)
	}
	// It went away after the plan was made: no word from the kernel, one from the driver.
	var gone Schemata
	gone.Set(L3, 1, 0xf)
	plan := must[Plan](t)(PlanSchemata(must[*Info](t)(d.Info()), stale, gone))
	c = Change{Written: plan.Write.String()}
	err = d.readBack(be.Name, plan, &c, d.writeSchemata(be.Name, c.Written))
	wantError(t, "write to a domain that went", err, "L3:1", ErrDomainGone, unix.EINVAL)

	online(t, true)
	now = must[Schemata](t)(d.ReadSchemata(be.Name))
	cache, _ := full(t, d)
	if v, ok := now.Get(L3, 1); !ok || Mask(v) != cache.FullMask {
		t.Errorf("L3:1 = %x, %v, want everything again", v, ok)
	}
	if refs := want.Differences(now); !slices.Equal(refs, []Ref{{L3, 1}, {MB, 1}}) {
		t.Errorf("differences = %v", refs)
	}
	if c, err = d.WriteSchemata(be.Identity, want); err != nil || c.Written != "L3:1=3\nMB:1=20\n" {
		t.Errorf("write = %+v, %v", c, err)
	}
	if err := mon.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got = must[[]Monitored](t)(mon.Read(nil)); len(got) != 2 || got[1].Total.State != Counted {
		t.Errorf("read with socket 1 back = %+v", got)
	}
}

// online takes socket 1 (CPUs 2 and 3) offline or back.
func online(t *testing.T, on bool) {
	t.Helper()
	text := "0\n"
	if on {
		text = "1\n"
	}
	for _, cpu := range []int{2, 3} {
		path := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu)
		if got := get(t, path); got != text {
			put(t, path, text)
		}
	}
}

// TestKernelLock: the lock keeps changes out while another process holds it, names it, and
// keeps no reader of single files.
func TestKernelLock(t *testing.T) {
	d := mounted(t, MountOptions{})
	be := ctrlGroup(t, d, "be")
	pid, release := spawn(t, "lock "+DefaultPoint)
	d.opt.LockWait = 100 * time.Millisecond
	var want Schemata
	want.Set(MB, 0, 50)
	who := fmt.Sprintf("pid %d (resctrl.test", pid)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		who = fmt.Sprintf("pid %d (%s)", pid, b[:len(b)-1])
	}
	for name, f := range map[string]func() error{
		"Groups":        func() error { _, err := d.Groups(ListOptions{}); return err },
		"Info":          func() error { _, err := d.Info(); return err },
		"Budget":        func() error { _, err := d.Budget(); return err },
		"CreateGroup":   func() error { _, err := d.CreateGroup("x", 0); return err },
		"Remove":        func() error { _, err := d.Remove(be.Identity, true); return err },
		"WriteSchemata": func() error { _, err := d.WriteSchemata(be.Identity, want); return err },
		"MoveThreads":   func() error { _, err := d.MoveThreads(be.Identity, nil); return err },
		"WriteCPUs":     func() error { return d.WriteCPUs(be.Identity, cpus.Of(1)) },
	} {
		wantError(t, name, f(), who, ErrLocked, unix.EWOULDBLOCK)
	}
	if _, err := d.ReadSchemata(be.Name); err != nil {
		t.Errorf("ReadSchemata: %v", err)
	}
	if mon, err := d.OpenMonitor(be.Name); err != nil {
		t.Errorf("OpenMonitor: %v", err)
	} else if err := mon.Close(); err != nil {
		t.Error(err)
	}
	// Held shared by another, it keeps changes out and lets readers in.
	release()
	fd := must[int](t)(unix.Open(DefaultPoint, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Groups(ListOptions{}); err != nil {
		t.Errorf("Groups beside a reader: %v", err)
	}
	_, err := d.WriteSchemata(be.Identity, want)
	wantError(t, "WriteSchemata beside a reader", err, fmt.Sprintf("pid %d", os.Getpid()), ErrLocked)
	// Given back while it is waited for, it is had.
	d.opt.LockWait = patience
	time.AfterFunc(50*time.Millisecond, func() { _ = unix.Flock(fd, unix.LOCK_UN) })
	if _, err := d.WriteSchemata(be.Identity, want); err != nil {
		t.Errorf("WriteSchemata after waiting: %v", err)
	}
	// And the driver lets go of it each time.
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the lock is still held: %v", err)
	}
}

// TestKernelLeftovers: what a run that died left is found and removed, when asked, and
// nothing else; threads go back to where they came from.
func TestKernelLeftovers(t *testing.T) {
	dead := mounted(t, MountOptions{})
	be, ls := ctrlGroup(t, dead, "be"), ctrlGroup(t, dead, "ls")
	kept := monGroup(t, dead, ls.Name, "kept")
	stranger(t, dead, Name{Ctrl: "commensalism"}) // begins alike, and is not ours
	theirs := stranger(t, dead, Name{Ctrl: "COS1"})
	for _, parent := range []Name{{}, be.Name, ls.Name, theirs.Name} {
		monGroup(t, dead, parent, "m")
	}
	pid, _ := spawn(t, "grow 3")
	must[Moved](t)(dead.MoveProcesses(be.Identity, func(dst []int32) ([]int32, error) { return append(dst, pid), nil }))

	// One that is killed in the middle of a change takes its lock along, and nothing else.
	_, kill := spawn(t, "leave")
	d := openLive(t) // a new run, without any memory
	d.opt.LockWait = 50 * time.Millisecond
	_, err := d.Groups(ListOptions{})
	wantError(t, "Groups before the kill", err, "", ErrLocked)
	kill()
	d.opt.LockWait = DefaultLockWait
	done, err := d.RemoveLeftovers([]Identity{kept.Identity})
	if err != nil || len(done) != 6 {
		t.Errorf("RemoveLeftovers = %+v, %v", done, err)
	}
	for _, r := range done {
		if r.Outcome != Removed || !d.ours(r.Name) {
			t.Errorf("%+v", r)
		}
	}
	left := names(must[[]Group](t)(d.Groups(ListOptions{})))
	want := []string{"/", "/COS1", "/commensal-ls", "/commensal-ls/mon_groups/commensal-kept", "/commensalism"}
	if !slices.Equal(left, want) {
		t.Errorf("left: %v", left)
	}
	for _, tid := range threadsOf(t, d, pid) {
		if at, err := d.GroupOf(tid); err != nil || !at.IsRoot() {
			t.Errorf("thread %d is in %s, %v", tid, at, err)
		}
	}
	if done, err = d.RemoveLeftovers([]Identity{ls.Identity, kept.Identity}); err != nil || len(done) != 0 {
		t.Errorf("again: %+v, %v", done, err)
	}
	if done, err = d.RemoveLeftovers(nil); err != nil || len(done) != 2 {
		t.Errorf("and the rest: %+v, %v", done, err)
	}
	if err := errors.Join(d.verify(theirs)); err != nil {
		t.Error(err)
	}
}
