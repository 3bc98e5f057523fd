package throttle

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/stat"
)

// Bucket is figure 13 for one size of the bucket: one service with one quota under a load
// that grows step by step.
type Bucket struct {
	K float64 `json:"k"` // bucket over quota
	// How says who carries the bucket: the kernel, or the kernel and the agent.
	How   string       `json:"how"`
	Steps []BucketStep `json:"steps"`
	// PeakPerSec is the highest rate of spikes up to which, step by step, there was neither
	// throttling nor queueing to speak of; 0: not even the lowest. PeakUse is the share of
	// the quota that was used then.
	PeakPerSec float64 `json:"peak_spikes_per_sec"`
	PeakUse    float64 `json:"peak_use_of_quota"`
	// Throttled are the throttled periods over all steps, of those that passed.
	Throttled uint64 `json:"nr_throttled"`
	Periods   uint64 `json:"nr_periods"`
}

// BucketStep is one rate.
type BucketStep struct {
	PerSec    float64 `json:"spikes_per_sec"`
	Use       float64 `json:"use_of_quota"`
	Throttled float64 `json:"throttled_periods"` // share
	DelayMsec float64 `json:"queueing_delay_ms"` // mean
}

// Throughput counts as reached "without CPU throttle and queuing delay" (section 4.1) while
// at most one period in a hundred is throttled, and requests wait no longer, in the mean,
// than a spike of a service with all CPUs to itself makes them.
const (
	throttleFree = 0.01
	delayFree    = 15.0 // ms
)

// peaks fills in what follows from the steps.
func (b *Bucket) peaks() {
	b.PeakPerSec, b.PeakUse = 0, 0
	for _, s := range b.Steps {
		if s.Throttled > throttleFree || s.DelayMsec > delayFree {
			return
		}
		b.PeakPerSec, b.PeakUse = s.PerSec, s.Use
	}
}

// The service of figure 13: a quota of a fifth of a CPU, and spikes of half as much again as
// it gives in a period.
const (
	bucketQuotaUsec = 20_000
	bucketSpikeMsec = 30
	// bucketBase is the CPU time a second that comes evenly.
	bucketBase = 0.02
)

// bucketRates are the steps, in spikes a second. At the last the service asks for all of
// its quota but a seventh.
func bucketRates() []float64 { return []float64{0.5, 1, 2, 3, 4, 5} }

// rateStep is how long each rate is held.
func (o *Options) rateStep() time.Duration {
	switch {
	case o.host.step > 0:
		return o.host.step
	case o.Quick:
		return 4 * time.Second
	}
	return 8 * time.Second
}

// bucketInstance is the service at the rates one after the other.
func bucketInstance(name string, seed uint64, threads int, step time.Duration) Instance {
	return Instance{
		Name: name, QuotaUsec: bucketQuotaUsec, PeriodUsec: 100_000, Threads: threads,
		RequestMsec: 1, SpikeMsec: bucketSpikeMsec, CPUs: bucketBase, Seed: seed,
		Rates: bucketRates(), RateStep: step,
	}
}

// playBuckets plays figure 13: services that differ in their bucket alone stand side by
// side and get the same requests, each a little later than the one before, so that what
// else the host does falls on all of them.
func (b *hostLab) playBuckets(ctx context.Context) (list []Bucket, err error) {
	step := b.opt.rateStep()
	kernel := []float64{0, 0.25, 0.5, 1}
	var instances []Instance
	var limits []cgroup.CPUMax
	for i := range len(kernel) + 1 {
		in := bucketInstance(fmt.Sprintf("b%d", i), b.opt.Seed, b.load.Threads, step)
		in.Later = time.Duration(i) * 437 * time.Millisecond
		max := cgroup.CPUMax{QuotaUsec: in.QuotaUsec, PeriodUsec: in.PeriodUsec}
		if i < len(kernel) {
			list = append(list, Bucket{K: kernel[i], How: "kernel"})
			max.BurstUsec = int64(kernel[i] * float64(in.QuotaUsec))
		} else {
			list = append(list, Bucket{K: paperK, How: "kernel and agent"})
		}
		instances, limits = append(instances, in), append(limits, max)
	}
	fmt.Fprintf(b.opt.Log, "figure 13: bucket sizes (%.0f s)\n", (settleTime + b.bucketsTime(step)).Seconds())
	t, err := b.start("bucket", instances, limits, b.bucketsTime(step))
	defer func() { err = errors.Join(err, t.stop()) }()
	if err != nil {
		return nil, err
	}
	last := len(instances) - 1
	agent, err := b.direct(ctx, t, path.Base(t.paths[last]), BurstOnly)
	if err != nil {
		return nil, err
	}
	readings, err := t.stepReadings(ctx, step)
	if err = errors.Join(err, agent.Finish()); err != nil {
		return nil, err
	}
	served, err := t.finish(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].fill(readings, i, &instances[i], served[i])
	}
	return list, nil
}

// paperK is the bucket that Alibaba settled on.
const paperK = 10

func (b *hostLab) bucketsTime(step time.Duration) time.Duration {
	return time.Duration(len(bucketRates()))*step + 2*time.Second
}

// stepReadings reads throttling at the start and after each step.
func (t *instances) stepReadings(ctx context.Context, step time.Duration) ([]Reading, error) {
	var list []Reading
	for i := range len(bucketRates()) + 1 {
		// The later ones are at most some two seconds behind: their step ends within the
		// next one by a part that is the same for all buckets.
		if err := t.until(ctx, time.Duration(i)*step); err != nil {
			return nil, err
		}
		r, err := t.read(true)
		if err != nil {
			return nil, fmt.Errorf("throttle: %w", err)
		}
		list = append(list, r)
	}
	return list, nil
}

// fill makes the figure of one instance.
func (b *Bucket) fill(readings []Reading, i int, in *Instance, responses []Response) {
	for k, rate := range bucketRates() {
		from, to := &readings[k], &readings[k+1]
		elapsed := float64(to.MonoNsec - from.MonoNsec)
		s := BucketStep{PerSec: rate}
		s.Use = float64(to.UsageNsec[i]-from.UsageNsec[i]) / elapsed / (float64(in.QuotaUsec) / float64(in.PeriodUsec))
		periods, throttled := to.Stat[i].NrPeriods-from.Stat[i].NrPeriods, to.Stat[i].NrThrottled-from.Stat[i].NrThrottled
		s.Throttled = stat.Ratio(float64(throttled), float64(periods))
		s.DelayMsec = delayOf(responses, time.Duration(k)*in.RateStep+in.Later, time.Duration(k+1)*in.RateStep+in.Later)
		b.Periods, b.Throttled = b.Periods+periods, b.Throttled+throttled
		b.Steps = append(b.Steps, s)
	}
	b.peaks()
}

// delayOf is the mean time, in milliseconds, by which requests that came in a stretch took
// longer than their CPU time.
func delayOf(list []Response, from, to time.Duration) float64 {
	sum, n := 0.0, 0
	for _, r := range list {
		if r.AtUsec >= from.Microseconds() && r.AtUsec < to.Microseconds() {
			sum += max(0, float64(r.TookUsec-r.CPUUsec)) / 1000
			n++
		}
	}
	return stat.Ratio(sum, float64(n))
}
