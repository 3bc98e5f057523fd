package perf_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
)

// Roles are those of the tests' children, for TestMain; open is the source that is tested.
func Roles(open Open) map[string]testchild.Role {
	return map[string]testchild.Role{
		"roam":  roam,
		"hold":  perftest.Hold,
		"ping":  ping,
		"pong":  pong,
		"limit": func(_ *testchild.Parent, args []string) error { limit(open, args[0]); return nil },
		"count": func(p *testchild.Parent, args []string) error { count(open, args[0]); return p.Stay() },
	}
}

// roam burns, and moves from CPU to CPU every millisecond or so of its own time.
func roam(p *testchild.Parent, _ []string) error {
	runtime.LockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	p.Say("ready")
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

// Spin starts a spinner inside the cgroup.
func Spin(t testing.TB, dir string) *testchild.Child {
	t.Helper()
	return burner(t, dir, "spin")
}

// burner starts a child and waits until it really burns.
func burner(t testing.TB, dir, role string) *testchild.Child {
	t.Helper()
	c := testchild.Start(t, role)
	c.Move(dir)
	return c.Await("ready")
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
	t.Cleanup(func() { perftest.Remove(t, dir) })
	return dir
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
