package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/commensal-io/commensal/rig/wire"
	"golang.org/x/sys/unix"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	outDir     = "/out" // what steps put here goes to the host
	// loopback is needed by tests that listen on 127.0.0.1.
	loopback = "lo"
)

// mountAll mounts what every process expects.
func mountAll() error {
	var errs []error
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/dev/shm"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
		{"cgroup2", cgroupRoot},
		{"debugfs", "/sys/kernel/debug"},
		{"tracefs", "/sys/kernel/tracing"},
		{"bpf", "/sys/fs/bpf"},
	} {
		// The kernel has made the mount points below /sys itself.
		if err := os.MkdirAll(m.dir, 0o755); err != nil && !strings.HasPrefix(m.dir, "/sys") {
			errs = append(errs, err)
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			errs = append(errs, fmt.Errorf("mount %s on %s: %w", m.kind, m.dir, err))
		}
	}
	return errors.Join(errs...)
}

// prepare makes the machine what steps are promised (docs/RIG.md).
func prepare(plan *wire.Plan) error {
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	if plan.Root != "" {
		return nil // handOver and the system's own init have done it
	}
	if err := loadModules(plan); err != nil {
		return err
	}
	if plan.Disk != "" {
		if err := os.MkdirAll("/mnt", 0o755); err != nil {
			return err
		}
		if err := unix.Mount(plan.Disk, "/mnt", "ext4", 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", plan.Disk, err)
		}
	}
	if err := os.WriteFile(cgroupRoot+"/cgroup.subtree_control", []byte("+cpu +cpuset +memory +io +pids"), 0); err != nil {
		return err
	}
	if err := installBusybox(); err != nil {
		return err
	}
	return linkUp(loopback)
}

// installBusybox gives tests a shell and what a shell needs.
func installBusybox() error {
	if out, err := exec.Command("/bin/busybox", "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return fmt.Errorf("install busybox: %w: %s", err, out)
	}
	return nil
}

func loadModules(plan *wire.Plan) error {
	for _, name := range plan.Modules {
		if err := loadModule(name); err != nil {
			return err
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	// EEXIST: built in, or brought in by another.
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

func linkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	req, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

// complaints are how the kernel begins to say that it broke, or that we broke a rule.
var complaints = []string{"BUG:", "Oops", "WARNING:", "unchecked MSR", "rcu: INFO", "blocked for more than"}

// kernelComplaints returns the kernel's complaints since boot, one a line.
func kernelComplaints() string {
	buf := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return "the kernel's log could not be read: " + err.Error()
	}
	return findComplaints(string(buf[:n]))
}

func findComplaints(log string) string {
	var found []string
	for line := range strings.Lines(log) {
		for _, c := range complaints {
			if strings.Contains(line, c) {
				found = append(found, strings.TrimSpace(line))
				break
			}
		}
	}
	return strings.Join(found, "\n")
}
