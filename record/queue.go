package record

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxWaiting bounds what waits for the disk beside a checkpoint, in bytes: half an hour of a
// node of 150 tasks.
const maxWaiting = 4 << 20

// closeWait is how long Close waits for a disk that does not answer.
const closeWait = 5 * time.Second

// queue hands pieces to a goroutine that writes them, so that nobody waits for the disk. When
// too much waits the segment is over: what is lost is whole ticks, up to the next checkpoint.
type queue struct {
	to   disk
	wake chan struct{} // holds one: there is something to do
	done chan struct{}

	mu     sync.Mutex
	list   []piece
	bytes  int    // in list and under way
	lost   uint64 // ticks
	err    error  // of what was written since the last checkpoint
	closed bool
}

// Beside makes a goroutine of the writer's own wait for the disk, from now on; Close ends it.
func (w *Writer) Beside() {
	q := &queue{to: w.disk, wake: make(chan struct{}, 1), done: make(chan struct{})}
	w.disk = q
	go q.run()
}

func (q *queue) state() state {
	q.mu.Lock()
	defer q.mu.Unlock()
	return state{q.bytes > 0, q.lost, q.err}
}

func (q *queue) put(p piece) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.begin {
		q.err = nil // of a segment that is over
	} else {
		if q.bytes+len(p.frames) > maxWaiting && q.bytes > 0 {
			return fmt.Errorf("record: %w: %d bytes wait to be written", ErrSlow, q.bytes)
		}
		p.frames = slices.Clone(p.frames)
	}
	q.list = append(q.list, p)
	q.bytes += len(p.frames)
	q.nudge()
	return nil
}

func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default: // it will look anyhow
	}
}

func (q *queue) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		list, closed := q.list, q.closed
		q.list = nil
		q.mu.Unlock()
		for i := range list {
			q.write(&list[i])
		}
		if closed {
			err := q.to.close()
			q.mu.Lock()
			q.err = cmp.Or(q.err, err)
			q.mu.Unlock()
			return
		}
		if len(list) == 0 {
			<-q.wake
		}
	}
}

// write writes a piece. What follows a failure belongs to no segment.
func (q *queue) write(p *piece) {
	err := q.state().err
	if err == nil || p.begin {
		err = q.to.put(*p)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= len(p.frames)
	if err != nil {
		q.lost += p.ticks
	}
	if err != nil || p.begin {
		q.err = err
	}
	p.frames = nil // a checkpoint is large
}

func (q *queue) close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.nudge()
	timeout := time.NewTimer(closeWait)
	defer timeout.Stop()
	select {
	case <-q.done:
		return q.state().err
	case <-timeout.C:
		return fmt.Errorf("record: %w: its last ticks may be lost", ErrSlow)
	}
}
