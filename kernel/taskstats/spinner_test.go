package taskstats

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
)

func TestMain(m *testing.M) { testchild.Main(m, map[string]testchild.Role{"die": die}) }

// die burns so much CPU time on a thread that ends then, says "died", and stays.
func die(p *testchild.Parent, args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	burner := make(chan int, 1)
	var burn func()
	burn = func() {
		// Locked and never unlocked: the runtime ends the thread when the goroutine returns.
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The process's first thread, which the runtime never ends: it stays occupied.
			go burn()
			select {}
		}
		testchild.Burn(d)
		burner <- unix.Gettid()
	}
	go burn()
	for task := fmt.Sprintf("/proc/self/task/%d", <-burner); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(task); err != nil {
			break
		}
	}
	p.Say("died")
	return p.Stay()
}

// process is a child of the test.
type process struct {
	*testchild.Child
	pid int32
}

// start starts a child, on the given CPU only if cpu >= 0.
func start(t testing.TB, role string, cpu int) process {
	t.Helper()
	c := testchild.StartWith(t, role, testchild.Options{Before: func() error {
		if cpu < 0 {
			return nil
		}
		var one unix.CPUSet
		one.Set(cpu)
		return unix.SchedSetaffinity(0, &one)
	}})
	return process{c, int32(c.PID())}
}

// sumSchedstat adds up the living threads of a process, read with package os as an independent answer.
func sumSchedstat(t testing.TB, pid int32) (run, delay uint64) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, e.Name()))
		if err != nil {
			continue // ended meanwhile
		}
		var r, d, n uint64
		if _, err := fmt.Sscan(string(b), &r, &d, &n); err != nil {
			t.Fatal(err)
		}
		run, delay = run+r, delay+d
	}
	return run, delay
}
