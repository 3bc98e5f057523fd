package resctrltest

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

type entry = hostfs.DirEntry

// monitor opens a group's monitor for the length of the test.
func (r *rig) monitor(n resctrl.Name) *resctrl.Monitor {
	r.Helper()
	m := must[*resctrl.Monitor](r)(r.d.OpenMonitor(n))
	r.Cleanup(func() {
		if err := m.Close(); err != nil {
			r.Error(err)
		}
	})
	return m
}

func (r *rig) read(m *resctrl.Monitor) []resctrl.Monitored {
	r.Helper()
	return must[[]resctrl.Monitored](r)(m.Read(nil))
}

// testMonitor: a spinner's traffic shows in its own group, its control group and on its own
// socket; a process that moves leaves its counts behind.
func testMonitor(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be := r.ctrl("be")
	m, other := r.mon(be.Name, "m"), r.mon(resctrl.Name{}, "other")
	inGroup, inCtrl, elsewhere := r.monitor(m.Name), r.monitor(be.Name), r.monitor(other.Name)
	pid := bed.Spin(t, 0)
	r.move(m.Identity, pid)
	first := r.read(inGroup)
	if len(first) != 2 || first[0].Domain != 0 || first[1].Domain != 1 {
		t.Fatalf("read = %+v", first)
	}
	r.eventually("traffic in the spinner's group", func() bool {
		now := r.read(inGroup)
		grown := now[0].Total.Since(first[0].Total)
		return grown.State == resctrl.Counted && grown.Bytes > 1<<20 && now[0].Occupancy.Bytes > 0 &&
			now[0].Local.Since(first[0].Local).Bytes > 1<<20
	})
	now := r.read(inGroup)
	if n := now[1].Total.Since(first[1].Total); n.State != resctrl.Counted || n.Bytes > now[0].Total.Bytes/100 {
		t.Errorf("on the other socket: %+v", n)
	}
	if up := r.read(inCtrl); up[0].Total.State != resctrl.Counted || up[0].Total.Bytes < now[0].Total.Bytes {
		t.Errorf("control group %+v, its monitoring group before %+v", up[0].Total, now[0].Total)
	}
	if n := r.read(elsewhere)[0].Total; n != (resctrl.Count{State: resctrl.Counted}) {
		t.Errorf("a group without threads: %+v", n)
	}
	r.wantError("unmount while it is read", bed.Unmount(), "", unix.EBUSY)
	// Moved away, the counter stands still where it was.
	must[resctrl.Moved](t)(r.d.MoveThreads(other.Identity, r.threads(pid)))
	bed.Clock().Sleep(200 * time.Millisecond) // an emulated CPU may count a little longer
	left := r.read(inGroup)[0].Total
	r.eventually("traffic in the new group", func() bool { return r.read(elsewhere)[0].Total.Bytes > 1<<20 })
	if n := r.read(inGroup)[0].Total; n.State != resctrl.Counted || n.Bytes != left.Bytes {
		t.Errorf("the old group counts on: %+v, %+v before", n, left)
	}
	dst := make([]resctrl.Monitored, 0, 8)
	allocs := testing.AllocsPerRun(20, func() {
		var err error
		if dst, err = inCtrl.Read(dst); err != nil || len(dst) != 2 {
			t.Fatalf("read: %+v, %v", dst, err)
		}
	})
	if allocs != 0 {
		t.Errorf("Read allocates %v times", allocs)
	}
	if root := r.read(r.monitor(resctrl.Name{})); len(root) != 2 || root[0].Total.State != resctrl.Counted {
		t.Errorf("root group = %+v", root)
	}
}

// testVanish: a monitored group that goes, and one of the same name that comes.
func testVanish(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be := r.ctrl("be")
	mon := r.monitor(be.Name)
	if got := r.read(mon); len(got) != 2 {
		t.Fatalf("read = %+v", got)
	}
	if err := r.rmdir(path(be.Name, "")); err != nil {
		t.Fatal(err)
	}
	_, err := mon.Read(nil)
	r.wantError("read", err, "", resctrl.ErrVanished)
	again := r.ctrl("be")
	for range 2 {
		_, err = mon.Read(nil)
		r.wantError("read with a new group at its place", err, "", resctrl.ErrVanished)
	}
	r.wantError("refresh", mon.Refresh(), "", resctrl.ErrVanished)
	_, err = r.d.OpenMonitor(resctrl.Name{Ctrl: "nowhere"})
	r.wantError("open", err, "", resctrl.ErrVanished)
	var want resctrl.Schemata
	want.Set(resctrl.MB, 0, 50)
	_, err = r.d.WriteSchemata(be.Identity, want)
	r.wantError("write", err, "", resctrl.ErrVanished)
	_, err = r.d.MoveThreads(be.Identity, nil)
	r.wantError("move", err, "", resctrl.ErrVanished)
	r.wantError("cpus", r.d.WriteCPUs(be.Identity, cpus.Set{}), "", resctrl.ErrVanished)
	r.wantError("mode", r.d.WriteMode(be.Identity, resctrl.Shareable), "", resctrl.ErrVanished)
	if err := r.rmdir(path(again.Name, "")); err != nil {
		t.Fatal(err)
	}
	_, err = r.d.ReadSchemata(be.Name)
	r.wantError("read schemata", err, "", resctrl.ErrVanished)
	_, err = r.d.Tasks(be.Name, nil)
	r.wantError("read tasks", err, "", resctrl.ErrVanished)
}

// testRename: a monitoring group moves with its threads and counts, where the kernel can.
func testRename(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	a, b := r.ctrl("a"), r.ctrl("b")
	m := r.mon(a.Name, "m")
	pid := bed.Idle(t, 1)
	if moved := r.move(m.Identity, pid); moved.Moved < 1 {
		t.Fatalf("moved = %+v", moved)
	}
	to := resctrl.Identity{Name: resctrl.Name{Ctrl: b.Name.Ctrl, Mon: m.Name.Mon}, Inode: m.Inode}
	got, err := r.d.MoveMonGroup(m.Identity, b.Name)
	if !bed.Newest() { // rename came with Linux 6.4
		r.wantError("rename", err, "", resctrl.ErrUnsupported, unix.EPERM)
		if at := r.at(pid); at != m.Name || got != m.Identity {
			t.Errorf("%d is in %s, group is %v", pid, at, got)
		}
	} else {
		if err != nil || got != to {
			t.Fatalf("rename = %v, %v, want %v", got, err, to)
		}
		if at := r.at(pid); at != to.Name {
			t.Errorf("%d is in %s", pid, at)
		}
		r.verify(to)
		for _, id := range []resctrl.Identity{b.Identity, to} {
			if err := r.d.WriteCPUs(id, cpus.Of(3)); err != nil {
				t.Fatal(err)
			}
		}
		_, err = r.d.MoveMonGroup(to, resctrl.Name{})
		r.wantError("a group with CPUs", err, "Cannot move a MON group that monitors CPUs", unix.EPERM)
	}
	theirs := r.stranger(resctrl.Name{Ctrl: "theirs"})
	_, err = r.d.MoveMonGroup(got, theirs.Name)
	r.wantError("into another's group", err, "", resctrl.ErrForeign)
	_, err = r.d.MoveMonGroup(a.Identity, resctrl.Name{})
	r.wantError("a control group", err, "", resctrl.ErrBadName)
}

// testOffline: a socket whose CPUs go offline takes its domain away, under the driver's
// hands; it comes back with everything allowed to everybody.
func testOffline(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be := r.ctrl("be")
	mon := r.monitor(be.Name)
	var want resctrl.Schemata
	want.Set(resctrl.L3, 0, 0x3)
	want.Set(resctrl.L3, 1, 0x3)
	want.Set(resctrl.MB, 1, 20)
	must[resctrl.Change](t)(r.d.WriteSchemata(be.Identity, want))
	if err := r.d.WriteCPUs(be.Identity, cpus.Of(3)); err != nil {
		t.Fatal(err)
	}
	socket := func(on bool) {
		for _, cpu := range []int{2, 3} {
			bed.Online(t, cpu, on)
		}
	}
	socket(false)
	back := false
	t.Cleanup(func() {
		if !back {
			socket(true)
		}
	})
	if got := r.get(path(be.Name, "schemata")); got != "    MB:0=100\n    L3:0=003\n" {
		t.Errorf("schemata without socket 1: %q", got)
	}
	if got := r.get(resctrl.DefaultPoint + "/info/L3/bit_usage"); got != "0=XXSSSSSSSSS\n" {
		t.Errorf("bit_usage = %q", got)
	}
	got := r.read(mon)
	if len(got) != 2 || got[0].Total.State != resctrl.Counted || got[1] != (resctrl.Monitored{Domain: 1}) {
		t.Errorf("read = %+v, want domain 1 absent", got)
	}
	if err := mon.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got = r.read(mon); len(got) != 1 {
		t.Errorf("read after Refresh = %+v", got)
	}
	if cpus := must[[]int](t)(r.d.CPUs(be.Name)); len(cpus) != 0 {
		t.Errorf("cpus = %v", cpus)
	}
	r.wantError("an offline CPU", r.d.WriteCPUs(be.Identity, cpus.Of(3)), `kernel says "Can only assign online CPUs"`, unix.EINVAL)
	r.refused(path(be.Name, "schemata"), "L3:0=1;1=1\n", "ok", unix.EINVAL)
	want.Set(resctrl.L3, 0, 0x7)
	missing := []resctrl.Ref{{Resource: resctrl.L3, Domain: 1}, {Resource: resctrl.MB, Domain: 1}}
	c, err := r.d.WriteSchemata(be.Identity, want)
	if err != nil || c.Written != "L3:0=7\n" || !slices.Equal(c.Missing, missing) {
		t.Errorf("write = %+v, %v", c, err)
	}
	socket(true)
	back = true
	now := r.schemata(be.Name)
	if v, ok := now.Get(resctrl.L3, 1); !ok || v != 0x7ff {
		t.Errorf("L3:1 = %x, %v, want everything again", v, ok)
	}
	if refs := want.Differences(now); !slices.Equal(refs, missing) {
		t.Errorf("differences = %v", refs)
	}
	if c, err = r.d.WriteSchemata(be.Identity, want); err != nil || c.Written != "L3:1=3\nMB:1=20\n" {
		t.Errorf("write = %+v, %v", c, err)
	}
	if err := mon.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got = r.read(mon); len(got) != 2 || got[1].Total.State != resctrl.Counted {
		t.Errorf("read with socket 1 back = %+v", got)
	}
}

// testLock: the lock keeps changes out while somebody else holds it, and keeps no reader of
// single files.
func testLock(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be := r.ctrl("be")
	d := r.driver(100 * time.Millisecond)
	dir := must[hostfs.Folder](t)(hostfs.OpenFolder(r.fs, resctrl.DefaultPoint))
	t.Cleanup(func() { _ = dir.Close() })
	var want resctrl.Schemata
	want.Set(resctrl.MB, 0, 50)
	change := func() error { _, err := d.WriteSchemata(be.Identity, want); return err }
	list := func() error { _, err := d.Groups(resctrl.ListOptions{}); return err }
	if err := dir.Flock(unix.LOCK_EX | unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	r.wantError("a change", change(), "", resctrl.ErrLocked, unix.EWOULDBLOCK)
	r.wantError("a list", list(), "", resctrl.ErrLocked, unix.EWOULDBLOCK)
	if _, err := d.ReadSchemata(be.Name); err != nil {
		t.Errorf("ReadSchemata: %v", err)
	}
	// Held shared, it keeps changes out and lets readers in.
	if err := dir.Flock(unix.LOCK_SH | unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	r.wantError("a change beside a reader", change(), "", resctrl.ErrLocked)
	if err := list(); err != nil {
		t.Errorf("a list beside a reader: %v", err)
	}
	if err := dir.Flock(unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := change(); err != nil {
		t.Errorf("a change afterwards: %v", err)
	}
	// And the driver lets go of it each time; closing gives it back too.
	if err := dir.Flock(unix.LOCK_EX | unix.LOCK_NB); err != nil {
		t.Errorf("the lock is still held: %v", err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	if err := list(); err != nil {
		t.Errorf("after a close: %v", err)
	}
}
