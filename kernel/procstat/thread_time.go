package procstat

import (
	"time"

	"golang.org/x/sys/unix"
)

// ThreadTime is the CPU time of the calling thread, to which its goroutine has to be locked: CLOCK_THREAD_CPUTIME_ID.
func ThreadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("CLOCK_THREAD_CPUTIME_ID is part of every Linux: " + err.Error())
	}
	return time.Duration(t.Nano())
}
