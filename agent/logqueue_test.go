package agent

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// stuck is a log that takes nothing until it is let go.
type stuck struct {
	free chan struct{}
	mu   sync.Mutex
	text strings.Builder
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.free
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

// TestLogQueue: whoever logs never waits; lines come in order, what is lost is counted, and said
// once the log takes lines again.
func TestLogQueue(t *testing.T) {
	s := &stuck{free: make(chan struct{})}
	q := NewLogQueue(s)
	const more = 100
	for i := range maxLogLines + 1 + more { // one of them is in the hands of the writer, or not yet
		if i == 1 {
			for deadline := time.Now().Add(10 * time.Second); len(q.lines) > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("nobody takes the first line")
				}
			}
		}
		if n, err := fmt.Fprintf(q, "line %d\n", i); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	begin := time.Now()
	q.Close()
	if d := time.Since(begin); d < logWait || d > 5*logWait {
		t.Errorf("closing a log that takes nothing took %s", d)
	}
	close(s.free)
	<-q.ended
	lines := strings.Split(strings.TrimSuffix(s.text.String(), "\n"), "\n")
	if len(lines) != maxLogLines+2 || lines[0] != "line 0" || !strings.HasSuffix(lines[1], fmt.Sprintf("are lost\" lines=%d", more)) || lines[len(lines)-1] != fmt.Sprintf("line %d", maxLogLines) {
		t.Errorf("%d lines: %q, %q … %q", len(lines), lines[0], lines[1], lines[len(lines)-1])
	}
}

// TestLogQueueLongLine: a line of any length takes 4 KiB at most, and stays a line.
func TestLogQueueLongLine(t *testing.T) {
	s := &stuck{free: make(chan struct{})}
	close(s.free)
	q := NewLogQueue(s)
	line := strings.Repeat("x", 10*maxLogLine) + "\n"
	if n, err := q.Write([]byte(line)); n != len(line) || err != nil {
		t.Error(n, err)
	}
	q.Close()
	if got := s.text.String(); len(got) != maxLogLine || strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "x\n") {
		t.Errorf("%d bytes", len(got))
	}
}
