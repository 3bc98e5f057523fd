// Package program reads a service's latency from a program that prints it: a number a line, in
// milliseconds, each as it is measured. `inf` is a request that failed.
package program

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/slo"
)

// Limits on what a program may do. One that goes beyond is ended, and started again later.
const (
	maxLine   = 128  // bytes
	maxRate   = 2000 // lines a second, over the window
	maxFiles  = 256  // open at a time
	maxMillis = 1e3 * 3600
)

// Back-off between starts; a program that ran for longer than the greatest begins anew with the least.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Config says which program. It is run without a shell, in a process group of its own.
type Config struct {
	Command  []string
	Window   time.Duration // default 3 s
	Timeout  time.Duration // what a request that failed counts as; default 1 s
	Quantile float64       // that is asked for beside the usual ones
}

// Source is an slo.Source.
type Source struct {
	config Config

	mu     sync.Mutex
	window *slo.Window
	reason string

	life slo.Life
}

var _ slo.Source = (*Source)(nil)

// New returns a source that has not yet begun.
func New(c Config) (*Source, error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return nil, errors.New("which program? expected a command")
	}
	c.Window = cmp.Or(c.Window, slo.DefaultWindow)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	s := &Source{config: c, window: slo.NewWindow(c.Window, c.limit()), reason: "not started"}
	s.window.Ask(c.Quantile)
	return s, nil
}

// limit is how many lines a window may have.
func (c *Config) limit() int { return int(math.Ceil(c.Window.Seconds() * maxRate)) }

// Start runs the program. See slo.Source.
func (s *Source) Start(ctx context.Context) error { return s.life.Start(ctx, s.loop) }

// Close ends the program with its group. See slo.Source.
func (s *Source) Close() error { return s.life.Close() }

// Read returns the figures as of now. See slo.Source. A program that prints nothing has no figures
// once its window is over.
func (s *Source) Read(now time.Time) slo.Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	var r slo.Reading
	s.window.Fill(&r, now, 0, nil)
	if s.reason != "" {
		return r.Unavailable(s.reason)
	}
	return r
}

func (s *Source) setReason(reason string) {
	s.mu.Lock()
	s.reason = reason
	s.mu.Unlock()
}

func (s *Source) loop(ctx context.Context) {
	// The kernel ends the program when the thread that started it ends: this one lives as long as we do.
	runtime.LockOSThread()
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		began := time.Now()
		err := s.run(ctx)
		if ctx.Err() != nil {
			s.setReason("closed")
			return
		}
		s.setReason(err.Error())
		if time.Since(began) > maxBackoff {
			backoff = minBackoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
	}
}

// run runs the program once, and says why it is over.
func (s *Source) run(ctx context.Context) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(s.config.Command[0], s.config.Command[1:]...) //nolint:noctx // its group is killed, below
	cmd.Stdout, cmd.Dir = in, "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	_ = in.Close()
	if err != nil {
		return err
	}
	restrain(cmd.Process.Pid)
	// Whoever ends it closes our side too: a process that left the group may keep the other one open.
	stop := context.AfterFunc(ctx, func() { _ = out.Close() })
	defer stop()
	s.setReason("")
	why := s.read(out)
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // nobody waited for it yet: the number is its own
	if err := cmd.Wait(); why == nil {
		why = fmt.Errorf("the program ended: %s", cmd.ProcessState)
		if err == nil {
			why = errors.New("the program ended")
		}
	}
	return why
}

// restrain takes from the program what it has from the agent: precedence, and that it is killed last.
func restrain(pid int) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, pid, 0)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("0"), 0)
	_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: maxFiles, Max: maxFiles}, nil)
	_ = unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
}

// read enters what the program prints, until it ends or prints what it should not.
func (s *Source) read(out *os.File) error {
	lines := bufio.NewReaderSize(out, maxLine)
	second, n := time.Now(), 0
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("printed a line of more than %d bytes: %.32q", maxLine, line)
		}
		if err != nil {
			return nil
		}
		text := strings.TrimSpace(string(line))
		ms, err := strconv.ParseFloat(text, 64)
		failed := math.IsInf(ms, 1)
		if err != nil || !failed && !(ms >= 0 && ms <= maxMillis) {
			return fmt.Errorf("printed %.64q; expected a latency in milliseconds", text)
		}
		now := time.Now()
		if now.Sub(second) >= s.config.Window {
			second, n = now, 0
		}
		if n++; n > s.config.limit() {
			return fmt.Errorf("prints more than %d lines a second", maxRate)
		}
		latency := time.Duration(ms * float64(time.Millisecond))
		if failed {
			latency = s.config.Timeout
		}
		s.mu.Lock()
		s.window.Add(now, latency, failed)
		s.mu.Unlock()
	}
}
