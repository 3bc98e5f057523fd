package load

import (
	"sync"
	"testing"
	"time"
)

func TestQueueKeepsOrder(t *testing.T) {
	q := newQueue()
	const n = 200_000
	var wg sync.WaitGroup
	wg.Go(func() { // sender
		for i := range n {
			q.push(request{at: time.Duration(i)})
			if i%3 != 0 { // sometimes it lags
				continue
			}
			for {
				if _, ok := q.write(); !ok {
					break
				}
			}
		}
		for {
			if _, ok := q.write(); !ok {
				break
			}
		}
	})
	for i := 0; i < n; {
		r, ok := q.peek()
		if !ok {
			continue
		}
		if r.at != time.Duration(i) {
			t.Fatalf("took %d, want %d", r.at, i)
		}
		q.pop()
		i++
	}
	wg.Wait()
	if _, ok := q.peek(); ok || q.waiting() != 0 {
		t.Error("something is left")
	}
}

func TestQueueEach(t *testing.T) {
	q := newQueue()
	for i := range 3 * chunkLen {
		q.push(request{at: time.Duration(i)})
	}
	for range 2 * chunkLen {
		q.write()
	}
	for range chunkLen {
		if _, ok := q.peek(); !ok {
			t.Fatal("nothing to take")
		}
		q.pop()
	}
	want := time.Duration(chunkLen) // also while the head still stands at the end of its chunk
	q.each(func(r request) {
		if r.at != want {
			t.Fatalf("got %d, want %d", r.at, want)
		}
		want++
	})
	if want != 3*chunkLen {
		t.Errorf("ended at %d", want)
	}
	for range chunkLen {
		q.peek()
		q.pop()
	}
	if _, ok := q.peek(); ok {
		t.Error("took a request that was not written")
	}
}

func TestQueueDoesNotAllocateWhenSteady(t *testing.T) {
	q := newQueue()
	step := func() {
		for range chunkLen * 3 {
			q.push(request{})
			q.write()
			q.peek()
			q.pop()
		}
	}
	step()
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
