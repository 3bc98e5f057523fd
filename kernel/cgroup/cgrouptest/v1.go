package cgrouptest

import (
	"errors"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// The files of a limit.
const (
	quotaFile  = "cpu.cfs_quota_us"
	periodFile = "cpu.cfs_period_us"
	burstFile  = "cpu.cfs_burst_us"
)

// testV1BandwidthEdges: what the kernel itself takes and refuses, unplanned.
func testV1BandwidthEdges(t *testing.T, b Bed) {
	d, cpu := v1Driver(t, b)
	top := ownGroup(t, b, d, "edges")
	raw := func(file string, v int64) error {
		return b.FS().WriteFile(cpu+top+"/"+file, []byte(strconv.FormatInt(v, 10)))
	}
	for _, c := range []struct {
		file string
		v    int64
		ok   bool
	}{
		{quotaFile, 999, false}, {quotaFile, 1000, true}, {quotaFile, 20000, true},
		{burstFile, 20001, false}, {burstFile, 20000, true}, {quotaFile, 19999, false},
		{quotaFile, -1, true}, {burstFile, 900000, true}, {quotaFile, 20000, false},
		{periodFile, 999, false}, {periodFile, 1000001, false}, {periodFile, 1000000, true}, {periodFile, 1000, true},
	} {
		if err := raw(c.file, c.v); (err == nil) != c.ok || (err != nil && !errors.Is(err, unix.EINVAL)) {
			t.Errorf("%s = %d: %v", c.file, c.v, err)
		}
	}
	// From there, with a burst far above, to a tight limit in one call.
	want := limit(1000, 100000, 1000)
	if err := d.WriteCPUMax(top, want); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadCPUMax(top); err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
}

// testV1CPUSetNeedsCPUs: a new group starts with its parent's lists, and without
// any it takes no process.
func testV1CPUSetNeedsCPUs(t *testing.T, b Bed) {
	d, _ := v1Driver(t, b)
	lacksV1(t, b, cgroup.CPUSet)
	top := ownGroup(t, b, d, "empty")
	all, err := d.ReadCPUs("/")
	must(t, err)
	if got, err := d.ReadCPUs(top); err != nil || got != all || all == "" {
		t.Errorf("a new group's CPUs = %q, %v; want the parent's %q", got, err, all)
	}
	if err := d.WriteCPUs(top, "4000"); err == nil {
		t.Error("a CPU that is not there was taken")
	}
	must(t, d.WriteCPUs(top, ""))
	if got, err := d.ReadCPUs(top); err != nil || got != "" {
		t.Errorf("CPUs = %q, %v; want none", got, err)
	}
	pid, _ := b.Start(t, "sleep")
	if err := d.MovePID(top, pid); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a group without CPUs took a process: %v", err)
	}
}

// testV1ParentAndChild: no quota above that of a group above, whichever is written.
func testV1ParentAndChild(t *testing.T, b Bed) {
	d, cpu := v1Driver(t, b)
	top := ownGroup(t, b, d, "nested")
	mid, leaf := top+"/mid", top+"/mid/leaf"
	makeGroup(t, b, d, mid)
	makeGroup(t, b, d, leaf)
	raw := func(path, file string, v int64) error {
		return b.FS().WriteFile(cpu+path+"/"+file, []byte(strconv.FormatInt(v, 10)))
	}
	for i, c := range []struct {
		path, file string
		v          int64
		ok         bool
	}{
		{leaf, quotaFile, 50000, true}, // nobody above has one
		{top, quotaFile, 40000, false}, // less than a group two levels below
		{top, quotaFile, 50000, true},
		{mid, quotaFile, 50001, false},
		{mid, quotaFile, 50000, true},
		{leaf, periodFile, 99999, false}, // the same quota in less time
		{leaf, periodFile, 200000, true},
		{mid, periodFile, 200001, false}, // now less than the group below
		{top, periodFile, 50000, true},
		{mid, quotaFile, -1, true},
		{leaf, quotaFile, 200001, false}, // the group two levels above binds
		{leaf, quotaFile, 200000, true},
		{leaf, quotaFile, -1, true},
		{top, quotaFile, 1000, true},
	} {
		if err := raw(c.path, c.file, c.v); (err == nil) != c.ok || (err != nil && !errors.Is(err, unix.EINVAL)) {
			t.Errorf("%d: %s of %s = %d: %v", i, c.file, c.path, c.v, err)
		}
	}
}
