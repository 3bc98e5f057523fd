package agent

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startWait is how long a starting agent waits for the agent's lock: a `restore` that
// only looks whether somebody holds it must not keep the agent from starting.
const startWait = 200 * time.Millisecond

// anotherAfter is how long the agent waits before it starts another guardian.
const anotherAfter = time.Second

// guardian is the agent's side of the child that puts everything back when the agent is gone or
// hangs (DESIGN.md, decisions 6 and 17). The two share a pipe: the loop writes a byte into it at
// each turn, and the kernel closes it with the agent.
type guardian struct {
	runDir  string
	silence time.Duration
	log     *slog.Logger

	mu      sync.Mutex
	pipe    int // the write end, which never blocks; -1: no guardian runs
	leaving bool
	left    chan struct{} // closed when the last guardian is gone
}

// silenceFor is how long the loop may be silent: far longer than a turn takes on a machine that
// is overloaded, and 20 pulses. Turns are a second apart at most, however long the windows are:
// none waits for a window.
func silenceFor(pulse time.Duration) time.Duration { return max(5*time.Second, 20*pulse) }

// start starts the first guardian, and another one whenever it ends.
func (g *guardian) start() error {
	g.pipe, g.left = -1, make(chan struct{})
	cmd, err := g.launch(false)
	if err != nil {
		return err
	}
	go g.keep(cmd)
	return nil
}

// launch starts a guardian, again where there was one: this very binary under another name.
func (g *guardian) launch(again bool) (*exec.Cmd, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("guardian: %w", os.NewSyscallError("pipe2", err))
	}
	r := os.NewFile(uintptr(p[0]), "guardian's end")
	defer r.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command("/proc/self/exe", "guardian", "--run-dir", g.runDir, "--agent", strconv.Itoa(os.Getpid()), "--silence", g.silence.String())
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stderr = os.Stderr
	// Only the agent speaks for the service.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "NOTIFY_SOCKET=") || strings.HasPrefix(v, "WATCHDOG_")
	}), "GOMAXPROCS="+strconv.Itoa(runtime.GOMAXPROCS(0)))
	// A session of its own: a terminal's Ctrl-C must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		unix.Close(p[1]) //nolint:errcheck // the first error counts
		return nil, fmt.Errorf("guardian: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving {
		unix.Close(p[1]) //nolint:errcheck // tells it to go
		return cmd, nil
	}
	if g.pipe = p[1]; again {
		_, _ = unix.Write(p[1], []byte{'.'}) // it counts from here on: the loop moved until now
	}
	return cmd, nil
}

// keep waits for guardians to end and starts the next, beside the loop: to start a program
// may need a disk.
func (g *guardian) keep(cmd *exec.Cmd) {
	defer close(g.left)
	for told := false; ; {
		if cmd != nil {
			_ = cmd.Wait() // its exit status is in its own log
			if g.close(false) {
				return
			}
			g.log.Warn("the guardian process, which undoes what the agent did should the agent crash or hang, has ended: another is started", "pid", cmd.Process.Pid)
		}
		time.Sleep(anotherAfter)
		var err error
		if cmd, err = g.launch(true); err != nil && !told {
			g.log.Error("no guardian process could be started: after a crash of the agent its limits stay until it is started again; it is tried each second", "error", err)
		}
		if told = err != nil; told && g.close(false) {
			return
		}
	}
}

// close closes the pipe, for good if the agent is leaving, and reports whether it is.
func (g *guardian) close(leaving bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaving = g.leaving || leaving
	if g.pipe >= 0 {
		unix.Close(g.pipe) //nolint:errcheck // this is the signal, or nobody reads it
		g.pipe = -1
	}
	return g.leaving
}

// beat tells the guardian that the loop moves. It never blocks: to a guardian that has stopped
// reading nothing can be told.
func (g *guardian) beat() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe >= 0 {
		_, _ = unix.Write(g.pipe, []byte{'.'}) // a full pipe says enough; of one that is closed keep hears
	}
}

// stop lets the guardian go after a clean restore.
func (g *guardian) stop() {
	g.close(true)
	select {
	case <-g.left:
	case <-time.After(restoreWait):
	}
}
