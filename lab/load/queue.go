package load

import (
	"sync/atomic"
	"time"
)

// request is a request on its way.
type request struct {
	at  time.Duration // when it was due
	key uint32
	set bool
}

const chunkLen = 512 // 12 KiB: more are only needed while the server stalls

type chunk struct {
	requests [chunkLen]request
	next     atomic.Pointer[chunk]
}

// queue holds one connection's requests in order, from the moment they are due until they
// are answered. It has three ends: push enters a request (the sender), write turns it into
// bytes (whoever holds the connection's write lock), pop takes it off when its reply is in
// (the receiver). Push and pop share no lock: a receiver that waited for a sender inside
// write(2) would measure itself. It grows in chunks and keeps one emptied chunk, so that
// a steady load allocates nothing.
type queue struct {
	tail, writeAt, head        *chunk
	tailPos, writePos, headPos int

	pushed, written, popped atomic.Int64 // in this order, never more than the one before
	spare                   atomic.Pointer[chunk]
}

func newQueue() *queue {
	c := new(chunk)
	return &queue{tail: c, writeAt: c, head: c}
}

// push enters r at the end.
func (q *queue) push(r request) {
	if q.tailPos == chunkLen {
		c := q.spare.Swap(nil)
		if c == nil {
			c = new(chunk)
		}
		q.tail.next.Store(c)
		q.tail, q.tailPos = c, 0
	}
	q.tail.requests[q.tailPos] = r
	q.tailPos++
	q.pushed.Add(1)
}

// write returns the oldest request that is not yet written, and marks it; false when all are.
func (q *queue) write() (request, bool) {
	if q.written.Load() == q.pushed.Load() {
		return request{}, false
	}
	if q.writePos == chunkLen {
		q.writeAt, q.writePos = q.writeAt.next.Load(), 0
	}
	r := q.writeAt.requests[q.writePos]
	q.writePos++
	q.written.Add(1)
	return r, true
}

// peek returns the oldest written and unanswered request; false when there is none.
func (q *queue) peek() (request, bool) {
	if q.popped.Load() == q.written.Load() {
		return request{}, false
	}
	if q.headPos == chunkLen {
		// A request behind this chunk is written, so all three ends have left it or do now.
		old := q.head
		q.head, q.headPos = old.next.Load(), 0
		old.next.Store(nil)
		q.spare.Store(old)
	}
	return q.head.requests[q.headPos], true
}

// pop takes off what peek returned.
func (q *queue) pop() {
	q.headPos++
	q.popped.Add(1)
}

// waiting returns how many requests are unanswered, written or not.
func (q *queue) waiting() int64 { return q.pushed.Load() - q.popped.Load() }

// each calls f with every unanswered request, oldest first. Only while nothing pops.
func (q *queue) each(f func(request)) {
	c, pos := q.head, q.headPos
	for n := q.waiting(); n > 0; n-- {
		if pos == chunkLen {
			c, pos = c.next.Load(), 0
		}
		f(c.requests[pos])
		pos++
	}
}
