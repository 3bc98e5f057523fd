package psi

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
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
		testchild.Start(t, "spin").Await("ready")
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

// TestKernelTriggerRefusals: the errno and what was asked for are in the error, and what
// a capability or a newer kernel would change is said, and nothing else.
func TestKernelTriggerRefusals(t *testing.T) {
	root := liveRoot(t)
	for _, c := range []struct {
		kind          Kind
		stall, window time.Duration
	}{
		{Some, 3 * time.Second, 2 * time.Second}, {Some, 0, 2 * time.Second}, {Some, time.Second, 12 * time.Second},
		{Some, 0, time.Second}, {Some, time.Second, time.Second / 2}, {"most", time.Second, 2 * time.Second},
	} {
		_, err := OpenTrigger(root, CPU.Path(), c.kind, c.stall, c.window)
		if errors.Is(err, unix.EPERM) {
			t.Logf("no trigger without CAP_SYS_RESOURCE: %v", err)
			break
		}
		if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), string(c.kind)) || !strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("%s %s in %s: %v", c.kind, c.stall, c.window, err)
		}
		if err != nil && (strings.Contains(err.Error(), "CAP_SYS_RESOURCE") || strings.Contains(err.Error(), "6.4")) {
			t.Errorf("no privilege and no kernel would help %s %s in %s: %v", c.kind, c.stall, c.window, err)
		}
	}
	if _, err := OpenTrigger(root, "/proc/pressure/none", Some, 1, 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("missing file: %v", err)
	}
}

// TestKernelTriggerShortWindows: what the kernel does with a window that is no multiple of
// 2 s goes by the capability of who opens the file.
func TestKernelTriggerShortWindows(t *testing.T) {
	root := liveRoot(t)
	try := func(window time.Duration) error {
		trigger, err := OpenTrigger(root, CPU.Path(), Some, window/2, window)
		if err != nil {
			return err
		}
		return trigger.Close()
	}
	if capable := withSysResource(t, true, func() {
		if err := try(time.Second); err != nil {
			t.Errorf("1s with the capability: %v", err)
		}
		if err := try(400 * time.Millisecond); err != nil && !strings.Contains(err.Error(), "takes Linux 6.4") {
			t.Errorf("400ms with the capability: %v", err)
		}
	}); !capable {
		t.Log("this process has no CAP_SYS_RESOURCE: only what goes without it is seen")
	}
	withSysResource(t, false, func() {
		for _, window := range []time.Duration{time.Second, 3 * time.Second, 400 * time.Millisecond} {
			err := try(window)
			said := errors.Is(err, unix.EINVAL) && strings.Contains(err.Error(), "takes CAP_SYS_RESOURCE")
			if !said && !errors.Is(err, unix.EPERM) {
				t.Errorf("%s without the capability: %v", window, err)
			}
		}
		if err := try(window); err != nil && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s without the capability: %v", window, err)
		}
	})
}

// withSysResource calls f on a thread whose effective CAP_SYS_RESOURCE is on or off. It
// does not call f, and returns false, if it is to be on and cannot be.
func withSysResource(t *testing.T, on bool, f func()) bool {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		t.Fatal(err)
	}
	const bit = 1 << unix.CAP_SYS_RESOURCE
	if on && data[0].Permitted&bit == 0 {
		return false
	}
	changed := data
	changed[0].Effective &^= bit
	if on {
		changed[0].Effective |= bit
	}
	if err := unix.Capset(&head, &changed[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&head, &data[0]); err != nil {
			t.Fatal(err)
		}
	}()
	if got, err := hasSysResource(); err != nil || got != on {
		t.Errorf("hasSysResource = %v, %v; want %v", got, err, on)
	}
	f()
	return true
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
