package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/node/linux"
)

// The hidden commands of the lab's binary that are its tasks.
const (
	ServeCommand = "partition-serve"
	BatchCommand = "partition-batch"
)

// serveThreads is how many requests the service has under way at once: more than this
// host's CPUs, as those of most services.
const serveThreads = 4

// Order is what the service is told, as JSON in its one argument.
type Order struct {
	Load Load `json:"load"`
	// StartNsec is when the block starts, CLOCK_MONOTONIC.
	StartNsec int64 `json:"start_mono_nsec"`
	// Rounds is how many rounds of spin take a microsecond of CPU time.
	Rounds float64 `json:"rounds_per_usec"`
	Output string  `json:"output"` // file of its Log
}

// Log is what the service says at its end. Times are CLOCK_MONOTONIC, nanoseconds.
type Log struct {
	Requests []Request `json:"requests"`
	Moves    []Move    `json:"moves"` // ordered by time
}

// Request is one that was served: latency is from when it was meant to come, so that a
// service that falls behind does not slow its own load down.
type Request struct {
	AtNsec    int64 `json:"at"`
	BeganNsec int64 `json:"began"`
	DoneNsec  int64 `json:"done"`
}

// Move is a thread of the service found on another CPU than it was found on before.
type Move struct {
	Nsec int64 `json:"at"`
	CPU  int   `json:"cpu"`
}

// patience is for how long after a block what it left is still served. Requests that are
// given up count with the time until then.
const patience = 10 * time.Second

// chunkUsec is the CPU time between two looks at which CPU a thread is on.
const chunkUsec = 50

// Serve is the body of ServeCommand. The threads take the requests in their order, wait
// until each one's time has come, and spend its CPU time: the clients' side takes no CPU
// that would disturb the measurement.
func Serve(argument string) error {
	var o Order
	if err := json.Unmarshal([]byte(argument), &o); err != nil {
		return fmt.Errorf("partition: order: %w", err)
	}
	// Nothing of the Go runtime's own is to run beside the threads that are measured.
	runtime.GOMAXPROCS(serveThreads + 2)
	debug.SetGCPercent(-1)
	s := server{order: o, list: o.Load.arrivals(), giveUp: o.StartNsec + (o.Load.length() + patience).Nanoseconds()}
	s.log.Requests = make([]Request, len(s.list))
	var wg sync.WaitGroup
	threads := make([]thread, serveThreads)
	for i := range threads {
		wg.Go(func() { threads[i].run(&s) })
	}
	wg.Wait()
	for i := range threads {
		s.log.Moves = append(s.log.Moves, threads[i].moves...)
	}
	slices.SortFunc(s.log.Moves, func(a, b Move) int { return int(min(1, max(-1, a.Nsec-b.Nsec))) })
	b, err := json.Marshal(&s.log)
	if err != nil {
		return fmt.Errorf("partition: log: %w", err)
	}
	if err := os.WriteFile(o.Output, b, 0o600); err != nil {
		return fmt.Errorf("partition: log: %w", err)
	}
	return nil
}

// server is the service's state that its threads share.
type server struct {
	order Order
	list  []arrival
	// giveUp is when the service stops to serve what has piled up.
	giveUp int64
	next   atomic.Int64
	log    Log
}

// thread is one thread of the service.
type thread struct {
	cpu   int
	moves []Move
	sum   uint64 // of spin, so that it is not compiled away
}

func (t *thread) run(s *server) {
	runtime.LockOSThread()
	t.cpu = -1
	t.moves = make([]Move, 0, 4*len(s.list)/serveThreads+1024)
	for {
		i := int(s.next.Add(1)) - 1
		if i >= len(s.list) {
			return
		}
		r := &s.log.Requests[i]
		r.AtNsec = s.order.StartNsec + s.list[i].at
		sleepUntil(r.AtNsec)
		if r.BeganNsec = linux.MonotonicNsec(); r.BeganNsec > s.giveUp {
			r.DoneNsec = r.BeganNsec // its client has gone: at least so late
			continue
		}
		for left := s.list[i].work / 1000; left > 0; left -= chunkUsec {
			t.look()
			t.sum += spin(int64(s.order.Rounds * float64(min(left, chunkUsec))))
		}
		t.look()
		r.DoneNsec = linux.MonotonicNsec()
	}
}

// look notes when the thread has moved.
func (t *thread) look() {
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

// Calibrate returns how many rounds of spin take a microsecond of CPU time: the greatest of
// several tries, so that what disturbed one of them does not count.
func Calibrate() (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const rounds, tries = 4_000_000, 15
	best := 0.0
	for range tries {
		begin, err := threadCPU()
		if err != nil {
			return 0, err
		}
		_ = spin(rounds)
		end, err := threadCPU()
		if err != nil {
			return 0, err
		}
		if used := end - begin; used > 0 {
			best = max(best, rounds/(float64(used)/1e3))
		}
	}
	if best == 0 {
		return 0, errors.New("partition: the clock of CPU time stands still")
	}
	return best, nil
}

// threadCPU returns the CPU time of the calling thread in nanoseconds.
func threadCPU() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("partition: CPU time: %w", err)
	}
	return ts.Nano(), nil
}

// Batch is the body of BatchCommand: threads that use all the CPU they are given. It ends
// with a signal, or when nobody wants it any more.
func Batch(threads int) {
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go func() {
			runtime.LockOSThread()
			for {
				_ = spin(1_000_000)
			}
		}()
	}
	time.Sleep(batchLimit)
}

// batchLimit ends batch work that was forgotten.
const batchLimit = 2 * time.Hour
