package load

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waitSlice bounds one wait of a thread, so that a sender whose next request is minutes
// away still notices that it should stop.
const waitSlice = 50 * time.Millisecond

// The two threads wait some thousand times a second, and how they wait decides what the
// client costs. In an ordinary system call Go's runtime takes the thread's P away when
// nobody else has work to offer, and its monitor thread looks every 20 µs whether to:
// measured on two CPUs at 4,000 requests/s under SCHED_FIFO, that was 0.72 CPU for the
// client and a p99 of 0.9 ms on a quiet server. With more Ps than threads it was 0.43 CPU.
// Where the threads keep their P while they wait (a raw system call, of which the runtime
// knows nothing) it is 0.25 CPU and 0.3 ms. Then they must not have all Ps: the rest of
// the program would only run when the runtime interrupts a wait, every 10 ms.
//
// Also measured: giving only the two threads SCHED_FIFO and not the rest of the runtime.
// Beside four busy loops it was late by 60 to 120 ms in two of three runs, because they
// wait for runtime threads that do not get a CPU.
const (
	minProcs     = 4 // to wait in raw system calls
	protectProcs = 8 // what Protect provides
)

// keepsP says whether the threads may keep their Ps while they wait.
func keepsP() bool { return runtime.GOMAXPROCS(0) >= minProcs }

// clock counts from the start of the run on CLOCK_MONOTONIC. Reading it goes through
// package time, which uses that clock without a system call; sleeping needs the kernel's
// own figure for the start.
type clock struct {
	start     time.Time
	startNsec int64 // the same moment on CLOCK_MONOTONIC
}

// newClock returns a clock that starts now. The two readings are bracketed, and the
// tightest of a few brackets is used: its half width is the error of a sleep's end.
func newClock() (clock, error) {
	var c clock
	best := time.Duration(1<<63 - 1)
	for range 8 {
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return c, err
		}
		if width := time.Since(before); width < best {
			best = width
			c = clock{before, ts.Nano() - int64(width/2)}
		}
	}
	return c, nil
}

// now returns the time since the start.
func (c *clock) now() time.Duration { return time.Since(c.start) }

// sleeper is the sender's way to wait. ts is kept because a raw system call's arguments
// move to the heap.
type sleeper struct {
	clock *clock
	keepP bool
	ts    unix.Timespec
}

// until blocks the thread until the given time and returns the time that it then is;
// false when stop was set. Go's own timers are rounded to milliseconds by the poller.
func (s *sleeper) until(at time.Duration, stop *atomic.Bool) (time.Duration, bool) {
	for {
		now := s.clock.now()
		if stop.Load() {
			return now, false
		}
		if now >= at {
			return now, true
		}
		s.ts = unix.NsecToTimespec(s.clock.startNsec + int64(min(at, now+waitSlice)))
		// EINTR and an early end alike are met by looking again.
		if s.keepP {
			_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
				uintptr(unsafe.Pointer(&s.ts)), 0, 0, 0)
		} else {
			_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &s.ts, nil)
		}
	}
}

// epollWait waits for events, in the way that keepP says. It may return none.
func epollWait(epoll int, events []unix.EpollEvent, keepP bool) (int, error) {
	if !keepP {
		n, err := unix.EpollWait(epoll, events, -1)
		if err == unix.EINTR {
			return 0, nil
		}
		return n, err
	}
	// epoll_pwait without a mask; arm64 has no epoll_wait.
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(waitSlice.Milliseconds()), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, errno
}
