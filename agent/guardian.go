package agent

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/linux"
)

// guardianFD is where the guardian finds the pipe that closes with the agent.
const guardianFD = 3

// restoreWait is how long a restorer waits for the journal's lock: far longer than a
// dying agent holds it.
const restoreWait = 10 * time.Second

// startWait is how long a starting agent waits for the agent's lock: a `restore` that
// only looks whether somebody holds it must not keep the agent from starting.
const startWait = 200 * time.Millisecond

// guardian is the child that puts everything back when the agent is gone, however it
// went (DESIGN.md, decision 6). It sleeps on a pipe that the kernel closes with us.
type guardian struct {
	stateDir string
	log      *slog.Logger
	pipe     *os.File
	cmd      *exec.Cmd
	exited   chan struct{}
}

// start starts the guardian: this very binary under another name.
func (g *guardian) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("guardian: %w", err)
	}
	defer r.Close() //nolint:errcheck // the child has its own
	cmd, done := exec.Command("/proc/self/exe", "guardian", "--state-dir", g.stateDir), make(chan struct{})
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stderr = os.Stderr
	// A session of its own: a terminal's Ctrl-C must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close() //nolint:errcheck // the first error counts
		return fmt.Errorf("guardian: %w", err)
	}
	g.cmd, g.pipe, g.exited = cmd, w, done
	go func() {
		_ = cmd.Wait() // its exit status is in its own log
		close(done)
	}()
	return nil
}

// check starts a new guardian when the old one is gone.
func (g *guardian) check() {
	select {
	case <-g.exited:
	default:
		return
	}
	g.log.Warn("the guardian process, which undoes what the agent did should the agent crash, has ended: another is started", "pid", g.cmd.Process.Pid)
	g.pipe.Close() //nolint:errcheck // nobody reads it
	if err := g.start(); err != nil {
		g.log.Error("no guardian process could be started: after a crash of the agent its limits stay until it is started again", "error", err)
	}
}

// stop lets the guardian go after a clean restore.
func (g *guardian) stop() {
	g.pipe.Close() //nolint:errcheck // this is the signal
	select {
	case <-g.exited:
	case <-time.After(restoreWait):
	}
}

// Guard is the guardian's whole life: wait until the agent is gone, restore, leave.
func Guard(stateDir string, log *slog.Logger) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// Best effort: without CAP_SYS_RESOURCE the score cannot be lowered.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(-900)), 0o600)
	pipe := os.NewFile(guardianFD, "agent")
	if pipe == nil {
		return fmt.Errorf("guardian: descriptor %d is not open; it is started by the agent", guardianFD)
	}
	var st unix.Stat_t
	if err := unix.Fstat(guardianFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return fmt.Errorf("guardian: descriptor %d is no pipe; it is started by the agent", guardianFD)
	}
	if _, err := io.Copy(io.Discard, pipe); err != nil {
		return fmt.Errorf("guardian: %w", err)
	}
	// A next agent may hold the agent's lock already; whoever has the journal's lock first
	// restores, and the other finds nothing to do.
	rep, err := restoreInTurn(stateDir)
	if err != nil {
		return err
	}
	LogReport(log.With("by", "guardian"), &rep)
	return nil
}

// RestoreNow puts back what a dead agent left; ErrRunning, at once, while one is running.
func RestoreNow(stateDir string) (node.Report, error) {
	if _, err := os.Stat(stateDir); os.IsNotExist(err) {
		return node.Report{}, nil // no agent ever ran here
	}
	l, err := lock(stateDir, agentLock, 0)
	if err != nil {
		return node.Report{}, err
	}
	if err := l.Close(); err != nil {
		return node.Report{}, fmt.Errorf("restore: %w", err)
	}
	return restoreInTurn(stateDir)
}

// restoreInTurn takes the journal's lock and puts back what is outstanding.
func restoreInTurn(stateDir string) (node.Report, error) {
	l, err := lock(stateDir, journalLock, restoreWait)
	if err != nil {
		return node.Report{}, err
	}
	defer l.Close() //nolint:errcheck // closing is unlocking
	return restoreLocked(stateDir)
}

// restoreLocked is restoreInTurn for whoever holds the lock already.
func restoreLocked(stateDir string) (node.Report, error) {
	fs := hostfs.NewRoot("/")
	boot, err := procstat.ReadBootID(fs)
	if err != nil {
		return node.Report{}, fmt.Errorf("restore: %w", err)
	}
	return linux.Restore(fs, JournalPath(stateDir), boot)
}

// restoreText says what became of a cgroup's setting.
func restoreText(k node.RestoreKind) string {
	switch k {
	case node.Restored:
		return "the value found before the agent changed it was put back"
	case node.AsFound:
		return "the value found before the agent changed it was there already"
	case node.LeftForeign:
		return "somebody else has written another value: it was left alone"
	case node.LeftGone:
		return "the cgroup that the agent had changed is gone"
	}
	return "the kernel refused to put the value back that was found: the agent's own may still be in force"
}

// LogReport says what a restore did, and nothing when there was nothing to do.
func LogReport(log *slog.Logger, rep *node.Report) {
	for _, it := range rep.Items {
		level := slog.LevelInfo
		if it.Kind == node.NotRestored || it.Kind == node.LeftForeign {
			level = slog.LevelWarn
		}
		log.Log(nil, level, restoreText(it.Kind), "cgroup", it.Path, "outcome", string(it.Kind), "now", it.Now, "found", it.Found, "error", it.Error) //nolint:staticcheck // no context here
	}
	if rep.Rebooted {
		log.Info("nothing to put back: the journal is of an earlier boot, and a boot ends every setting")
	}
	if rep.Unreadable != "" {
		log.Error("part of the journal could not be read: some setting of the agent may still be in force", "why", rep.Unreadable)
	}
}
