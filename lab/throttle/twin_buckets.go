package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/twin/machine"
)

// twinRates are the rates of figure 13 on the twin, in spikes a second: more of them than
// on a host, because simulated time is cheap.
func twinRates() []float64 {
	var list []float64
	for r := 0.25; r <= 6.01; r += 0.25 {
		list = append(list, r)
	}
	return list
}

// twinKs are bucket sizes that Alibaba's kernel takes.
func twinKs() []float64 { return []float64{0, 0.5, 1, 2, 3, 4, 6, 8, 10} }

// twinBuckets is figure 13 on Alibaba's kernel: each point is a machine of its own.
func twinBuckets(ctx context.Context, o *Options, length time.Duration) ([]Bucket, error) {
	ks, rates := twinKs(), twinRates()
	points, err := parallel.Map(ctx, o.Workers, len(ks)*len(rates), func(i int) (bucketPoint, error) {
		return playBucket(ctx, ks[i/len(rates)], rates[i%len(rates)], length, o.Seed)
	})
	if err != nil {
		return nil, err
	}
	list := make([]Bucket, len(ks))
	for i := range list {
		b := &list[i]
		b.K, b.How = ks[i], "Alibaba's kernel"
		for _, p := range points[i*len(rates) : (i+1)*len(rates)] {
			b.Steps = append(b.Steps, p.step)
			b.Periods, b.Throttled = b.Periods+p.periods, b.Throttled+p.throttled
		}
		b.peaks()
	}
	return list, nil
}

type bucketPoint struct {
	step               BucketStep
	periods, throttled uint64
}

// playBucket plays one service with one bucket at one rate.
func playBucket(ctx context.Context, k, rate float64, length time.Duration, seed uint64) (p bucketPoint, err error) {
	in := Instance{
		Name: "app", QuotaUsec: bucketQuotaUsec, PeriodUsec: 100_000, Threads: 4, RequestMsec: 1,
		SpikeMsec: bucketSpikeMsec, SpikesPerSec: rate, CPUs: bucketBase + rate*bucketSpikeMsec/1000, Seed: seed,
	}
	c := server64(machine.AnyBurst)
	c.Sockets, c.CoresPerSocket = 1, 8
	sim, err := newSimulation(c, []Instance{in}, Default, length, seed)
	if err != nil {
		return p, err
	}
	m, num := sim.host.Machine(), sim.phys[0]
	limit := machine.CPUMax{QuotaUsec: in.QuotaUsec, PeriodUsec: in.PeriodUsec, BurstUsec: int64(k * float64(in.QuotaUsec))}
	if err := m.SetCPUMax(num, limit); err != nil {
		return p, fmt.Errorf("throttle: %w", err)
	}
	if err := sim.player.Until(ctx, length.Nanoseconds()); err != nil {
		return p, err
	}
	counters, err := m.Counters(num)
	if err != nil {
		return p, fmt.Errorf("throttle: %w", err)
	}
	took, _, err := m.Latencies(num)
	if err != nil {
		return p, fmt.Errorf("throttle: %w", err)
	}
	p.periods, p.throttled = counters.Periods, counters.Throttled
	p.step = BucketStep{
		PerSec:    rate,
		Use:       float64(counters.UsageNsec) / float64(length) / (float64(in.QuotaUsec) / float64(in.PeriodUsec)),
		Throttled: stat.Ratio(float64(p.throttled), float64(p.periods)),
		DelayMsec: max(0, took.Mean()/1e6-in.RequestMsec),
	}
	return p, nil
}
