package kernfs_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

const resctrlRoot = resctrl.DefaultPoint

// mountedBed mounts resctrl and opens a driver.
func mountedBed(t testing.TB, o resctrl.MountOptions) (*resctrlBed, *resctrl.Driver) {
	t.Helper()
	b := newResctrlBed(t, 3)
	if err := b.k.MountResctrl(o); err != nil {
		t.Fatal(err)
	}
	at, err := resctrl.Discover(b.k)
	if err != nil {
		t.Fatal(err)
	}
	opt := resctrl.DefaultOptions()
	opt.Clock = b.k
	d, err := resctrl.Open(b.k, at, opt)
	if err != nil {
		t.Fatal(err)
	}
	return b, d
}

func group(t testing.TB, d *resctrl.Driver, name string, pids ...int32) resctrl.Made {
	t.Helper()
	g, err := d.CreateGroup(name, time.Minute)
	if err == nil {
		_, err = d.MoveProcesses(g.Identity, func(dst []int32) ([]int32, error) { return append(dst, pids...), nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func number(t testing.TB, fsys hostfs.FS, path string) float64 {
	t.Helper()
	data, err := fsys.ReadFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// rate is a group's traffic on socket 0 in MiB/s.
func rate(t testing.TB, b *resctrlBed, g resctrl.Name) float64 {
	t.Helper()
	path := resctrlRoot + g.String() + "/mon_data/mon_L3_00/mbm_total_bytes"
	before := number(t, b.k, path)
	b.k.Advance(2e9)
	return (number(t, b.k, path) - before) / 2 / (1 << 20)
}

// A mask holds what a group has in the cache to its ways, also against one that streams; a MBA
// level holds what it moves.
func TestResctrlActsOnPhysics(t *testing.T) {
	b, d := mountedBed(t, resctrl.MountOptions{})
	noisy := group(t, d, "noisy", b.Spin(t, 0))
	quiet := group(t, d, "quiet", b.Spin(t, 1))
	b.k.Advance(5e9)
	occupancy := func(g resctrl.Made) float64 {
		return number(t, b.k, resctrlRoot+g.Name.String()+"/mon_data/mon_L3_00/llc_occupancy")
	}
	if a, c := occupancy(noisy), occupancy(quiet); a < 4<<20 || c < 4<<20 || a+c > 16<<20 {
		t.Errorf("two that stream have %v and %v bytes of the cache", a, c)
	}
	var two, rest resctrl.Schemata
	two.Set(resctrl.L3, 0, 0x3)
	rest.Set(resctrl.L3, 0, 0x7fc)
	for g, s := range map[*resctrl.Made]resctrl.Schemata{&noisy: two, &quiet: rest} {
		if _, err := d.WriteSchemata(g.Identity, s); err != nil {
			t.Fatal(err)
		}
	}
	b.k.Advance(5e9)
	way := float64(16<<20) / 11
	if a, c := occupancy(noisy), occupancy(quiet); a > 2*way || a < way || c < 8*way {
		t.Errorf("with 2 and 9 ways they have %.1f and %.1f ways", a/way, c/way)
	}
	free := rate(t, b, noisy.Name)
	var slow resctrl.Schemata
	slow.Set(resctrl.MB, 0, 10)
	if _, err := d.WriteSchemata(noisy.Identity, slow); err != nil {
		t.Fatal(err)
	}
	b.k.Advance(1e9)
	if held := rate(t, b, noisy.Name); !(held < 0.6*free) || held <= 0 {
		t.Errorf("at an MBA level of 10 it moves %.0f MiB/s, %.0f without", held, free)
	}
	// Back in the root group it is free again, and so it is when resctrl goes.
	if _, err := d.Remove(noisy.Identity, false); err != nil {
		t.Fatal(err)
	}
	b.k.Advance(1e9)
	if again := rate(t, b, resctrl.Name{}); again < 0.8*free {
		t.Errorf("let go, it moves %.0f MiB/s, %.0f before", again, free)
	}
	if err := b.k.UnmountResctrl(); err != nil {
		t.Fatal(err)
	}
	b.k.Advance(3e9)
	for num := range 2 {
		if v, err := b.k.Machine().Occupancy(num, 0); err != nil || v < 4<<20 {
			t.Errorf("unmounted, task %d has %v bytes of the cache, %v", num, v, err)
		}
	}
	if err := b.k.MountResctrl(resctrl.MountOptions{}); err != nil {
		t.Error(err)
	}
}

// The kernel's own controller brings a group to its MiB/s.
func TestMBpsIsHeld(t *testing.T) {
	b, d := mountedBed(t, resctrl.MountOptions{MBps: true})
	g := group(t, d, "g", b.Spin(t, 0))
	b.k.Advance(2e9)
	free := rate(t, b, g.Name)
	var s resctrl.Schemata
	s.Set(resctrl.MB, 0, uint64(free/2))
	if _, err := d.WriteSchemata(g.Identity, s); err != nil {
		t.Fatal(err)
	}
	read := func() { // the controller works when somebody looks
		for range 15 {
			b.k.Advance(1e9)
			number(t, b.k, resctrlRoot+"/mon_data/mon_L3_00/llc_occupancy")
		}
	}
	read()
	if held := rate(t, b, g.Name); !(held < 0.7*free) {
		t.Errorf("held to %.0f MiB/s it moves %.0f", free/2, held)
	}
	s.Set(resctrl.MB, 0, resctrl.Unlimited)
	if _, err := d.WriteSchemata(g.Identity, s); err != nil {
		t.Fatal(err)
	}
	read()
	if again := rate(t, b, g.Name); again < 0.9*free {
		t.Errorf("without a limit it moves %.0f MiB/s, %.0f before", again, free)
	}
}

// Words instead of numbers, and a control group that still has its own.
func TestMonitorAnswers(t *testing.T) {
	b, d := mountedBed(t, resctrl.MountOptions{Debug: true})
	g := group(t, d, "g", b.Spin(t, 0))
	m, err := d.CreateMonGroup(g.Name, "m", 0)
	if err != nil {
		t.Fatal(err)
	}
	rmid := int(number(t, b.k, resctrlRoot+m.Name.String()+"/mon_hw_id"))
	for text, want := range map[string]resctrl.CountState{"Unavailable": resctrl.Unavailable, "Error": resctrl.Failed, "": resctrl.Counted} {
		b.k.SetMonitorAnswer(rmid, text)
		for name, want := range map[resctrl.Name]resctrl.CountState{m.Name: want, g.Name: resctrl.Counted} {
			mon, err := d.OpenMonitor(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := mon.Read(nil)
			if err != nil || len(got) != 2 || got[0].Occupancy.State != want || got[1].Local.State != want {
				t.Errorf("%q: %s: %+v, %v", text, name, got, err)
			}
			if err := mon.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A process follows the group that most of its threads are in, and its threads are listed
// where each of them is.
func TestThreadsDecideTogether(t *testing.T) {
	b, d := mountedBed(t, resctrl.MountOptions{})
	g := group(t, d, "g")
	c := antagonist()
	c.Threads, c.Work = 3, &machine.Work{}
	c.CPUs.Add(0)
	pid, other := b.start(t, c), b.Idle(t, 1)
	for i, moves := range []bool{false, true, true} {
		if err := b.k.WriteFile(resctrlRoot+g.Name.String()+"/tasks", fmt.Appendln(nil, int(pid)+i)); err != nil {
			t.Fatal(err)
		}
		tasks, err := d.Tasks(g.Name, nil)
		if err != nil || len(tasks) != i+1 {
			t.Errorf("%v, %v, want %d threads", tasks, err, i+1)
		}
		if moved := rate(t, b, g.Name) > 0; moved != moves {
			t.Errorf("with %d of 3 threads in the group, its traffic moved: %v", i+1, moved)
		}
	}
	if at, err := d.GroupOf(other); err != nil || !at.IsRoot() {
		t.Errorf("%d is in %s, %v", other, at, err)
	}
	child, err := b.k.Fork(int(pid), c)
	if err != nil {
		t.Fatal(err)
	}
	for tid := int32(child); tid < int32(child)+3; tid++ {
		if at, err := d.GroupOf(tid); err != nil || at != g.Name {
			t.Errorf("the child's thread %d is in %s, %v", tid, at, err)
		}
	}
	if _, err := b.k.Fork(1, c); !errors.Is(err, unix.ESRCH) {
		t.Errorf("fork of nobody: %v", err)
	}
}

// The style of schemata since 6.15.
func TestUnpadded(t *testing.T) {
	k, err := kernfs.New(rigMachine(t, 1), kernfs.Options{Layout: cgroup.LayoutHybrid, RDT: true, Resctrl: kernfs.ResctrlOptions{Unpadded: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.MountResctrl(resctrl.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := k.ReadFile(resctrlRoot+"/schemata", nil)
	if err != nil || string(got) != "MB:0=100;1=100\nL3:0=7ff;1=7ff\n" {
		t.Errorf("%q, %v", got, err)
	}
}
