package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

// Processes that the tests need are this test binary itself, with a task.

const (
	taskEnv = "COMMENSAL_PROBE_TEST_TASK"
	// patience bounds every wait; a healthy kernel needs a small part of it.
	patience = 30 * time.Second
	// nobody is a user who is not us, and need not be known to the machine.
	nobody = 65534
)

func TestMain(m *testing.M) {
	if task := os.Getenv(taskEnv); task != "" {
		runTask(task)
	}
	os.Exit(m.Run())
}

// runTask says "ready", waits for a line, does the task, says "done" and stays until its input ends.
func runTask(task string) {
	name, arg, _ := strings.Cut(task, " ")
	die := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	line := make([]byte, 8)
	if _, err := os.Stdin.Read(line); err != nil {
		os.Exit(0)
	}
	switch name {
	case "sleep":
	case "spin": // two threads on one CPU: each waits while the other runs
		for range 2 {
			go func() {
				runtime.LockOSThread()
				var one unix.CPUSet
				one.Set(firstCPU())
				die(unix.SchedSetaffinity(0, &one))
				for n := 0; ; n++ {
				}
			}()
		}
	case "file": // leaves 8 MiB of clean page cache to its group
		f, err := os.Create(arg)
		die(err)
		_, err = f.Write(make([]byte, 8<<20))
		die(errors.Join(err, f.Sync()))
	case "remedies": // as another user finds them, in JSON
		die(syscall.Setresuid(nobody, nobody, nobody))
		die(json.NewEncoder(os.Stdout).Encode(Remedies(Run(Options{FS: hostfs.NewRoot("/"), Live: true}))))
	case "nobody":
		die(syscall.Setresuid(nobody, nobody, nobody))
	case "resctrl": // in a mount namespace of its own
		die(resctrl.Mount(resctrl.DefaultPoint, resctrl.MountOptions{}))
	default:
		die(fmt.Errorf("no task %q", task))
	}
	fmt.Println("done")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// firstCPU is the first CPU that this process may use.
func firstCPU() int {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		panic(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	return cpu
}

// process is a process of a test.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
}

// start starts a process that waits for begin; the test's end ends it.
func start(t *testing.T, task string, attr *syscall.SysProcAttr) *process {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), taskEnv+"="+task)
	p.cmd.Stderr, p.cmd.SysProcAttr = os.Stderr, attr
	p.in, err = p.cmd.StdinPipe()
	must(t, err)
	p.out, err = p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	t.Cleanup(p.end)
	must(t, p.says("ready"))
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// says waits for a word.
func (p *process) says(want string) error {
	b := make([]byte, 256)
	n, err := p.out.Read(b)
	if got := strings.TrimSpace(string(b[:n])); got != want {
		return fmt.Errorf("task %q said %q (%w), want %q", p.cmd.Env[len(p.cmd.Env)-1], got, err, want)
	}
	return nil
}

// begin lets it do its task, and waits until that is done or, of a spinner, under way.
func (p *process) begin() error {
	if _, err := p.in.Write([]byte("go\n")); err != nil {
		return err
	}
	return p.says("done")
}

// end kills it and waits until it is gone; what has ended already is fine.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.in.Close()
}

// eventually tries until there is no error, or returns the last one.
func eventually(try func() error) error {
	err := try()
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); err = try() {
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
