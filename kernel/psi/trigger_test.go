package psi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// patience bounds every wait; a healthy kernel needs a small part of it.
const patience = 60 * time.Second

// window is taken by a kernel whether or not the test has CAP_SYS_RESOURCE.
const window = 2 * time.Second

func arm(t *testing.T, root hostfs.FS, path string, stall time.Duration) *Trigger {
	t.Helper()
	trigger, err := OpenTrigger(root, path, Some, stall, window)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skipf("arming triggers is not allowed here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return trigger
}

// TestKernelTriggerFires makes more runnable tasks than there are CPUs.
func TestKernelTriggerFires(t *testing.T) {
	trigger := arm(t, liveRoot(t), CPU.Path(), 100*time.Millisecond)
	defer func() {
		if err := trigger.Close(); err != nil {
			t.Error(err)
		}
	}()
	allowed := unix.CPUSet{}
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	for range allowed.Count() + 1 {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := trigger.Wait(ctx); err != nil {
		t.Errorf("Wait: %v", err)
	}
}

// TestKernelTriggerEnds waits for what does not happen: memory stalled for a whole window.
func TestKernelTriggerEnds(t *testing.T) {
	root := liveRoot(t)
	trigger := arm(t, root, Memory.Path(), window)
	ctx, cancel := context.WithCancel(context.Background())
	waited := make(chan error, 1)
	go func() { waited <- trigger.Wait(ctx) }()
	cancel()
	if err := receive(t, waited); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), Memory.Path()) {
		t.Errorf("Wait after cancel: %v", err)
	}
	go func() { waited <- trigger.Wait(context.Background()) }()
	time.Sleep(10 * time.Millisecond) // most likely inside poll by now; both orders are right
	if err := trigger.Close(); err != nil {
		t.Error(err)
	}
	if err := receive(t, waited); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
	if err := trigger.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

// TestKernelTriggerRefusals: the errno and what was asked for are in the error.
func TestKernelTriggerRefusals(t *testing.T) {
	root := liveRoot(t)
	for _, c := range []struct {
		kind          Kind
		stall, window time.Duration
	}{
		{Some, 3 * time.Second, 2 * time.Second}, {Some, 0, 2 * time.Second}, {Some, time.Second, 12 * time.Second},
		{Some, 100 * time.Millisecond, 400 * time.Millisecond}, {"most", time.Second, 2 * time.Second},
	} {
		_, err := OpenTrigger(root, CPU.Path(), c.kind, c.stall, c.window)
		if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), string(c.kind)) || !strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("%s %s in %s: %v", c.kind, c.stall, c.window, err)
		}
		if err != nil && strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
			t.Errorf("no privilege would help %s %s in %s: %v", c.kind, c.stall, c.window, err)
		}
	}
	if _, err := OpenTrigger(root, "/proc/pressure/none", Some, 1, 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("missing file: %v", err)
	}
	// One second needs CAP_SYS_RESOURCE since Linux 6.4: whichever way it goes, it is said.
	trigger, err := OpenTrigger(root, CPU.Path(), Some, time.Second/2, time.Second)
	if err == nil {
		t.Log("a window of 1s was taken")
		if err := trigger.Close(); err != nil {
			t.Error(err)
		}
	} else if !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
		t.Errorf("a window of 1s was refused without the reason: %v", err)
	} else {
		t.Log(err)
	}
}

// TestKernelTriggerGroupGone removes a cgroup under a trigger on its pressure.
func TestKernelTriggerGroupGone(t *testing.T) {
	root := liveRoot(t)
	base := ""
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(dir + "/cgroup.controllers"); err == nil {
			base = dir
			break
		}
	}
	if base == "" {
		t.Skip("no cgroup2 mount here, and v1 has no pressure files")
	}
	group := fmt.Sprintf("%s/commensal-test-%d-psi", base, os.Getpid())
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("making cgroups takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	reader, err := Open(root, group+"/memory.pressure")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if got, err := reader.Totals(); err != nil || got.SomeUsec != 0 {
		t.Errorf("Totals of an empty group: %+v, %v", got, err)
	}
	trigger := arm(t, root, group+"/memory.pressure", window)
	defer func() { _ = trigger.Close() }()
	waited := make(chan error, 1)
	go func() { waited <- trigger.Wait(context.Background()) }()
	if err := os.Remove(group); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, waited); !errors.Is(err, ErrTriggerGone) {
		t.Errorf("Wait on a removed group: %v", err)
	}
	if _, err := reader.Totals(); !errors.Is(err, unix.ENODEV) {
		t.Errorf("Totals of a removed group: %v", err)
	}
}

func receive(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		t.Fatal("Wait did not return")
		return nil
	}
}
