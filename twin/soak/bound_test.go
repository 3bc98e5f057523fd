package soak

import (
	"os"
	"runtime"
	"testing"
)

// TestNothingPilesUp: once an agent has seen its machine, minutes more of the same take no more
// memory; and a run leaves no goroutine and no file open. This test is alone in its process
// while it counts.
func TestNothingPilesUp(t *testing.T) {
	w, err := newWorld(5, t.TempDir(), Options{Minutes: 40, Calm: true, only: func(p *plan) {
		p.mayDie = false
		kept := p.events[:0]
		for _, e := range p.events { // no tasks that come and go: theirs is other tests' affair
			if e.do == arrive || e.do == operate || e.do == stranger {
				kept = append(kept, e)
			}
		}
		p.events = kept
	}})
	if err != nil {
		t.Fatal(err)
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what finalizers held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	goroutines, files := runtime.NumGoroutine(), descriptors()
	until := func(minute int64) {
		for w.failure == nil && w.now() < minute*minuteNsec {
			w.next()
		}
	}
	until(20)
	early := heap()
	until(40)
	late := heap()
	w.finish()
	if w.failure != nil {
		t.Fatal(w.failure)
	}
	t.Logf("%d KiB after 20 minutes, %d KiB after 40; %d turns", early>>10, late>>10, w.res.Turns)
	if most := int64(64 << 10); late-early > most {
		t.Errorf("the heap grew by %d bytes in 20 minutes of the same; expected at most %d", late-early, most)
	}
	if n := runtime.NumGoroutine(); n != goroutines {
		t.Errorf("%d goroutines; %d before", n, goroutines)
	}
	if n := descriptors(); n != files {
		t.Errorf("%d open files; %d before", n, files)
	}
}
