package testchild

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait; a healthy machine needs a small part of it.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	Main(m, map[string]Role{
		"echo": func(p *Parent, args []string) error {
			p.Say("%s %s", strings.Join(args, "+"), p.Line())
			return nil
		},
		"fail": func(*Parent, []string) error { return errors.New("as it was told to") },
		"nobody": func(p *Parent, _ []string) error {
			const nobody = 65534
			if err := syscall.Setresuid(nobody, nobody, nobody); err != nil {
				return err
			}
			return p.Stay()
		},
		"cpus": func(p *Parent, _ []string) error {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
				return err
			}
			p.Say("%d", set.Count())
			return nil
		},
	})
}

func TestConversation(t *testing.T) {
	t.Parallel()
	c := Start(t, "echo a b")
	c.Say("and %d", 3)
	if said, err := c.Wait(); err != nil || said != "a+b and 3\n" {
		t.Errorf("%q, %v", said, err)
	}
	for _, role := range []string{"fail", "nothing"} {
		said, err := Start(t, role).Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || said != "" {
			t.Errorf("%s: %q, %v", role, said, err)
		}
	}
}

// What Before changes is the child's, and nobody else's.
func TestBefore(t *testing.T) {
	t.Parallel()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !all.IsSet(first) {
		first++
	}
	for range 20 {
		c := StartWith(t, "cpus", Options{Before: func() error {
			var one unix.CPUSet
			one.Set(first)
			return unix.SchedSetaffinity(0, &one)
		}})
		if said, err := c.Wait(); err != nil || said != "1\n" {
			t.Fatalf("the child may use %q CPUs, %v", said, err)
		}
		runtime.Gosched()
		var now unix.CPUSet
		if err := unix.SchedGetaffinity(0, &now); err != nil || now != all {
			t.Fatalf("the test may use %d CPUs, %v", now.Count(), err)
		}
	}
}

// endVariable makes this binary run TestVictim, which ends in the way it names.
const endVariable = "COMMENSAL_TESTCHILD_END"

// TestEndsWithTheTest: whatever the end of a test is, its children are gone after it.
func TestEndsWithTheTest(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"pass", "fail", "panic", "panic beside", "exit", "kill"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, "-test.run=^TestVictim$", "-test.v")
			cmd.Env = append(os.Environ(), endVariable+"="+way)
			cmd.WaitDelay = patience
			out, err := cmd.CombinedOutput()
			if (err == nil) != (way == "pass") {
				t.Errorf("%v\n%s", err, out)
			}
			children := 0
			for line := range bytes.Lines(out) {
				var pid int
				if n, _ := fmt.Sscanf(string(line), "child=%d", &pid); n == 1 {
					children++
					awaitGone(t, pid)
				}
			}
			if want := map[bool]int{true: 4, false: 2}[os.Geteuid() == 0]; children != want {
				t.Errorf("%d children, want %d\n%s", children, want, out)
			}
		})
	}
}

// awaitGone waits until a process has ended; it may not have been waited for.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still there: %s", stat)
		}
	}
}

// TestVictim is no test of its own: it is what TestEndsWithTheTest starts.
func TestVictim(t *testing.T) {
	way := os.Getenv(endVariable)
	if way == "" {
		t.Skip("only runs as a child of another test")
	}
	roles := []string{"sleep", "spin 2"}
	if os.Geteuid() == 0 {
		roles = append(roles, "nobody", "nobody")
	}
	for _, role := range roles {
		fmt.Printf("child=%d\n", Start(t, role).Await("ready").PID())
	}
	switch way {
	case "pass":
	case "fail":
		t.Fatal("as it was told to")
	case "panic":
		panic("as it was told to")
	case "panic beside":
		go panic("as it was told to")
		select {}
	case "exit":
		os.Exit(3)
	case "kill":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
}
