package reclaim

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A write that blocks in the kernel ends when its context does, and not before it returned.
func TestWriteOnceIsInterrupted(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	// With a timeout set, the kernel answers a signal with EINTR here as it does on
	// memory.reclaim, and does not begin the call again.
	if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 300}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = writeOnce(context.Background(), pair[0], []byte{1, 2, 3, 4})
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("write to a full socket that does not block: %v, want EAGAIN", err)
	}
	if err := unix.SetNonblock(pair[0], false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := writeOnce(ctx, pair[0], []byte{1})
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("a write to a full socket ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted write: %v, want context.Canceled", err)
	}
	if _, err := writeOnce(ctx, pair[0], []byte{1}); !errors.Is(err, context.Canceled) {
		t.Errorf("write with a context that has ended: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := writeOnce(ctx, pair[0], []byte{1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write with a deadline: %v, want context.DeadlineExceeded", err)
	}
	if _, err := writeOnce(context.Background(), -1, []byte{1}); !errors.Is(err, unix.EBADF) {
		t.Errorf("write to no descriptor: %v, want EBADF", err)
	}
}

// A write tells the CPU time of the thread that made it, which is another one than the caller's.
func TestWriteOnceTellsItsCPUTime(t *testing.T) {
	fd, err := unix.MemfdCreate("write", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const least = time.Millisecond // for 64 MiB: no machine copies 64 GB a second on one CPU
	if cpu, err := writeOnce(context.Background(), fd, make([]byte, 64<<20)); err != nil || cpu < least {
		t.Errorf("%s, %v", cpu, err)
	}
}
