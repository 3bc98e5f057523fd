package burst

import (
	"math"
	"math/rand/v2"
)

// Source makes an application's requests.
type Source interface {
	// Requests returns requests, in the order of their coming, that ask for so many CPUs
	// on average over so many milliseconds.
	Requests(rng *rand.Rand, cpus float64, msec int) []Request
}

// Drawn makes requests as section 4.1 describes bursty applications: far below their quota
// in most periods, with spikes of at most 100 ms from time to time. Requests come one by
// one at random; now and then something (garbage collection, a hot spot in the code) brings
// many at once.
type Drawn struct{}

const (
	// requestCPU is the CPU time of a request, in the mean; its coefficient of variation is
	// 1.
	requestCPU = 2.0
	// spikeShare is the share of the CPU time that comes in spikes, spikesPerSecond how
	// often, and spikeSpread the deviation of the logarithm of their size.
	spikeShare, spikesPerSecond, spikeSpread = 0.5, 2.0, 0.5
	// spikeMsec is the time within which a spike's requests come.
	spikeMsec = 50
)

// Requests implements Source.
func (Drawn) Requests(rng *rand.Rand, cpus float64, msec int) []Request {
	perMsec := make([][]float64, msec) // CPU times of the requests that come
	steady := cpus * (1 - spikeShare) / requestCPU
	spikeCPU := cpus * spikeShare * 1000 / spikesPerSecond
	for ms := range msec {
		for range poisson(rng, steady) {
			perMsec[ms] = append(perMsec[ms], requestCPU*rng.ExpFloat64())
		}
		if rng.Float64() >= spikesPerSecond/1000 {
			continue
		}
		size := spikeCPU * math.Exp(spikeSpread*rng.NormFloat64()-spikeSpread*spikeSpread/2)
		for size > 0 {
			r := min(size, requestCPU*rng.ExpFloat64())
			size -= r
			if at := ms + rng.IntN(spikeMsec); at < msec {
				perMsec[at] = append(perMsec[at], r)
			}
		}
	}
	var list []Request
	for ms, cpu := range perMsec {
		for _, c := range cpu {
			list = append(list, Request{ms, c})
		}
	}
	return list
}

// poisson draws a count with a mean of at most some ten.
func poisson(rng *rand.Rand, mean float64) int {
	limit, p := math.Exp(-mean), rng.Float64()
	n := 0
	for p > limit && n < 1000 {
		p *= rng.Float64()
		n++
	}
	return n
}

// Trace is CPU use that was recorded by the millisecond: its requests ask for what was
// used, from a random place on and round and round, scaled to the utilisation at hand. What
// was throttled while it was recorded is not in it: record without a quota, or with room.
type Trace []float64

// Requests implements Source.
func (t Trace) Requests(rng *rand.Rand, cpus float64, msec int) []Request {
	mean := 0.0
	for _, v := range t {
		mean += v / float64(len(t))
	}
	if len(t) == 0 || mean <= 0 {
		return nil
	}
	from := rng.IntN(len(t))
	var list []Request
	for ms := range msec {
		left := t[(from+ms)%len(t)] * cpus / mean
		// A millisecond's use is some requests of at most requestCPU.
		for left > 1e-9 {
			r := min(left, requestCPU)
			list = append(list, Request{ms, r})
			left -= r
		}
	}
	return list
}
