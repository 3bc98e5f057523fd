package taskstats

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests need real processes that burn CPU. The test binary is started again with this variable set:
//
//	spin N      burn on N threads until stdin closes
//	die MS      burn MS milliseconds of CPU time on a second thread, end that thread, say "died", wait for stdin
//	wait        wait for stdin
const childVariable = "COMMENSAL_TASKSTATS_CHILD"

// init keeps a child's main on the process's first thread, which only an init can: the
// runtime never ends that one, and another goroutine that burnt on it would not die.
func init() {
	if os.Getenv(childVariable) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if role := os.Getenv(childVariable); role != "" {
		child(role)
		return
	}
	os.Exit(m.Run())
}

func child(role string) {
	what, number, _ := strings.Cut(role, " ")
	n, _ := strconv.Atoi(number)
	switch what {
	case "spin":
		runtime.GOMAXPROCS(n + 2)
		for range n {
			go func() {
				runtime.LockOSThread()
				for {
					burn(time.Hour)
				}
			}()
		}
	case "die":
		burner := make(chan int, 1)
		go func() {
			// Locked and never unlocked: the runtime ends the thread when the goroutine returns.
			runtime.LockOSThread()
			burn(time.Duration(n) * time.Millisecond)
			burner <- unix.Gettid()
		}()
		for task := fmt.Sprintf("/proc/self/task/%d", <-burner); ; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(task); err != nil {
				break
			}
		}
		fmt.Println("died")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// burn uses CPU time of the calling thread, not wall time: on a loaded machine it takes longer.
func burn(d time.Duration) {
	var start, now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &start)
	for {
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
		if now.Nano()-start.Nano() >= d.Nanoseconds() {
			return
		}
	}
}

// process is a child of the test; it ends when stdin closes or the test does.
type process struct {
	pid    int32
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// start starts a child, on the given CPU only if cpu >= 0.
func start(t testing.TB, role string, cpu int) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := startOn(cmd, cpu); err != nil {
		t.Fatal(err)
	}
	p := &process{pid: int32(cmd.Process.Pid), cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout)}
	t.Cleanup(p.end)
	return p
}

// startOn starts cmd with the affinity of one CPU: a child inherits that of the thread which forks it, for all
// its threads.
func startOn(cmd *exec.Cmd, cpu int) error {
	runtime.LockOSThread() // also for Pdeathsig: it fires when the forking thread ends
	defer runtime.UnlockOSThread()
	if cpu < 0 {
		return cmd.Start()
	}
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	err := cmd.Start()
	if restored := unix.SchedSetaffinity(0, &before); restored != nil {
		return restored
	}
	return err
}

// end kills the child by its id and reaps it. It may be called twice.
func (p *process) end() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
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
