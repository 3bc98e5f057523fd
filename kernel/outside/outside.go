// Package outside runs programs of others once: the hook's, the command of a GPU's driver. What runs is no part of the agent: the kernel may kill it for memory
// like any other, it has the usual priority, and it ends with all that it started when its context does, or with the agent.
package outside

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command prepares a program of an absolute path; the caller sets its environment, and where its output goes. One that others than its owner may write is
// an error: it would run as root.
func Command(ctx context.Context, path string, args ...string) (*exec.Cmd, error) {
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if st.Mode()&0o022 != 0 {
		return nil, fmt.Errorf("%s: others than its owner may write it (mode %04o), and it would run as root", path, st.Mode().Perm())
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for a child that went elsewhere and keeps the output open
	return cmd, nil
}

// Run runs what Command prepared to its end.
func Run(cmd *exec.Cmd) error {
	// The kernel ends the process when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("0"), 0) // it may have ended
	_ = unix.Setpriority(unix.PRIO_PGRP, pid, 0)
	return cmd.Wait()
}
