package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
)

// The tests run Protect in a child, because it replaces the program.
func TestMain(m *testing.M) { testchild.Main(m, map[string]testchild.Role{"protect": protect}) }

// protect is a child that says which protection it got, and which each of its threads has.
// Its argument is a cgroup to go to before, "powerless", or "plain".
func protect(p *testchild.Parent, args []string) error {
	runtime.LockOSThread()
	if _, again := os.LookupEnv(protectedEnv); !again {
		if filepath.IsAbs(args[0]) {
			if err := os.WriteFile(filepath.Join(args[0], "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
				return err
			}
		}
		if args[0] == "powerless" {
			if err := dropSysNice(); err != nil {
				return err
			}
		}
	}
	got, err := Protect()
	if err != nil {
		return err
	}
	p.Say("protection=%s", got)
	_, marked := os.LookupEnv(protectedEnv)
	p.Say("marked=%v", marked)
	for range 8 { // more threads than the runtime has by now
		done := make(chan bool)
		go func() { runtime.LockOSThread(); done <- true; select {} }()
		<-done
	}
	tids, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, tid := range tids {
		n, err := strconv.Atoi(tid.Name())
		if err != nil {
			return err
		}
		a, err := unix.SchedGetAttr(n, 0)
		if err != nil {
			continue // ended meanwhile
		}
		p.Say("thread=%d %d %d", a.Policy, a.Priority, a.Nice)
	}
	return nil
}

// dropSysNice takes the capability from the calling thread.
func dropSysNice() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_NICE
	// Without the capability the limits decide.
	return errors.Join(unix.Capset(&header, &data[0]),
		unix.Setrlimit(unix.RLIMIT_NICE, &unix.Rlimit{}), unix.Setrlimit(unix.RLIMIT_RTPRIO, &unix.Rlimit{}))
}

func runProtectChild(t *testing.T, how string) (protection string, threads []string) {
	t.Helper()
	out, err := testchild.Start(t, "protect "+how).Wait()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "protection="); ok {
			protection = v
		}
		if v, ok := strings.CutPrefix(line, "thread="); ok {
			threads = append(threads, v)
		}
		if line == "marked=true" {
			t.Error("the marker is still in the environment: a child of the load process would believe it")
		}
	}
	if protection == "" {
		t.Fatalf("no answer:\n%s", out)
	}
	return protection, threads
}

func checkThreads(t *testing.T, threads []string, want string) {
	t.Helper()
	if len(threads) < 8 {
		t.Errorf("%d threads seen", len(threads))
	}
	for _, got := range threads {
		if got != want {
			t.Errorf("a thread has %q, want %q (policy, priority, nice)", got, want)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to raise a priority")
	}
}

func TestProtectAtBest(t *testing.T) {
	needRoot(t)
	protection, threads := runProtectChild(t, "plain")
	t.Log(protection)
	switch {
	case protection == "SCHED_FIFO 10":
		checkThreads(t, threads, "1 10 0")
	case strings.HasPrefix(protection, "nice -20 (SCHED_FIFO refused: "):
		checkThreads(t, threads, "0 0 -20") // the tests themselves run in a cgroup without real-time
	default:
		t.Errorf("got %q", protection)
	}
}

// In a cpu cgroup of v1 without real-time budget only nice is left.
func TestProtectInCgroup(t *testing.T) {
	needRoot(t)
	const root = "/sys/fs/cgroup/cpu"
	if _, err := os.Stat(filepath.Join(root, "cpu.rt_runtime_us")); err != nil {
		t.Skipf("this kernel has no real-time budget per cgroup: %v", err)
	}
	dir := filepath.Join(root, fmt.Sprintf("commensal-test-%d-protect", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the child has ended and was waited for
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	protection, threads := runProtectChild(t, dir)
	t.Log(protection)
	if !strings.HasPrefix(protection, "nice -20 (SCHED_FIFO refused: ") || !strings.Contains(protection, filepath.Base(dir)) {
		t.Errorf("got %q", protection)
	}
	checkThreads(t, threads, "0 0 -20")
}

func TestProtectRefused(t *testing.T) {
	needRoot(t)
	protection, threads := runProtectChild(t, "powerless")
	t.Log(protection)
	if !strings.HasPrefix(protection, "none: SCHED_FIFO refused: ") || !strings.Contains(protection, "nice -20 refused: ") {
		t.Errorf("got %q", protection)
	}
	checkThreads(t, threads, "0 0 0")
}
