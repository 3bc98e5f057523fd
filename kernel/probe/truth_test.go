package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// What a probe says by looking is tried here by doing, on the machine that the test runs on: where it says yes, trying
// works, and where it says no, trying fails. Tries are made without the drivers, on cgroups and processes of the
// test's own; what changes the whole machine is in states_test.go.
//
// Not tried: whether a remedy helps anybody.

// attempt tries one thing; nil: it works here.
type attempt func(t *testing.T, m *cgroup.Mounts) error

// attempts by the finding that they hold against.
func attempts() map[string]attempt {
	return map[string]attempt{
		KernelRelease: tryUname, CgroupLayout: tryLayout, CgroupWritable: tryWritable,
		CPUQuota: tryQuota, CPUBurst: tryBurst, CPUIdle: tryIdle, Cpuset: tryCpuset, Freezer: tryFreezer, CgroupKill: tryKill,
		MemoryReclaim: tryReclaim, IOMax: tryIOMax, MemoryHigh: tryHigh, PSISystem: tryPSI, PSIPerCgroup: tryGroupPSI,
		Taskstats: tryTaskstats, ThreadSchedstat: tryThreadSchedstat, Schedstats: trySchedstats,
		PerfCycles:       tryEvent(unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES),
		PerfRefCycles:    tryEvent(unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_REF_CPU_CYCLES),
		PerfInstructions: tryEvent(unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS),
		PerfLLCMisses:    tryEvent(unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES),
		PerfPerCgroup:    tryGroupPerf,
		NUMA:             tryNUMA, SMT: trySMT, Swap: trySwap, IdlePages: tryOpen("/sys/kernel/mm/page_idle/bitmap"), BTF: tryBTF, BPFPrograms: tryPrograms,
		Descriptors: tryDescriptors, RootUser: tryRoot, CapSysAdmin: tryFrameNumber, CapSysNice: tryNice, CapSysPtrace: tryPtrace,
		CapSysResource: tryRaiseLimit, CapDACOverride: tryForeignFile, CapKill: trySignal, CapNetAdmin: tryTaskstats, RealTime: tryRealTime,
	}
}

func TestTruth(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("trying takes root")
	}
	m, err := cgroup.Discover(hostfs.NewRoot("/"))
	must(t, err)
	findings := Run(Options{FS: hostfs.NewRoot("/"), Live: true})
	list := attempts()
	for _, f := range findings {
		try := list[f.Name]
		delete(list, f.Name)
		if try == nil {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			err := try(t, m)
			t.Logf("%s (%s); trying: %v", f.Answer, f.Why, err)
			switch {
			case f.Answer == Yes && err != nil:
				t.Errorf("yes (%s), and trying fails: %v", f.Why, err)
			case f.Answer == No && err == nil:
				t.Errorf("no (%s), and trying works", f.Why)
			case f.Answer == CouldNotTell && rigtest.Inside():
				t.Errorf("could not tell (%s), on a kernel that we know", f.Why)
			}
		})
	}
	for name := range list {
		t.Errorf("%s is tried, and no probe answers about it", name)
	}
}

// TestOrdinaryUser: who may do nothing to others is told of no remedy.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user takes root")
	}
	p := testchild.Start(t, "remedies")
	p.Say("go")
	var list []Ability
	must(t, json.Unmarshal([]byte(p.Line()), &list))
	if len(list) != len(remedyRecipes) {
		t.Fatalf("%d remedies", len(list))
	}
	for _, a := range list {
		if a.Available || a.Wants == "" {
			t.Errorf("an ordinary user has %s: %+v", a.Name, a)
		}
	}
}

// ownGroup makes a group in the hierarchy that has the controller, or in cgroup2 for "", and removes it at the test's end.
func ownGroup(t *testing.T, m *cgroup.Mounts, c cgroup.Controller) (dir string, v2 bool, err error) {
	t.Helper()
	top, v1 := m.V1[c]
	if !v1 {
		top = m.Unified
	}
	if top == "" {
		return "", false, fmt.Errorf("no hierarchy has %q", c)
	}
	name := strings.ReplaceAll(t.Name()[strings.LastIndexByte(t.Name(), '/')+1:], " ", "-")
	dir = fmt.Sprintf("%s/commensal-test-%d-%s", top, os.Getpid(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", false, err
	}
	t.Cleanup(func() {
		// A process that was killed a moment ago may hold it still.
		if err := eventually(func() error { return unix.Rmdir(dir) }); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir, !v1, nil
}

// inGroup starts a process in a group and lets it do its task.
func inGroup(t *testing.T, dir, task string) (*testchild.Child, error) {
	t.Helper()
	p := testchild.Start(t, task)
	if err := write(dir+"/cgroup.procs", strconv.Itoa(p.PID())); err != nil {
		return nil, err
	}
	return begin(p), nil
}

// write hands a value to a kernel file, which must be there.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// set writes and reads back.
func set(path, value string) error {
	if err := write(path, value); err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if got := strings.TrimSpace(string(b)); err == nil && got != value {
		err = fmt.Errorf("%s: wrote %q, read %q", path, value, got)
	}
	return err
}

// field reads the number behind a word: "nr_throttled 3", "some avg10=0.00 ... total=12".
func field(path, line, word string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for text := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(text, line)
		if !ok {
			continue
		}
		_, rest, ok = strings.Cut(rest, word)
		if f := strings.Fields(rest); ok && len(f) > 0 {
			return strconv.ParseUint(f[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %q", path, line+word)
}

// grows waits until a number has grown.
func grows(what string, number func() (uint64, error)) error {
	before, err := number()
	if err != nil {
		return err
	}
	return eventually(func() error {
		now, err := number()
		if err == nil && now <= before {
			err = fmt.Errorf("%s stands at %d", what, now)
		}
		return err
	})
}

func tryUname(*testing.T, *cgroup.Mounts) error {
	var u unix.Utsname
	return unix.Uname(&u)
}

// tryLayout asks the file system whether the mounts are what they are said to be.
func tryLayout(_ *testing.T, m *cgroup.Mounts) error {
	check := func(dir string, magic int64) error {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return err
		}
		if int64(st.Type) != magic { //nolint:unconvert // 32 bits on some architectures
			return fmt.Errorf("%s: magic %#x", dir, st.Type)
		}
		return nil
	}
	var errs []error
	for _, dir := range m.V1 {
		errs = append(errs, check(dir, unix.CGROUP_SUPER_MAGIC))
	}
	if m.Unified != "" {
		errs = append(errs, check(m.Unified, unix.CGROUP2_SUPER_MAGIC))
	}
	if len(errs) == 0 {
		return errors.New("no hierarchy")
	}
	return errors.Join(errs...)
}

func tryWritable(t *testing.T, m *cgroup.Mounts) error {
	dir, v2, err := ownGroup(t, m, cgroup.CPU)
	if err != nil {
		return err
	}
	if v2 {
		return set(dir+"/cgroup.max.depth", "3")
	}
	return set(dir+"/cpu.shares", "512")
}

// tryQuota lets a spinner run into a quota.
func tryQuota(t *testing.T, m *cgroup.Mounts) error {
	dir, v2, err := ownGroup(t, m, cgroup.CPU)
	if err == nil && v2 {
		err = set(dir+"/cpu.max", "10000 100000")
	} else if err == nil {
		err = set(dir+"/cpu.cfs_quota_us", "10000")
	}
	if err != nil {
		return err
	}
	if _, err := inGroup(t, dir, "contend"); err != nil {
		return err
	}
	return grows("nr_throttled", func() (uint64, error) { return field(dir+"/cpu.stat", "nr_throttled", " ") })
}

// tryBurst gives as much burst as quota, and holds that the kernel refuses more.
func tryBurst(t *testing.T, m *cgroup.Mounts) error {
	dir, v2, err := ownGroup(t, m, cgroup.CPU)
	burst := dir + "/cpu.max.burst"
	if err == nil && v2 {
		err = set(dir+"/cpu.max", "20000 100000")
	} else if err == nil {
		burst = dir + "/cpu.cfs_burst_us"
		err = set(dir+"/cpu.cfs_quota_us", "20000")
	}
	if err == nil {
		err = set(burst, "20000")
	}
	if err != nil {
		return err
	}
	if err := write(burst, "20001"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("more burst than quota: %v, and the finding says that it is refused", err)
	}
	return nil
}

func tryIdle(t *testing.T, m *cgroup.Mounts) error {
	dir, _, err := ownGroup(t, m, cgroup.CPU)
	if err != nil {
		return err
	}
	return set(dir+"/cpu.idle", "1")
}

// tryCpuset binds a process to one CPU.
func tryCpuset(t *testing.T, m *cgroup.Mounts) error {
	dir, v2, err := ownGroup(t, m, cgroup.CPUSet)
	cpu := strconv.Itoa(firstCPU())
	if err == nil {
		err = set(dir+"/cpuset.cpus", cpu)
	}
	if err == nil && !v2 {
		err = set(dir+"/cpuset.mems", "0")
	}
	if err != nil {
		return err
	}
	p, err := inGroup(t, dir, "idle")
	if err != nil {
		return err
	}
	n, err := field(fmt.Sprintf("/proc/%d/status", p.PID()), "Cpus_allowed_list:", "\t")
	if err == nil && strconv.FormatUint(n, 10) != cpu {
		err = fmt.Errorf("runs on %d, wanted on %s", n, cpu)
	}
	return err
}

// tryFreezer freezes a process, and thaws it.
func tryFreezer(t *testing.T, m *cgroup.Mounts) error {
	dir, v2, err := ownGroup(t, m, cgroup.Freezer)
	if err != nil {
		return err
	}
	if _, err := inGroup(t, dir, "contend"); err != nil {
		return err
	}
	state := func(want string) func() error {
		file := dir + "/freezer.state"
		if v2 {
			file = dir + "/cgroup.events"
		}
		return func() error {
			b, err := os.ReadFile(file)
			if err == nil && !strings.Contains("\n"+string(b), "\n"+want+"\n") {
				err = fmt.Errorf("%s: %q, want %q", file, b, want)
			}
			return err
		}
	}
	if v2 {
		return errors.Join(write(dir+"/cgroup.freeze", "1"), eventually(state("frozen 1")),
			write(dir+"/cgroup.freeze", "0"), eventually(state("frozen 0")))
	}
	return errors.Join(write(dir+"/freezer.state", "FROZEN"), eventually(state("FROZEN")),
		write(dir+"/freezer.state", "THAWED"), eventually(state("THAWED")))
}

func tryKill(t *testing.T, m *cgroup.Mounts) error {
	dir, _, err := ownGroup(t, m, "")
	if err != nil {
		return err
	}
	p, err := inGroup(t, dir, "idle")
	if err != nil {
		return err
	}
	if err := write(dir+"/cgroup.kill", "1"); err != nil {
		return err
	}
	if said, err := p.Wait(); err == nil || err.Error() != "signal: killed" {
		return fmt.Errorf("it said %q and ended: %w", said, err)
	}
	return nil
}

// tryReclaim takes page cache back.
func tryReclaim(t *testing.T, m *cgroup.Mounts) error {
	dir, _, err := ownGroup(t, m, cgroup.Memory)
	if err != nil {
		return err
	}
	path := filepath.Join(rigtest.DiskDir(t), "file")
	if _, err := inGroup(t, dir, "file "+path); err != nil {
		return err
	}
	if err := write(dir+"/memory.reclaim", "4M"); err != nil && !errors.Is(err, unix.EAGAIN) {
		return err
	}
	n, err := field(dir+"/memory.stat", "pgsteal", " ")
	if err == nil && n == 0 {
		err = errors.New("no page was taken")
	}
	return err
}

// tryIOMax limits a group's reads from the disk, if there is one, and reads the limit back.
func tryIOMax(t *testing.T, m *cgroup.Mounts) error {
	controller, file, text := cgroup.IO, "/io.max", " rbps=1048576"
	if m.V1[cgroup.BlkIO] != "" {
		controller, file, text = cgroup.BlkIO, "/blkio.throttle.read_bps_device", " 1048576"
	}
	dir, _, err := ownGroup(t, m, controller)
	if err != nil {
		return err
	}
	device, err := os.ReadFile("/sys/block/vda/dev")
	if err != nil {
		_, err = os.Stat(dir + file)
		return err
	}
	name := strings.TrimSpace(string(device))
	if err := write(dir+file, name+text); err != nil {
		return err
	}
	if now, err := os.ReadFile(dir + file); err != nil || !strings.HasPrefix(string(now), name+" ") {
		return fmt.Errorf("read back %q: %w", now, err)
	}
	return nil
}

func tryHigh(t *testing.T, m *cgroup.Mounts) error {
	dir, _, err := ownGroup(t, m, cgroup.Memory)
	if err != nil {
		return err
	}
	return set(dir+"/memory.high", strconv.Itoa(64<<20))
}

func tryPSI(*testing.T, *cgroup.Mounts) error {
	_, err := field("/proc/pressure/cpu", "some", "total=")
	return err
}

// tryGroupPSI lets two threads of a group wait for each other.
func tryGroupPSI(t *testing.T, m *cgroup.Mounts) error {
	dir, _, err := ownGroup(t, m, "")
	if err != nil {
		return err
	}
	if _, err := inGroup(t, dir, "contend"); err != nil {
		return err
	}
	return grows("cpu.pressure", func() (uint64, error) { return field(dir+"/cpu.pressure", "some", "total=") })
}

// tryGroupPerf counts what a spinner in a group runs.
func tryGroupPerf(t *testing.T, m *cgroup.Mounts) error {
	if m.Unified == "" {
		return errors.New("no cgroup2")
	}
	dir, _, err := ownGroup(t, m, "")
	if err != nil {
		return err
	}
	p, err := inGroup(t, dir, "contend")
	if err != nil {
		return err
	}
	var on unix.CPUSet // the CPU that its threads are bound to
	if err := eventually(func() error { return spinsOn(p.PID(), &on) }); err != nil {
		return err
	}
	group, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	var cpu int
	for !on.IsSet(cpu) {
		cpu++
	}
	fd, err := perfOpen(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK, int(group.Fd()), cpu, unix.PERF_FLAG_PID_CGROUP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return grows("task-clock", func() (uint64, error) { return perfRead(fd) })
}

// spinsOn finds the one CPU that a spinner bound its threads to.
func spinsOn(pid int, on *unix.CPUSet) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
	if err != nil {
		return err
	}
	for _, task := range slices.Backward(tasks) {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return err
		}
		if err := unix.SchedGetaffinity(tid, on); err == nil && on.Count() == 1 {
			return nil
		}
	}
	return fmt.Errorf("process %d has no thread on one CPU yet", pid)
}
