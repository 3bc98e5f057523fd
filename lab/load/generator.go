package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/slo/probe"
)

// How often the run looks after itself: reports windows, opens connections again, notices
// that everything is answered. Twenty wake-ups a second are not felt.
const (
	housekeeping  = 50 * time.Millisecond
	retryInterval = 100 * time.Millisecond
	dialTimeout   = time.Second
	cancelGrace   = 200 * time.Millisecond // replies under way when the run is called off
)

// leadIn is the time between the start of the threads and the first moment at which a
// request can be due: without it the first ones would be late for no reason.
const leadIn = 5 * time.Millisecond

// generator is a run in progress.
type generator struct {
	config   Config
	endpoint probe.Endpoint
	clock    clock
	conns    []*conn
	epoll    int
	wake     int // eventfd
	stop     atomic.Bool

	sent       sentStats
	done       doneStats
	protection string

	reported  int // windows given to onWindow
	nextRetry time.Duration
}

func newGenerator(ctx context.Context, c Config, e probe.Endpoint) (*generator, error) {
	windows := int((c.Duration + c.Window - 1) / c.Window)
	g := &generator{
		config: c, endpoint: e, epoll: -1, wake: -1,
		sent: sentStats{windows: make([]sentWindow, windows)},
		done: doneStats{windows: make([]doneWindow, windows)},
	}
	var err error
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("load: epoll_create1: %w", err)
	}
	if g.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		g.close()
		return nil, fmt.Errorf("load: eventfd: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeIndex}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, g.wake, &ev); err != nil {
		g.close()
		return nil, fmt.Errorf("load: epoll_ctl: %w", err)
	}
	for i := range c.Connections {
		conn := newConn(i, &g.config)
		g.conns = append(g.conns, conn)
		fd, err := dial(e)
		if err == nil && ctx.Err() != nil {
			_ = unix.Close(fd)
			err = context.Cause(ctx)
		}
		if err != nil {
			g.close()
			return nil, fmt.Errorf("load: connection %d of %d to %s %s: %w", i+1, c.Connections, c.Network, c.Address, err)
		}
		conn.open(fd, g.epoll)
	}
	return g, nil
}

// close releases the descriptors. Both threads must have ended.
func (g *generator) close() {
	for _, c := range g.conns {
		c.drop()
	}
	for _, fd := range []int{g.epoll, g.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	g.epoll, g.wake = -1, -1
}

// window returns the index of the window in which a request was due.
func (g *generator) window(at time.Duration) int { return int(at / g.config.Window) }

// run starts both threads, looks after them and collects the result.
func (g *generator) run(ctx context.Context, onWindow func(Window)) (*Result, error) {
	cpu := cpuTime()
	var err error
	if g.clock, err = newClock(); err != nil {
		return nil, fmt.Errorf("load: clock_gettime: %w", err)
	}
	g.clock.start = g.clock.start.Add(leadIn)
	g.clock.startNsec += int64(leadIn)

	sender, receiver := make(chan error, 1), make(chan error, 1)
	go func() { receiver <- g.receive() }()
	go func() { sender <- g.send() }()

	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	length, senderErr := g.whileSending(ctx, sender, tick.C, onWindow)
	g.awaitReplies(ctx, tick.C, onWindow)
	_, _ = unix.Write(g.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd takes eight bytes
	receiverErr := <-receiver

	end := g.clock.now()
	g.countTimeouts(end)
	r := g.result(length)
	r.CPU = Span{cpuTime() - cpu}
	for ; g.reported < len(r.Windows); g.reported++ {
		onWindow(r.Windows[g.reported])
	}
	return r, errors.Join(senderErr, receiverErr, ctx.Err())
}

// whileSending waits for the sender and returns the length of the span that was loaded and
// how the sender ended.
func (g *generator) whileSending(ctx context.Context, sender <-chan error, tick <-chan time.Time, onWindow func(Window)) (time.Duration, error) {
	cancelled := ctx.Done()
	length := g.config.Duration
	for {
		select {
		case err := <-sender:
			if err != nil {
				length = min(length, max(g.clock.now(), 0))
			}
			return length, err
		case <-cancelled:
			cancelled = nil
			g.stop.Store(true)
			length = min(length, max(g.clock.now(), 0))
		case <-tick:
			g.lookAfter(onWindow)
		}
	}
}

// awaitReplies waits until everything is answered, at most for the grace; once ctx has
// ended, at most for cancelGrace.
func (g *generator) awaitReplies(ctx context.Context, tick <-chan time.Time, onWindow func(Window)) {
	end := g.clock.now() + g.config.Grace
	for g.waiting() > 0 && g.clock.now() < end {
		if ctx.Err() != nil {
			end = min(end, g.clock.now()+cancelGrace)
		}
		<-tick
		g.lookAfter(onWindow)
	}
}

// waiting returns how many requests are unanswered.
func (g *generator) waiting() int64 {
	var n int64
	for _, c := range g.conns {
		n += c.queue.waiting()
	}
	return n
}

// lookAfter opens broken connections again and reports the windows that are ripe.
func (g *generator) lookAfter(onWindow func(Window)) {
	now := g.clock.now()
	if now >= g.nextRetry {
		g.nextRetry = now + retryInterval
		g.reconnect()
	}
	for g.reported < len(g.sent.windows) {
		i := g.reported
		end := min(time.Duration(i+1)*g.config.Window, g.config.Duration)
		if now < end {
			return
		}
		w := g.collect(i, end, now)
		// The sender may itself be late with requests of this window: one window's length
		// is its time to catch up.
		if now < end+g.config.Window && (w.Pending > 0 || now < end+housekeeping) {
			return
		}
		g.reported++
		onWindow(w)
	}
}

func (g *generator) reconnect() {
	for _, c := range g.conns {
		if c.fd.Load() >= 0 {
			continue
		}
		fd, err := dial(g.endpoint)
		if err != nil {
			return // and so would the next
		}
		g.done.mu.Lock()
		g.done.reconnects++
		g.done.mu.Unlock()
		c.open(fd, g.epoll)
	}
}

// collect returns window i, which ends at end, as it stands at now.
func (g *generator) collect(i int, end, now time.Duration) Window {
	sent := g.sent.get(i)
	start := time.Duration(i) * g.config.Window
	g.done.mu.Lock()
	d := g.done.windows[i]
	d.latency = d.latency.clone()
	pending := int64(0)
	if answered := d.done + d.errors + d.timeouts; answered < sent.sent {
		for _, c := range g.conns {
			c.queue.each(func(r request) {
				if g.window(r.at) == i {
					d.latency.record(now - r.at)
					pending++
				}
			})
		}
	}
	g.done.mu.Unlock()
	w := Window{Start: Span{start}, Latencies: d.latency, Latenesses: sent.lateness}
	w.Length = Span{end - start}
	// Counted from what was seen at one moment: the sender may have gone on meanwhile.
	w.Sent = d.done + d.errors + d.timeouts + pending
	w.Done, w.Misses, w.Errors, w.Timeouts, w.Pending = d.done, d.misses, d.errors, d.timeouts, pending
	w.fill(&w.Latencies, &w.Latenesses)
	return w
}

// countTimeouts enters what nobody answered. Both threads must have ended.
func (g *generator) countTimeouts(now time.Duration) {
	g.done.mu.Lock()
	defer g.done.mu.Unlock()
	for _, c := range g.conns {
		c.queue.each(func(r request) {
			w := &g.done.windows[g.window(r.at)]
			w.timeouts++
			w.latency.record(now - r.at)
		})
		c.queue = newQueue()
	}
}

// result collects all windows up to the length that was loaded.
func (g *generator) result(length time.Duration) *Result {
	r := &Result{
		Seed: g.config.Seed, Protection: g.protection,
		Reconnects: g.done.reconnects, FirstError: g.done.firstError,
	}
	for i := range g.sent.windows {
		start := time.Duration(i) * g.config.Window
		if start >= length {
			break
		}
		r.Windows = append(r.Windows, g.collect(i, min(start+g.config.Window, length), length))
	}
	r.Summary = r.Over(func(*Window) bool { return true })
	if length > 0 {
		r.RatePerSec = float64(r.Sent) / length.Seconds()
	}
	return r
}

// send takes requests up as they fall due, on a locked thread.
func (g *generator) send() error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	// Without real-time priority the kernel may end a sleep 50 µs late, to save wake-ups.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	g.protection = observeProtection(g.config.Protection)
	limit := int64(maxOutstanding / g.config.Connections)
	s := newSchedule(g.config)
	sleep := &sleeper{clock: &g.clock, keepP: keepsP()}
	for {
		a, ok := s.next()
		if !ok {
			// Nothing more is due, but the run lasts as long as was asked.
			sleep.until(g.config.Duration, &g.stop)
			return nil
		}
		now, ok := sleep.until(a.at, &g.stop)
		if !ok {
			return nil
		}
		g.sent.record(g.window(a.at), now-a.at)
		c := g.conns[a.conn]
		c.enqueue(request{a.at, a.key, a.set}, g.epoll)
		if c.queue.waiting() > limit {
			return fmt.Errorf("%w: %d on one of %d connections", ErrBacklog, limit, g.config.Connections)
		}
	}
}

// cpuTime returns the CPU time of this process so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // the call cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
