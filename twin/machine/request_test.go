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

// A request of several parts is answered when the last one is: of eight exponential-like parts with
// CPUs enough the mean is well above that of one, the requests are counted as wholes, and one that
// loses a part is lost once.
func TestFanOut(t *testing.T) {
	play := func(parts int, perSecond float64) (mean float64, answered int64, lost uint64, used float64) {
		c := oneSocket()
		c.CoresPerSocket, c.ThreadsPerCore = 32, 1
		m := newMachine(t, c)
		cfg := spinner(32)
		cfg.Work, cfg.Requests = nil, &Requests{PerSecond: perSecond, Instructions: 4e6, Variation: 1, FanOut: parts}
		num := add(t, m, cfg)
		m.Advance(20e9)
		h, lost, err := m.Latencies(num)
		must(t, err)
		k, err := m.Counters(num)
		must(t, err)
		if int64(k.Requests) != h.TotalCount() {
			t.Errorf("%d requests are counted, %d latencies", k.Requests, h.TotalCount())
		}
		return h.Mean(), h.TotalCount(), lost, float64(k.UsageNsec)
	}
	one, n1, _, used1 := play(0, 400)
	eight, n8, lost, used8 := play(8, 50)
	if eight < 2*one || eight > 3.2*one || lost > 0 || n1 < 7600 || n8 < 950 || n8 > 1050 || used8 < 0.9*used1 || used8 > 1.1*used1 {
		t.Errorf("one part: mean %.0f ns of %d; eight: %.0f of %d, %d lost; CPU time %.3g and %.3g", one, n1, eight, n8, lost, used1, used8)
	}
	// 8 parts of 2 ms each, 40,000 of them a second on 32 CPUs: most are given up.
	_, served, lost, _ := play(8, 5000)
	if came := 100_000.0; lost == 0 || float64(served)+float64(lost) > came*1.02 || float64(served)+float64(lost) < came*0.9 {
		t.Errorf("of %.0f requests %d are answered and %d lost", came, served, lost)
	}
}
