package throttle

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/commensal-io/commensal/lab/stat"
)

// Workload is what the instances of one pool do, as section 4.1 and its part "Parameter
// tuning" describe it: each uses far less than its quota on average, and most have spikes
// of at most 100 ms from time to time.
type Workload struct {
	Instances int     `json:"instances"` // 20 in Alibaba
	Steady    int     `json:"steady"`    // of them without spikes: insensitive, and shared all the same
	PoolCPUs  float64 `json:"pool_cpus"` // all quotas together
	// Utilisation is of the pool, on average; an instance's own is drawn around it with a
	// relative deviation of Spread (0.25 in Alibaba).
	Utilisation float64 `json:"utilisation"`
	Spread      float64 `json:"spread"`
	Threads     int     `json:"threads"` // of each: how wide a spike can be
	RequestMsec float64 `json:"request_ms"`
	PeriodUsec  int64   `json:"period_usec"`
	// SpikeShare is the share of the CPU time that comes in spikes; each bursty instance has
	// between SpikesLeast and SpikesMost of them a second.
	SpikeShare  float64 `json:"spike_share"`
	SpikesLeast float64 `json:"spikes_per_sec_least"`
	SpikesMost  float64 `json:"spikes_per_sec_most"`
	// ThreadsPerCore is how many of the pool's CPUs are one core (0: one). BatchThreads are always
	// ready, on the same CPUs, at the least weight.
	ThreadsPerCore int `json:"threads_per_core,omitempty"`
	BatchThreads   int `json:"batch_threads,omitempty"`
}

// hostWorkload is sized for a machine with so many CPUs: quotas that fill it, with about 30 %
// of it in use once the processes' own cost is added, and spikes of about one and a half
// quotas.
func hostWorkload(cpus int) Workload {
	return Workload{
		Instances: 20, Steady: 5, PoolCPUs: float64(cpus), Utilisation: 0.27, Spread: 0.25,
		Threads: 2 * cpus, RequestMsec: 2, PeriodUsec: 100_000,
		SpikeShare: 0.6, SpikesLeast: 1, SpikesMost: 1.5,
	}
}

// Instance is one service.
type Instance struct {
	Name        string  `json:"name"`
	QuotaUsec   int64   `json:"quota_usec"`
	PeriodUsec  int64   `json:"period_usec"`
	Threads     int     `json:"threads"`
	CPUs        float64 `json:"cpus"`       // that it asks for, on average
	RequestMsec float64 `json:"request_ms"` // CPU time of a request, in the mean
	// SpikeMsec is the CPU time of a spike in the mean, 0 for a steady instance.
	SpikeMsec    float64 `json:"spike_ms"`
	SpikesPerSec float64 `json:"spikes_per_sec"`
	Seed         uint64  `json:"seed"` // of its requests
	// Rates, if there are any, take the place of SpikesPerSec, each for RateStep; CPUs is
	// then without the spikes. Later shifts all requests.
	Rates    []float64     `json:"rates,omitempty"`
	RateStep time.Duration `json:"rate_step,omitempty"`
	Later    time.Duration `json:"later,omitempty"`
}

// Draw draws the instances. Their requests change with round, what they are does not.
func (w *Workload) Draw(seed, round uint64) []Instance {
	rng := rand.New(rand.NewPCG(seed, 0x696e7374))
	list := make([]Instance, w.Instances)
	quota := w.PoolCPUs / float64(w.Instances)
	for i := range list {
		in := &list[i]
		*in = Instance{
			Name:      fmt.Sprintf("app-%03d", i),
			QuotaUsec: int64(quota * float64(w.PeriodUsec)), PeriodUsec: w.PeriodUsec, Threads: w.Threads,
			CPUs:        quota * w.Utilisation * min(2, max(0.3, 1+w.Spread*rng.NormFloat64())),
			RequestMsec: w.RequestMsec, SpikesPerSec: w.SpikesLeast + rng.Float64()*(w.SpikesMost-w.SpikesLeast),
			Seed: rng.Uint64() ^ round<<32,
		}
		if i >= w.Instances-w.Steady {
			in.SpikesPerSec = 0
			continue
		}
		in.SpikeMsec = in.CPUs * w.SpikeShare * 1000 / in.SpikesPerSec
	}
	return list
}

const (
	// spikeWithin is the time in which a spike's requests come, and spikeDeviation the
	// deviation of the logarithm of its size.
	spikeWithin, spikeDeviation = 20 * time.Millisecond, 0.15
	// spikeMost bounds a spike in multiples of the instance's mean: a garbage collection or
	// a hot spot in the code takes about as long each time, and Alibaba's spikes last no
	// more than 100 ms.
	spikeMost = 1.5
	// steadyPart is how much smaller the requests of a steady instance are, all of one size:
	// many of them together are smooth.
	steadyPart = 0.5
)

// Request is CPU time that is asked for.
type Request struct {
	At    time.Duration // from the start
	CPU   time.Duration
	Spike bool
}

// Requests draws an instance's requests, in the order of their coming.
func (in *Instance) Requests(length time.Duration) []Request {
	rng := rand.New(rand.NewPCG(in.Seed, 0x72657173))
	msec := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	var list []Request
	perSec, size := in.evenly()
	for _, at := range arrivals(rng, perSec, length) {
		cpu := size
		if in.SpikeMsec > 0 {
			cpu *= rng.ExpFloat64()
		}
		list = append(list, Request{At: at, CPU: msec(cpu)})
	}
	for _, at := range in.spikes(rng, length) {
		for left := in.spikeSize(rng); left > 0; {
			cpu := min(left, in.RequestMsec*rng.ExpFloat64())
			left -= cpu
			come := at + time.Duration(rng.Float64()*float64(spikeWithin))
			list = append(list, Request{At: come, CPU: msec(cpu), Spike: true})
		}
	}
	for i := range list {
		list[i].At += in.Later
	}
	list = slices.DeleteFunc(list, func(r Request) bool { return r.At >= length })
	slices.SortStableFunc(list, func(a, b Request) int { return int(a.At - b.At) })
	return list
}

// arrivals draws when something comes that comes so often a second, at random.
func arrivals(rng *rand.Rand, perSec float64, length time.Duration) []time.Duration {
	var list []time.Duration
	for at := 0.0; perSec > 0; {
		at += rng.ExpFloat64() / perSec
		if at >= length.Seconds() {
			break
		}
		list = append(list, time.Duration(at*1e9))
	}
	return list
}

// spikeSize draws the CPU time of a spike, in milliseconds.
func (in *Instance) spikeSize(rng *rand.Rand) float64 {
	return in.SpikeMsec * min(spikeMost, math.Exp(spikeDeviation*rng.NormFloat64()-spikeDeviation*spikeDeviation/2))
}

// evenly is how many requests a second come beside the spikes, and what CPU time each of
// them takes in the mean, in milliseconds.
func (in *Instance) evenly() (perSec, msec float64) {
	msec = in.RequestMsec
	if in.SpikeMsec == 0 {
		msec *= steadyPart
	}
	return max(0, in.CPUs*1000-in.SpikeMsec*in.SpikesPerSec) / msec, msec
}

// spikes draws when spikes begin.
func (in *Instance) spikes(rng *rand.Rand, length time.Duration) []time.Duration {
	var list []time.Duration
	if len(in.Rates) == 0 {
		// Half of a gap is always there: garbage has to gather before it is collected again.
		for at := 0.0; in.SpikesPerSec > 0; {
			at += (1 + rng.ExpFloat64()) / 2 / in.SpikesPerSec
			if at >= length.Seconds() {
				break
			}
			list = append(list, time.Duration(at*1e9))
		}
		return list
	}
	for i, rate := range in.Rates {
		// Evenly, as a load generator sends at a rate: a gap and its neighbour make up for
		// each other, so that the rate and not luck says how much comes at once.
		gap := float64(in.RateStep) / math.Round(rate*in.RateStep.Seconds())
		for at := gap / 2; at < float64(in.RateStep); at += gap {
			list = append(list, time.Duration(i)*in.RateStep+time.Duration(at+(rng.Float64()-0.5)*gap/2))
		}
	}
	return list
}

// burstiness is by how much an instance's busiest periods pass its average: the 99th
// percentile of the CPU time that is asked for in a period, over the mean. It is of the
// requests alone, so that which instances are the burstiest does not depend on what any
// policy did to them.
func burstiness(list []Request, period, length time.Duration) float64 {
	if length < period {
		return 0
	}
	asked := make([]float64, length/period)
	sum := 0.0
	for _, r := range list {
		if i := int(r.At / period); i < len(asked) {
			asked[i] += r.CPU.Seconds()
			sum += r.CPU.Seconds()
		}
	}
	if sum == 0 {
		return 0
	}
	return stat.Quantile(0.99, asked) / (sum / float64(len(asked)))
}

// burstiest returns the indexes of the n instances with the highest spikes.
func burstiest(list []Instance, length time.Duration, n int) []int {
	return highest(n, len(list), func(i int) float64 {
		return burstiness(list[i].Requests(length), time.Duration(list[i].PeriodUsec)*time.Microsecond, length)
	})
}

// highest returns the indexes of the n of all that score highest.
func highest(n, all int, score func(i int) float64) []int {
	scores, order := make([]float64, all), make([]int, all)
	for i := range order {
		scores[i], order[i] = score(i), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return order[:min(n, all)]
}
