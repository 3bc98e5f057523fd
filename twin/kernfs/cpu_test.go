package kernfs_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

func kernelOf(t *testing.T, layout cgroup.Layout, which machine.Kernel) *kernfs.Kernel {
	t.Helper()
	c := machine.Skylake()
	c.Sockets, c.StepNsec, c.Kernel = 1, 1e6, which
	m, err := machine.New(c, 1)
	must(t, err)
	return newKernel(t, m, layout)
}

// files are the burst's file, cpu.stat and their mount, by layout.
func burstFile(layout cgroup.Layout) string {
	if layout == cgroup.LayoutV2 {
		return "/sys/fs/cgroup/t/cpu.max.burst"
	}
	return "/sys/fs/cgroup/cpu/t/cpu.cfs_burst_us"
}

func statFile(layout cgroup.Layout) string {
	if layout == cgroup.LayoutV2 {
		return "/sys/fs/cgroup/t/cpu.stat"
	}
	return "/sys/fs/cgroup/cpu/t/cpu.stat"
}

// The three kernels differ in the burst: how much of it they take, and whether they have it.
func TestKernelProfiles(t *testing.T) {
	for _, layout := range layouts {
		for _, which := range []machine.Kernel{machine.Mainline, machine.AnyBurst, machine.NoBurst} {
			t.Run(layout.String()+"/"+which.String(), func(t *testing.T) {
				k := kernelOf(t, layout, which)
				started(t, k, "/t", cores(4))
				d := driver(t, k)
				must(t, d.WriteCPUMax("/t", limit(20_000)))
				within, above := k.WriteFile(burstFile(layout), []byte("20000")), k.WriteFile(burstFile(layout), []byte("200000"))
				switch which {
				case machine.Mainline:
					must(t, within)
					if !errors.Is(above, unix.EINVAL) {
						t.Errorf("ten quotas: %v", above)
					}
				case machine.AnyBurst:
					must(t, errors.Join(within, above))
					if got, err := d.ReadCPUMax("/t"); err != nil || got.BurstUsec != 200_000 {
						t.Errorf("reads %s, %v", got, err)
					}
				case machine.NoBurst:
					if !errors.Is(within, fs.ErrNotExist) {
						t.Errorf("a file that is not there: %v", within)
					}
				}
				k.Advance(1e9)
				stat, err := k.ReadFile(statFile(layout), nil)
				if has := strings.Contains(string(stat), "nr_bursts"); err != nil || has == (which == machine.NoBurst) {
					t.Errorf("%v\n%s", err, stat)
				}
			})
		}
	}
}

// A burst is counted; a write of the very same quota gives a fresh one, and what moves a
// process elsewhere does not.
func TestBurstsAndRefills(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		cfg := cores(8)
		cfg.Work.Phases = []machine.Phase{{Nsec: 1e9}, {Nsec: 100e6, CPUs: 8}}
		started(t, k, "/t", cfg)
		must(t, d.WriteCPUMax("/t", cgroup.CPUMax{QuotaUsec: 100_000, PeriodUsec: 100_000, BurstUsec: 100_000}))
		k.Advance(10e9)
		stat, err := k.ReadFile(statFile(k.Layout()), nil)
		must(t, err)
		if strings.Contains(string(stat), "nr_bursts 0\n") || !strings.Contains(string(stat), "nr_bursts ") {
			t.Errorf("no bursts:\n%s", stat)
		}
		started(t, k, "/u", cores(4))
		must(t, d.WriteCPUMax("/u", cgroup.CPUMax{QuotaUsec: 100_000, PeriodUsec: 1_000_000}))
		k.Advance(2e9)
		if got := used(t, k, d, "/u"); !about(got, 0.1) {
			t.Errorf("uses %.3f CPUs of a tenth", got)
		}
		file, text := "/sys/fs/cgroup/cpu/u/cpu.cfs_quota_us", "100000"
		if k.Layout() == cgroup.LayoutV2 {
			file = "/sys/fs/cgroup/u/cpu.max"
		}
		g, err := d.Open("/u")
		must(t, err)
		before, err := g.UsageNsec()
		must(t, err)
		for range 10 {
			must(t, k.WriteFile(file, []byte(text)))
			k.Advance(50e6)
		}
		after, err := g.UsageNsec()
		must(t, err)
		must(t, g.Close())
		if after-before < 900e6 {
			t.Errorf("ten writes gave %d ms", (after-before)/1e6)
		}
	})
}

// A CPU that goes takes its topology with it and leaves the lists of the others. A v1 list
// loses it for good; a v2 list stays as it was written.
func TestHotplug(t *testing.T) {
	each(t, func(t *testing.T, k *kernfs.Kernel, d cgroup.Driver) {
		pid := started(t, k, "/t/a", cores(1))
		must(t, d.WriteCPUs("/t/a", "3"))
		must(t, d.WriteCPUs("/t", "2-3"))
		read := func(path string) string {
			t.Helper()
			text, err := k.ReadFile(path, nil)
			must(t, err)
			return strings.TrimSpace(string(text))
		}
		const cpu = "/sys/devices/system/cpu/"
		must(t, k.WriteFile(cpu+"cpu3/online", []byte("0")))
		if got := read(cpu + "online"); got != "0-2,4-31" {
			t.Errorf("online: %s", got)
		}
		if got := read(cpu + "cpu19/topology/thread_siblings_list"); got != "19" {
			t.Errorf("the sibling's siblings: %s", got)
		}
		if got := read(cpu + "cpu0/cache/index3/shared_cpu_list"); got != "0-2,4-31" {
			t.Errorf("the LLC is shared by %s", got)
		}
		if _, err := k.ReadFile(cpu+"cpu3/topology/core_id", nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("topology of a CPU that is gone: %v", err)
		}
		top, err := cputopology.Read(k)
		if err != nil || len(top.CPUs) != 31 {
			t.Errorf("%d CPUs, %v", len(top.CPUs), err)
		}
		want := map[string]string{"/t": "2", "/t/a": ""} // v1
		runs := "2"                                      // where the process was moved to
		if k.Layout() == cgroup.LayoutV2 {
			want = map[string]string{"/t": "2-3", "/t/a": "3"}
		}
		expect := func(when string) {
			t.Helper()
			for path, list := range want {
				if got, err := d.ReadCPUs(path); err != nil || got != list {
					t.Errorf("%s: %s has CPUs %q, %v; expected %q", when, path, got, err, list)
				}
			}
			if set, err := k.AllowedCPUs(pid); err != nil || set.String() != runs {
				t.Errorf("%s: it runs on %s, %v; expected %s", when, set, err, runs)
			}
		}
		expect("gone")
		must(t, k.WriteFile(cpu+"cpu3/online", []byte("0"))) // nothing to do
		must(t, k.WriteFile(cpu+"cpu3/online", []byte("1")))
		if k.Layout() == cgroup.LayoutV2 {
			runs = "3"
		}
		expect("back")
		if top, err = cputopology.Read(k); err != nil || len(top.CPUs) != 32 {
			t.Errorf("%d CPUs, %v", len(top.CPUs), err)
		}
		if err := k.SetOnline(0, false); err == nil {
			t.Error("CPU 0 went")
		}
	})
}

// cgroup.clone_children gives new cpusets of v1 the lists of the group above.
func TestCloneChildren(t *testing.T) {
	k := newKernel(t, newMachine(t, 1), cgroup.LayoutHybrid)
	const set = "/sys/fs/cgroup/cpuset"
	cpus := func(path string) string {
		t.Helper()
		text, err := k.ReadFile(set+path+"/cpuset.cpus", nil)
		must(t, err)
		return strings.TrimSpace(string(text))
	}
	must(t, k.Mkdir(set+"/plain", 0o755))
	must(t, k.WriteFile(set+"/cgroup.clone_children", []byte("1")))
	must(t, k.Mkdir(set+"/clone", 0o755))
	must(t, k.WriteFile(set+"/clone/cpuset.cpus", []byte("4-7")))
	must(t, k.Mkdir(set+"/clone/kid", 0o755))
	if cpus("/plain") != "" || cpus("/clone/kid") != "4-7" || model.FullSet(32).String() != cpus("") {
		t.Errorf("plain %q, kid of a clone %q", cpus("/plain"), cpus("/clone/kid"))
	}
}
