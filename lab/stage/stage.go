// Package stage puts real programs into cgroups of its own, for labs that measure on the
// host they run on, and leaves that host as it was found: every process ended, every
// group removed, also after Ctrl-C, and by the next run after a SIGKILL.
package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// prefix begins the name of every stage's folder; the owner's pid follows.
const prefix = "commensal-lab-"

// ExecCommand is the hidden command of the lab's binary that moves itself into a group
// and becomes another program, so that not a moment of it is spent elsewhere.
const ExecCommand = "exec-in"

// endWait is how long a process may take to end after SIGTERM, and a group to empty.
const endWait = 3 * time.Second

// Stage is one folder of cgroups and a scratch directory.
type Stage struct {
	Root string // cgroup path of the folder
	Dir  string // scratch directory, removed at the end

	cg    cgroup.Driver
	cpu   *controller // nil on cgroup v1
	procs []*Proc
}

// Open makes a stage, after removing what dead runs left. What it has to change of the
// machine beside its own groups it says to log, and takes back in Close.
//
// The stage's folder has no processes of its own: on cgroup v2 a group that hands
// controllers down takes none. Programs live in the groups below.
func Open(log io.Writer) (*Stage, error) {
	fs := hostfs.NewRoot("/")
	m, err := cgroup.Discover(fs)
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	cg, err := cgroup.Open(fs, m)
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	s := &Stage{Root: "/" + prefix + strconv.Itoa(os.Getpid()), cg: cg, cpu: newController(fs, m, cg, log)}
	if err := s.sweepDead(); err != nil {
		return nil, err
	}
	if err := s.cpu.enable(); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	if err := cg.Mkdir(s.Root); err != nil {
		return nil, errors.Join(fmt.Errorf("stage: %w", err), s.cpu.restore())
	}
	if s.Dir, err = os.MkdirTemp("", prefix); err != nil {
		return nil, errors.Join(fmt.Errorf("stage: %w", err), cg.Rmdir(s.Root), s.cpu.restore())
	}
	// Programs on the stage may run as other users.
	if err := os.Chmod(s.Dir, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("stage: %w", err), s.Close())
	}
	return s, nil
}

// sweepDead removes the stages of runs that are no more.
func (s *Stage) sweepDead() error {
	groups, err := s.cg.List()
	if err != nil && groups == nil {
		return fmt.Errorf("stage: %w", err)
	}
	for _, g := range groups {
		rest, ok := strings.CutPrefix(g, "/"+prefix)
		if !ok || strings.Contains(rest, "/") {
			continue
		}
		pid, err := strconv.Atoi(rest)
		if err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		if err := s.removeTree(g); err != nil {
			return fmt.Errorf("stage: left by a dead run: %w", err)
		}
	}
	return nil
}

// Cgroups is the driver, for reading and for baselines that write knobs themselves.
func (s *Stage) Cgroups() cgroup.Driver { return s.cg }

// Group makes a group below the stage's folder and returns its cgroup path.
func (s *Stage) Group(name string) (string, error) {
	path := s.Root + "/" + name
	if err := s.cg.Mkdir(path); err != nil {
		return "", fmt.Errorf("stage: %w", err)
	}
	return path, nil
}

// Proc is a program on the stage.
type Proc struct {
	cmd  *exec.Cmd
	name string
	log  string // of what it says; "": elsewhere
	wait time.Duration
	done chan struct{}
	err  error
}

// Start starts a program; group "" leaves it where the lab itself runs. Its output goes
// to a file of the scratch directory that is named after it.
func (s *Stage) Start(group, name string, argv ...string) (*Proc, error) {
	if _, err := exec.LookPath(argv[0]); err != nil { // else it would be missed in the child, and show as one that does not answer
		return nil, fmt.Errorf("stage: %w (make demo and make test install what they start)", err)
	}
	log := filepath.Join(s.Dir, name+".log")
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	defer out.Close() //nolint:errcheck // the child has its own
	if group != "" {
		if len(os.Args) > 1 && os.Args[1] == ExecCommand {
			return nil, fmt.Errorf("stage: this program was started as %q and goes on as if it were not: it would start itself without end", ExecCommand)
		}
		argv = append([]string{"/proc/self/exe", ExecCommand, group, "--"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, s.Dir
	p, err := s.StartCmd(cmd, name)
	if err == nil {
		p.log = log
	}
	return p, err
}

// StartCmd starts a prepared command where the lab itself runs.
func (s *Stage) StartCmd(cmd *exec.Cmd, name string) (*Proc, error) {
	// A process group of its own: a terminal's Ctrl-C reaches us, and we end it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("stage: start %s: %w", name, err)
	}
	p := &Proc{cmd: cmd, name: name, wait: endWait, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	s.procs = append(s.procs, p)
	return p, nil
}

// Pid returns the process id.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// CPU is what the program used in all; 0 until it has ended.
func (p *Proc) CPU() time.Duration {
	if !p.Ended() || p.cmd.ProcessState == nil {
		return 0
	}
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// Wait waits for the program's end. An error has the last that the program said.
func (p *Proc) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.failed(p.err)
	case <-ctx.Done():
		return p.failed(ctx.Err())
	}
}

// failed adds the program's name, and the end of what it said, to an error.
func (p *Proc) failed(err error) error {
	if err == nil {
		return nil
	}
	text, _ := os.ReadFile(p.log) // none is none
	const most = 2000
	return fmt.Errorf("%s: %w\n%s", p.name, err, bytes.TrimSpace(text[max(0, len(text)-most):]))
}

// Ended reports whether the program has ended.
func (p *Proc) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the program and everything in its process group.
func (p *Proc) Signal(sig syscall.Signal) {
	if !p.Ended() {
		_ = unix.Kill(-p.Pid(), sig) // it may have ended just now
	}
}

// Stop ends the program: SIGTERM, and SIGKILL when that is not enough.
func (p *Proc) Stop() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p.Signal(sig)
		select {
		case <-p.done:
			return
		case <-time.After(p.wait):
		}
	}
}

// Exec is the body of ExecCommand: move into the group, become the program.
func Exec(group string, argv []string) error {
	fs := hostfs.NewRoot("/")
	m, err := cgroup.Discover(fs)
	if err != nil {
		return err
	}
	cg, err := cgroup.Open(fs, m)
	if err != nil {
		return err
	}
	if err := cg.MovePID(group, os.Getpid()); err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, argv, os.Environ())
}

// UsageNsec returns the CPU time of a group.
func (s *Stage) UsageNsec(path string) (uint64, error) {
	g, err := s.cg.Open(path)
	if err != nil {
		return 0, err
	}
	defer g.Close() //nolint:errcheck // read only
	return g.UsageNsec()
}

// Close ends every program, removes every group and the scratch directory, and leaves the
// machine as it was found.
func (s *Stage) Close() error {
	for i := len(s.procs) - 1; i >= 0; i-- {
		s.procs[i].Stop()
	}
	err := errors.Join(s.removeTree(s.Root), os.RemoveAll(s.Dir))
	if restored := s.cpu.restore(); restored != nil {
		err = errors.Join(err, fmt.Errorf("stage: %w", restored))
	}
	return err
}

// removeTree kills what is left in a folder of groups and removes it, children first.
func (s *Stage) removeTree(root string) error {
	below, err := s.cg.Descendants(root)
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	var errs []error
	for i := len(below) - 1; i >= 0; i-- {
		errs = append(errs, s.remove(below[i]))
	}
	return errors.Join(append(errs, s.remove(root))...)
}

// remove empties and removes one group. A limit would keep its processes from dying.
func (s *Stage) remove(path string) error {
	_ = s.cg.WriteCPUMax(path, cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}) // gone, or refused: the wait below tells
	for deadline := time.Now().Add(endWait); ; time.Sleep(10 * time.Millisecond) {
		pids, err := s.cg.Procs(path)
		if errors.Is(err, cgroup.ErrVanished) {
			return nil
		}
		for _, pid := range pids {
			_ = unix.Kill(int(pid), unix.SIGKILL) // it may have ended just now
		}
		if err = s.cg.Rmdir(path); err == nil || errors.Is(err, cgroup.ErrVanished) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("stage: %s does not empty: %w", path, err)
		}
	}
}

// Sleep waits, or returns the context's error as soon as that ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
