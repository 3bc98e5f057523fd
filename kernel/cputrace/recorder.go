package cputrace

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

const (
	// lateNsec is from when on a reading counts as late: it is nearer to the next one's time.
	lateNsec = msec / 2
	// lateStep and lateSteps are the buckets of lateness: 10 us up to 10 ms.
	lateStep  = int64(10e3)
	lateSteps = 1000
)

// clock is what a recorder waits by, in nanoseconds of CLOCK_MONOTONIC.
type clock interface {
	// Until waits until a time and returns what it is then.
	Until(nsec int64) (int64, error)
	// Now returns the time.
	Now() (int64, error)
}

// recorder reads counters each millisecond. Nothing in its loop allocates.
type recorder struct {
	clock clock
	tick  int64
	byCPU bool
	bins  bins
	lanes []lane
	buf   []uint64

	sums
	readings, late   int // late: milliseconds
	lateness         [lateSteps + 1]int
	latest           int64
	done             int // milliseconds
	ended            string
	ownNsec, runNsec int64
}

func newRecorder(msecs int, tick int64, byCPU bool) *recorder {
	return &recorder{clock: monotonic{}, tick: tick, byCPU: byCPU, bins: make(bins, msecs)}
}

// onOwnThread runs on a thread that nothing else uses, and that ends with it: the precise
// timer is a property of the thread.
func (r *recorder) onOwnThread(ctx context.Context, from counters) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread goes with the goroutine
		// Timers of a thread may otherwise be late by 50 us to go off together with others.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it they are later
		own := processCPU()
		err := r.run(ctx, from)
		r.ownNsec = processCPU() - own
		done <- err
	}()
	return <-done
}

// run reads until the time is over, the context ends or the cgroup goes.
func (r *recorder) run(ctx context.Context, from counters) error {
	start, err := r.clock.Now()
	if err != nil {
		return err
	}
	if r.buf, err = from.UsageNsec(r.buf); err != nil {
		return err
	}
	r.lanes = make([]lane, len(r.buf))
	for i, v := range r.buf {
		r.lanes[i] = lane{last: v}
	}
	then := int64(0)
	for n := 1; n <= len(r.bins); {
		at, err := r.clock.Until(start + int64(n)*msec)
		if err != nil {
			return err
		}
		now := at - start
		if r.buf, err = from.UsageNsec(r.buf); err != nil {
			if !errors.Is(err, cgroup.ErrVanished) || r.done == 0 {
				return err
			}
			r.ended = "the cgroup is gone"
			break
		}
		if len(r.buf) != len(r.lanes) {
			return fmt.Errorf("%d counters where there were %d", len(r.buf), len(r.lanes))
		}
		for i, v := range r.buf {
			r.lanes[i].step(r.bins, v, then, now, r.tick, r.byCPU, &r.sums)
		}
		then = now
		next := r.timing(n, now)
		r.done = min(next-1, len(r.bins))
		n = next
		if ctx.Err() != nil {
			r.ended = "it was stopped"
			break
		}
	}
	r.runNsec = then
	return nil
}

// timing notes how late the reading for millisecond n came, and returns the next one's: the
// first that is still to come.
func (r *recorder) timing(n int, now int64) int {
	late := max(0, now-int64(n)*msec)
	r.readings++
	r.lateness[min(late/lateStep, lateSteps)]++
	r.latest = max(r.latest, late)
	next := max(n, int(now/msec)) + 1
	if missed := next - n - 1; missed > 0 {
		r.late += missed
	}
	if late >= lateNsec {
		r.late++
	}
	return next
}

// report fills in what came out.
func (r *recorder) report(out *Recording) {
	if r.byCPU {
		out.CPUs = len(r.lanes)
	}
	out.UsedNsec = r.bins[:r.done]
	out.Ended, out.Readings = r.ended, r.readings
	if r.used > 0 {
		out.PutBack = float64(r.putBack) / float64(r.used)
	}
	if r.done > 0 {
		out.Late = min(1, float64(r.late)/float64(r.done))
	}
	out.LateMaxUsec = r.latest / 1000
	out.LateP99Usec = min(r.lateQuantile(0.99), out.LateMaxUsec)
	if r.runNsec > 0 {
		out.OwnCPU = float64(r.ownNsec) / float64(r.runNsec)
	}
	sum, window := uint64(0), uint64(0)
	for i, v := range out.UsedNsec {
		sum += uint64(v)
		out.LargestMsec = max(out.LargestMsec, float64(v)/float64(msec))
		if window += uint64(v); i >= 100 {
			window -= uint64(out.UsedNsec[i-100])
		}
		out.Largest100 = max(out.Largest100, float64(window)/float64(msec))
	}
	if n := len(out.UsedNsec); n > 0 {
		out.MeanCPU = float64(sum) / float64(int64(n)*msec)
	}
}

// lateQuantile returns a quantile of the lateness in microseconds, rounded up.
func (r *recorder) lateQuantile(q float64) int64 {
	left := int(q * float64(r.readings))
	for i, n := range r.lateness {
		if left -= n; left < 0 {
			return int64(i+1) * lateStep / 1000
		}
	}
	return r.latest / 1000
}

// monotonic is the machine's clock.
type monotonic struct{}

// Until implements clock.
func (m monotonic) Until(nsec int64) (int64, error) {
	ts := unix.NsecToTimespec(nsec)
	for {
		// Raw: the runtime would otherwise hand what this thread holds to another one and back,
		// a thousand times a second, for ten times the cost of the reading.
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if errno == 0 {
			return m.Now()
		}
		if errno != unix.EINTR {
			return 0, fmt.Errorf("clock_nanosleep: %w", errno)
		}
	}
}

// Now implements clock.
func (monotonic) Now() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return ts.Nano(), nil
}

// processCPU returns the CPU time of this process in nanoseconds, 0 when it cannot be told.
func processCPU() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

var _ clock = monotonic{}

// Duration returns how long the recording is.
func (r *Recording) Duration() time.Duration {
	return time.Duration(len(r.UsedNsec)) * time.Millisecond
}
