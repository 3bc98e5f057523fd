package machine_test

import (
	"fmt"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// These two are also the pattern for labs: how bursty services, and services whose load
// swings beside batch work, are started, and how their response times are read.

// shops starts services that use a quarter of their quota in the mean, nine in ten
// requests in spikes of 10 ms, every 400 ms in the mean, that ask for more than a period's.
func shops(t *testing.T, m *machine.Machine, n int, limit machine.CPUMax) {
	t.Helper()
	c := m.Config()
	p, _ := program.Find("web-frontend")
	for i := range n {
		cfg := machine.TaskConfig{Name: fmt.Sprintf("shop-%d", i), Threads: 8, Requests: p.Requests(&c, 0.1, 0.4e6)}
		p.Apply(&cfg)
		cfg.Requests.Bursts = &machine.Bursts{Share: 0.9, EveryNsec: 400e6, Nsec: 10e6, Tail: 2}
		num, err := m.Add(cfg)
		if err == nil {
			err = m.SetCPUMax(num, limit)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// figures is what was seen of tasks.
type figures struct {
	cpu       float64 // of a task
	throttled float64 // share of the periods
	mean, p99 float64 // response time, ms
}

func watch(t *testing.T, m *machine.Machine, tasks int, seconds int64) figures {
	t.Helper()
	sum := func() (c machine.Counters) {
		for num := range tasks {
			k, err := m.Counters(num)
			if err != nil {
				t.Fatal(err)
			}
			c.UsageNsec += k.UsageNsec
			c.Periods += k.Periods
			c.Throttled += k.Throttled
		}
		return c
	}
	for num := range tasks {
		_, _, _ = m.Latencies(num) // from now on
	}
	before := sum()
	m.Advance(seconds * 1e9)
	after := sum()
	h, _, err := m.Latencies(0)
	if err != nil {
		t.Fatal(err)
	}
	for num := 1; num < tasks; num++ {
		o, _, err := m.Latencies(num)
		if err != nil {
			t.Fatal(err)
		}
		h.Merge(o)
	}
	f := figures{
		cpu:  float64(after.UsageNsec-before.UsageNsec) / float64(seconds) / 1e9 / float64(tasks),
		mean: h.Mean() / 1e6, p99: float64(h.ValueAtQuantile(99)) / 1e6,
	}
	if n := after.Periods - before.Periods; n > 0 {
		f.throttled = float64(after.Throttled-before.Throttled) / float64(n)
	}
	return f
}

// Alibaba §4.1: spikes throttle services that use far less than their quota, and
// the bucket ends that: with mainline's bound by half, with Alibaba's ten quotas wholly.
func TestBurstyServices(t *testing.T) {
	play := func(burst int64) figures {
		c := machine.Skylake()
		c.StepNsec, c.Kernel = 1e6, machine.AnyBurst
		m, err := machine.New(c, 1)
		if err != nil {
			t.Fatal(err)
		}
		shops(t, m, 20, machine.CPUMax{QuotaUsec: 40_000, PeriodUsec: 100_000, BurstUsec: burst})
		m.Advance(5e9) // until caches are warm
		f := watch(t, m, 20, 40)
		t.Logf("burst %3d ms: %+v", burst/1000, f)
		return f
	}
	none, one, ten := play(0), play(40_000), play(400_000)
	for _, f := range []figures{none, one, ten} {
		if f.cpu < 0.07 || f.cpu > 0.16 {
			t.Errorf("a service used %.3f CPU of a quota of 0.4", f.cpu)
		}
	}
	if none.throttled < 0.05 || one.throttled > 0.7*none.throttled || ten.throttled > 0.005 {
		t.Errorf("throttled: %.4f, %.4f, %.4f", none.throttled, one.throttled, ten.throttled)
	}
	if none.mean < 20*ten.mean || one.mean > 0.8*none.mean || ten.p99 > 20 {
		t.Errorf("response times: %+v, %+v, %+v", none, one, ten)
	}
}

// A service whose load rises tenfold on few CPUs falls behind, and recovers in the next
// steps when batch work hands its cores over.
func TestSwing(t *testing.T) {
	c := machine.Skylake() // 64 CPUs: n and n+32 are threads of one core
	m, err := machine.New(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	add := func(profile string, cfg machine.TaskConfig) int {
		p, _ := program.Find(profile)
		p.Apply(&cfg)
		num, err := m.Add(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return num
	}
	place := func(num int, list string) {
		cpus, err := model.ParseCPUSet(list)
		if err == nil {
			err = m.SetCPUs(num, cpus)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p, _ := program.Find("web-frontend")
	const each = 2e6 // ns of CPU time
	lc := add("web-frontend", machine.TaskConfig{Name: "shop", Threads: 64, Requests: p.Requests(&c, 2, each)})
	be := add("compute", machine.TaskConfig{Name: "batch", Threads: 64, Work: &machine.Work{}}) // takes every CPU it may use
	place(lc, "0-7,32-39")
	place(be, "8-31,40-63")
	m.Advance(5e9)
	quiet := watch(t, m, 1, 5)
	if err := m.SetRate(lc, 20*1e9/each); err != nil {
		t.Fatal(err)
	}
	behind := watch(t, m, 1, 5)
	place(be, "24-31,56-63")
	place(lc, "0-23,32-55")
	m.Advance(5e9)
	after := watch(t, m, 1, 5)
	t.Logf("quiet %+v, behind %+v, after %+v", quiet, behind, after)
	if quiet.p99 > 20 || behind.p99 < 500 || after.p99 > 2*quiet.p99 {
		t.Errorf("p99: %.1f ms quiet, %.1f behind, %.1f after", quiet.p99, behind.p99, after.p99)
	}
	k, err := m.Counters(be)
	if err != nil || k.UsageNsec < 10e9*48+15e9*15 {
		t.Errorf("the batch work used %.0f CPU seconds, %v", float64(k.UsageNsec)/1e9, err)
	}
}
