package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// The kernel tests run on the kernel they are started on, as root, in groups of their
// own. cgrouptest holds what every kernel must do, v1_kernel_test.go and the
// v2_*_kernel_test.go the rest. Their processes are this test binary itself, started anew
// with a task to do, so that they need no other program.

// patience bounds every wait; a healthy kernel needs a small part of it.
const patience = 30 * time.Second

// taskEnv names the task of a process of a test.
const taskEnv = "COMMENSAL_CGROUP_TEST_TASK"

func TestMain(m *testing.M) {
	if task := os.Getenv(taskEnv); task != "" {
		runTask(task)
	}
	os.Exit(m.Run())
}

// runTask does what a test's process is for, until its test is over.
func runTask(task string) {
	ready := func() { fmt.Println("ready") }
	name, arg, _ := strings.Cut(task, " ")
	go func() { // the test holds the other end of the pipe
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	switch name {
	case "sleep":
		ready()
		time.Sleep(time.Hour)
	case "spin":
		ready()
		for n := 0; ; n++ {
		}
	case "burst": // works for arg out of each 100 ms
		work, err := time.ParseDuration(arg)
		if err != nil {
			panic(err)
		}
		ready()
		for {
			for end := cpuTime() + work; cpuTime() < end; {
			}
			time.Sleep(100*time.Millisecond - work)
		}
	case "touch": // holds arg MiB of anonymous memory
		mib, err := strconv.Atoi(arg)
		if err != nil {
			panic(err)
		}
		mem, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			panic(err)
		}
		for i := 0; i < len(mem); i += os.Getpagesize() {
			mem[i] = 1
		}
		ready()
		time.Sleep(time.Hour)
	default:
		if f := checkTasks()[name]; f != nil {
			if err := f(arg); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	panic("no task " + task)
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// liveMounts finds the hierarchies; the tests need root.
func liveMounts(t *testing.T) (hostfs.FS, *Mounts) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups takes root")
	}
	fs := hostfs.NewRoot("/")
	m, err := Discover(fs)
	if err != nil {
		t.Fatal(err)
	}
	return fs, m
}

// liveDriver opens the driver of this machine's layout.
func liveDriver(t *testing.T) Driver {
	t.Helper()
	fs, m := liveMounts(t)
	if m.Layout == LayoutNone {
		t.Skipf("no hierarchy here holds the cpu controller: refused %v", m.Refused)
	}
	d, err := Open(fs, m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// liveV1 opens the v1 driver.
func liveV1(t *testing.T) *V1 {
	t.Helper()
	d, ok := liveDriver(t).(*V1)
	if !ok {
		t.Skip("the cpu controller is on cgroup v2 here, and the test is about v1's own files")
	}
	return d
}

// liveV2 opens the v2 driver on this machine's cgroup2 mount, which on a hybrid host has
// none of the controllers that v1 holds: the test names those that it needs.
func liveV2(t *testing.T, need ...Controller) *V2 {
	t.Helper()
	fs, m := liveMounts(t)
	d, err := OpenUnified(fs, m)
	if errors.Is(err, ErrUnsupportedLayout) {
		t.Skipf("no cgroup2 mount here: layout %s, refused %v", m.Layout, m.Refused)
	}
	if err != nil {
		t.Fatal(err)
	}
	on, err := d.ReadSubtreeControl("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range need {
		if !slices.Contains(on, c) {
			t.Skipf("%s/cgroup.subtree_control has %v and not %s (layout %s)", m.Unified, on, c, m.Layout)
		}
	}
	return d
}

// ownGroup makes a group that the test owns and removes it at the end, after whatever was
// registered later (children, processes).
func ownGroup(t *testing.T, d Driver, name string) string {
	t.Helper()
	path := fmt.Sprintf("/commensal-test-%d-%s", os.Getpid(), name)
	makeGroup(t, d, path)
	return path
}

func makeGroup(t *testing.T, d Driver, path string) {
	t.Helper()
	if err := d.Mkdir(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeGroup(t, d, path) })
}

// removeGroup removes a group; a process that was killed a moment ago may hold it still.
func removeGroup(t *testing.T, d Driver, path string) {
	t.Helper()
	err := d.Rmdir(path)
	for end := time.Now().Add(patience); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		err = d.Rmdir(path)
	}
	if err != nil && !errors.Is(err, ErrVanished) {
		t.Errorf("cleaning up: %v", err)
	}
}

// startTask starts a process with a task (runTask) until kill or the test's end kills it.
func startTask(t testing.TB, task string) (pid int, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), taskEnv+"="+task, "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	kill = func() {
		if done {
			return
		}
		done = true
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("kill %d: %v", cmd.Process.Pid, err)
		}
		_ = cmd.Wait() // "signal: killed" is what was asked for
		_ = stdin.Close()
	}
	t.Cleanup(kill)
	line := make([]byte, 16)
	if n, err := stdout.Read(line); err != nil || string(line[:n]) != "ready\n" {
		t.Fatalf("task %q said %q, %v", task, line[:n], err)
	}
	return cmd.Process.Pid, kill
}

// runInGroup starts a task that is in the group from its first instruction on, and does
// not wait until it is ready.
func runInGroup(t *testing.T, d *V2, path, task string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	dir, err := os.Open(d.top + path)
	must(t, err)
	defer dir.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), taskEnv+"="+task, "GOMAXPROCS=2")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead already
		_ = cmd.Wait()
		_ = stdin.Close()
	})
}

// runCheck runs one of checkTasks to its end, with what else attr says, in a group if
// path is not empty; it fails with what the task found.
func runCheck(t *testing.T, d *V2, path, task string, attr *syscall.SysProcAttr) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), taskEnv+"="+task)
	cmd.SysProcAttr = attr
	if path != "" {
		dir, err := os.Open(d.top + path)
		must(t, err)
		defer dir.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	defer stdin.Close()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer over.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("task %q: %v: %s", task, err, out.String())
	} else if out.Len() > 0 {
		t.Log(out.String())
	}
}

// start starts a task and moves it into a group.
func start(t *testing.T, d Driver, path, task string) (pid int32, kill func()) {
	t.Helper()
	id, kill := startTask(t, task)
	if err := d.MovePID(path, id); err != nil {
		t.Fatal(err)
	}
	return int32(id), kill
}

func open(t *testing.T, d Driver, path string) Group {
	t.Helper()
	g, err := d.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close %s: %v", path, err)
		}
	})
	return g
}

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func procs(t *testing.T, g Group) []int32 {
	t.Helper()
	list, err := g.Procs(nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plainMkdir makes a v2 group without enabling anything.
func plainMkdir(t *testing.T, d *V2, path string) {
	t.Helper()
	must(t, os.Mkdir(d.top+path, groupPerm))
	t.Cleanup(func() { removeGroup(t, d, path) })
}

func itoa(v int32) string { return strconv.Itoa(int(v)) }
