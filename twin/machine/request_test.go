package machine

import (
	"fmt"
	"testing"
)

// Services that ask for less than their share of busy CPUs get it, and a worker gets the
// rest: no CPU is given to a request that cannot use it, and none is lost because requests
// went slower for a step. Steps are shorter and longer than a request.
func TestRequestsLeaveTheRest(t *testing.T) {
	for _, step := range []int64{10e6, 100e6} {
		t.Run(fmt.Sprint(step/1e6, " ms"), func(t *testing.T) {
			c := Skylake()
			c.Sockets, c.StepNsec = 1, step
			m, err := New(c, 1)
			if err != nil {
				t.Fatal(err)
			}
			light := TaskConfig{
				Threads: 8, CPI: 1.5, APKI: 1, Overlap: 3, Curve: MissCurve{StepBytes: 1 << 20, MPKI: []float64{0.1}},
				Requests: &Requests{PerSecond: 35, Instructions: 3e7, Variation: 0.5},
			}
			for i := range 24 {
				light.Name = fmt.Sprint("service ", i)
				if _, err := m.Add(light); err != nil {
					t.Fatal(err)
				}
			}
			worker := light
			worker.Name, worker.Threads, worker.Requests, worker.Work = "worker", 48, nil, &Work{}
			w, err := m.Add(worker)
			if err != nil {
				t.Fatal(err)
			}
			m.Advance(10e9)
			busy, requests := m.BusyNsec(), served(t, m, 24)
			before, err := m.Counters(w)
			if err != nil {
				t.Fatal(err)
			}
			const seconds = 20
			m.Advance(seconds * 1e9)
			after, err := m.Counters(w)
			if err != nil {
				t.Fatal(err)
			}
			if used := float64(m.BusyNsec()-busy) / seconds / 1e9; used < 0.99*32 {
				t.Errorf("%.2f of 32 CPUs were used", used)
			}
			// 24 services of 35 requests of 17 ms, with busy siblings 1.6 times as long.
			if got := float64(after.UsageNsec-before.UsageNsec) / seconds / 1e9; got < 7 || got > 12 {
				t.Errorf("the worker got %.2f CPUs", got)
			}
			if rate := float64(served(t, m, 24)-requests) / seconds; rate < 0.95*24*35 || rate > 1.05*24*35 {
				t.Errorf("%.0f requests a second were served, and %d came", rate, 24*35)
			}
		})
	}
}

func served(t *testing.T, m *Machine, services int) uint64 {
	t.Helper()
	sum := uint64(0)
	for n := range services {
		c, err := m.Counters(n)
		if err != nil {
			t.Fatal(err)
		}
		sum += c.Requests
	}
	return sum
}
