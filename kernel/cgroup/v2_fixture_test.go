package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

const (
	fixture61  = "testdata/qemu-6.1"
	fixture612 = "testdata/qemu-6.12"
)

func v2Driver(t *testing.T, fs hostfs.FS) *V2 {
	t.Helper()
	m, err := Discover(fs)
	must(t, err)
	d, err := Open(fs, m)
	must(t, err)
	return d.(*V2)
}

// copyV2 gives a test a tree of its own to change.
func copyV2(t *testing.T) (dir string, groups string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(fixture612)))
	return dir, filepath.Join(dir, "sys/fs/cgroup")
}

func TestV2FixtureMounts(t *testing.T) {
	for _, dir := range []string{fixture61, fixture612} {
		m, err := Discover(hostfs.NewRoot(dir))
		if err != nil || m.Layout != LayoutV2 || m.Unified != "/sys/fs/cgroup" || m.UnifiedPartial || m.NSDelegate || len(m.V1) != 0 || len(m.Refused) != 0 {
			t.Errorf("%s: %+v, %v", dir, m, err)
			continue
		}
		for _, c := range append(driven(), IO) {
			if !slices.Contains(m.UnifiedControllers, c) {
				t.Errorf("%s: no %s in %v", dir, c, m.UnifiedControllers)
			}
		}
	}
}

func TestV2FixtureGroup(t *testing.T) {
	for _, c := range []struct {
		dir    string
		usage  uint64
		own    CPUStat
		around uint64
		procs  []int32
	}{
		{fixture61, 650417000, CPUStat{HasQuota: true, NrPeriods: 18, NrThrottled: 13, ThrottledNsec: 1490129000, HasBursts: true, NrBursts: 2, BurstNsec: 8742000},
			23, []int32{164, 169, 174}},
		{fixture612, 1122553000, CPUStat{HasQuota: true, NrPeriods: 42, NrThrottled: 12, ThrottledNsec: 1708330000, HasBursts: true, NrBursts: 2, BurstNsec: 7491000},
			38, []int32{214, 219, 224}},
	} {
		d := v2Driver(t, hostfs.NewRoot(c.dir))
		if list, err := d.List(); err != nil || !slices.Equal(list, []string{"/batch", "/batch/job-1", "/batch/job-2", "/plain", "/plain/leaf"}) {
			t.Errorf("%s: List = %v, %v", c.dir, list, err)
		}
		g, err := d.Open("/batch")
		must(t, err)
		if got, err := g.UsageNsec(); err != nil || got != c.usage {
			t.Errorf("%s: UsageNsec = %d, %v", c.dir, got, err)
		}
		if got, err := g.Throttling(); err != nil || got.Own != c.own || got.NrThrottledAround != c.around {
			t.Errorf("%s: Throttling = %+v, %v", c.dir, got, err)
		}
		if got, err := g.Procs(nil); err != nil || !slices.Equal(got, c.procs) {
			t.Errorf("%s: Procs = %v, %v", c.dir, got, err)
		}
		if got, err := d.Procs("/batch"); err != nil || len(got) != 0 {
			t.Errorf("%s: Procs of the group alone = %v, %v", c.dir, got, err)
		}
		must(t, g.Close())
		must(t, g.Close())
		if _, err := g.UsageNsec(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("UsageNsec after Close: %v", err)
		}
		// A descendant counts its ancestor's throttling.
		job, err := d.Open("/batch/job-2")
		must(t, err)
		if got, err := job.Throttling(); err != nil || got.NrThrottledAround != c.own.NrThrottled || got.Own.NrThrottled != 0 || !got.Own.HasQuota {
			t.Errorf("%s: Throttling of /batch/job-2 = %+v, %v", c.dir, got, err)
		}
		must(t, job.Close())
		root, err := d.OpenRootUsage()
		must(t, err)
		total, err := root.UsageNsec()
		data, err1 := d.read("/", "cpu.stat")
		must(t, err1)
		cpu, err2 := parseCPUTime(data)
		if err != nil || err2 != nil || total != cpu.UserNsec+cpu.SystemNsec || total < c.usage {
			t.Errorf("%s: the root's usage = %d, %v, %v", c.dir, total, err, err2)
		}
		must(t, root.Close())
	}
}

func TestV2FixtureLimits(t *testing.T) {
	for dir, idleWeight := range map[string]uint64{fixture61: 0, fixture612: 1} {
		d := v2Driver(t, hostfs.NewRoot(dir))
		for path, want := range map[string]CPUMax{
			"/batch": {40000, 100000, 5000}, "/batch/job-1": {20000, 100000, 20000}, "/batch/job-2": {-1, 100000, 0},
		} {
			if got, err := d.ReadCPUMax(path); err != nil || got != want {
				t.Errorf("%s: limit of %s = %s, %v", dir, path, got, err)
			}
		}
		if got, err := d.ReadShares("/batch"); err != nil || got != 10 {
			t.Errorf("%s: shares = %d, %v", dir, got, err)
		}
		if got, err := d.ReadWeight("/batch/job-1"); err != nil || got != idleWeight {
			t.Errorf("%s: weight of an idle group = %d, %v", dir, got, err)
		}
		for path, want := range map[string]bool{"/batch": false, "/batch/job-1": true} {
			if got, err := d.ReadIdle(path); err != nil || got != want {
				t.Errorf("%s: %s is idle: %v, %v", dir, path, got, err)
			}
		}
		for path, want := range map[string]FreezerState{"/batch": Thawed, "/batch/job-2": Frozen, "/plain/leaf": Thawed} {
			if got, err := d.ReadFreezer(path); err != nil || got != want {
				t.Errorf("%s: %s is %s, %v", dir, path, got, err)
			}
		}
		for path, want := range map[string][2]string{"/batch": {"2-3", "2-3"}, "/batch/job-1": {"", "2-3"}, "/plain": {"", "0-3"}} {
			cpus, err1 := d.ReadCPUs(path)
			effective, err2 := d.ReadEffectiveCPUs(path)
			if got := [2]string{cpus, effective}; got != want || errors.Join(err1, err2) != nil {
				t.Errorf("%s: %s is placed %q, %v", dir, path, got, errors.Join(err1, err2))
			}
		}
		// Where the controller ends, the group runs where the last that has it does.
		if got, err := d.ReadEffectiveCPUs("/plain/leaf"); err != nil || got != "0-3" {
			t.Errorf("%s: effective CPUs of /plain/leaf = %q, %v", dir, got, err)
		}
		if p, err := d.ReadPartition("/batch/job-2"); err != nil || p.Kind != PartitionRoot || !p.Invalid || !strings.Contains(p.Reason, "empty") {
			t.Errorf("%s: partition = %+v, %v", dir, p, err)
		}
	}
}

func TestV2AbsentFilesAreNamed(t *testing.T) {
	dir, groups := copyV2(t)
	d := v2Driver(t, hostfs.NewRoot(dir))
	for _, name := range []string{"batch/cpu.max.burst", "batch/cpu.idle", "batch/cgroup.type"} {
		must(t, os.Remove(filepath.Join(groups, name)))
	}
	if got, err := d.ReadCPUMax("/batch"); err != nil || got != (CPUMax{40000, 100000, 0}) {
		t.Errorf("ReadCPUMax without burst = %v, %v", got, err)
	}
	err := d.WriteCPUMax("/batch", CPUMax{40000, 100000, 100})
	var ce *CPUMaxError
	if !errors.Is(err, ErrUnsupported) || !errors.As(err, &ce) || ce.File != maxBurstFile || len(ce.Written) != 0 {
		t.Errorf("WriteCPUMax with burst on a kernel without: %v", err)
	}
	for name, err := range map[string]error{
		"idle": second(d.ReadIdle("/batch")), "type": second(d.ReadType("/batch")),
	} {
		if !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrVanished) || errors.Is(err, ErrNoController) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for path, stopsAt := range map[string]string{"/plain/leaf": "/plain"} {
		var absent *AbsentControllerError
		if _, err := d.ReadCPUMax(path); !errors.As(err, &absent) || absent.StopsAt != stopsAt || absent.Controller != CPU {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A hierarchy that has no cpu controller at all, as on a hybrid host.
	for _, group := range []string{"", "batch", "plain"} {
		must(t, os.WriteFile(filepath.Join(groups, group, "cgroup.controllers"), []byte("memory\n"), 0o644))
	}
	must(t, os.Remove(filepath.Join(groups, "plain/cpu.max")))
	var absent *AbsentControllerError
	if _, err := d.ReadCPUMax("/plain"); !errors.As(err, &absent) || absent.StopsAt != "" || !strings.Contains(err.Error(), "the hierarchy has no controller cpu") {
		t.Errorf("without the controller: %v", err)
	}
	if _, err := d.Open("/gone"); !errors.Is(err, ErrVanished) {
		t.Errorf("Open of a missing group: %v", err)
	}
}

func TestV2RemadeGroupIsNotUnsupported(t *testing.T) {
	f := &absentOnceFS{FS: hostfs.NewRoot(fixture612), path: "/sys/fs/cgroup/batch/cpu.max.burst"}
	d := v2Driver(t, f)
	if got, err := d.ReadCPUMax("/batch"); !errors.Is(err, ErrVanished) || errors.Is(err, ErrUnsupported) {
		t.Errorf("ReadCPUMax = %v, %v; a burst of 5000 must not read as none", got, err)
	}
	if got, err := d.ReadCPUMax("/batch"); err != nil || got.BurstUsec != 5000 {
		t.Errorf("again: %v, %v", got, err)
	}
}

func TestV2MalformedFilesAreNamed(t *testing.T) {
	dir, groups := copyV2(t)
	d := v2Driver(t, hostfs.NewRoot(dir))
	for _, name := range []string{"cpu.stat", "job-1/cgroup.procs", "cpu.max", "cpu.weight", "cpu.idle", "cgroup.events", "cgroup.type",
		"cpuset.cpus.partition"} {
		must(t, os.WriteFile(filepath.Join(groups, "batch", name), []byte("What? Why?\n"), 0o644))
	}
	g, err := d.Open("/batch")
	must(t, err)
	defer func() { must(t, g.Close()) }()
	for name, err := range map[string]error{
		"usage": second(g.UsageNsec()), "throttling": second(g.Throttling()), "procs": second(g.Procs(nil)), "limit": second(d.ReadCPUMax("/batch")),
		"shares": second(d.ReadShares("/batch")), "idle": second(d.ReadIdle("/batch")), "freezer": second(d.ReadFreezer("/batch")),
		"type": second(d.ReadType("/batch")), "partition": second(d.ReadPartition("/batch")),
	} {
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "/batch") {
			t.Errorf("%s: %v, want ErrMalformed and the group's path", name, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(groups, "cgroup.controllers"), []byte("What? Why?\n"), 0o644))
	if _, err := Discover(hostfs.NewRoot(dir)); !errors.Is(err, ErrMalformed) {
		t.Errorf("Discover: %v", err)
	}
}

// TestV2WriteCPUMaxSaysHowFarItCame refuses each write of a change in turn: the error
// names what stands, the state left is intermediate, and writing back succeeds.
func TestV2WriteCPUMaxSaysHowFarItCame(t *testing.T) {
	found, intended := CPUMax{20000, 100000, 20000}, CPUMax{10000, 50000, 4000}
	dir, _ := copyV2(t)
	f := &refusingFS{FS: hostfs.NewRoot(dir), dir: dir}
	d := v2Driver(t, f)
	for _, c := range []struct {
		from, to CPUMax
		order    []string
		writes   []string
	}{
		{found, intended, []string{maxBurstFile, maxFile}, []string{"cpu.max.burst=4000", "cpu.max=10000 50000"}},
		{intended, found, []string{maxFile, maxBurstFile}, []string{"cpu.max=20000 100000", "cpu.max.burst=20000"}},
		{found, CPUMax{-1, 100000, 20000}, []string{maxFile}, []string{"cpu.max=max 100000"}},
		{CPUMax{-1, 100000, 90000}, found, []string{maxBurstFile, maxFile}, []string{"cpu.max.burst=20000", "cpu.max=20000 100000"}},
	} {
		for refuse := 1; refuse <= len(c.order); refuse++ {
			f.refuse = 0
			must(t, d.WriteCPUMax("/batch/job-1", c.from))
			f.writes, f.refuse = nil, refuse
			err := d.WriteCPUMax("/batch/job-1", c.to)
			var ce *CPUMaxError
			if !errors.As(err, &ce) || !errors.Is(err, unix.EBUSY) || errors.Is(err, ErrVanished) {
				t.Fatalf("refusing write %d: %v", refuse, err)
			}
			text := ce.File + " = " + ce.Value + ": "
			if ce.File != c.order[refuse-1] || !slices.Equal(ce.Written, c.order[:refuse-1]) || !slices.Equal(f.writes, c.writes[:refuse]) || !strings.Contains(err.Error(), text) {
				t.Errorf("refusing write %d: %v, writes %v", refuse, err, f.writes)
			}
			now, err := d.ReadCPUMax("/batch/job-1")
			if err != nil || !IsIntermediate(c.from, c.to, now) || now == c.to {
				t.Errorf("left behind: %s, %v", now, err)
			}
			f.refuse = 0
			must(t, d.WriteCPUMax("/batch/job-1", c.from))
			if now, err := d.ReadCPUMax("/batch/job-1"); err != nil || now != c.from {
				t.Errorf("after writing back: %s, %v", now, err)
			}
		}
	}
	// What is there already is not written.
	must(t, d.WriteCPUMax("/batch/job-1", found))
	f.writes = nil
	must(t, d.WriteCPUMax("/batch/job-1", found))
	if len(f.writes) != 0 {
		t.Errorf("writes %v", f.writes)
	}
}

func TestV2HotPathsDoNotAllocate(t *testing.T) {
	d := v2Driver(t, hostfs.NewRoot(fixture612))
	g, err := d.Open("/batch")
	must(t, err)
	defer func() { must(t, g.Close()) }()
	root, err := d.OpenRootUsage()
	must(t, err)
	defer func() { must(t, root.Close()) }()
	procs := make([]int32, 0, 16)
	for name, f := range map[string]func() error{
		"UsageNsec":  func() error { return second(g.UsageNsec()) },
		"Throttling": func() error { return second(g.Throttling()) },
		"UsageAndStat": func() error {
			usage, own, err := g.UsageAndStat()
			if was, _ := g.UsageNsec(); err == nil && (usage != was || !own.HasQuota) {
				return fmt.Errorf("usage %d, %+v; UsageNsec says %d", usage, own, was)
			}
			return err
		},
		"Procs":     func() error { procs, err = g.Procs(procs); return err },
		"RootUsage": func() error { return second(root.UsageNsec()) },
	} {
		if n := testing.AllocsPerRun(100, func() { must(t, f()) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// TestOpenUnifiedBesideV1: on a hybrid host the v2 driver serves the bare hierarchy.
func TestOpenUnifiedBesideV1(t *testing.T) {
	fsys := hostfs.NewRoot(fixture)
	m, err := Discover(fsys)
	must(t, err)
	d, err := OpenUnified(fsys, m)
	if err != nil || d.Layout() != LayoutHybrid || d.partial {
		t.Fatalf("%+v, %v", d, err)
	}
	if got, err := d.Dir("/a/b"); err != nil || got != "/sys/fs/cgroup/unified/a/b" {
		t.Errorf("Dir = %q, %v", got, err)
	}
	if _, err := d.Dir("a"); !errors.Is(err, hostfs.ErrBadPath) {
		t.Errorf("Dir of a relative path: %v", err)
	}
	if _, err := OpenUnified(fsys, &Mounts{Layout: LayoutV1}); !errors.Is(err, ErrUnsupportedLayout) {
		t.Errorf("without a mount: %v", err)
	}
}
