package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardianFD is where the guardian finds the pipe that it shares with the agent.
const guardianFD = 3

// obeyWait is how long a process has to die of SIGKILL. One that does not is in an uninterruptible
// wait inside the kernel, or in a frozen v1 cgroup.
const obeyWait = 2 * time.Second

// maxProcs bounds the threads that run Go code at once: neither loop nor guardian has use for more.
// On a server of 256 CPUs the garbage collector starts 64 threads in the first milliseconds of a
// program, before it can say so (the unit and the guardian's environment do), and more later.
const maxProcs = 4

func modest() { runtime.GOMAXPROCS(min(maxProcs, runtime.NumCPU())) }

// Ward is whom a guardian watches.
type Ward struct {
	RunDir  string        // the agent's run directory
	PID     int           // the agent's process, which is the guardian's parent
	Silence time.Duration // without a sign of life from the agent's loop, after which it hangs
}

// Guard is the guardian's whole life: wait until the agent is gone, or end it when it hangs;
// restore, leave. The intuition: whoever asks for time that has passed must have lived through it.
// So silence is counted in short sleeps, of which each counts for twice its length at most, and
// anew after a gap that is longer than Silence: a guardian that was stopped itself, alone, with the agent or with the whole machine (SIGSTOP, a
// frozen cgroup, a suspended laptop, a paused VM), or that got no CPU, does not take the agent for
// hung when it goes on. The clock is CLOCK_MONOTONIC, which a suspended machine's does not move.
// A debugger that stops the agent for longer than Silence is what this is too strict with.
func Guard(w Ward, log *slog.Logger) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// Best effort: without CAP_SYS_RESOURCE the score cannot be lowered.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(-900)), 0o600)
	var st unix.Stat_t
	if err := unix.Fstat(guardianFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return fmt.Errorf("guardian: descriptor %d is no pipe; it is started by the agent", guardianFD)
	}
	if err := unix.SetNonblock(guardianFD, true); err != nil {
		return fmt.Errorf("guardian: %w", err)
	}
	log = log.With("by", "guardian")
	gone, err := w.watch()
	if err != nil {
		return err
	}
	if !gone {
		log.Error("the agent's loop does not move: the agent is ended, and everything is put back", "pid", w.PID, "silent_for", w.Silence)
		if os.Getppid() == w.PID { // else it is gone already
			err = unix.Kill(w.PID, unix.SIGKILL)
		}
		if gone, _ = hungUp(obeyWait); !gone {
			log.Error("the agent does not die of SIGKILL either: everything is put back beside it, and once more when it is gone", "pid", w.PID, "error", err)
			rep, err := restoreBeside(w.RunDir)
			LogReport(log, &rep)
			if err != nil {
				log.Error("not everything could be put back beside the agent", "error", err)
			}
			for !gone {
				gone, _ = hungUp(time.Hour)
			}
		}
	}
	// A next agent may hold the agent's lock already; whoever has the journal's lock first
	// restores, and the other finds nothing to do.
	rep, err := restoreInTurn(w.RunDir)
	if err != nil {
		return err
	}
	LogReport(log, &rep)
	return nil
}

// watch waits until the agent is gone, or until its loop was silent for too long after it had
// begun to speak.
func (w *Ward) watch() (gone bool, err error) {
	step := max(w.Silence/10, 10*time.Millisecond)
	buf := make([]byte, 4096)
	spoke, silent, was := false, time.Duration(0), int64(-1)
	for at := time.Now(); ; {
		gone, err := hungUp(step)
		if err != nil || gone {
			return gone, err
		}
		now := time.Now()
		if silent += min(now.Sub(at), 2*step); now.Sub(at) > w.Silence {
			silent, was = 0, -1
		}
		at = now
		for {
			n, err := unix.Read(guardianFD, buf)
			if n > 0 {
				spoke, silent, was = true, 0, -1
			}
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n < len(buf) {
				break // empty, or closed, which the next poll says
			}
		}
		switch {
		case !spoke || silent < w.Silence/2:
		case was < 0:
			was = w.scheduled()
		case silent >= starved*w.Silence, silent >= w.Silence && w.scheduled()-was < int64(w.Silence/8):
			return false, nil
		}
	}
}

// starved is how many times longer an agent may be silent that is given too little CPU: who ends
// it gains nothing but what it holds, which it would give back itself in its next turn.
const starved = 4

// scheduled is for how long the agent's threads ran or waited for a CPU so far, in nanoseconds:
// neither grows while an agent is stopped, frozen, or blocked in the kernel.
func (w *Ward) scheduled() (nsec int64) {
	dir := fmt.Sprintf("/proc/%d/task", w.PID)
	threads, _ := os.ReadDir(dir) // gone: the pipe tells
	for _, t := range threads {
		var ran, waited int64
		text, err := os.ReadFile(dir + "/" + t.Name() + "/schedstat")
		if err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			nsec += ran + waited
		}
	}
	return nsec
}

// hungUp waits until the pipe's other end is closed, for at most a while, and reports whether it is.
func hungUp(wait time.Duration) (bool, error) {
	fds := []unix.PollFd{{Fd: guardianFD}} // no events: only the end of the pipe wakes us
	_, err := unix.Poll(fds, int(wait.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("guardian: %w", os.NewSyscallError("poll", err))
	}
	return fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0, nil
}
