package psi

// PSI triggers: a threshold written to a pressure file, which then reports by poll(2).
//
// https://docs.kernel.org/accounting/psi.html#monitoring-for-pressure-thresholds
//
//	some 150000 2000000        (microseconds of stall within microseconds of window)
//
// The trigger lives as long as the descriptor that it was written to, one a descriptor.
// The kernel takes windows up to 10 s, and a stall above 0 and up to the window. Without
// CAP_SYS_RESOURCE (which root may lack: in a container, or under a service manager that
// drops it) it takes only windows that are a multiple of 2 s. It refuses the rest with
// EINVAL. Before Linux 6.4 the machine's files do not even open for writing without the
// capability (EPERM), and no window may be below 500 ms. A trigger reports at most once a
// window.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// The kernel's bounds of a window.
const (
	minWindow  = 500 * time.Millisecond // WINDOW_MIN_US, before Linux 6.4
	maxWindow  = 10 * time.Second       // WINDOW_MAX_US
	freeWindow = 2 * time.Second        // PSI_FREQ: whole multiples take no privilege
)

// ErrTriggerGone means that the pressure file's cgroup was removed: the trigger will not
// fire any more.
var ErrTriggerGone = errors.New("pressure trigger is gone")

// Trigger waits for a pressure threshold. Wait and Close may be called concurrently.
type Trigger struct {
	path    string
	wrap    wrapFunc
	fd      int
	closeFD func() error
	wake    int // eventfd: readable once Close was called

	mu      sync.Mutex
	closed  bool
	waiting sync.WaitGroup
}

// OpenTrigger arms a trigger on a pressure file: stall time of that kind within window.
// The error carries the kernel's errno and what was asked for.
func OpenTrigger(fsys hostfs.FS, path string, kind Kind, stall, window time.Duration) (*Trigger, error) {
	return openTrigger(fsys, path, kind, stall, window, wrap)
}

func openTrigger(fsys hostfs.FS, path string, kind Kind, stall, window time.Duration, wrap wrapFunc) (*Trigger, error) {
	opener, ok := fsys.(hostfs.WriteOpener)
	if !ok {
		return nil, fmt.Errorf("arm pressure trigger on %s: %w: this file access opens nothing for writing", path, ErrUnsupported)
	}
	if kind != Some && kind != Full {
		return nil, fmt.Errorf("arm pressure trigger on %s: kind %q: %w", path, kind, unix.EINVAL)
	}
	fd, closeFD, err := opener.OpenReadWrite(path)
	if err != nil {
		return nil, wrap("arm trigger on", err)
	}
	text := fmt.Sprintf("%s %d %d", kind, stall.Microseconds(), window.Microseconds())
	// The kernel overwrites the last byte with its terminating NUL: give it one.
	_, err = unix.Write(fd, append([]byte(text), 0))
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Write(fd, append([]byte(text), 0))
	}
	if err != nil {
		why := whyRefused(err, stall, window)
		err = wrap("arm trigger on", &fs.PathError{Op: fmt.Sprintf("write %q to", text), Path: path, Err: err})
		if why != "" {
			err = fmt.Errorf("%w (%s)", err, why)
		}
		return nil, errors.Join(err, closeFD())
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("arm pressure trigger on %s: eventfd: %w", path, err), closeFD())
	}
	return &Trigger{path: path, wrap: wrap, fd: fd, closeFD: closeFD, wake: wake}, nil
}

// whyRefused says what a threshold that is right in itself was refused for; "" when it is
// not, or for another reason.
func whyRefused(err error, stall, window time.Duration) string {
	if !errors.Is(err, unix.EINVAL) || stall <= 0 || stall > window || window > maxWindow || window%freeWindow == 0 {
		return ""
	}
	privileged, capErr := hasSysResource()
	switch {
	case capErr != nil:
		return capErr.Error()
	case !privileged:
		return "a window that is no multiple of 2s takes CAP_SYS_RESOURCE"
	case window < minWindow:
		return "a window below 500ms takes Linux 6.4"
	}
	return ""
}

// hasSysResource says whether this process has CAP_SYS_RESOURCE in effect. Inside a user
// namespace it may have it, and the kernel asks for the machine's.
func hasSysResource() (bool, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return false, fmt.Errorf("capget: %w", err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0, nil
}

// Wait blocks until the threshold is passed (nil), the context ends (its error), Close is
// called (fs.ErrClosed) or the file's group is removed (ErrTriggerGone). It holds an
// operating system thread while it waits.
func (t *Trigger) Wait(ctx context.Context) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return t.fail(fs.ErrClosed)
	}
	t.waiting.Add(1)
	t.mu.Unlock()
	defer t.waiting.Done()

	if err := ctx.Err(); err != nil {
		return t.fail(err)
	}
	cancel, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return t.fail(err)
	}
	// The callback must be over before the descriptor's number can be given away.
	called := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(called)
		signal(cancel)
	})
	defer func() {
		if !stop() {
			<-called
		}
		_ = unix.Close(cancel)
	}()
	for {
		fds := []unix.PollFd{
			{Fd: int32(t.fd), Events: unix.POLLPRI},
			{Fd: int32(cancel), Events: unix.POLLIN},
			{Fd: int32(t.wake), Events: unix.POLLIN},
		}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return t.fail(err)
		case fds[2].Revents != 0:
			return t.fail(fs.ErrClosed)
		case fds[1].Revents != 0:
			return t.fail(ctx.Err())
		case fds[0].Revents&unix.POLLERR != 0:
			return t.fail(t.wrap("wait for", ErrTriggerGone))
		case fds[0].Revents&unix.POLLPRI != 0:
			return nil
		}
	}
}

// Close disarms the trigger and ends all waits.
func (t *Trigger) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.fail(fs.ErrClosed)
	}
	t.closed = true
	signal(t.wake)
	t.waiting.Wait()
	return errors.Join(t.closeFD(), unix.Close(t.wake))
}

// fail names the trigger; nil stays nil.
func (t *Trigger) fail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pressure trigger on %s: %w", t.path, err)
}

// signal makes an eventfd readable: any number above zero does, in either byte order. It
// fails only when the counter is full, and then the descriptor is readable already.
func signal(fd int) { _, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }
