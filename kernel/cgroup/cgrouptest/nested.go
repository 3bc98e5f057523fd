package cgrouptest

import (
	"errors"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/cgroup"
)

// severalCPUs returns the list of a group's CPUs, and the first of them alone.
func severalCPUs(t *testing.T, d cgroup.Driver, path string) (all, first string) {
	t.Helper()
	all, err := d.ReadEffectiveCPUs(path)
	must(t, err)
	set, err := cpus.Parse(all)
	must(t, err)
	if set.Len() < 2 {
		t.Skipf("only CPUs %q here", all)
	}
	return all, strconv.Itoa(set.Members()[0])
}

// testV1PlacesNest: a list lies within that of the group above and around those of the
// groups below, in that order of refusals; one with a process is not emptied.
func testV1PlacesNest(t *testing.T, b Bed) {
	d, _ := v1Driver(t, b)
	lacksV1(t, b, cgroup.CPUSet)
	all, first := severalCPUs(t, d, "/")
	top := ownGroup(t, b, d, "nest")
	kid := top + "/kid"
	makeGroup(t, b, d, kid)
	for i, c := range []struct {
		path, list string
		want       error
	}{
		{kid, first, nil}, {top, first, nil},
		{kid, all, unix.EACCES}, // more than the group above
		{top, all, nil}, {kid, all, nil},
		{top, first, unix.EBUSY}, // less than the group below
		{top, "", unix.EBUSY},
		{kid, "", nil}, {top, "", nil}, // nobody lives there
		{kid, first, unix.EACCES},
		{top, all, nil}, {kid, first, nil},
	} {
		if err := d.WriteCPUs(c.path, c.list); !errors.Is(err, c.want) {
			t.Fatalf("%d: CPUs %q of %s: %v, expected %v", i, c.list, c.path, err, c.want)
		}
	}
	start(t, b, d, kid, "sleep")
	if err := d.WriteCPUs(kid, ""); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("emptied under a process: %v", err)
	}
	if got, err := d.ReadCPUs(kid); err != nil || got != first {
		t.Errorf("CPUs %q, %v after refusals; expected %s", got, err, first)
	}
}

// testV2PlacesNest: a list may be anything, what comes of it lies within the group above;
// one with a process in it or below is not emptied.
func testV2PlacesNest(t *testing.T, b Bed) {
	d := v2Driver(t, b, cgroup.CPUSet)
	all, first := severalCPUs(t, d, "/")
	top := ownGroup(t, b, d, "nest")
	kid := top + "/kid"
	makeGroup(t, b, d, kid)
	effective := func(path, want string) {
		t.Helper()
		if got, err := d.ReadEffectiveCPUs(path); err != nil || got != want {
			t.Errorf("%s may use %q, %v; expected %s", path, got, err, want)
		}
	}
	must(t, d.WriteCPUs(top, first))
	effective(kid, first)
	must(t, d.WriteCPUs(kid, all))
	effective(kid, first)
	must(t, d.WriteCPUs(top, ""))
	effective(kid, all)
	must(t, d.WriteCPUs(top, first))
	must(t, d.WriteCPUs(kid, ""))
	start(t, b, d, kid, "sleep")
	if err := d.WriteCPUs(top, ""); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("emptied above a process: %v", err)
	}
	if got, err := d.ReadCPUs(top); err != nil || got != first {
		t.Errorf("CPUs %q, %v after a refusal; expected %s", got, err, first)
	}
}
