package machine

import "testing"

// What a woken thread meets of others falls with their weight: all of its equals, of heavier ones no
// more, little of 2 shares, nothing of SCHED_IDLE, which meets all itself.
func TestRankStays(t *testing.T) {
	service, idle := rank{weight: 1024}, rank{idleWeight, true}
	for _, x := range []struct {
		who, other rank
		want       float64
	}{
		{service, service, 1}, {service, rank{weight: 8192}, 1}, {service, rank{weight: 512}, 2. / 3}, {service, rank{weight: 2}, 4. / 1026},
		{service, idle, 0}, {idle, service, 1}, {idle, idle, 1}, {rank{weight: idleWeight}, idle, 0},
	} {
		if got := x.who.stays(x.other); got != x.want {
			t.Errorf("%+v meets %g of %+v, want %g", x.who, got, x.other, x.want)
		}
	}
}

// Beside batch work on all CPUs a service that has CPUs enough waits the less the less that work
// weighs: at 2 shares hardly more than beside SCHED_IDLE.
func TestWeightsOfBatchWork(t *testing.T) {
	delay := func(shares int64, idle bool) float64 {
		c := oneSocket()
		c.ThreadsPerCore = 1
		m := newMachine(t, c)
		cfg := spinner(4)
		cfg.Work, cfg.Requests = nil, &Requests{PerSecond: 300, Instructions: 5e6, Variation: 1}
		cfg.Threads = c.CPUs()
		web := add(t, m, cfg)
		batch := spinner(c.CPUs())
		batch.Shares = shares
		num := add(t, m, batch)
		must(t, m.SetIdle(num, idle))
		m.Advance(10e9)
		k, err := m.Counters(web)
		must(t, err)
		return float64(k.DelayNsec) / float64(k.UsageNsec)
	}
	equal, half, least, idle := delay(1024, false), delay(512, false), delay(2, false), delay(1024, true)
	if !(equal > 1.3*half && half > 1.3*least && least > idle && least < idle+0.01*equal) {
		t.Errorf("waits a unit of work beside 1024, 512 and 2 shares and SCHED_IDLE: %.4f %.4f %.4f %.4f", equal, half, least, idle)
	}
	t.Logf("%.4f %.4f %.4f %.4f", equal, half, least, idle)
}
