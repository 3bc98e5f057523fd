package kernfs_test

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/kernel/taskstats"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// cores is a process that would use so many CPUs.
func cores(n int) machine.TaskConfig {
	c := bystander()
	c.Threads = n
	return c
}

func started(t *testing.T, k *kernfs.Kernel, path string, cfg machine.TaskConfig) int {
	t.Helper()
	pid, err := k.Start(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// each runs a test on a kernel of either layout.
func each(t *testing.T, f func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver)) {
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			k := newKernel(t, newMachine(t, 3), layout)
			f(t, k, driver(t, k))
		})
	}
}

// used returns the CPUs that a group used while three seconds passed.
func used(t *testing.T, k *kernfs.Kernel, d cgroup.Driver, path string) float64 {
	t.Helper()
	g, err := d.Open(path)
	must(t, err)
	defer g.Close() //nolint:errcheck // reading only
	before, err := g.UsageNsec()
	must(t, err)
	k.Advance(3e9)
	after, err := g.UsageNsec()
	must(t, err)
	return float64(after-before) / 3e9
}

func about(got, want float64) bool { return math.Abs(got-want) <= 0.02*want+0.001 }

// A quota holds all processes of a group and below together, an ancestor's too.
func TestQuotaIsShared(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		for _, path := range []string{"/be/a", "/be/a", "/be/b"} {
			started(t, k, path, cores(2))
		}
		if got := used(t, k, d, "/be"); !about(got, 6) {
			t.Errorf("without a limit: %.3f CPUs", got)
		}
		for _, c := range []struct {
			path string
			max  cgroup.CPUMax
			want float64
		}{
			{"/be", limit(150_000), 1.5},
			{"/be/a", limit(40_000), 1.5}, // b may use what is left of it
			{"/be/b", limit(10_000), 0.5}, // a single quota is exact
			{"/be/a", unlimited, 1.5},
			{"/be/b", unlimited, 1.5},
			{"/be", limit(1_000), 0.01},
			{"/be", unlimited, 6},
		} {
			must(t, d.WriteCPUMax(c.path, c.max))
			k.Advance(1e9)
			if got := used(t, k, d, "/be"); !about(got, c.want) {
				t.Errorf("%s at %s: %.3f CPUs, want %.3f", c.path, c.max, got, c.want)
			}
		}
	})
}

func limit(quota int64) cgroup.CPUMax {
	return cgroup.CPUMax{QuotaUsec: quota, PeriodUsec: 100_000}
}

// Where CPUs are short, groups have what their weights say, and their processes parts of it.
func TestWeightsNest(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		for _, path := range []string{"/a", "/b/x", "/b/y", "/b/y"} {
			started(t, k, path, cores(32))
		}
		for _, path := range []string{"/a", "/b/x", "/b/y", "/b"} { // on v1 those below first
			must(t, d.WriteCPUs(path, "0-3"))
		}
		must(t, d.WriteShares("/a", 512))
		k.Advance(1e9)
		for path, want := range map[string]float64{"/a": 4.0 / 3, "/b": 8.0 / 3, "/b/x": 4.0 / 3, "/b/y": 4.0 / 3} {
			if got := used(t, k, d, path); !about(got, want) {
				t.Errorf("%s: %.3f CPUs, want %.3f", path, got, want)
			}
		}
		must(t, d.WriteIdle("/b", true))
		if got := used(t, k, d, "/a"); got < 3.9 {
			t.Errorf("beside an idle group: %.3f CPUs", got)
		}
	})
}

// A CPU that goes takes its processes along, and is missed where it is listed. On v1 a
// cpuset has lost it when it comes back, on v2 not.
func TestCPUGoesAndComes(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		pid := started(t, k, "/a", cores(2))
		must(t, d.WriteCPUs("/a", "1,3"))
		effective := func(want string) {
			t.Helper()
			if got, err := d.ReadEffectiveCPUs("/a"); err != nil || got != want {
				t.Errorf("effective CPUs %q, %v; want %q", got, err, want)
			}
			if set, err := k.AllowedCPUs(pid); err != nil || set.String() != want {
				t.Errorf("the process may use %q, %v; want %q", set, err, want)
			}
		}
		effective("1,3")
		must(t, k.WriteFile("/sys/devices/system/cpu/cpu3/online", []byte("0")))
		effective("1")
		ids, err := cputopology.ReadOnline(k)
		if err != nil || slices.Contains(ids, 3) || len(ids) != 31 {
			t.Errorf("online: %v, %v", ids, err)
		}
		must(t, k.SetOnline(3, true))
		if d.Layout() == cgroup.LayoutV2 {
			effective("1,3")
		} else {
			effective("1")
		}
		if err := k.SetOnline(0, false); err == nil {
			t.Error("CPU 0 went")
		}
	})
}

// The drivers of files that are no cgroup's read what the machine is.
func TestOtherFiles(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		topo, err := cputopology.Read(k)
		must(t, err)
		if c := topo.CPUs[17]; len(topo.CPUs) != 32 || c.Core != 1 || !slices.Equal(c.Siblings, []int{1, 17}) || c.LLC.Level != 3 || c.LLC.SizeBytes != 22<<20 || c.Node != 0 {
			t.Errorf("topology: %+v", c)
		}
		if name, err := procstat.ReadPlatform(k); err != nil || !strings.Contains(name, "Xeon") {
			t.Errorf("platform %q, %v", name, err)
		}
		if _, err := procstat.ReadKernelRelease(k); err != nil {
			t.Error(err)
		}
		stat, err := procstat.Open(k)
		must(t, err)
		started(t, k, "/a", cores(4))
		before, err := stat.Read()
		must(t, err)
		k.Advance(10e9)
		after, err := stat.Read()
		must(t, err)
		if n := after.Total.BusyTicks() - before.Total.BusyTicks(); n < 3999 || n > 4001 || after.CPUs != 32 {
			t.Errorf("%d ticks on %d CPUs in 10 s of 4 CPUs", n, after.CPUs)
		}
		for _, r := range []psi.Resource{psi.CPU, psi.Memory, psi.IO} {
			if p, err := psi.Read(k, r.Path()); err != nil || !p.HasFull {
				t.Errorf("%s pressure %+v, %v", r, p, err)
			}
		}
	})
}

// A group that its quota throttles stalls, and says so in its own pressure file.
func TestGroupPressure(t *testing.T) {
	k := newKernel(t, newMachine(t, 3), cgroup.LayoutV2)
	d := driver(t, k).(*cgroup.V2)
	started(t, k, "/a", cores(1))
	must(t, d.WriteCPUMax("/a", limit(10_000)))
	dir, err := d.Dir("/a")
	must(t, err)
	g := psi.OfGroup(k, dir)
	r, err := g.Open(psi.CPU)
	must(t, err)
	k.Advance(10e9)
	total, err := r.Totals()
	if err != nil || total.SomeUsec < 8_000_000 || total.SomeUsec > 10_000_000 {
		t.Errorf("%+v, %v: want about 9 s", total, err)
	}
	if p, err := g.Read(psi.CPU); err != nil || p.Some.Avg10 < 30 {
		t.Errorf("%+v, %v", p, err)
	}
	must(t, g.WriteAccounting(false))
	if _, err := r.Totals(); !errors.Is(err, psi.ErrSwitchedOff) {
		t.Errorf("switched off: %v", err)
	}
	must(t, g.WriteAccounting(true))
	if _, err := g.Read(psi.CPU); err != nil {
		t.Error(err)
	}
	must(t, k.Stop("/a"))
	if _, err := g.Read(psi.CPU); !errors.Is(err, psi.ErrGroupGone) {
		t.Errorf("removed: %v", err)
	}
}

// Counters count inside their windows only, follow the group and end with it; a machine
// without a PMU has none.
func TestCounters(t *testing.T) {
	events := []perf.Event{perf.Cycles, perf.Instructions, perf.LLCMisses, perf.RefCycles}
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		started(t, k, "/a/b", cores(1))
		m, err := cgroup.Discover(k)
		must(t, err)
		dir := m.Unified + "/a"
		c, err := k.Counters().OpenCgroup(dir, 0, []int{0}, events)
		must(t, err)
		out := make([]perf.Count, len(events))
		read := func() (cycles uint64) {
			t.Helper()
			must(t, c.Read(out))
			v, ok := out[0].Scaled()
			if !ok {
				t.Fatalf("%+v", out[0])
			}
			return v
		}
		k.Advance(1e9)
		if read() != 0 {
			t.Errorf("counted before it was enabled: %+v", out)
		}
		must(t, c.Enable())
		k.Advance(1e9)
		if hz := float64(read()); !about(hz, 2.6e9) {
			t.Errorf("%.0f cycles in a second of one CPU", hz)
		}
		must(t, c.Disable())
		at := read()
		k.Advance(1e9)
		if read() != at {
			t.Error("counted while it was disabled")
		}
		if n := testing.AllocsPerRun(100, func() {
			if c.Enable() != nil || c.Read(out) != nil || c.Disable() != nil {
				t.Error("refused")
			}
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
		must(t, k.Stop("/a"))
		if must(t, c.Read(out)); out[0].Status != perf.Gone {
			t.Errorf("removed: %+v", out[0])
		}
		must(t, c.Close())
		if _, err := k.Counters().OpenCgroup(dir, 0, []int{0}, events); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a removed group: %v", err)
		}
		started(t, k, "/a", cores(1))
		if _, err := k.Counters().OpenCgroup(dir, 1, []int{0}, events); !errors.Is(err, cgroup.ErrVanished) {
			t.Errorf("a group made anew: %v", err)
		}
		if _, err := k.Counters().OpenCgroup("/sys/devices", 0, []int{0}, events); !errors.Is(err, perf.ErrNotCgroup2) {
			t.Errorf("a directory that is no group: %v", err)
		}
	})
	k, err := kernfs.New(newMachine(t, 3), kernfs.Options{Layout: cgroup.LayoutV2})
	must(t, err)
	if err := k.Counters().Supported(perf.Cycles); !errors.Is(err, perf.ErrNotSupported) {
		t.Errorf("without a PMU: %v", err)
	}
	if err := k.Counters().Supported(perf.TaskClock); err != nil {
		t.Errorf("a software event: %v", err)
	}
}

// Delay is a process's waiting, throttling included, whichever group it is in.
func TestTaskstats(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		pid := int32(started(t, k, "/a", cores(1)))
		must(t, d.WriteCPUMax("/a", limit(10_000)))
		src := k.Taskstats()
		out := make([]taskstats.Stats, 2)
		k.Advance(10e9)
		must(t, src.Query([]int32{pid, pid + 1}, out))
		run, delay := float64(out[0].RunNsec)/1e9, float64(out[0].DelayNsec)/1e9
		if out[0].Status != taskstats.OK || !about(run, 1) || !about(delay, 9) || out[1].Status != taskstats.Gone {
			t.Errorf("%+v", out)
		}
		if err := src.Query([]int32{pid, pid}, out[:1]); !errors.Is(err, taskstats.ErrShortOutput) {
			t.Errorf("one result for two: %v", err)
		}
		other, err := taskstats.NewSchedstat(k), error(nil)
		must(t, err)
		must(t, other.Query([]int32{pid}, out))
		if !about(float64(out[0].RunNsec)/1e9, 1) {
			t.Errorf("by schedstat: %+v", out[0])
		}
	})
}

// On v1 a kept descriptor of cgroup.procs serves what it read first.
func TestKeptProcsAreStale(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		started(t, k, "/a", cores(1))
		m, err := cgroup.Discover(k)
		must(t, err)
		top := m.Unified
		if d.Layout() != cgroup.LayoutV2 {
			top = m.V1[cgroup.CPU]
		}
		f, err := k.Open(top + "/a/cgroup.procs")
		must(t, err)
		lines := func() int {
			t.Helper()
			data, err := f.ReadAll(nil)
			must(t, err)
			return strings.Count(string(data), "\n")
		}
		lines()
		started(t, k, "/a", cores(1))
		k.Advance(5e8)
		if got := lines(); (got == 1) != (d.Layout() != cgroup.LayoutV2) {
			t.Errorf("%d lines half a second later", got)
		}
		k.Advance(2e9)
		if got := lines(); got != 2 {
			t.Errorf("%d lines after nobody read it for two seconds", got)
		}
		must(t, k.Stop("/a"))
		if _, err := f.ReadAll(nil); !errors.Is(err, unix.ENODEV) {
			t.Errorf("removed: %v", err)
		}
	})
}

// What a group and those below used stays when its processes move, end, or the groups go.
func TestUsageStays(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		one, two := started(t, k, "/a/x", cores(1)), started(t, k, "/a/y", cores(1))
		must(t, d.Mkdir("/b"))
		g, err := d.Open("/a")
		must(t, err)
		defer g.Close() //nolint:errcheck // reading only
		usage := func() float64 {
			t.Helper()
			v, err := g.UsageNsec()
			must(t, err)
			return float64(v) / 1e9
		}
		k.Advance(1e9)
		must(t, d.MovePID("/b", one))
		k.Advance(1e9)
		must(t, k.Kill(two))
		must(t, d.Rmdir("/a/y"))
		k.Advance(1e9)
		if got := usage(); !about(got, 3) {
			t.Errorf("%.3f s: want 1 of the one that moved and 2 of the one that ended", got)
		}
		must(t, k.ResetCounters("/a"))
		if got := usage(); got != 0 {
			t.Errorf("reset: %.3f s", got)
		}
		mono, wall := k.MonoNsec(), k.WallNsec()
		k.StepClock(-3600e9)
		if k.MonoNsec() != mono || k.WallNsec() != wall-3600e9 {
			t.Error("the clock was stepped otherwise")
		}
	})
}
