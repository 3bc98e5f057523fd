package kernfs

import (
	"sync"
	"time"
)

// signal counts changes of a file and wakes who waits for the next one.
type signal struct {
	mu   sync.Mutex
	n    uint64
	next chan struct{} // closed at the next change; nil: nobody waits
}

func (s *signal) count() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *signal) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

// wait waits until there were changes since seen.
func (s *signal) wait(seen uint64, within time.Duration) bool {
	s.mu.Lock()
	if s.n != seen {
		s.mu.Unlock()
		return true
	}
	if s.next == nil {
		s.next = make(chan struct{})
	}
	next := s.next
	s.mu.Unlock()
	after := time.NewTimer(within)
	defer after.Stop()
	select {
	case <-next:
		return true
	case <-after.C:
		return false
	}
}
