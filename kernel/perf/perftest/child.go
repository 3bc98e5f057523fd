// Package perftest tests sources of counters per cgroup on the running kernel: what kernel/perf and kernel/bpfcounters
// both have to do, asked in the same words (Conform), and what such tests need: cgroups of their own and children that do
// something in them.
package perftest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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

// The test binary is started again with this variable set, as a child with the task it names.
const childVariable = "COMMENSAL_PERF_CHILD"

// Main runs the tests, or what a child was started for; open is the source that is tested. For TestMain.
func Main(m *testing.M, open Open) {
	switch kind := os.Getenv(childVariable); kind {
	case "":
		os.Exit(m.Run())
	case "spin":
		spin()
	case "roam":
		roam()
	case "hold":
		hold()
	case "limit":
		limit(open)
	case "ping", "pong":
		bat(kind == "ping")
	case "count":
		count(open)
	default:
		fmt.Fprintln(os.Stderr, "unknown kind of child:", kind)
		os.Exit(2)
	}
}

// spin burns one CPU until it is killed.
func spin() {
	runtime.LockOSThread()
	fmt.Println("ready")
	for spun := uint64(0); ; spun++ {
		runtime.KeepAlive(spun)
	}
}

// roam burns, and moves from CPU to CPU every millisecond or so of its own time.
func roam() {
	runtime.LockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for {
		for cpu := range 4096 {
			if !all.IsSet(cpu) {
				continue
			}
			var one unix.CPUSet
			one.Set(cpu)
			_ = unix.SchedSetaffinity(0, &one)
			for spun := range uint64(300_000) {
				runtime.KeepAlive(spun)
			}
		}
	}
}

// Child is a process of the test's own.
type Child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// Start starts a child of the kind. It ends with the test at the latest.
func Start(t testing.TB, kind string, env ...string) *Child {
	t.Helper()
	runtime.LockOSThread() // Pdeathsig fires when the thread that forked ends
	t.Cleanup(runtime.UnlockOSThread)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &Child{cmd: exec.Command(exe)}
	c.cmd.Env = append(append(os.Environ(), childVariable+"="+kind), env...)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.End)
	return c
}

// Spin starts a spinner inside the cgroup.
func Spin(t testing.TB, dir string) *Child {
	t.Helper()
	return burner(t, dir, "spin")
}

// Roam starts a spinner inside the cgroup that moves from CPU to CPU.
func Roam(t testing.TB, dir string) *Child {
	t.Helper()
	return burner(t, dir, "roam")
}

// burner starts a child and waits until it really burns.
func burner(t testing.TB, dir, kind string) *Child {
	t.Helper()
	c := Start(t, kind)
	c.Move(t, dir)
	if line := c.Line(t); line != "ready" {
		t.Fatalf("child says %q", line)
	}
	return c
}

// Move moves the child into a cgroup.
func (c *Child) Move(t testing.TB, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(c.PID())), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Pin moves all threads of the child to a CPU.
func (c *Child) Pin(t testing.TB, cpu int) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

// PID returns the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Line reads one line that the child says.
func (c *Child) Line(t testing.TB) string {
	t.Helper()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("child says %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// Say writes one line to the child.
func (c *Child) Say(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// End kills the child and waits for it.
func (c *Child) End() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// Unified finds where cgroup2 is mounted.
func Unified(t testing.TB) string {
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

// Cgroup makes a cgroup of the test's own and removes it at the end; children are ended by then, because
// cleanups run last in, first out. A name with slashes makes a cgroup inside one made before.
func Cgroup(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(Unified(t), fmt.Sprintf("commensal-test-%d-%s", os.Getpid(), name))
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, os.ErrPermission) {
			t.Skipf("may not make a cgroup here: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(t, dir) })
	return dir
}

// Remove removes a cgroup, which may be gone already. A process that was just reaped may still hold it.
func Remove(t testing.TB, dir string) {
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

// Dir opens a directory for the length of the test.
func Dir(t testing.TB, dir string) int {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

// Online lists the CPUs that are online.
func Online(t testing.TB) []int {
	t.Helper()
	var cpus []int
	for cpu := range 4096 {
		dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d", cpu)
		state, err := os.ReadFile(dir + "/online") // CPU 0 has none where it cannot be unplugged
		if _, there := os.Stat(dir); there == nil && (err != nil || state[0] == '1') {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// UsageNsec reads the cgroup's CPU time from cpu.stat, an account independent of any counter.
func UsageNsec(t testing.TB, dir string) uint64 {
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

// Burn waits until the cgroup used so much more CPU time, however long that takes here.
func Burn(t testing.TB, dir string, d time.Duration) {
	t.Helper()
	start := UsageNsec(t, dir)
	for deadline := time.Now().Add(time.Minute); UsageNsec(t, dir) < start+uint64(d); {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not use %v of CPU time in a minute", dir, d)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Descriptors counts what this process has open.
func Descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
