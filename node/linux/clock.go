package linux

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/procstat"
)

// Clock is the time of snapshots and results.
type Clock interface {
	// MonoNsec never goes back and no one sets it: CLOCK_MONOTONIC, nanoseconds.
	MonoNsec() int64
	// WallNsec is the time of day, nanoseconds since 1970. It may be set, also back.
	WallNsec() int64
}

// RealClock is the machine's own.
type RealClock struct{}

// MonoNsec implements Clock.
func (RealClock) MonoNsec() int64 { return MonotonicNsec() }

// ThreadNsec is the CPU time of the calling thread, nanoseconds: CLOCK_THREAD_CPUTIME_ID.
func (RealClock) ThreadNsec() int64 { return procstat.ThreadTime().Nanoseconds() }

// WallNsec implements Clock.
func (RealClock) WallNsec() int64 { return time.Now().UnixNano() }

// MonotonicNsec reads the machine's own monotonic clock.
func MonotonicNsec() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("CLOCK_MONOTONIC is part of every Linux: " + err.Error())
	}
	return ts.Nano()
}
