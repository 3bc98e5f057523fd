package probe

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/mountinfo"
)

// memory is a machine's files in memory: writing a tree for each of some fifty machines takes an emulated disk long. A path
// that ends in / is an empty directory.
type memory struct {
	hostfs.FS // nil: probes call nothing else
	files     map[string]string
	dir       string // a real one, for what wants a descriptor
}

func tree(t *testing.T, files map[string]string) hostfs.FS {
	t.Helper()
	return &memory{files: files, dir: t.TempDir()}
}

func missing(op, path string) error { return &fs.PathError{Op: op, Path: path, Err: unix.ENOENT} }

func (m *memory) ReadFile(path string, buf []byte) ([]byte, error) {
	text, ok := m.files[path]
	if !ok {
		return buf[:0], missing("open", path)
	}
	return append(buf[:0], text...), nil
}

func (m *memory) ReadDir(dir string) ([]hostfs.DirEntry, error) {
	dirs := map[string]bool{} // by name
	found := false
	for path := range m.files {
		rest, below := strings.CutPrefix(path, strings.TrimRight(dir, "/")+"/")
		if !below {
			continue
		}
		found = true
		if name, more, isDir := strings.Cut(rest, "/"); name != "" {
			dirs[name] = dirs[name] || isDir || more != ""
		}
	}
	if !found {
		return nil, missing("readdir", dir)
	}
	var entries []hostfs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		entries = append(entries, hostfs.DirEntry{Name: name, IsDir: dirs[name]})
	}
	return entries, nil
}

func (m *memory) Inode(path string) (uint64, error) {
	if _, ok := m.files[path]; ok {
		return 1, nil
	}
	if _, err := m.ReadDir(path); err != nil {
		return 0, missing("stat", path)
	}
	return 1, nil
}

func (m *memory) OpenDir(path string) (int, func() error, error) {
	if _, err := m.ReadDir(path); err != nil {
		return -1, nil, err
	}
	return hostfs.NewRoot(m.dir).OpenDir("/")
}

const (
	v2Mount      = "28 23 0:25 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	resctrlMount = "30 23 0:27 / /sys/fs/resctrl rw,relatime shared:9 - resctrl resctrl rw\n"
)

// resctrlGroup is what the kernel shows of a group, at its directory.
func resctrlGroup(dir string) map[string]string {
	return map[string]string{
		dir + "/tasks": "", dir + "/cpus_list": "\n", dir + "/mode": "shareable\n", dir + "/schemata": "    MB:0=100\n    L3:0=fff\n",
		dir + "/mon_groups/": "",
	}
}

// server is a bare-metal machine with RDT under cgroup2, as systemd lays it out.
func server() map[string]string {
	const slice = "/sys/fs/cgroup/system.slice"
	files := map[string]string{
		"/proc/sys/kernel/osrelease":                      "6.8.0-45-generic\n",
		mountinfo.Path:                                    v2Mount + resctrlMount,
		"/proc/self/cgroup":                               "0::/system.slice/commensal.service\n",
		"/proc/self/status":                               "Name:\tcommensal\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
		"/proc/self/limits":                               "Max open files            1024                 524288               files     \n",
		"/proc/self/schedstat":                            "1 2 3\n",
		"/proc/self/cpu_resctrl_groups":                   "res:/\nmon:\n",
		"/proc/cpuinfo":                                   "processor\t: 0\nflags\t\t: fpu cat_l3 cdp_l3 mba cqm_occup_llc cqm_mbm_total\n",
		"/proc/filesystems":                               "nodev\tsysfs\nnodev\tresctrl\n\text4\n",
		"/proc/stat":                                      "cpu  1 2 3 4 5 6 7 0 0 0\n",
		"/proc/swaps":                                     "Filename Type Size Used Priority\n/dev/zram0 partition 10 0 100\n",
		"/proc/pressure/cpu":                              "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"/proc/schedstat":                                 "version 15\n",
		"/proc/sys/kernel/sched_schedstats":               "0\n",
		"/boot/config-6.8.0-45-generic":                   "# CONFIG_RT_GROUP_SCHED is not set\n",
		"/sys/devices/system/node/has_memory":             "0-1\n",
		"/sys/devices/system/cpu/smt/active":              "1\n",
		"/sys/class/dmi/id/sys_vendor":                    "Maker Inc.\n",
		"/sys/kernel/mm/lru_gen/enabled":                  "0x0007\n",
		"/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds": "0\n",
		"/sys/module/zswap/parameters/enabled":            "N\n",
		"/sys/fs/cgroup/cgroup.controllers":               "cpuset cpu io memory pids\n",
		"/sys/fs/cgroup/cgroup.subtree_control":           "cpu io memory pids\n",
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
		"/sys/fs/resctrl/info/last_cmd_status":            "ok\n",
		"/sys/fs/resctrl/info/L3/cbm_mask":                "fff\n",
		"/sys/fs/resctrl/info/L3/num_closids":             "4\n",
		"/sys/fs/resctrl/info/L3/min_cbm_bits":            "1\n",
		"/sys/fs/resctrl/info/L3/shareable_bits":          "c00\n",
		"/sys/fs/resctrl/info/MB/num_closids":             "8\n",
		"/sys/fs/resctrl/info/MB/min_bandwidth":           "10\n",
		"/sys/fs/resctrl/info/MB/bandwidth_gran":          "10\n",
		"/sys/fs/resctrl/info/MB/delay_linear":            "1\n",
		"/sys/fs/resctrl/info/L3_MON/num_rmids":           "8\n",
		"/sys/fs/resctrl/info/L3_MON/mon_features":        "llc_occupancy\nmbm_total_bytes\n",
		callsFile: "taskstats: ok\nperf cycles: ok\nperf ref-cycles: ok\nperf instructions: ok\nperf llc misses: permission: perf: no\n" +
			"perf per cgroup: ok\n",
	}
	maps.Copy(files, resctrlGroup("/sys/fs/resctrl"))
	maps.Copy(files, resctrlGroup("/sys/fs/resctrl/commensal-be"))
	return files
}

// change is a machine that differs from server: without the paths that begin with one of remove, and with set.
func change(remove []string, set ...map[string]string) map[string]string {
	files := server()
	for _, prefix := range remove {
		maps.DeleteFunc(files, func(path, _ string) bool { return strings.HasPrefix(path, prefix) })
	}
	for _, more := range set {
		maps.Copy(files, more)
	}
	return files
}

// file is one file.
func file(path, text string) map[string]string { return map[string]string{path: text} }

// v2Only is the mount table without resctrl.
func v2Only() map[string]string { return file(mountinfo.Path, v2Mount) }

// cdp is resctrl with masks for code and data apart.
func cdp() map[string]string {
	files := file(mountinfo.Path, v2Mount+strings.Replace(resctrlMount, "resctrl rw\n", "resctrl rw,cdp\n", 1))
	for _, half := range []string{"L3CODE", "L3DATA"} {
		files["/sys/fs/resctrl/info/"+half+"/cbm_mask"] = "fff\n"
		files["/sys/fs/resctrl/info/"+half+"/num_closids"] = "4\n"
		files["/sys/fs/resctrl/info/"+half+"/min_cbm_bits"] = "1\n"
	}
	return files
}

// bare is a machine under cgroup2 on which nobody has made a group.
func bare(release, handed string) map[string]string {
	return map[string]string{
		"/proc/sys/kernel/osrelease": release + "\n", mountinfo.Path: v2Mount, "/proc/self/cgroup": "0::/\n",
		"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory\n", "/sys/fs/cgroup/cgroup.subtree_control": handed + "\n",
		"/proc/pressure/cpu": "some avg10=0.00\n", bandwidthSign: "5000\n",
	}
}

type answersTest struct {
	name  string
	files map[string]string
	want  map[string]Answer
}

func TestAnswers(t *testing.T) {
	for _, list := range [][]answersTest{serverTests(), cgroupTests(), resctrlTests(), oddTests()} {
		for _, test := range list {
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
}

func serverTests() []answersTest {
	return []answersTest{
		{"a server with everything", server(), map[string]Answer{
			KernelRelease: Yes, CgroupLayout: Yes, CgroupWritable: Yes, CPUQuota: Yes, CPUBurst: Yes, CPUIdle: Yes,
			Cpuset:  No, // the controller is there, and handed to no group
			Freezer: Yes, CgroupKill: Yes, MemoryReclaim: Yes, MemoryHigh: Yes, PSISystem: Yes, PSIPerCgroup: Yes,
			Taskstats: Yes, ThreadSchedstat: Yes, Schedstats: No, PerfCycles: Yes, PerfLLCMisses: No, PerfPerCgroup: Yes,
			Resctrl: Yes, ResctrlCAT: Yes, ResctrlMBA: Yes, ResctrlMonitor: Yes, ResctrlRoom: Yes, NUMA: Yes, SMT: Yes,
			Swap: Yes, Zswap: No, MGLRU: Yes, DAMON: Yes, IdlePages: No, BTF: No, Hypervisor: No, Steal: No, Descriptors: Yes,
			CapSysResource: Yes, CapSysPtrace: Yes, RealTime: Yes}},
		{"no outcomes of system calls", change([]string{callsFile}),
			map[string]Answer{Taskstats: CouldNotTell, PerfCycles: CouldNotTell, PerfPerCgroup: CouldNotTell}},
		{"an ordinary user", change(nil, file("/proc/self/status", "Uid:\t7\t7\t7\t7\nCapEff:\t0\n")),
			map[string]Answer{RootUser: No, CgroupWritable: No, CapKill: No, CapSysPtrace: No, RealTime: No}},
		{"psi off", change([]string{"/proc/pressure/cpu"}), map[string]Answer{PSISystem: No, PSIPerCgroup: No}},
		{"psi switched off for the group", change([]string{"/sys/fs/cgroup/system.slice/commensal.service/cpu.pressure"},
			file("/sys/fs/cgroup/system.slice/commensal.service/cgroup.pressure", "0\n")), map[string]Answer{PSIPerCgroup: No}},
		{"psi switched off for the group, and not for another", change([]string{"/sys/fs/cgroup/system.slice/commensal.service/cpu.pressure"},
			file("/sys/fs/cgroup/user.slice/cpu.pressure", "")), map[string]Answer{PSIPerCgroup: Yes}},
		{"schedstat not gathered", change(nil, file("/proc/self/schedstat", "0 0 0\n")), map[string]Answer{ThreadSchedstat: No}},
		{"a guest whose steal stands at zero", change(nil, file("/proc/cpuinfo", "flags\t: fpu hypervisor\n")),
			map[string]Answer{Hypervisor: Yes, Steal: CouldNotTell}},
		{"DAMON's modules off", change(nil, file("/sys/module/damon_reclaim/parameters/enabled", "N\n")), map[string]Answer{DAMON: Yes}},
		{"a DAMON module at work", change(nil, file("/sys/module/damon_reclaim/parameters/enabled", "Y\n")), map[string]Answer{DAMON: Owned}},
		{"somebody else's DAMON", change(nil, file("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n")), map[string]Answer{DAMON: Owned}},
		{"swap is full", change(nil, file("/proc/swaps", "Filename Type Size Used Priority\n/a file 10 10 -2\n")), map[string]Answer{Swap: No}},
		{"zram, and no swap on it", change(nil, file("/proc/swaps", "Filename Type Size Used Priority\n"), file("/sys/block/zram0/disksize", "0\n")),
			map[string]Answer{Swap: No}},
		{"MGLRU built and off", change(nil, file("/sys/kernel/mm/lru_gen/enabled", "0x0000\n")), map[string]Answer{MGLRU: No}},
		{"zswap on", change(nil, file("/sys/module/zswap/parameters/enabled", "Y\n")), map[string]Answer{Zswap: Yes}},
	}
}

func cgroupTests() []answersTest {
	return []answersTest{
		{"a read-only cgroup mount", change(nil, file(mountinfo.Path, strings.Replace(v2Mount, "rw,nosuid", "ro,nosuid", 1))),
			map[string]Answer{CgroupWritable: No}},
		{"no group yet, controllers handed down", bare("6.1.0", "cpuset cpu memory"), map[string]Answer{CPUQuota: Yes, CPUBurst: Yes, CPUIdle: Yes,
			Cpuset: Yes, MemoryReclaim: Yes, MemoryHigh: Yes, CgroupKill: Yes, Freezer: Yes, PSIPerCgroup: Yes, CapKill: CouldNotTell}},
		{"no group yet, and nothing handed down", bare("6.1.0", ""), map[string]Answer{CPUQuota: No, CPUBurst: No, CPUIdle: No, Cpuset: No,
			MemoryReclaim: No, MemoryHigh: No, CgroupKill: Yes, Freezer: Yes}},
		{"no group yet, and an old kernel", bare("5.10.0", "cpuset cpu memory"), map[string]Answer{CPUQuota: Yes, CPUBurst: No, CPUIdle: No,
			Cpuset: Yes, CgroupKill: No, Freezer: Yes, MemoryReclaim: No, MemoryHigh: Yes, CgroupWritable: CouldNotTell}},
		{"no group yet, and an unknown kernel", bare("?", "cpuset cpu memory"),
			map[string]Answer{CPUQuota: CouldNotTell, MemoryHigh: CouldNotTell, CgroupKill: CouldNotTell}},
		{"inside a container's cgroup namespace", change([]string{"/sys/fs/cgroup/system.slice"}, map[string]string{"/proc/self/cgroup": "0::/\n",
			"/sys/fs/cgroup/cgroup.type": "domain\n", "/sys/fs/cgroup/cpu.weight": "100\n", "/sys/fs/cgroup/cpu.max": "max 100000\n",
			"/sys/fs/cgroup/cgroup.subtree_control": "\n", "/boot/config-6.8.0-45-generic": "CONFIG_RT_GROUP_SCHED=y\n"}),
			map[string]Answer{CPUQuota: No, RealTime: No}}, // its own limits are not its own to write, and there is no group below
		{"a container without a cgroup namespace", change(nil, file(mountinfo.Path, strings.Replace(v2Mount, "0:25 / ", "0:25 /kubepods/x ", 1))),
			map[string]Answer{CgroupLayout: No, CPUQuota: No, CgroupWritable: No}},
		{"perf_event on v1", change(nil, file(mountinfo.Path, v2Mount+"31 23 0:28 / /sys/fs/cgroup/perf rw - cgroup cgroup rw,perf_event\n")),
			map[string]Answer{PerfPerCgroup: No, CPUQuota: Yes}},
	}
}

func resctrlTests() []answersTest {
	readOnly := strings.Replace(resctrlMount, "rw,relatime", "ro,relatime", 1)
	room := file("/sys/fs/resctrl/info/L3_MON/num_rmids", "5\n")
	return []answersTest{
		{"somebody else's resctrl group", change(nil, resctrlGroup("/sys/fs/resctrl/guaranteed")), map[string]Answer{Resctrl: Owned, ResctrlCAT: Yes}},
		{"a name that only begins like ours", change(nil, resctrlGroup("/sys/fs/resctrl/commensalism")), map[string]Answer{Resctrl: Owned}},
		{"somebody else's monitoring group", change(nil, resctrlGroup("/sys/fs/resctrl/mon_groups/cadvisor-x")),
			map[string]Answer{Resctrl: Yes, ResctrlRoom: Yes}},
		{"resctrl not mounted", change([]string{"/sys/fs/resctrl", "/proc/self/cpu_resctrl_groups"}, v2Only()),
			map[string]Answer{Resctrl: No, ResctrlCAT: Yes, ResctrlMBA: Yes, ResctrlMonitor: Yes, ResctrlRoom: Yes}},
		{"resctrl mounted elsewhere", change([]string{"/sys/fs/resctrl"}, v2Only()), map[string]Answer{Resctrl: No, ResctrlCAT: Yes}},
		{"resctrl mounted read-only", change(nil, file(mountinfo.Path, v2Mount+readOnly)), map[string]Answer{Resctrl: No, ResctrlCAT: Yes}},
		{"code and data apart", change([]string{"/sys/fs/resctrl/info/L3/"}, cdp()), map[string]Answer{Resctrl: Yes, ResctrlCAT: Yes, ResctrlRoom: Yes}},
		{"bandwidth in MiB/s", change(nil, file(mountinfo.Path, v2Mount+strings.Replace(resctrlMount, "resctrl rw\n", "resctrl rw,mba_MBps\n", 1))),
			map[string]Answer{Resctrl: Yes, ResctrlMBA: Yes}},
		{"no L3 masks", change([]string{"/sys/fs/resctrl/info/L3/"}), map[string]Answer{ResctrlCAT: No, ResctrlMBA: Yes}},
		{"no bandwidth control and no monitoring", change([]string{"/sys/fs/resctrl/info/MB/", "/sys/fs/resctrl/info/L3_MON/"}),
			map[string]Answer{ResctrlMBA: No, ResctrlMonitor: No, ResctrlRoom: Yes}},
		{"RMIDs only for others, and a group of ours", change(nil, room), map[string]Answer{ResctrlRoom: Yes}},
		{"RMIDs only for others", change([]string{"/sys/fs/resctrl/commensal-be"}, room), map[string]Answer{Resctrl: Yes, ResctrlRoom: No}},
		{"a group without its files", change(nil, file("/sys/fs/resctrl/info/L3/num_closids", "many\n")),
			map[string]Answer{Resctrl: CouldNotTell, ResctrlRoom: CouldNotTell}},
		{"a CPU with RDT, a kernel without", change([]string{"/sys/fs/resctrl"}, v2Only(), file("/proc/filesystems", "nodev\tsysfs\n")),
			map[string]Answer{Resctrl: No, ResctrlCAT: No, ResctrlRoom: No}},
		{"an Arm CPU, resctrl not mounted", change([]string{"/sys/fs/resctrl"}, v2Only(), file("/proc/cpuinfo", "Features\t: fp asimd\n")),
			map[string]Answer{Resctrl: No, ResctrlCAT: CouldNotTell, Hypervisor: CouldNotTell}},
	}
}

// The L2s are told with the last-level caches, also where those cannot be divided.
func TestL2IsTold(t *testing.T) {
	l2 := map[string]string{}
	for name, text := range map[string]string{"cbm_mask": "ffff\n", "num_closids": "8\n", "min_cbm_bits": "1\n"} {
		l2["/sys/fs/resctrl/info/L2/"+name] = text
	}
	for answer, files := range map[Answer]map[string]string{Yes: change(nil, l2), No: change([]string{"/sys/fs/resctrl/info/L3/"}, l2)} {
		f := Find(Run(Options{FS: tree(t, files)}), ResctrlCAT)
		if f.Answer != answer || !strings.Contains(f.Why, "of each L2: 16 ways (cache.l2_ways)") {
			t.Errorf("%+v", f)
		}
	}
}

func oddTests() []answersTest {
	return []answersTest{
		{"malformed everywhere", map[string]string{"/proc/sys/kernel/osrelease": "six\n", mountinfo.Path: "x\n", "/proc/cpuinfo": "?\n",
			"/proc/self/status": "CapEff:\tzz\nUid:\t1\n", "/proc/self/limits": "Max open files\n", "/proc/self/schedstat": "1\n",
			"/proc/stat": "cpu 1\n", "/proc/pressure/cpu": "\n", "/proc/filesystems": "\n", "/proc/swaps": "/a file x x -2\n",
			"/sys/devices/system/node/has_memory": "3-1\n", "/sys/devices/system/cpu/smt/active": "2\n",
			"/sys/kernel/mm/lru_gen/enabled": "on\n", "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds": "-1\n",
			"/sys/module/zswap/parameters/enabled": "\n", callsFile: "perf cycles\nnonsense: x\n"},
			map[string]Answer{KernelRelease: CouldNotTell, CgroupLayout: CouldNotTell, CPUQuota: CouldNotTell, CapKill: CouldNotTell,
				RootUser: CouldNotTell, Descriptors: CouldNotTell, ThreadSchedstat: CouldNotTell, Steal: CouldNotTell,
				PSISystem: CouldNotTell, NUMA: CouldNotTell, SMT: CouldNotTell, MGLRU: CouldNotTell, DAMON: CouldNotTell,
				Swap: CouldNotTell, Zswap: CouldNotTell, PerfCycles: CouldNotTell}},
		{"no files at all", nil, map[string]Answer{KernelRelease: CouldNotTell, CgroupLayout: CouldNotTell, CPUQuota: CouldNotTell,
			Resctrl: CouldNotTell}},
	}
}

func TestAbilities(t *testing.T) {
	all := Run(Options{FS: tree(t, server())})
	answer := func(name string, a Answer) []Finding { // all, with one answer changed
		return replaced(append([]Finding(nil), all...), name, a)
	}
	tests := []struct {
		what      string
		findings  []Finding
		available []string
		missing   []string
	}{
		{"a server", all,
			[]string{SignalCPI, SignalRunDelay, SignalPSI, SignalSLO, RemedyWays, RemedyBandwidth, RemedyMigration, RemedyPool, RemedyBurst,
				RemedyCap, RemedyReclaim, RemedyFreeze, RemedyEvict},
			[]string{SignalMPKI, RemedyCpuset}},
		{"no counters in cgroups", answer(PerfPerCgroup, No), []string{SignalRunDelay}, []string{SignalCPI, SignalMPKI}},
		{"resctrl owned", answer(Resctrl, Owned), []string{RemedyCap}, []string{RemedyWays, RemedyBandwidth}},
		{"resctrl full", answer(ResctrlRoom, No), []string{RemedyCap}, []string{RemedyWays, RemedyBandwidth}},
		{"one memory node", answer(NUMA, No), []string{RemedyBandwidth}, []string{RemedyMigration}},
		{"processes of others closed to us", answer(CapSysPtrace, No), []string{RemedyCap}, []string{RemedyMigration}},
		{"taskstats instead of schedstat", answer(ThreadSchedstat, No), []string{SignalRunDelay}, nil},
		{"schedstat instead of taskstats", answer(Taskstats, No), []string{SignalRunDelay}, nil},
		{"neither taskstats nor schedstat", replaced(answer(ThreadSchedstat, No), Taskstats, No), nil, []string{SignalRunDelay}},
		{"no memory.reclaim: memory.high is no substitute", answer(MemoryReclaim, No), []string{RemedyCap}, []string{RemedyReclaim}},
		{"no swap: file memory at least", answer(Swap, No), []string{RemedyReclaim}, nil},
		{"cgroup.kill instead of the capability", answer(CapKill, No), []string{RemedyEvict}, nil},
		{"neither cgroup.kill nor the capability", replaced(answer(CapKill, No), CgroupKill, No), nil, []string{RemedyEvict}},
		{"cgroup.kill that we may not write", replaced(answer(CapKill, No), CgroupWritable, No), nil, []string{RemedyEvict}},
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
				if !got[name].Available || got[name].Wants != "" {
					t.Errorf("%s is not available: %+v", name, got[name])
				}
			}
			for _, name := range test.missing {
				if a := got[name]; a.Available || !strings.HasPrefix(a.Because, "needs ") || a.Wants == "" {
					t.Errorf("%s: %+v, want a need that is not met", name, a)
				}
			}
		})
	}
}

// TestSwapDecidesWhatReclaimTakes: the answer is the same, and what it says is not.
func TestSwapDecidesWhatReclaimTakes(t *testing.T) {
	for swaps, want := range map[string]string{
		"Filename Type Size Used Priority\n":                 "file memory only",
		"Filename Type Size Used Priority\n/a file 8 0 -2\n": "file and anonymous memory",
	} {
		findings := Run(Options{FS: tree(t, change(nil, file("/proc/swaps", swaps)))})
		for _, a := range Remedies(findings) {
			if a.Name == RemedyReclaim && (!a.Available || !strings.Contains(a.Because, want)) {
				t.Errorf("%q: %+v, want %q", swaps, a, want)
			}
		}
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
