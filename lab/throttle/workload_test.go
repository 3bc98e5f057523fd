package throttle

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const minute = time.Minute

// An instance asks for what it was drawn to ask for, in the order of time, and the same
// again with the same seed.
func TestRequests(t *testing.T) {
	w := hostWorkload(2)
	list := w.Draw(7, 0)
	if d := cmp.Diff(list, w.Draw(7, 0)); d != "" {
		t.Errorf("the same seed (-first +second):\n%s", d)
	}
	all := 0.0
	for i := range list {
		in := &list[i]
		requests := in.Requests(10 * minute)
		if d := cmp.Diff(requests, in.Requests(10*minute)); d != "" {
			t.Fatalf("%s: the same instance (-first +second):\n%s", in.Name, d)
		}
		sum, spikes, last := 0.0, 0.0, time.Duration(0)
		for _, r := range requests {
			if r.At < last || r.At >= 10*minute || r.CPU < 0 {
				t.Fatalf("%s: %+v after %s", in.Name, r, last)
			}
			last = r.At
			sum += r.CPU.Seconds() / 600
			if r.Spike {
				spikes += r.CPU.Seconds() / 600
			}
		}
		all += sum
		if math.Abs(sum-in.CPUs) > 0.1*in.CPUs {
			t.Errorf("%s asks for %.4f CPUs, drawn %.4f", in.Name, sum, in.CPUs)
		}
		if bursty := i < w.Instances-w.Steady; bursty != (spikes > 0) || bursty && math.Abs(spikes/sum-w.SpikeShare) > 0.06 {
			t.Errorf("%s: %.2f of its CPU time comes in spikes", in.Name, spikes/sum)
		}
		if sum > 0.6*float64(in.QuotaUsec)/float64(in.PeriodUsec) {
			t.Errorf("%s: %.4f CPUs are not far under its quota of %d us", in.Name, sum, in.QuotaUsec)
		}
	}
	if u := all / w.PoolCPUs; u < 0.2 || u > 0.35 {
		t.Errorf("all together ask for %.2f of the pool", u)
	}
	if other := w.Draw(7, 1); cmp.Equal(list[0].Requests(minute), other[0].Requests(minute)) || list[0].CPUs != other[0].CPUs {
		t.Error("another round has the same instances with other requests")
	}
}

// The rates of figure 13 are held, one after the other, and a later instance gets the same.
func TestRates(t *testing.T) {
	in := bucketInstance("a", 3, 4, 10*time.Second)
	count := make([]int, len(in.Rates))
	for _, at := range in.spikes(rand.New(rand.NewPCG(1, 1)), minute) {
		count[at/in.RateStep]++
	}
	for i, rate := range in.Rates {
		if count[i] != int(rate*10) {
			t.Errorf("%d spikes at %g a second for 10 s", count[i], rate)
		}
	}
	later := in
	later.Later = 3 * time.Second
	a, b := in.Requests(2*minute), later.Requests(2*minute)
	if len(b) > len(a) || a[5].CPU != b[5].CPU || b[5].At-a[5].At != later.Later {
		t.Errorf("%d requests, later %d: %+v and %+v", len(a), len(b), a[5], b[5])
	}
}

func TestBurstiest(t *testing.T) {
	list := []Instance{
		{QuotaUsec: 10_000, PeriodUsec: 100_000, CPUs: 0.02, RequestMsec: 1, Seed: 1},
		{QuotaUsec: 10_000, PeriodUsec: 100_000, CPUs: 0.02, RequestMsec: 1, SpikeMsec: 30, SpikesPerSec: 0.5, Seed: 2},
		{QuotaUsec: 10_000, PeriodUsec: 100_000, CPUs: 0.02, RequestMsec: 1, SpikeMsec: 10, SpikesPerSec: 1.5, Seed: 3},
	}
	if d := cmp.Diff([]int{1, 2}, burstiest(list, 5*minute, 2)); d != "" {
		t.Errorf("by requests (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]int{1, 2, 0}, byDesign(list, 9)); d != "" {
		t.Errorf("by design (-want +got):\n%s", d)
	}
	even := []Request{{At: 0, CPU: time.Millisecond}, {At: 100 * time.Millisecond, CPU: time.Millisecond}}
	if got := burstiness(even, 100*time.Millisecond, 200*time.Millisecond); got != 1 {
		t.Errorf("even use has a burstiness of %g", got)
	}
	if got := burstiness(nil, 100*time.Millisecond, time.Second); got != 0 {
		t.Errorf("nothing has a burstiness of %g", got)
	}
}

// What comes on the twin is drawn as on a host: each spike brings the rate up and down.
func TestChanges(t *testing.T) {
	list := []Instance{{CPUs: 0.1, RequestMsec: 2, SpikeMsec: 50, SpikesPerSec: 1, Seed: 4}, {CPUs: 0.1, RequestMsec: 2, Seed: 5}}
	got := changes(list, 10*minute)
	even, msec := list[0].evenly()
	extra, last := 0.0, int64(0)
	for k, c := range got {
		if c.i != 0 || c.at < last {
			t.Fatalf("change %d: %+v after %d", k, c, last)
		}
		last = c.at
		if up := k%2 == 0; up != (c.perSec > even) {
			t.Fatalf("change %d: %+v", k, c)
		}
		extra += (c.perSec - even) * spikeWithin.Seconds() * msec
	}
	if extra /= 600; math.Abs(extra-50) > 5 { // CPU time in spikes a second, ms
		t.Errorf("spikes ask for %.1f ms a second", extra)
	}
}
