package load

import (
	"cmp"
	"sync"
	"time"

	"github.com/commensal-io/commensal/slo/memcached"
)

// sentStats is the sender's part of the figures. It has a lock of its own that nobody but
// the sender takes, save for an instant at the end of each window.
type sentStats struct {
	mu      sync.Mutex
	windows []sentWindow
}

type sentWindow struct {
	sent     int64
	lateness dist
}

func (s *sentStats) record(window int, late time.Duration) {
	s.mu.Lock()
	w := &s.windows[window]
	w.sent++
	w.lateness.record(max(late, 0))
	s.mu.Unlock()
}

func (s *sentStats) get(window int) sentWindow {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.windows[window]
	w.lateness = w.lateness.clone()
	return w
}

// doneStats is the receiver's part. mu also keeps the receiver from taking requests off
// the queues, so that whoever holds it may look through them.
type doneStats struct {
	mu         sync.Mutex
	windows    []doneWindow
	reconnects int64
	firstError string
}

type doneWindow struct {
	done, misses, errors, timeouts int64
	latency                        dist
}

// record enters a reply. Call it under mu.
func (s *doneStats) record(window int, latency time.Duration, o memcached.Outcome) {
	w := &s.windows[window]
	w.latency.record(latency)
	switch o {
	case memcached.ServerError:
		w.errors++
		s.note("the server refused a request: SERVER_ERROR")
	case memcached.Miss:
		w.misses++
		w.done++
	default:
		w.done++
	}
}

func (s *doneStats) note(why string) {
	s.firstError = cmp.Or(s.firstError, why)
}
