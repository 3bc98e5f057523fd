// Package testchild starts the processes that tests need: the test binary itself, executed
// again to play a role, so that a test needs no other program and runs in the rig's guests
// too.
//
// A child never outlives its test, whatever happens to the test: its end, failed or not,
// kills the child by its id and waits for it; a panic, an exit or a SIGKILL of the test
// binary makes the kernel kill it (a parent-death signal, bound to a thread that lives as
// long as the child does); and a child that has changed its user, for which the kernel
// drops that signal, ends when its standard input does, whose other end the test holds.
package testchild

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

// roleVariable holds the role that a child plays, with its arguments.
const roleVariable = "COMMENSAL_TEST_CHILD"

// Role is what a child does. The child ends when it returns; an error goes to standard
// error and makes the exit code 1.
type Role func(p *Parent, args []string) error

// Main is the whole TestMain of a package with children: it plays the role that this
// process was started for, or runs the tests. Roles of the same name go before those that
// every package has: sleep, spin and burst (roles.go).
func Main(m *testing.M, roles map[string]Role) {
	Play(roles)
	os.Exit(m.Run())
}

// Play plays the role that this process was started for, and exits. It returns when there
// is none.
func Play(roles map[string]Role) {
	words := strings.Fields(os.Getenv(roleVariable))
	if len(words) == 0 {
		return
	}
	role := roles[words[0]]
	if role == nil {
		role = common()[words[0]]
	}
	err := fmt.Errorf("no such role")
	if role != nil {
		err = role(newParent(), words[1:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "child %q: %v\n", words[0], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Parent is the test, as its child sees it.
type Parent struct{ lines chan string }

// newParent ends this process when the test does.
func newParent() *Parent {
	p := &Parent{make(chan string, 16)}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			p.lines <- in.Text()
		}
		os.Exit(0)
	}()
	return p
}

// Say sends a line.
func (p *Parent) Say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Line waits for the next line; it does not return when the test ends instead.
func (p *Parent) Line() string { return <-p.lines }

// Stay says "ready" and waits for the test's end; it does not return.
func (p *Parent) Stay() error {
	p.Say("ready")
	select {}
}

// Options are how a child starts.
type Options struct {
	Env  []string            // beside the test's own, as in exec.Cmd; GOMAXPROCS is 2 otherwise
	Attr syscall.SysProcAttr // namespaces, credentials …
	// Group is the directory of a cgroup to start in, "": the test's own. On cgroup v2
	// the child is there from its first instruction on, on v1 it is moved there, so that
	// what it had by then, some hundred pages, stays charged to the test's.
	Group string
	// Before, if not nil, is called on the thread that starts the child, which nothing
	// else runs on: for what a child inherits from that, as CPUs and memory policy.
	Before func() error
}

// Child is a process of a test's own.
type Child struct {
	t      testing.TB
	role   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	finish chan bool // how it ends: true is to kill it
	ended  chan error
	isOver bool
	err    error
}

// Start starts a child in a role, which is a name and arguments, without waiting for
// anything that it says.
func Start(t testing.TB, role string) *Child {
	t.Helper()
	return StartWith(t, role, Options{})
}

// StartWith is Start with options.
func StartWith(t testing.TB, role string, o Options) *Child {
	t.Helper()
	c := &Child{t: t, role: role, cmd: command(role), finish: make(chan bool), ended: make(chan error, 1)}
	c.cmd.Env = append(c.cmd.Env, o.Env...)
	o.Attr.Pdeathsig = syscall.SIGKILL
	c.cmd.SysProcAttr = &o.Attr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.start(&o); err != nil {
		t.Fatalf("child %q: %v", role, err)
	}
	t.Cleanup(c.End)
	return c
}

// Command returns the command that starts a child of a child, which ends with the test, too,
// and when the thread that starts it ends. It cannot be told anything.
func Command(role string) *exec.Cmd {
	cmd := command(role)
	cmd.Stdin = os.Stdin
	return cmd
}

func command(role string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts the process on a thread of its own, which stays for as long as the process
// is there: the kernel kills it when the thread that started it ends. The thread is never
// given back, so that nothing else runs with what Before changed.
func (c *Child) start(o *Options) error {
	moved := false
	if o.Group != "" {
		var fs unix.Statfs_t
		if err := unix.Statfs(o.Group, &fs); err != nil {
			return &os.PathError{Op: "statfs", Path: o.Group, Err: err}
		}
		if fs.Type == unix.CGROUP2_SUPER_MAGIC {
			dir, err := os.Open(o.Group)
			if err != nil {
				return err
			}
			defer dir.Close() //nolint:errcheck // read only
			o.Attr.UseCgroupFD, o.Attr.CgroupFD, moved = true, int(dir.Fd()), true
		}
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		if o.Before != nil {
			err = o.Before()
		}
		if err == nil {
			err = c.cmd.Start()
		}
		started <- err
		if err != nil {
			return
		}
		if kill := <-c.finish; kill {
			_ = c.cmd.Process.Kill() // it may have ended by itself
		}
		c.ended <- c.cmd.Wait()
	}()
	err := <-started
	if err == nil && o.Group != "" && !moved {
		c.Move(o.Group)
	}
	return err
}

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Say writes a line to the child.
func (c *Child) Say(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatalf("child %q: %v", c.role, err)
	}
}

// Line reads a line that the child says.
func (c *Child) Line() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("child %q says %q: %v", c.role, line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// Await reads a line that the child says, and fails unless it is the one expected.
func (c *Child) Await(want string) *Child {
	c.t.Helper()
	if line := c.Line(); line != want {
		c.t.Fatalf("child %q says %q, want %q", c.role, line, want)
	}
	return c
}

// Move moves the child into the cgroup of a directory.
func (c *Child) Move(dir string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(c.PID())), 0); err != nil {
		c.t.Fatal(err)
	}
}

// Pin keeps the child, with all its threads, on one CPU. Kernels before 6.2 forget that
// when the child is moved to another cgroup.
func (c *Child) Pin(cpu int) {
	c.t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	for pinned := 0; ; { // until there is no new thread, which one not pinned yet may start
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.PID()))
		if err != nil {
			c.t.Fatal(err)
		}
		if len(threads) <= pinned {
			return
		}
		pinned = len(threads)
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				c.t.Fatal(err)
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				c.t.Fatal(err)
			}
		}
	}
}

// End kills the child and waits until it is gone. It may have ended, and End may be called
// again. A child that ended before is a zombie until then.
func (c *Child) End() { _ = c.over(true) }

// Wait waits for the child to end by itself, a minute at most, and returns what it said
// that nobody has read yet; the error is that of exec.Cmd.Wait.
func (c *Child) Wait() (said string, err error) {
	c.t.Helper()
	over := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer over.Stop()
	rest, err := io.ReadAll(c.out)
	if err != nil {
		c.t.Fatalf("child %q: %v", c.role, err)
	}
	return string(rest), c.over(false)
}

func (c *Child) over(kill bool) error {
	if !c.isOver {
		c.finish <- kill
		c.err = <-c.ended
		c.isOver = true
	}
	return c.err
}
