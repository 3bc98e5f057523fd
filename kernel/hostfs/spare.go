package hostfs

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// spare are descriptors of nothing, kept for the moment in which the process, or the
// machine, has none left: what holds a task back must be able to let it go then. They are
// lent to what opens a file for one read or one write, never to files that stay open.
type spare struct {
	mu      sync.Mutex
	fds     []int
	missing atomic.Int32 // of those that were reserved
}

// Reserve sets n descriptors aside.
func (r *Root) Reserve(n int) error {
	r.spare.missing.Add(int32(n))
	r.refill()
	if r.spare.missing.Load() > 0 {
		return unix.EMFILE
	}
	return nil
}

// Lend closes one of the spare descriptors, so that another can be opened; false: there is
// none. It comes back with one of the next readings or writes that finds room.
func (r *Root) Lend() bool {
	s := &r.spare
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fds) == 0 {
		return false
	}
	last := len(s.fds) - 1
	_ = unix.Close(s.fds[last]) // nothing was written through it
	s.fds = s.fds[:last]
	s.missing.Add(1)
	return true
}

// refill takes back what was lent, as far as there is room.
func (r *Root) refill() {
	s := &r.spare
	if s.missing.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.missing.Load() > 0 {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		s.fds = append(s.fds, fd)
		s.missing.Add(-1)
	}
}

// openShortly opens a file that is closed at once. The descriptor that it had is the
// reserve's again before the next is opened.
func (r *Root) openShortly(path string, flags int) (int, error) {
	r.refill()
	fd, err := r.open(path, flags)
	if isFull(err) && r.Lend() {
		return r.open(path, flags)
	}
	return fd, err
}

// isFull says whether there was no descriptor left, of the process's or of the machine's.
func isFull(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }
