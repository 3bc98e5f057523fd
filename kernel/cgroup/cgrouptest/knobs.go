package cgrouptest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// testOpenLists: an open list says what the file says, and dies with its directory, also when
// a new one has its path.
func testOpenLists(t *testing.T, b Bed) {
	d := driver(t, b)
	lacksV1(t, b, cgroup.CPUSet)
	top := ownGroup(t, b, d, "lists")
	path := top + "/a"
	makeGroup(t, b, d, path)
	if got, err := d.PlacesBelow(top); err != nil || !slices.Equal(got, []string{path}) {
		t.Errorf("below %s: %v, %v", top, got, err)
	}
	l, err := d.OpenCPUs(path)
	must(t, err)
	defer func() { must(t, l.Close()) }()
	if ino, err := d.PlaceInode(path); err != nil || ino != l.Inode() {
		t.Errorf("inode %d, %v; the list's is %d", ino, err, l.Inode())
	}
	must(t, d.WriteCPUs(path, "0"))
	for range 2 {
		if got, err := l.Read(); err != nil || got != "0" {
			t.Errorf("reads %q, %v", got, err)
		}
	}
	must(t, d.Rmdir(path))
	must(t, d.Mkdir(path))
	if _, err := l.Read(); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("of a directory that is gone: %v", err)
	}
	for name, f := range map[string]func(string) error{
		"open":  func(p string) error { _, err := d.OpenCPUs(p); return err },
		"inode": func(p string) error { _, err := d.PlaceInode(p); return err },
		"below": func(p string) error { _, err := d.PlacesBelow(p); return err },
	} {
		if err := f(top + "/none"); !errors.Is(err, cgroup.ErrVanished) {
			t.Errorf("%s of no group: %v", name, err)
		}
	}
}

// testCapAbove: the least limit above a group is named, and its own is none of it.
func testCapAbove(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "above")
	mid, low := top+"/a", top+"/a/b"
	makeGroup(t, b, d, mid)
	makeGroup(t, b, d, low)
	must(t, d.WriteCPUMax(low, limit(1000, 100000, 0)))
	if at, v, err := d.CapAbove(low); err != nil || at != "" || v.QuotaUsec != -1 {
		t.Errorf("nothing above: %q %s, %v", at, v, err)
	}
	must(t, d.WriteCPUMax(top, limit(50000, 100000, 0)))
	must(t, d.WriteCPUMax(mid, limit(20000, 50000, 0)))
	if at, v, err := d.CapAbove(low); err != nil || at != mid || v != limit(20000, 50000, 0) {
		t.Errorf("the nearest binds: %q %s, %v", at, v, err)
	}
	must(t, d.WriteCPUMax(mid, limit(-1, 50000, 0)))
	if at, v, err := d.CapAbove(low); err != nil || at != top || v != limit(50000, 100000, 0) {
		t.Errorf("the farther binds: %q %s, %v", at, v, err)
	}
	if got, err := d.Delegated(low); err != nil || got {
		t.Errorf("a group of our own is delegated: %v, %v", got, err)
	}
}

// testChange: who knows what is there changes it with no other result than WriteCPUMax, and a
// limit that another group is in the way of is refused by its name on v1.
func testChange(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "change")
	child := top + "/child"
	makeGroup(t, b, d, child)
	unlimited := cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 100000}
	rng := rand.New(rand.NewPCG(1618, 1))
	at := unlimited
	for round := range 100 {
		to := randomLimit(rng)
		must(t, d.ChangeCPUMax(top, at, to))
		if got, err := d.ReadCPUMax(top); err != nil || got != to {
			t.Fatalf("round %d: %s to %s reads %s, %v", round, at, to, got, err)
		}
		at = to
	}
	must(t, d.ChangeCPUMax(top, at, limit(20000, 100000, 0)))
	err := d.ChangeCPUMax(child, unlimited, limit(30000, 100000, 0))
	if v2 := d.Layout() == cgroup.LayoutV2; v2 != (err == nil) || !v2 && (!errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "its ancestor "+top)) {
		t.Errorf("more than the group above: %v", err)
	}
	must(t, d.WriteCPUMax(child, limit(20000, 100000, 0)))
	err = d.ChangeCPUMax(top, limit(20000, 100000, 0), limit(10000, 100000, 0))
	if v2 := d.Layout() == cgroup.LayoutV2; v2 != (err == nil) || !v2 && (!errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "its descendant "+child)) {
		t.Errorf("less than the group below: %v", err)
	}
}
