package agent

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxLogLines bounds the lines that wait to be written: a few minutes of a busy agent, and
// with maxLogLine a bound of the memory that a log which nobody reads can take.
const (
	maxLogLines = 1024
	maxLogLine  = 4 << 10
)

// logWait bounds how long a process that ends waits for its last lines to be written.
const logWait = time.Second

// LogQueue writes lines to a log beside whoever has something to say, who never waits: a log
// that is full, stopped or on a bad disk must not keep the loop from giving anything back. Lines
// for which there is no room are counted and left out, and that is said once there is room.
type LogQueue struct {
	to    io.Writer
	lines chan []byte
	done  chan struct{}
	lost  atomic.Int64
	once  sync.Once
	ended chan struct{}
}

// NewLogQueue starts a queue of lines to a log.
func NewLogQueue(to io.Writer) *LogQueue {
	q := &LogQueue{to: to, lines: make(chan []byte, maxLogLines), done: make(chan struct{}), ended: make(chan struct{})}
	go q.run()
	return q
}

// Write takes one line, which it copies, and never fails. Of one that is longer than 4 KiB it
// takes the beginning.
func (q *LogQueue) Write(line []byte) (int, error) {
	kept := line
	if len(line) > maxLogLine {
		kept = line[:maxLogLine-1]
	}
	kept = append(make([]byte, 0, len(kept)+1), kept...)
	if len(line) > maxLogLine {
		kept = append(kept, '\n')
	}
	select {
	case q.lines <- kept:
	default:
		q.lost.Add(1)
	}
	return len(line), nil
}

// Close writes what waits, for at most a second.
func (q *LogQueue) Close() {
	q.once.Do(func() { close(q.done) })
	select {
	case <-q.ended:
	case <-time.After(logWait):
	}
}

func (q *LogQueue) run() {
	defer close(q.ended)
	for {
		select {
		case line := <-q.lines:
			q.write(line)
			continue
		default:
		}
		select {
		case line := <-q.lines:
			q.write(line)
		case <-q.done:
			for { // whatever came before the end
				select {
				case line := <-q.lines:
					q.write(line)
				default:
					return
				}
			}
		}
	}
}

func (q *LogQueue) write(line []byte) {
	if _, err := q.to.Write(line); err != nil {
		q.lost.Add(1)
		return
	}
	if n := q.lost.Swap(0); n > 0 {
		if _, err := fmt.Fprintf(q.to, "time=%s level=WARN msg=\"lines of the log could not be written in time and are lost\" lines=%d\n", time.Now().Format(time.RFC3339Nano), n); err != nil {
			q.lost.Add(n)
		}
	}
}
