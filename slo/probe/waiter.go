package probe

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waiter waits until a time that is kept to the nanosecond, or until a descriptor is
// ready, and costs little: at 50 probes a second the waiting is most of the work.
//
// A timerfd, the wake pipe and the server's socket stand in an epoll descriptor of our
// own, and that one in the runtime's poller. A goroutine that waits so holds neither a
// thread nor a processor. Rejected: ppoll on a thread of our own. Each call that blocks
// wakes the runtime's monitor, which looks every 20 µs until it may take the processor
// away; on an otherwise idle node that came to 0.3 ms of CPU time a probe. Also rejected:
// the runtime's timers, which are up to 1 ms late, more than a quiet memcached takes.
type waiter struct {
	epoll    int
	timer    int
	file     *os.File // owns epoll
	conn     syscall.RawConn
	events   [4]unix.EpollEvent
	ready    func(fd uintptr) bool // kept, so that a wait does not allocate
	spec     unix.ItimerSpec
	n        int
	err      error
	watched  int // the socket; -1: none
	interest uint32
}

// newWaiter returns a waiter that always watches the wake pipe.
func newWaiter(wake int) (*waiter, error) {
	w := &waiter{epoll: -1, timer: -1, watched: -1}
	if err := w.open(wake); err != nil {
		return nil, errors.Join(fmt.Errorf("probe: %w", err), w.close())
	}
	return w, nil
}

func (w *waiter) open(wake int) error {
	var err error
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	// The runtime's poller takes only what says that it does not block.
	if err := unix.SetNonblock(w.epoll, true); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	for _, fd := range []int{wake, w.timer} {
		if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
	}
	w.file = os.NewFile(uintptr(w.epoll), "epoll")
	if w.conn, err = w.file.SyscallConn(); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	w.ready = func(fd uintptr) bool {
		w.n, w.err = brief(unix.SYS_EPOLL_PWAIT, fd, unsafe.Pointer(&w.events[0]), uintptr(len(w.events)))
		return w.n > 0 || w.err != nil && !errors.Is(w.err, unix.EINTR)
	}
	return nil
}

// watch says which socket to wait for and for what; fd -1 for none. A descriptor that
// was closed has left the epoll descriptor by itself: forget it before its number is used
// again.
func (w *waiter) watch(fd int, interest uint32) error {
	if fd < 0 || fd == w.watched && interest == w.interest {
		return nil
	}
	op := unix.EPOLL_CTL_MOD
	if fd != w.watched {
		op = unix.EPOLL_CTL_ADD
	}
	if err := unix.EpollCtl(w.epoll, op, fd, &unix.EpollEvent{Events: interest, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	w.watched, w.interest = fd, interest
	return nil
}

func (w *waiter) forget() { w.watched, w.interest = -1, 0 }

// wait returns when the time is there or a descriptor is ready; has tells which.
func (w *waiter) wait(until time.Time) error {
	w.n = 0
	// At once is a nanosecond: zero would stop the timer. Setting it takes back that it
	// had run out.
	w.spec.Value = unix.NsecToTimespec(max(1, int64(time.Until(until))))
	if _, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(w.timer), 0, uintptr(unsafe.Pointer(&w.spec)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("timerfd: %w", errno)
	}
	if err := w.conn.Read(w.ready); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if w.err != nil && !errors.Is(w.err, unix.EINTR) {
		return fmt.Errorf("epoll: %w", w.err)
	}
	return nil
}

// brief makes a system call that cannot block, with the arguments (fd, pointer, size) and
// zeros. The runtime is not told: a call that it knows of wakes its monitor.
func brief(call, fd uintptr, p unsafe.Pointer, size uintptr) (int, error) {
	n, _, errno := unix.RawSyscall6(call, fd, uintptr(p), size, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// has reports whether a descriptor was ready in the last wait.
func (w *waiter) has(fd int) bool {
	for i := range max(0, w.n) {
		if int(w.events[i].Fd) == fd {
			return true
		}
	}
	return false
}

func (w *waiter) close() error {
	var errs []error
	if w.timer >= 0 {
		errs = append(errs, unix.Close(w.timer))
	}
	switch {
	case w.file != nil:
		errs = append(errs, w.file.Close())
	case w.epoll >= 0:
		errs = append(errs, unix.Close(w.epoll))
	}
	return errors.Join(errs...)
}
