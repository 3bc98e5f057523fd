package probe

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens anew")

// report is the text of a golden: findings, then signals, then remedies.
func report(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s: %s\n  why: %s\n", f.Name, f.Answer, f.Why)
		if len(f.Gives) > 0 {
			fmt.Fprintf(&b, "  gives: %s\n", strings.Join(f.Gives, ", "))
		}
		if f.Needs != "" {
			fmt.Fprintf(&b, "  needs: %s\n", f.Needs)
		}
	}
	fmt.Fprintf(&b, "\nsignals\n%s", abilitiesText(Signals(findings)))
	fmt.Fprintf(&b, "\nremedies\n%s", abilitiesText(Remedies(findings)))
	return b.String()
}

func abilitiesText(list []Ability) string {
	var b strings.Builder
	for _, a := range list {
		fmt.Fprintf(&b, "%s: %v\n  because: %s\n", a.Name, a.Available, a.Because)
	}
	return b.String()
}

func TestCapturedTrees(t *testing.T) {
	trees, err := filepath.Glob("testdata/*/proc")
	if err != nil || len(trees) == 0 {
		t.Fatalf("no captured trees: %v", err)
	}
	for _, proc := range trees {
		dir := filepath.Dir(proc)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			got := report(Run(Options{FS: hostfs.NewRoot(dir)}))
			if again := report(Run(Options{FS: hostfs.NewRoot(dir)})); again != got {
				t.Errorf("two runs differ:\n%s", cmp.Diff(got, again))
			}
			golden := dir + ".golden"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("golden and report differ (-want +got):\n%s", diff)
			}
		})
	}
}

// watcher is a host's files that tell of every write; it is no DirMaker and no WriteOpener, so that nothing can
// be made or opened for writing at all.
type watcher struct {
	hostfs.FS
	writes []string
}

func (w *watcher) WriteFile(path string, _ []byte) error {
	w.writes = append(w.writes, path)
	return os.ErrPermission
}

// checkForm asserts what holds for findings of any machine.
func checkForm(t *testing.T, findings []Finding) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range findings {
		if f.Name == "" || seen[f.Name] {
			t.Errorf("name %q is empty or comes twice", f.Name)
		}
		seen[f.Name] = true
		switch f.Answer {
		case Yes, No, Owned, CouldNotTell:
		default:
			t.Errorf("%s: answer %q", f.Name, f.Answer)
		}
		if f.Why == "" || strings.ContainsAny(f.Why+f.Needs, "\n\r") {
			t.Errorf("%s: evidence %q, needs %q: want one line", f.Name, f.Why, f.Needs)
		}
		if f.Answer == Yes && f.Needs != "" {
			t.Errorf("%s: yes, and needs %q", f.Name, f.Needs)
		}
	}
	known := map[string]bool{}
	for _, a := range append(Signals(findings), Remedies(findings)...) {
		known[a.Name] = true
		if a.Because == "" || strings.Contains(a.Because, "\n") {
			t.Errorf("%s: because %q", a.Name, a.Because)
		}
		if strings.Contains(a.Because, "not probed") {
			t.Errorf("%s asks for a finding that nobody makes: %s", a.Name, a.Because)
		}
	}
	for _, f := range findings {
		for _, name := range f.Gives {
			if !known[name] {
				t.Errorf("%s gives %q, which is neither signal nor remedy", f.Name, name)
			}
		}
	}
}

func TestLive(t *testing.T) {
	files := &watcher{FS: hostfs.NewRoot("/")}
	findings := Run(Options{FS: files, Live: true})
	t.Log("\n" + report(findings))
	checkForm(t, findings)
	if len(files.writes) > 0 {
		t.Errorf("probes wrote %v", files.writes)
	}
	want, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	release := Find(findings, KernelRelease)
	if release.Answer != Yes || !strings.Contains(release.Why, strings.TrimSpace(string(want))) {
		t.Errorf("kernel release %+v does not name %q", release, want)
	}
	if f := Find(findings, RootUser); f.Answer != yesNo(os.Geteuid() == 0) {
		t.Errorf("root user: %+v, effective uid is %d", f, os.Geteuid())
	}
	for _, a := range Signals(findings) {
		if a.Name == SignalSLO && !a.Available {
			t.Errorf("%s asks nothing of the kernel: %+v", SignalSLO, a)
		}
	}
	var names []string
	for _, f := range Run(Options{FS: files}) {
		names = append(names, f.Name)
	}
	for i, f := range findings {
		if i >= len(names) || names[i] != f.Name {
			t.Fatalf("finding %d is %q live and %v from files", i, f.Name, names)
		}
	}
}

// tree writes files below a temporary root; a path that ends in / is a directory.
func tree(t *testing.T, files map[string]string) hostfs.FS {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		if strings.HasSuffix(path, "/") {
			if err := os.MkdirAll(full, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return hostfs.NewRoot(root)
}

// server is a bare-metal machine with RDT under cgroup2, as systemd lays it out.
func server() map[string]string {
	const slice = "/sys/fs/cgroup/system.slice"
	return map[string]string{
		"/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
		"/proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n" +
			"resctrl /sys/fs/resctrl resctrl rw,relatime 0 0\n",
		"/proc/self/cgroup":                               "0::/system.slice/commensal.service\n",
		"/proc/self/status":                               "Name:\tcommensal\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
		"/proc/self/limits":                               "Max open files            1024                 524288               files     \n",
		"/proc/self/schedstat":                            "1 2 3\n",
		"/proc/cpuinfo":                                   "processor\t: 0\nflags\t\t: fpu cat_l3 cdp_l3 mba cqm_occup_llc cqm_mbm_total\n",
		"/proc/filesystems":                               "nodev\tsysfs\nnodev\tresctrl\n\text4\n",
		"/proc/stat":                                      "cpu  1 2 3 4 5 6 7 0 0 0\n",
		"/proc/swaps":                                     "Filename Type Size Used Priority\n/dev/zram0 partition 1 0 100\n",
		"/proc/pressure/cpu":                              "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"/proc/schedstat":                                 "version 15\n",
		"/proc/sys/kernel/sched_schedstats":               "0\n",
		"/boot/config-6.8.0-45-generic":                   "# CONFIG_RT_GROUP_SCHED is not set\n",
		"/sys/devices/system/node/has_memory":             "0-1\n",
		"/sys/devices/system/cpu/smt/active":              "1\n",
		"/sys/class/dmi/id/sys_vendor":                    "Maker Inc.\n",
		"/sys/kernel/mm/lru_gen/enabled":                  "0x0007\n",
		"/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds": "0\n",
		"/sys/fs/cgroup/cgroup.controllers":               "cpuset cpu io memory pids\n",
		slice + "/commensal.service/cgroup.procs":         "",
		slice + "/commensal.service/cgroup.kill":          "",
		slice + "/commensal.service/cgroup.freeze":        "0\n",
		slice + "/commensal.service/cpu.pressure":         "",
		slice + "/cgroup.procs":                           "",
		slice + "/cpu.weight":                             "100\n",
		slice + "/cpu.max":                                "max 100000\n",
		slice + "/cpu.max.burst":                          "0\n",
		slice + "/cpu.idle":                               "0\n",
		slice + "/memory.current":                         "1\n",
		slice + "/memory.high":                            "max\n",
		slice + "/memory.reclaim":                         "",
		"/sys/fs/resctrl/info/L3/cbm_mask":                "fff\n",
		"/sys/fs/resctrl/info/MB/min_bandwidth":           "10\n",
		"/sys/fs/resctrl/info/L3_MON/num_rmids":           "256\n",
		"/sys/fs/resctrl/mon_groups/":                     "",
		"/sys/fs/resctrl/commensal-be/tasks":              "",
	}
}

// change is a machine that differs from server in some files; an empty path list removes.
func change(remove []string, set map[string]string) map[string]string {
	files := server()
	for _, path := range remove {
		delete(files, path)
	}
	for path, text := range set {
		files[path] = text
	}
	return files
}

func TestAnswers(t *testing.T) {
	const mounts = "/proc/self/mounts"
	tests := []struct {
		name  string
		files map[string]string
		want  map[string]Answer
	}{
		{"a server with everything", server(), map[string]Answer{
			KernelRelease: Yes, CgroupLayout: Yes, CgroupWritable: Yes, CPUQuota: Yes, CPUBurst: Yes, CPUIdle: Yes,
			Cpuset:  CouldNotTell, // the controller is there, and enabled in no group
			Freezer: Yes, CgroupKill: Yes, MemoryReclaim: Yes, MemoryHigh: Yes, PSISystem: Yes, PSIPerCgroup: Yes,
			Taskstats: CouldNotTell, ThreadSchedstat: Yes, Schedstats: No, PerfCycles: CouldNotTell, PerfPerCgroup: CouldNotTell,
			Resctrl: Yes, ResctrlCAT: Yes, ResctrlMBA: Yes, ResctrlMonitor: Yes, NUMA: Yes, SMT: Yes, Swap: Yes, MGLRU: Yes,
			DAMON: Yes, IdlePages: No, BTF: No, Hypervisor: No, Steal: No, Descriptors: Yes, CapSysResource: Yes, RealTime: Yes}},
		{"somebody else's resctrl group", change(nil, map[string]string{"/sys/fs/resctrl/guaranteed/tasks": ""}),
			map[string]Answer{Resctrl: Owned, ResctrlCAT: Yes}},
		{"resctrl not mounted", change(nil, map[string]string{mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"}),
			map[string]Answer{Resctrl: Yes, ResctrlCAT: Yes, ResctrlMBA: Yes}},
		{"a CPU with RDT, a kernel without", change(nil, map[string]string{mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
			"/proc/filesystems": "nodev\tsysfs\n"}), map[string]Answer{Resctrl: No, ResctrlCAT: No}},
		{"an Arm CPU, resctrl not mounted", change(nil, map[string]string{mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
			"/proc/cpuinfo": "Features\t: fp asimd\n"}), map[string]Answer{Resctrl: Yes, ResctrlCAT: CouldNotTell, Hypervisor: CouldNotTell}},
		{"a read-only cgroup mount", change(nil, map[string]string{mounts: "cgroup2 /sys/fs/cgroup cgroup2 ro,nosuid 0 0\n"}),
			map[string]Answer{CgroupWritable: No}},
		{"an ordinary user", change(nil, map[string]string{"/proc/self/status": "Uid:\t7\t7\t7\t7\nCapEff:\t0\n"}),
			map[string]Answer{RootUser: No, CgroupWritable: No, CapKill: No, RealTime: No}},
		{"psi off", change([]string{"/proc/pressure/cpu"}, nil), map[string]Answer{PSISystem: No, PSIPerCgroup: No}},
		{"schedstat not gathered", change(nil, map[string]string{"/proc/self/schedstat": "0 0 0\n"}),
			map[string]Answer{ThreadSchedstat: No}},
		{"nothing made in cgroup2 yet, and an old kernel", map[string]string{"/proc/sys/kernel/osrelease": "5.10.0\n",
			mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "/sys/fs/cgroup/cgroup.controllers": "cpu memory\n"},
			map[string]Answer{CPUQuota: CouldNotTell, Cpuset: No, CgroupKill: No, Freezer: Yes, MemoryReclaim: No, MemoryHigh: CouldNotTell,
				CgroupWritable: CouldNotTell, CapKill: CouldNotTell}},
		{"inside a container's cgroup namespace", change(nil, map[string]string{"/proc/self/cgroup": "0::/\n",
			"/sys/fs/cgroup/cgroup.type": "domain\n", "/sys/fs/cgroup/cpu.weight": "100\n", "/sys/fs/cgroup/cpu.max": "max 100000\n",
			"/boot/config-6.8.0-45-generic": "CONFIG_RT_GROUP_SCHED=y\n"}), map[string]Answer{CPUQuota: Yes, RealTime: No}},
		{"a guest whose steal stands at zero", change(nil, map[string]string{"/proc/cpuinfo": "flags\t: fpu hypervisor\n"}),
			map[string]Answer{Hypervisor: Yes, Steal: CouldNotTell}},
		{"a DAMON module at work", change(nil, map[string]string{"/sys/module/damon_reclaim/parameters/enabled": "Y\n"}),
			map[string]Answer{DAMON: Owned}},
		{"malformed everywhere", map[string]string{"/proc/sys/kernel/osrelease": "six\n", mounts: "x\n", "/proc/cpuinfo": "?\n",
			"/proc/self/status": "CapEff:\tzz\nUid:\t1\n", "/proc/self/limits": "Max open files\n", "/proc/self/schedstat": "1\n",
			"/proc/stat": "cpu 1\n", "/proc/pressure/cpu": "\n", "/proc/filesystems": "\n", "/proc/swaps": "Filename\n",
			"/sys/devices/system/node/has_memory": "3-1\n", "/sys/devices/system/cpu/smt/active": "2\n",
			"/sys/kernel/mm/lru_gen/enabled": "on\n", "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds": "-1\n"},
			map[string]Answer{KernelRelease: CouldNotTell, CgroupLayout: No, CapKill: CouldNotTell, RootUser: CouldNotTell,
				Descriptors: CouldNotTell, ThreadSchedstat: CouldNotTell, Steal: CouldNotTell, PSISystem: CouldNotTell, NUMA: CouldNotTell,
				SMT: CouldNotTell, MGLRU: CouldNotTell, DAMON: CouldNotTell, Resctrl: No, Swap: No}},
		{"no files at all", nil, map[string]Answer{KernelRelease: CouldNotTell, CgroupLayout: CouldNotTell, CPUQuota: CouldNotTell}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			findings := Run(Options{FS: tree(t, test.files)})
			checkForm(t, findings)
			for name, want := range test.want {
				if f := Find(findings, name); f.Answer != want {
					t.Errorf("%s: %q (%s), want %q", name, f.Answer, f.Why, want)
				}
			}
		})
	}
}

func TestAbilities(t *testing.T) {
	all := Run(Options{FS: tree(t, server())})
	answer := func(name string, a Answer) []Finding { // all, with one answer changed
		list := append([]Finding(nil), all...)
		for i := range list {
			if list[i].Name == name {
				list[i].Answer = a
			}
		}
		return list
	}
	tests := []struct {
		what      string
		findings  []Finding
		available []string
		missing   []string
	}{
		{"a server", all,
			[]string{SignalRunDelay, SignalPSI, SignalSLO, RemedyWays, RemedyBandwidth, RemedyMigration, RemedyPool, RemedyBurst, RemedyCap,
				RemedyReclaim, RemedyFreeze, RemedyEvict},
			[]string{SignalCPI, SignalMPKI, RemedyCpuset}},
		{"resctrl owned", answer(Resctrl, Owned), []string{RemedyCap}, []string{RemedyWays, RemedyBandwidth}},
		{"one memory node", answer(NUMA, No), []string{RemedyBandwidth}, []string{RemedyMigration}},
		{"taskstats instead of schedstat", replaced(answer(ThreadSchedstat, No), Taskstats, Yes), []string{SignalRunDelay}, nil},
		{"neither taskstats nor schedstat", answer(ThreadSchedstat, No), nil, []string{SignalRunDelay}},
		{"cgroups read-only", answer(CgroupWritable, No), []string{RemedyWays, RemedyEvict},
			[]string{RemedyPool, RemedyBurst, RemedyCap, RemedyCpuset, RemedyReclaim, RemedyFreeze}},
		{"nothing known", nil, []string{SignalSLO}, []string{SignalCPI, RemedyEvict}},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			got := map[string]Ability{}
			for _, a := range append(Signals(test.findings), Remedies(test.findings)...) {
				got[a.Name] = a
			}
			for _, name := range test.available {
				if !got[name].Available {
					t.Errorf("%s is not available: %s", name, got[name].Because)
				}
			}
			for _, name := range test.missing {
				if a := got[name]; a.Available || !strings.HasPrefix(a.Because, "needs ") {
					t.Errorf("%s: %+v, want a need that is not met", name, a)
				}
			}
		})
	}
}

// replaced is a list with one more answer changed.
func replaced(list []Finding, name string, a Answer) []Finding {
	for i := range list {
		if list[i].Name == name {
			list[i].Answer = a
		}
	}
	return list
}
