package machine

import (
	"fmt"
	"testing"
)

// server is a machine with half of its tasks serving requests and half of them working.
func server(b testing.TB, cores, tasks int) *Machine {
	c := Skylake()
	c.CoresPerSocket, c.ThreadsPerCore = cores/2, 2
	c.LLCBytes *= float64(cores) / 32
	c.MemPeakBytes *= float64(cores) / 32
	m, err := New(c, 1)
	if err != nil {
		b.Fatal(err)
	}
	for i := range tasks {
		t := stream(2)
		t.Work = &Work{Phases: []Phase{{Nsec: 5e9, Jitter: 0.3, CPUs: 2}, {Nsec: 5e9, Jitter: 0.3, CPUs: 0.2}}}
		if i%2 == 0 {
			t = reuser()
			t.Requests.PerSecond = 500
			t.Requests.Instructions = 2e6
		}
		t.Name = fmt.Sprint(t.Name, i)
		if _, err := m.Add(t); err != nil {
			b.Fatal(err)
		}
	}
	return m
}

// BenchmarkAdvance reports how many times faster than life a server is played.
func BenchmarkAdvance(b *testing.B) {
	for _, size := range []struct{ cores, tasks int }{{16, 10}, {32, 25}, {64, 50}, {64, 100}, {128, 100}} {
		b.Run(fmt.Sprintf("cores=%d/tasks=%d", size.cores, size.tasks), func(b *testing.B) {
			m := server(b, size.cores, size.tasks)
			m.Advance(1e9)
			b.ReportAllocs()
			for b.Loop() {
				m.Advance(1e9)
			}
			b.ReportMetric(1e9/(float64(b.Elapsed().Nanoseconds())/float64(b.N)), "x-life")
		})
	}
}

// BenchmarkWatch plays the same server with nobody's waits measured, and with those of all services.
func BenchmarkWatch(b *testing.B) {
	for _, size := range []struct{ cores, tasks int }{{16, 10}, {64, 50}, {64, 100}} {
		for _, watched := range []bool{false, true} {
			b.Run(fmt.Sprintf("cores=%d/tasks=%d/watched=%t", size.cores, size.tasks, watched), func(b *testing.B) {
				m := server(b, size.cores, size.tasks)
				for i := 0; i < size.tasks; i += 2 {
					must(b, m.Watch(i, watched))
				}
				m.Advance(1e9)
				b.ReportAllocs()
				for b.Loop() {
					m.Advance(1e9)
				}
			})
		}
	}
}
