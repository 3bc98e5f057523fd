package load

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/slo/memcached"
)

// maxEvents is how many connections one epoll_wait reports.
const maxEvents = 128

// wakeIndex is the event of the descriptor that ends the receiver.
const wakeIndex = -1

// receive takes replies until the wake descriptor becomes readable. One locked thread
// serves all connections, and a reply's time is taken right after the read that brought it.
//
// Measured on two CPUs, client under SCHED_FIFO, 4,000 requests/s on loopback, quiet, p99
// of three runs each: this, 0.35 0.24 0.20 ms at 0.24 CPU; a goroutine a connection in the
// runtime's poller, 0.33 0.31 0.23 ms at 0.26 CPU; this with ordinary system calls, 0.66
// 0.42 0.38 ms at 0.39 CPU. The first two do not differ; one thread was kept because no
// scheduler stands between a reply and its time when other goroutines are busy.
func (g *generator) receive() error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	keepP := keepsP()
	events := make([]unix.EpollEvent, maxEvents)
	for {
		n, err := epollWait(g.epoll, events, keepP)
		if err != nil {
			return fmt.Errorf("load: epoll_wait: %w", err)
		}
		for i := range events[:n] {
			ev := &events[i]
			if ev.Fd == wakeIndex {
				return nil
			}
			c := g.conns[ev.Fd]
			if ev.Events&unix.EPOLLOUT != 0 {
				c.unblock(g.epoll)
			}
			if ev.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR|unix.EPOLLRDHUP) != 0 {
				g.takeReplies(c)
			}
		}
	}
}

// takeReplies reads from c once and enters what is whole.
func (g *generator) takeReplies(c *conn) {
	err := c.read()
	now := g.clock.now()
	g.done.mu.Lock()
	defer g.done.mu.Unlock()
	if err == nil {
		err = c.parse(func(r request, o memcached.Outcome) {
			g.done.record(g.window(r.at), now-r.at, o)
		})
	}
	if err == nil {
		return
	}
	// The connection is over. What was written and not answered is lost: it counts as
	// errors with the time until now. What waits in the queue goes out on the next one.
	c.drop()
	g.done.note(err.Error())
	for {
		r, ok := c.queue.peek()
		if !ok {
			return
		}
		c.queue.pop()
		w := &g.done.windows[g.window(r.at)]
		w.errors++
		w.latency.record(now - r.at)
	}
}
