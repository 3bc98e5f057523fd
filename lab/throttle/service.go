package throttle

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ServiceCommand is the hidden command of the lab's binary that is one instance; its
// argument is a ServiceSpec as JSON.
const ServiceCommand = "throttle-service"

// ServiceSpec says what an instance does and when.
type ServiceSpec struct {
	Instance  Instance      `json:"instance"`
	StartNsec int64         `json:"start_nsec"` // monotonic: when the requests begin
	Length    time.Duration `json:"length"`
}

// Response is one request's fate. Times are from the start, in microseconds.
type Response struct {
	AtUsec int64 `json:"at"` // when it was to come
	// TookUsec is from then until it was done, or until we stopped waiting for it.
	TookUsec int64 `json:"took"`
	CPUUsec  int64 `json:"cpu"` // that it asked for
	Spike    bool  `json:"spike,omitempty"`
}

// Served is what an instance prints when it is through.
type Served struct {
	Responses []Response `json:"responses"`
	// Unfinished are the last of Responses, for which we stopped waiting.
	Unfinished int `json:"unfinished"`
}

const (
	// grace is how long after the last request an instance goes on.
	grace = 2 * time.Second
	// gcLimitBytes is when garbage collection begins; it is off below, since an
	// instance's memory is its list of requests.
	gcLimitBytes = 256 << 20
)

// Serve is the body of ServiceCommand: threads that take the requests in the order of
// their coming, wait until each is due, and use its CPU time. It prints a Served.
//
// The times were drawn beforehand and do not depend on how the service does (open loop).
// What a request needs is CPU time and not turns of a loop, so that a slower moment of
// the host makes no request larger.
func Serve(w io.Writer, argument []byte) error {
	var spec ServiceSpec
	if err := json.Unmarshal(argument, &spec); err != nil {
		return fmt.Errorf("throttle: service: %w", err)
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(gcLimitBytes)
	// Go would take the quota for a number of CPUs.
	runtime.GOMAXPROCS(spec.Instance.Threads + 1)
	s := newService(&spec)
	var wg sync.WaitGroup
	for range spec.Instance.Threads {
		wg.Go(s.work)
	}
	wg.Wait()
	return json.NewEncoder(w).Encode(s.served())
}

// service is an instance at work.
type service struct {
	spec     *ServiceSpec
	requests []Request
	done     []int64 // monotonic, by request; 0: not

	mu   sync.Mutex
	next int // the first that nobody took
}

func newService(spec *ServiceSpec) *service {
	s := &service{spec: spec, requests: spec.Instance.Requests(spec.Length)}
	s.done = make([]int64, len(s.requests))
	return s
}

// take returns the next request's index, -1 when there is none.
func (s *service) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == len(s.requests) {
		return -1
	}
	s.next++
	return s.next - 1
}

func (s *service) end() int64 { return s.spec.StartNsec + int64(s.spec.Length+grace) }

// work is one thread.
func (s *service) work() {
	for {
		i := s.take()
		if i < 0 || monotonicNsec() >= s.end() {
			return
		}
		r := &s.requests[i]
		due := s.spec.StartNsec + int64(r.At)
		for {
			left := due - monotonicNsec()
			if left <= 0 {
				break
			}
			time.Sleep(time.Duration(left))
		}
		if burn(r.CPU, s.end()) {
			s.done[i] = monotonicNsec()
		}
	}
}

// served is what became of all requests.
func (s *service) served() *Served {
	out := &Served{Responses: make([]Response, 0, len(s.requests))}
	add := func(r *Request, done int64) {
		out.Responses = append(out.Responses, Response{
			AtUsec: r.At.Microseconds(), TookUsec: (done - s.spec.StartNsec - int64(r.At)) / 1000, CPUUsec: r.CPU.Microseconds(), Spike: r.Spike,
		})
	}
	for i := range s.requests {
		if s.done[i] != 0 {
			add(&s.requests[i], s.done[i])
		}
	}
	for i := range s.requests {
		if s.done[i] == 0 {
			add(&s.requests[i], s.end())
			out.Unfinished++
		}
	}
	return out
}

// burnTurns is how many turns are made between two looks at the thread's clock: some tens
// of microseconds.
const burnTurns = 20_000

// burn uses so much CPU time on this thread; false when the deadline came first.
func burn(cpu time.Duration, deadline int64) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	end := threadNsec() + int64(cpu)
	x := uint64(1)
	for threadNsec() < end {
		for range burnTurns {
			x = x*6364136223846793005 + 1442695040888963407
		}
		if x == 0 || monotonicNsec() >= deadline {
			return false
		}
	}
	return true
}

// clockNsec reads one of the kernel's clocks, which exist on every Linux.
func clockNsec(clock int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		panic("a clock of every Linux cannot be read: " + err.Error())
	}
	return ts.Nano()
}

func monotonicNsec() int64 { return clockNsec(unix.CLOCK_MONOTONIC) }
func threadNsec() int64    { return clockNsec(unix.CLOCK_THREAD_CPUTIME_ID) }
