package perf

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is started again with this variable set, as a spinner of one thread.
const childVariable = "COMMENSAL_PERF_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		runtime.LockOSThread()
		for spun := uint64(0); ; spun++ { // burns until it is killed
			runtime.KeepAlive(spun)
		}
	}
	os.Exit(m.Run())
}

// unified finds where cgroup2 is mounted.
func unified(t testing.TB) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Skip("no cgroup2 mount here")
	return ""
}

// makeCgroup makes a cgroup of the test's own and removes it at the end; children are ended by then, because
// cleanups run last in, first out.
func makeCgroup(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(unified(t), fmt.Sprintf("commensal-test-%d-%s", os.Getpid(), name))
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, os.ErrPermission) {
			t.Skipf("may not make a cgroup here: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroup(t, dir) })
	return dir
}

// removeCgroup removes a cgroup, which may be gone already. A process that was just reaped may still hold it.
func removeCgroup(t testing.TB, dir string) {
	t.Helper()
	for range 100 {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s could not be removed", dir)
}

// spin starts a spinner inside the cgroup.
func spin(t testing.TB, dir string) *exec.Cmd {
	t.Helper()
	runtime.LockOSThread() // Pdeathsig fires when the thread that forked ends
	t.Cleanup(runtime.UnlockOSThread)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// online lists the CPUs that are online.
func online(t testing.TB) []int {
	t.Helper()
	var cpus []int
	for cpu := range 4096 {
		state, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu))
		if _, there := os.Stat(fmt.Sprintf("/sys/devices/system/cpu/cpu%d", cpu)); there == nil && (err != nil || state[0] == '1') {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// openDir opens a directory for the length of the test.
func openDir(t testing.TB, dir string) int {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

var software = []Event{TaskClock, ContextSwitches, CPUMigrations, PageFaults}

// openCounters opens counters for the length of the test; it skips where the privilege is missing.
func openCounters(t testing.TB, dir string, events []Event) *Counters {
	t.Helper()
	c, err := OpenCgroup(openDir(t, dir), online(t), events)
	if errors.Is(err, ErrPermission) || errors.Is(err, ErrNotCgroup2) {
		t.Skipf("no counters per cgroup here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func read(t testing.TB, c *Counters) []Count {
	t.Helper()
	out := make([]Count, len(c.events))
	if err := c.Read(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// usageNsec reads cpu.stat, an independent account of the same cgroup.
func usageNsec(t testing.TB, dir string) uint64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	var usec uint64
	if _, err := fmt.Sscanf(string(b), "usage_usec %d", &usec); err != nil {
		t.Fatal(err)
	}
	return usec * 1000
}

func TestTaskClockMatchesCPUTime(t *testing.T) {
	dir := makeCgroup(t, "clock")
	c := openCounters(t, dir, software)
	spin(t, dir)
	if got := read(t, c)[0]; got.Raw != 0 || got.Status != OK {
		t.Errorf("before Enable: %+v, want nothing counted", got)
	}
	before := usageNsec(t, dir)
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	after := before
	for after < before+500e6 { // half a second of CPU time, however long that takes here
		time.Sleep(20 * time.Millisecond)
		after = usageNsec(t, dir)
	}
	if err := c.Disable(); err != nil {
		t.Fatal(err)
	}
	used := float64(usageNsec(t, dir) - before)
	out := read(t, c)
	clock := float64(out[0].Raw)
	t.Logf("cpu.stat %.1f ms, task-clock %.1f ms, %+v", used/1e6, clock/1e6, out)
	// Enable and Disable fall somewhat inside the two readings of cpu.stat; a busy host can steal between them.
	if clock < 0.5*used || clock > 1.2*used {
		t.Errorf("task-clock %.1f ms is not about the %.1f ms of cpu.stat", clock/1e6, used/1e6)
	}
	for i, n := range out {
		estimate, ok := n.Scaled()
		if !ok || n.RunningNsec != n.EnabledNsec || n.RunningNsec == 0 || estimate != n.Raw {
			t.Errorf("%v: %+v, want software events counted all the time", c.events[i], n)
		}
	}
	time.Sleep(50 * time.Millisecond) // the spinner goes on, the counters do not
	if again := read(t, c)[0]; again != out[0] {
		t.Errorf("after Disable: %+v, before %+v", again, out[0])
	}
}

func TestIdleCgroupIsZeroNotUnavailable(t *testing.T) {
	c := openCounters(t, makeCgroup(t, "idle"), software)
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	for i, n := range read(t, c) {
		if n != (Count{Status: OK}) {
			t.Errorf("%v: %+v, want a measured zero", c.events[i], n)
		}
	}
}

func TestVanishedCgroup(t *testing.T) {
	dir := makeCgroup(t, "vanish")
	c := openCounters(t, dir, []Event{TaskClock})
	cmd := spin(t, dir)
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	for read(t, c)[0].Raw == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	fd := openDir(t, dir)
	end(cmd)
	removeCgroup(t, dir)
	if got := read(t, c)[0]; got != (Count{Status: Gone}) {
		t.Errorf("got %+v, want Gone and no numbers", got)
	}
	if _, err := OpenCgroup(fd, online(t), []Event{TaskClock}); !errors.Is(err, ErrGone) {
		t.Errorf("open on a removed cgroup: %v, want ErrGone", err)
	}
}

func TestOpenRefusesOtherDirectories(t *testing.T) {
	if _, err := OpenCgroup(openDir(t, t.TempDir()), []int{0}, []Event{TaskClock}); !errors.Is(err, ErrNotCgroup2) {
		t.Errorf("a plain directory: %v, want ErrNotCgroup2", err)
	}
	if _, err := OpenCgroup(-1, []int{0}, []Event{TaskClock}); !errors.Is(err, ErrNotCgroup2) {
		t.Errorf("no descriptor: %v, want ErrNotCgroup2", err)
	}
	fd := openDir(t, makeCgroup(t, "refuse"))
	if _, err := OpenCgroup(fd, nil, []Event{TaskClock}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no CPUs: %v, want EINVAL", err)
	}
	if _, err := OpenCgroup(fd, []int{0, 100_000}, []Event{TaskClock}); err == nil || errors.Is(err, ErrNotSupported) {
		t.Errorf("a CPU that does not exist: %v, want an error that does not blame the event", err)
	}
	const v1 = "/sys/fs/cgroup/cpu"
	if _, err := os.Stat(v1 + "/cpu.shares"); err != nil {
		t.Logf("no v1 cpu hierarchy at %s: that part is not tested", v1)
		return
	}
	if _, err := OpenCgroup(openDir(t, v1), []int{0}, []Event{TaskClock}); !errors.Is(err, ErrNotCgroup2) {
		t.Errorf("a v1 cpu directory: %v, want ErrNotCgroup2", err)
	}
}

// descriptors counts what this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestDescriptorsAreCountedAndGivenBack(t *testing.T) {
	dir := makeCgroup(t, "files")
	fd, cpus := openDir(t, dir), online(t)
	before := descriptors(t)
	c, err := OpenCgroup(fd, cpus, software)
	if err != nil {
		t.Skipf("no counters per cgroup here: %v", err)
	}
	if got, want := descriptors(t)-before, len(software)*len(cpus)+1; got != want {
		t.Errorf("%d descriptors for %d events on %d CPUs, want %d", got, len(software), len(cpus), want)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCgroup(fd, append(cpus, 100_000), software); err == nil {
		t.Error("opened on a CPU that does not exist")
	}
	if got := descriptors(t); got != before {
		t.Errorf("%d descriptors open after a close and a failed open, %d before", got, before)
	}
}

func TestDescriptorLimit(t *testing.T) {
	fd := openDir(t, makeCgroup(t, "limit"))
	if _, err := OpenCgroup(fd, online(t), []Event{TaskClock}); errors.Is(err, ErrPermission) {
		t.Skipf("no counters per cgroup here: %v", err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	low := was
	low.Cur = uint64(descriptors(t) + 2) // room for the directory and about one counter
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, err := OpenCgroup(fd, online(t), software)
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); restored != nil {
		t.Fatal(restored)
	}
	if !errors.Is(err, ErrTooManyFiles) {
		t.Errorf("got %v, want ErrTooManyFiles", err)
	}
}

func TestReadDoesNotAllocate(t *testing.T) {
	dir := makeCgroup(t, "alloc")
	c := openCounters(t, dir, software)
	spin(t, dir)
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	out := make([]Count, len(software))
	if allocs := testing.AllocsPerRun(100, func() {
		if err := c.Read(out); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations a reading, want none", allocs)
	}
}

func TestHardwareEvents(t *testing.T) {
	events := []Event{Cycles, Instructions}
	dir := makeCgroup(t, "hardware")
	for _, e := range []Event{Cycles, RefCycles, Instructions, LLCMisses} {
		err := Supported(e)
		t.Logf("%v: %v", e, err)
		if err != nil && !errors.Is(err, ErrNotSupported) && !errors.Is(err, ErrPermission) {
			t.Errorf("%v: %v, want a named reason", e, err)
		}
		if errors.Is(err, ErrNotSupported) { // the same event on a good cgroup must be refused for the same reason
			if _, err := OpenCgroup(openDir(t, dir), online(t), []Event{e}); !errors.Is(err, ErrNotSupported) {
				t.Errorf("%v on a cgroup: %v, want ErrNotSupported", e, err)
			}
		}
	}
	for _, e := range events {
		if err := Supported(e); err != nil {
			t.Skipf("counting is not tested: %v", err)
		}
	}
	c := openCounters(t, dir, events)
	spin(t, dir)
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	out := read(t, c)
	cycles, _ := out[0].Scaled()
	instructions, ok := out[1].Scaled()
	if !ok || cycles == 0 || instructions == 0 || float64(cycles)/float64(instructions) > 100 {
		t.Errorf("cycles %+v, instructions %+v: no believable CPI", out[0], out[1])
	}
}
