// Package openloop is a latency-critical service for labs on this host: real threads under an
// open loop that burn CPU as their requests ask. When each request comes was drawn beforehand
// and does not depend on how the service does, and the clients' side takes no CPU that would
// disturb the measurement.
//
// A service is a process of the lab's own binary. Start begins one on a stage, and Wait
// returns what became of its requests.
package openloop

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/node/linux"
)

// Request is CPU time that is asked for.
type Request struct {
	At  time.Duration `json:"at"`  // from the start; requests are in the order of their coming
	CPU time.Duration `json:"cpu"` // of a thread
}

// Order is what a service is told.
type Order struct {
	// Threads is how many requests the service has under way at once.
	Threads int `json:"threads"`
	// StartNsec is when the requests begin, EndNsec when those that are not done are given up:
	// CLOCK_MONOTONIC.
	StartNsec int64 `json:"start_mono_nsec"`
	EndNsec   int64 `json:"end_mono_nsec"`
	// RoundsPerUsec makes a request so much work for each microsecond that it asks for, as
	// Calibrate counted it, whatever time that takes: a slower moment of the host makes it
	// longer. With 0 it is CPU time by the thread's clock: such a moment makes it no larger.
	RoundsPerUsec float64 `json:"rounds_per_usec,omitempty"`
	// Moves asks for the log of which CPU each thread is on.
	Moves    bool      `json:"moves,omitempty"`
	Requests []Request `json:"requests"`
}

// Log is what a service says at its end.
type Log struct {
	Answers []Answer `json:"answers"` // by request
	Moves   []Move   `json:"moves,omitempty"`
}

// Answer is what became of a request; times are CLOCK_MONOTONIC, nanoseconds. Latency is from At,
// when it was meant to come, so that a service that falls behind does not slow its own load.
type Answer struct {
	AtNsec    int64 `json:"at"`
	BeganNsec int64 `json:"began"`
	DoneNsec  int64 `json:"done"`
	// GaveUp: its client has gone, and Done is the order's end: it would have been at least so
	// late.
	GaveUp bool `json:"gave_up,omitempty"`
}

// Move is a thread found on another CPU than it was found on before.
type Move struct {
	Nsec int64 `json:"at"` // CLOCK_MONOTONIC
	CPU  int   `json:"cpu"`
}

const (
	// chunk is the CPU time between two looks at the clocks and at which CPU a thread is on.
	chunk = 50 * time.Microsecond
	// roundsPerLook is some tens of microseconds of spin, where nobody has calibrated.
	roundsPerLook = 10_000
	// memoryLimit is where garbage collection begins. It is off below: what a service holds is
	// its list of requests, and nothing of Go's own is to run beside its threads.
	memoryLimit = 256 << 20
)

// serve answers an order's requests, each of its threads one after the other, in the order of
// their coming.
func serve(o *Order) *Log {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	runtime.GOMAXPROCS(o.Threads + 2) // Go would take a quota for a number of CPUs
	log := &Log{Answers: make([]Answer, len(o.Requests))}
	var next atomic.Int64
	var wg sync.WaitGroup
	threads := make([]thread, o.Threads)
	for i := range threads {
		t := &threads[i]
		wg.Go(func() {
			t.begin(o)
			for k := int(next.Add(1)) - 1; k < len(o.Requests); k = int(next.Add(1)) - 1 {
				t.answer(&o.Requests[k], &log.Answers[k])
			}
		})
	}
	wg.Wait()
	for i := range threads {
		log.Moves = append(log.Moves, threads[i].moves...)
	}
	slices.SortFunc(log.Moves, func(a, b Move) int { return int(min(1, max(-1, a.Nsec-b.Nsec))) })
	return log
}

// thread is one thread of a service, locked to a thread of the kernel.
type thread struct {
	order *Order
	cpu   int
	moves []Move
	sum   uint64 // of spin, so that it is not compiled away
}

func (t *thread) begin(o *Order) {
	runtime.LockOSThread()
	t.order, t.cpu = o, -1
	if o.Moves {
		t.moves = make([]Move, 0, 4*len(o.Requests)/o.Threads+1024)
	}
}

// answer waits until a request comes and does what it asks for.
func (t *thread) answer(r *Request, a *Answer) {
	a.AtNsec = t.order.StartNsec + r.At.Nanoseconds()
	sleepUntil(a.AtNsec)
	if a.BeganNsec = linux.MonotonicNsec(); a.BeganNsec < t.order.EndNsec && t.burn(r.CPU) {
		a.DoneNsec = linux.MonotonicNsec()
		return
	}
	a.DoneNsec, a.GaveUp = max(a.BeganNsec, t.order.EndNsec), true
}

// burn spends CPU time; false when the order's end came first.
func (t *thread) burn(cpu time.Duration) bool {
	end := ThreadNsec() + cpu.Nanoseconds()
	for left := cpu; left > 0; {
		t.look()
		if linux.MonotonicNsec() >= t.order.EndNsec {
			return false
		}
		if t.order.RoundsPerUsec > 0 {
			t.sum += spin(int64(t.order.RoundsPerUsec * float64(min(left, chunk)) / 1e3))
			left -= chunk
		} else {
			t.sum += spin(roundsPerLook)
			left = time.Duration(end - ThreadNsec())
		}
	}
	t.look()
	return true
}

// look notes when the thread has moved.
func (t *thread) look() {
	if !t.order.Moves {
		return
	}
	if cpu := currentCPU(); cpu != t.cpu {
		t.cpu = cpu
		t.moves = append(t.moves, Move{Nsec: linux.MonotonicNsec(), CPU: cpu})
	}
}

// currentCPU returns the CPU on which the calling thread runs.
func currentCPU() int {
	var cpu uint32
	//nolint:gosec // getcpu writes one unsigned integer
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); e != 0 {
		panic("getcpu cannot fail with a valid pointer: " + e.Error())
	}
	return int(cpu)
}

// sleepUntil waits in the kernel, without the Go scheduler's timers, which would wake the
// thread by way of another one.
func sleepUntil(nsec int64) {
	ts := unix.NsecToTimespec(nsec)
	for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil), unix.EINTR) {
	}
}

// spin spends CPU time on registers alone: it needs neither cache nor memory.
//
//go:noinline
func spin(rounds int64) uint64 {
	x := uint64(rounds) | 1
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// Calibrate returns how many rounds of work take a microsecond of CPU time: the greatest of
// several tries, so that what disturbed one of them does not count.
func Calibrate() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const rounds, tries = 4_000_000, 15
	best := 0.0
	for range tries {
		begin := ThreadNsec()
		_ = spin(rounds)
		best = max(best, rounds/(float64(max(1, ThreadNsec()-begin))/1e3))
	}
	return best
}

// ThreadNsec returns the CPU time of the calling thread, which has to be locked to its
// goroutine, in nanoseconds.
func ThreadNsec() int64 { return procstat.ThreadTime().Nanoseconds() }

// burnLimit ends batch work that was forgotten.
const burnLimit = 2 * time.Hour

// burn is batch work: so many threads that use all the CPU they are given. It ends with a
// signal, or when nobody wants it any more.
func burn(number string) error {
	threads, err := strconv.Atoi(number)
	if err != nil || threads < 1 {
		return fmt.Errorf("openloop: %q threads; expected at least 1", number)
	}
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go func() {
			runtime.LockOSThread()
			for {
				_ = spin(1_000_000)
			}
		}()
	}
	time.Sleep(burnLimit)
	return nil
}
