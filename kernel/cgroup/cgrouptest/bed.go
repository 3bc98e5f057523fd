// Package cgrouptest tests what every kernel promises that the drivers of kernel/cgroup run
// on: this machine's, the rig's, and the simulated one.
package cgrouptest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Bed is a kernel to test on.
type Bed interface {
	// FS are its files.
	FS() hostfs.FS
	// Start starts a process, in whichever group new ones are, until kill or the test's
	// end ends it. It does "spin" on one CPU, or "sleep".
	Start(t testing.TB, task string) (pid int, kill func())
	// Allowed returns the CPUs that a process may run on, sorted.
	Allowed(t testing.TB, pid int) []int
	// Sleep lets time pass.
	Sleep(d time.Duration)
}

// Conform tests a kernel. What its layout has not is skipped, with the reason.
func Conform(t *testing.T, b Bed) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Bed)
	}{
		{"UsageAndThrottling", testUsageAndThrottling},
		{"ProcsAreFresh", testProcsAreFresh},
		{"Vanishing", testVanishing},
		{"ListWhileGroupsComeAndGo", testListWhileGroupsComeAndGo},
		{"ListRemembers", testListRemembers},
		{"Freezer", testFreezer},
		{"HotPathsDoNotAllocate", testHotPathsDoNotAllocate},
		{"SharesAndIdle", testSharesAndIdle},
		{"Places", testPlaces},
		{"OpenLists", testOpenLists},
		{"CapAbove", testCapAbove},
		{"Change", testChange},
		{"Refusals", testRefusals},
		{"RootUsage", testRootUsage},
		{"Limits", testLimits},
		{"CutWrites", testCutWrites},
		{"WriteRefills", testWriteRefills},
		{"V1BandwidthEdges", testV1BandwidthEdges},
		{"V1CPUSetNeedsCPUs", testV1CPUSetNeedsCPUs},
		{"V1ParentAndChild", testV1ParentAndChild},
		{"V1PlacesNest", testV1PlacesNest},
		{"V2PlacesNest", testV2PlacesNest},
		{"V2BandwidthEdges", testV2BandwidthEdges},
		{"V2LesserQuotaBinds", testV2LesserQuotaBinds},
		{"V2Events", testV2Events},
		{"V2Kill", testV2Kill},
		{"V2FreezeNests", testV2FreezeNests},
		{"V2Replaced", testV2Replaced},
		{"V2HalfEnabled", testV2HalfEnabled},
		{"V2ThrottlingCountsOn", testV2ThrottlingCountsOn},
		{"V2SubtreeControl", testV2SubtreeControl},
		{"V2PressureSwitchedOff", testV2PressureSwitchedOff},
		{"V2PressureGone", testV2PressureGone},
		{"SystemPressure", testSystemPressure},
		{"Machine", testMachine},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b) })
	}
}

// patience bounds every wait; a healthy kernel needs a small part of it.
const patience = 30 * time.Second

// mounts finds the hierarchies.
func mounts(t *testing.T, b Bed) *cgroup.Mounts {
	t.Helper()
	m, err := cgroup.Discover(b.FS())
	if err != nil {
		t.Fatal(err)
	}
	if m.Layout == cgroup.LayoutNone {
		t.Skipf("no hierarchy here holds the cpu controller: refused %v", m.Refused)
	}
	return m
}

// driver opens the driver of the kernel's layout.
func driver(t *testing.T, b Bed) cgroup.Driver {
	t.Helper()
	d, err := cgroup.Open(b.FS(), mounts(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// lacksV1 skips a test on v1 without a hierarchy of the controller.
func lacksV1(t *testing.T, b Bed, c cgroup.Controller) {
	t.Helper()
	if m := mounts(t, b); m.Layout != cgroup.LayoutV2 && m.V1[c] == "" {
		t.Skipf("no v1 hierarchy here has the controller %s", c)
	}
}

// v1Driver opens the v1 driver, and the directory of its cpu controller.
func v1Driver(t *testing.T, b Bed) (d *cgroup.V1, cpu string) {
	t.Helper()
	d, ok := driver(t, b).(*cgroup.V1)
	if !ok {
		t.Skip("the cpu controller is on cgroup v2 here, and the test is about v1's own files")
	}
	return d, mounts(t, b).V1[cgroup.CPU]
}

// v2Driver opens the v2 driver on the cgroup2 mount, which on a hybrid host has none of the
// controllers that v1 holds: the test names those that it needs.
func v2Driver(t *testing.T, b Bed, need ...cgroup.Controller) *cgroup.V2 {
	t.Helper()
	m := mounts(t, b)
	d, err := cgroup.OpenUnified(b.FS(), m)
	if errors.Is(err, cgroup.ErrUnsupportedLayout) {
		t.Skipf("no cgroup2 mount here: layout %s, refused %v", m.Layout, m.Refused)
	}
	must(t, err)
	on, err := d.ReadSubtreeControl("/")
	must(t, err)
	for _, c := range need {
		if !slices.Contains(on, c) {
			t.Skipf("%s/cgroup.subtree_control has %v and not %s (layout %s)", m.Unified, on, c, m.Layout)
		}
	}
	return d
}

// write and read are a v2 group's file, past the driver.
func write(t *testing.T, b Bed, d *cgroup.V2, path, name, value string) error {
	t.Helper()
	dir, err := d.Dir(path)
	must(t, err)
	return b.FS().WriteFile(dir+"/"+name, []byte(value))
}

func read(t *testing.T, b Bed, d *cgroup.V2, path, name string) string {
	t.Helper()
	dir, err := d.Dir(path)
	must(t, err)
	data, err := b.FS().ReadFile(dir+"/"+name, nil)
	must(t, err)
	return string(data)
}

// ownGroup makes a group that the test owns and removes it at the end, after whatever was
// registered later (children, processes).
func ownGroup(t *testing.T, b Bed, d cgroup.Driver, name string) string {
	t.Helper()
	path := fmt.Sprintf("/commensal-test-%d-%s", os.Getpid(), name)
	makeGroup(t, b, d, path)
	return path
}

func makeGroup(t *testing.T, b Bed, d cgroup.Driver, path string) {
	t.Helper()
	must(t, d.Mkdir(path))
	t.Cleanup(func() { removeGroup(t, b, d, path) })
}

// plainMkdir makes a v2 group without enabling anything.
func plainMkdir(t *testing.T, b Bed, d *cgroup.V2, path string) {
	t.Helper()
	dir, err := d.Dir(path)
	must(t, err)
	must(t, b.FS().(hostfs.DirMaker).Mkdir(dir, 0o755))
	t.Cleanup(func() { removeGroup(t, b, d, path) })
}

// poll is the pause between two looks, and polls how many there are.
const (
	poll  = 5 * time.Millisecond
	polls = int(patience / poll)
)

// removeGroup removes a group; a process that was killed a moment ago may hold it still.
func removeGroup(t *testing.T, b Bed, d cgroup.Driver, path string) {
	t.Helper()
	err := d.Rmdir(path)
	for range polls {
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		b.Sleep(poll)
		err = d.Rmdir(path)
	}
	if err != nil && !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("cleaning up: %v", err)
	}
}

// start starts a process and moves it into a group.
func start(t *testing.T, b Bed, d cgroup.Driver, path, task string) (pid int32, kill func()) {
	t.Helper()
	id, kill := b.Start(t, task)
	must(t, d.MovePID(path, id))
	return int32(id), kill
}

func open(t *testing.T, d cgroup.Driver, path string) cgroup.Group {
	t.Helper()
	g, err := d.Open(path)
	must(t, err)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close %s: %v", path, err)
		}
	})
	return g
}

// eventually waits until f is true.
func eventually(t *testing.T, b Bed, what string, f func() bool) {
	t.Helper()
	for range polls {
		if f() {
			return
		}
		b.Sleep(poll)
	}
	t.Fatalf("not within %s: %s", patience, what)
}

func procs(t *testing.T, g cgroup.Group) []int32 {
	t.Helper()
	list, err := g.Procs(nil)
	must(t, err)
	return list
}

func usage(t *testing.T, g cgroup.Group) uint64 {
	t.Helper()
	v, err := g.UsageNsec()
	must(t, err)
	return v
}

// limit is a CPU bandwidth limit in microseconds.
func limit(quota, period, burst int64) cgroup.CPUMax {
	return cgroup.CPUMax{QuotaUsec: quota, PeriodUsec: period, BurstUsec: burst}
}

func second[T any](_ T, err error) error { return err }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
