// Command guest is the init of the rig's guests: it makes the machine ready, runs the
// steps of the plan one after the other, sends what they print and what became of them
// to the host, and switches the machine off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"github.com/commensal-io/commensal/rig/wire"
	"golang.org/x/sys/unix"
)

// worker is the argument with which init runs itself for the real work: waiting for any
// child, as the first process has to, would take the results from os/exec.
const worker = "worker"

func main() {
	if os.Getpid() == 1 {
		first()
		return
	}
	if len(os.Args) != 2 || os.Args[1] != worker {
		fmt.Fprintln(os.Stderr, "guest: this is the init of a guest of the rig, not a command")
		os.Exit(2)
	}
	if err := work(); err != nil {
		fmt.Println("guest:", err)
		os.Exit(1)
	}
}

// first is process 1: it reaps orphans until the worker ends, then switches off.
func first() {
	if err := mountAll(); err != nil {
		fmt.Println("guest:", err)
	}
	if err := openConsole(); err != nil {
		fmt.Println("guest:", err)
	}
	plan, err := readPlan()
	if err == nil && plan.Root != "" {
		err = handOver(plan)
	}
	if err != nil {
		fmt.Println("guest:", err)
	}
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP)
	cmd := exec.Command("/proc/self/exe", worker)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Println("guest: start the worker:", err)
	} else {
		reapUntil(cmd.Process.Pid)
	}
	unix.Sync()
	powerOff()
}

// powerOff does not return: where the first process does, the kernel panics.
func powerOff() {
	fmt.Println("guest: power off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
	select {}
}

func readPlan() (*wire.Plan, error) {
	data, err := os.ReadFile(wire.PlanPath)
	if err != nil {
		return nil, err
	}
	plan := new(wire.Plan)
	if err := json.Unmarshal(data, plan); err != nil {
		return nil, fmt.Errorf("%s: %w", wire.PlanPath, err)
	}
	return plan, nil
}

func reapUntil(pid int) {
	for {
		got, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case got == pid, errors.Is(err, unix.ECHILD):
			return
		case err != nil && !errors.Is(err, unix.EINTR):
			fmt.Println("guest: wait:", err)
			return
		}
	}
}

// openConsole gives init the console, which did not exist before devtmpfs was mounted.
func openConsole() error {
	f, err := os.OpenFile("/dev/console", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup2(int(f.Fd()), fd); err != nil {
			return fmt.Errorf("console: %w", err)
		}
	}
	return nil
}

// work carries out the plan.
func work() error {
	plan, err := readPlan()
	if err != nil {
		return err
	}
	out, err := openPort(wire.Port)
	if err != nil {
		return err
	}
	defer out.close()
	go out.beat()
	if err := prepare(plan); err != nil {
		out.send(wire.Message{Kind: wire.Fault, Text: err.Error()})
		return err
	}
	for i := range plan.Steps {
		run(out, plan, &plan.Steps[i])
	}
	if err := sendFiles(out); err != nil {
		out.send(wire.Message{Kind: wire.Fault, Text: err.Error()})
		return err
	}
	out.send(wire.Message{Kind: wire.Done, Text: kernelComplaints()})
	if plan.Root != "" {
		out.close() // what was sent last is still on its way
		powerOff()
	}
	return nil
}
