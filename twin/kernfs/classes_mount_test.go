package kernfs_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
)

// A class is given its ways back one by one, up to all: the first of them lie beside the two that devices fill. What another
// program holds for itself it does not get, and it is not pressed onto those of devices.
func TestWaysComeBackOneByOne(t *testing.T) {
	c := openClassed(t)
	at := func(domain int) (mask uint64) {
		for _, g := range c.listed() {
			if strings.HasPrefix(g.Name.Ctrl, "commensal-be-") {
				mask, _ = g.Schemata.Get(resctrl.L3, domain)
			}
		}
		return mask
	}
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE)), 1)
	for n := int64(2); n <= 11; n++ {
		c.all(model.Applied, c.do(c.change(model.Hold, ofClass(0), model.Ways(n))), 1)
		if want := uint64(1)<<n - 1; at(0) != want {
			t.Errorf("%d ways are %#x, not %#x", n, at(0), want)
		}
	}
	// Another program has the seven lowest for itself: of the other four two are clear of devices.
	c.all(model.Applied, c.do(c.change(model.Hold, ofClass(0), model.Ways(2)), c.change(model.Hold, ofClass(1), model.Ways(2))), 2)
	must(t, c.k.WriteFile("/sys/fs/resctrl/"+c.groups()[0]+"/schemata", []byte("L3:0=180;1=180\n")))
	must(t, c.k.WriteFile("/sys/fs/resctrl/schemata", []byte("L3:0=780;1=780\n")))
	must(t, c.k.Mkdir("/sys/fs/resctrl/COS1", 0o755))
	must(t, c.k.WriteFile("/sys/fs/resctrl/COS1/schemata", []byte("L3:0=7f;1=7f\n")))
	must(t, c.k.WriteFile("/sys/fs/resctrl/COS1/mode", []byte("exclusive\n")))
	for n, want := range map[int64]uint64{2: 0x180, 3: 0x380} {
		if c.all(model.Applied, c.do(c.change(model.Hold, ofClass(0), model.Ways(n))), 1); at(0) != want {
			t.Errorf("%d of the other ways are %#x, not %#x", n, at(0), want)
		}
	}
	got := c.do(c.change(model.Hold, ofClass(0), model.Ways(4)))
	if c.all(model.Refused, got, 1); !strings.Contains(got[0].Error, "no room") {
		t.Errorf("four of them: %+v", got)
	}
}

// told is what the machine has, as the next looks say it; nil: nothing new.
func (c *classed) told() *model.Classes {
	c.t.Helper()
	c.k.Advance(11e9)
	c.look()
	c.do()
	if c.look(); c.snap.Topology == nil {
		return nil
	}
	return c.snap.Topology.Classes
}

// What the machine has follows resctrl as it is mounted: levels that count otherwise (mba_MBps), lines for code and data (cdp), nothing.
// A level in the old unit, which was asked for before that was known, is refused: it would be a tenth of a thousandth.
func TestMountedAnewUnderUs(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Level(10))), 2)
	again := func(o resctrl.MountOptions) {
		t.Helper()
		must(t, c.k.UnmountResctrl())
		must(t, c.k.MountResctrl(o))
	}
	again(resctrl.MountOptions{MBps: true})
	got := c.do(c.change(model.Hold, ofClass(1), model.Level(10)))
	if c.all(model.Refused, got, 1); !strings.Contains(got[0].Error, "mounted anew") {
		t.Errorf("%+v", got)
	}
	c.look()
	have := c.snap.Topology
	if have == nil || have.Classes.LevelUnit != model.LevelMiB || have.Classes.MostLevel <= 100 || !slices.Equal(have.Classes.Memory, []int32{0, 1}) {
		t.Fatalf("with mba_MBps: %+v", have)
	}
	c.told() // the group is gone, and that is told
	c.all(model.Applied, c.do(c.change(model.Hold, ofClass(1), model.Level(2000))), 1)
	if v, _ := c.listed()[1].Schemata.Get(resctrl.MB, 1); v != 2000 {
		t.Errorf("the level is %d MiB/s", v)
	}
	again(resctrl.MountOptions{CDP: true})
	if have := c.told(); have == nil || have.LevelUnit != model.LevelPercent || have.MostLevel != 100 || have.IDs != 4 || have.Ways != 11 {
		t.Errorf("with cdp: %+v", have)
	}
	must(t, c.k.UnmountResctrl())
	if have := c.told(); have == nil || len(have.Caches)+len(have.Memory) > 0 {
		t.Errorf("unmounted: %+v", have)
	}
	if have := c.told(); have != nil {
		t.Errorf("told again: %+v", have)
	}
	must(t, c.k.MountResctrl(resctrl.MountOptions{}))
	if have := c.told(); have == nil || have.LevelUnit != model.LevelPercent || have.IDs != 8 {
		t.Errorf("mounted: %+v", have)
	}
}

// resctrl that is mounted after the agent began is noticed.
func TestMountedLater(t *testing.T) {
	c := openClassed(t)
	must(t, c.h.Close())
	must(t, c.j.Close())
	must(t, c.k.UnmountResctrl())
	c.open()
	if have := c.told(); have != nil {
		t.Errorf("before: %+v", have)
	}
	must(t, c.k.MountResctrl(resctrl.MountOptions{}))
	if have := c.told(); have == nil || have.Ways != 11 || have.MostLevel != 100 || have.Alone() != 5 {
		t.Errorf("after: %+v", have)
	}
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2))), 2)
}

// Whoever holds the lock on resctrl and never gives it back keeps nobody: an agent that ends, and whoever restores after it, end within the
// time that the lock is waited for, and say what is left. Once it is given back the next restore removes that.
func TestLockThatIsNeverGivenBack(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2))), 2)
	dir, err := c.k.OpenFolder("/sys/fs/resctrl")
	must(t, err)
	must(t, dir.Flock(unix.LOCK_EX))
	bounded := func(who string, restore func() (node.Report, error)) {
		t.Helper()
		began := c.k.MonoNsec()
		rep, err := restore()
		if took := time.Duration(c.k.MonoNsec() - began); took > 3*resctrl.DefaultLockWait {
			t.Errorf("%s: it took %s", who, took)
		}
		if err != nil || rep.Complete() || rep.Count(node.NotRestored) != 1 || !strings.Contains(rep.Items[0].Error, "locked by another process") || len(c.j.Outstanding()) != 1 {
			t.Errorf("%s: %+v, %v; journal %+v", who, rep, err, c.j.Outstanding())
		}
	}
	bounded("an agent that ends", c.h.Restore)
	must(t, errors.Join(c.h.Close(), c.j.Close()))
	boot, err := procstat.ReadBootID(c.k)
	must(t, err)
	r := linux.Restoring{FS: c.k, Journal: c.journal, Boot: boot, Clock: c.k}
	bounded("restore", r.Run)
	must(t, dir.Close())
	if rep, err := r.Run(); err != nil || !rep.Complete() || len(c.groups()) > 0 {
		t.Errorf("given back: %+v, %v; left %v", rep, err, c.groups())
	}
}
