package reclaim

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/procstat"
)

// interruptEvery is how often a write that is to end is sent a signal: one sent just
// before it entered the kernel would be lost.
const interruptEvery = 5 * time.Millisecond

// writeOnce hands data to the kernel in one write(2) that may take long, and ends it early
// when the context does. Reclaim is done by the thread that asks for it, in write(2), on
// its CPU time and in its cgroup, so the write gets a thread of its own. A signal ends it:
// the kernel looks for one between rounds of reclaim and answers EINTR, with what it has
// reclaimed until then gone all the same. SIGURG is the signal with which the Go runtime
// interrupts its own threads, and does nothing to a program that does not ask for it. Its
// handler lets the kernel begin most calls again; memory.reclaim and lru_gen answer EINTR
// all the same, and only for such files is this.
//
// It returns after the write did, with the CPU time that the thread had, so that what is measured afterwards is all that it did.
// EINTR is returned like any other error and never repeated: the kernel would begin from
// the full amount again.
func writeOnce(ctx context.Context, fd int, data []byte) (cpu time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	thread := make(chan int, 1)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		began := procstat.ThreadTime()
		n, err := unix.Write(fd, data)
		cpu = procstat.ThreadTime() - began
		if err == nil && n != len(data) {
			err = io.ErrShortWrite
		}
		done <- err
	}()
	tid := <-thread
	select {
	case err := <-done:
		return cpu, err
	case <-ctx.Done():
	}
	tick := time.NewTicker(interruptEvery)
	defer tick.Stop()
	for {
		// The thread lives until it has sent its result, and is the runtime's own
		// afterwards: the signal never meets a stranger.
		_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
		select {
		case err := <-done:
			if errors.Is(err, unix.EINTR) {
				err = ctx.Err()
			}
			return cpu, err
		case <-tick.C:
		}
	}
}
