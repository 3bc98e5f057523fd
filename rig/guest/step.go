package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/commensal-io/commensal/rig/wire"
	"golang.org/x/sys/unix"
)

// maxLine bounds a line of a step's output; the rest of a longer one follows as another.
const maxLine = 32 << 10

// settle is how long what a step started may take to end after it.
const settle = 2 * time.Second

// run runs one step and reports it, with what it left behind.
func run(out *port, plan *wire.Plan, step *wire.Step) {
	out.send(wire.Message{Kind: wire.Start, Step: step.Name})
	var groups []string
	if plan.Root == "" {
		groups = listGroups()
	}
	began := time.Now()
	end := wire.Message{Kind: wire.End, Step: step.Name}
	err := execute(out, plan, step, &end)
	end.Sec = time.Since(began).Seconds()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		end.Exit = exit.ExitCode() // -1: ended by a signal
	case err != nil:
		end.Exit = -1
		out.send(wire.Message{Kind: wire.Line, Step: step.Name, Text: "guest: " + err.Error()})
	}
	if plan.Root == "" {
		end.Text = strings.Join(append(leftProcesses(), leftMounts(groups)...), "\n")
	}
	fmt.Printf("%s: exit %d after %.1f s\n", step.Name, end.Exit, end.Sec)
	out.send(end)
}

func execute(out *port, plan *wire.Plan, step *wire.Step, end *wire.Message) error {
	cmd := exec.Command(step.Argv[0], step.Argv[1:]...)
	cmd.Dir = step.Dir
	cmd.Env = append([]string{"PATH=/rig/bin:/bin", "HOME=/", "TMPDIR=/tmp"}, plan.Env...)
	if step.Console {
		return onConsole(cmd)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A pipe of our own: with cmd.StdoutPipe, Wait would wait for every grandchild
	// that keeps it open.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // read only
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close() //nolint:errcheck,gosec // the child has its own
	if err != nil {
		return err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		sendLines(out, step.Name, r)
	}()
	var timedOut atomic.Bool
	timer := time.AfterFunc(time.Duration(step.TimeoutSec)*time.Second, func() {
		timedOut.Store(true)
		// SIGQUIT makes a Go program print where its goroutines are.
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGQUIT)
		time.AfterFunc(settle, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	})
	err = cmd.Wait()
	timer.Stop()
	end.TimedOut = timedOut.Load()
	select {
	case <-read:
	case <-time.After(settle): // something that it left holds the pipe
	}
	return err
}

// onConsole runs a step for a person at the console, for as long as she likes.
func onConsole(cmd *exec.Cmd) error {
	// Not /dev/console, which gives nobody a controlling terminal.
	tty, err := os.OpenFile("/dev/ttyS0", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer tty.Close() //nolint:errcheck // the end of its only user
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return cmd.Run()
}

func sendLines(out *port, step string, r io.Reader) {
	br := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := br.ReadSlice('\n')
		if len(line) > 0 {
			out.send(wire.Message{Kind: wire.Line, Step: step, Text: strings.TrimSuffix(string(line), "\n")})
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// leftProcesses ends what a step left running, and says what that was.
func leftProcesses() []string {
	var found []string
	for deadline := time.Now().Add(settle); ; time.Sleep(50 * time.Millisecond) {
		found = found[:0]
		for _, pid := range userProcesses() {
			data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
			found = append(found, fmt.Sprintf("left process %d running: %s", pid, strings.ReplaceAll(string(data), "\x00", " ")))
			if time.Now().After(deadline) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if len(found) == 0 || time.Now().After(deadline) {
			return found
		}
	}
}

// userProcesses lists all processes but init, this one, zombies and the kernel's threads.
func userProcesses() []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		panic("a constant pattern: " + err.Error())
	}
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		// Neither a kernel thread nor a zombie has a command line.
		if data, err := os.ReadFile(dir + "/cmdline"); err == nil && len(data) > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// leftMounts says which cgroups and mounts of resctrl a step left. Those of resctrl are
// unmounted: the next step would find the machine taken.
func leftMounts(before []string) []string {
	var found []string
	after := listGroups()
	slices.Reverse(after) // children first
	for _, dir := range after {
		if !slices.Contains(before, dir) {
			found = append(found, "left cgroup "+strings.TrimPrefix(dir, cgroupRoot))
			if err := unix.Rmdir(dir); err != nil {
				found = append(found, fmt.Sprintf("and it cannot be removed: %v", err))
			}
		}
	}
	// EINVAL: nothing is mounted there, or not any more.
	err := unix.Unmount("/sys/fs/resctrl", 0)
	for ; err == nil; err = unix.Unmount("/sys/fs/resctrl", 0) {
		found = append(found, "left resctrl mounted")
	}
	if errors.Is(err, unix.EBUSY) {
		found = append(found, "left resctrl mounted, and it cannot be unmounted: "+err.Error())
	}
	return found
}

func listGroups() []string {
	var dirs []string
	err := filepath.WalkDir(cgroupRoot, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // what vanishes meanwhile is no group any more
	})
	if err != nil {
		fmt.Println("guest: list cgroups:", err)
	}
	return dirs
}

// sendFiles sends what the steps put into outDir.
func sendFiles(out *port) error {
	const piece = 24 << 10
	return filepath.WalkDir(outDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, outDir+"/")
		for first := true; first || len(data) > 0; first = false {
			n := min(piece, len(data))
			out.send(wire.Message{Kind: wire.File, Name: name, Data: data[:n]})
			data = data[n:]
		}
		return nil
	})
}
