// Package burst is the trace-driven simulation by which Alibaba (section 4.1, "Parameter
// tuning", figure 14) chose the bucket of the burstable CFS controller: how much of its
// unused quota may an application carry over, so that its bursts are not throttled, and
// what does that do to the utilisation of the CPU pool that all share?
//
// The queueing model. Time goes in milliseconds. Requests bring CPU time that they take; an
// application works its queue off first come, first served, on at most Width CPUs, with
// the tokens that it has: a quota at the start of each period of 100 ms, of which what is
// not used is kept up to the bucket. The pool has as many CPUs as all quotas together; when
// more is asked for in a millisecond, everybody gets the same share of it.
//
// What Alibaba leaves open, and how it is here: how bursty the applications are (Source:
// drawn, or a recorded trace), and how wide (four times their quota). Left out: the kernel's
// slices of 5 ms a CPU, by which real throttling is a little earlier.
package burst

import (
	"cmp"
	"math"
	"math/rand/v2"
)

// Params of the simulation.
type Params struct {
	Applications int     // 20 in Alibaba
	PeriodMsec   int     // cfs_period_us: 100 ms
	QuotaMsec    float64 // cfs_quota_us of each, CPU time a period
	Width        float64 // CPUs that an application can use at once
	PoolCPUs     float64 // 0: as many as all quotas together
	Seconds      int
	// SpreadShare is the relative standard deviation of the applications' utilisation:
	// 0.25 in Alibaba.
	SpreadShare float64
	Source      Source
	Seed        uint64
	// Draws is how many sets of applications a point of Run is the mean of: the largest of 300 s is
	// chance, and by one set U_max rises by 7 to 18 points with k = 10.
	Draws int
}

// Defaults are Alibaba's values, with a quota of two CPUs.
func Defaults() Params {
	return Params{
		Applications: 20, PeriodMsec: 100, QuotaMsec: 200, Width: 8, Seconds: 300, SpreadShare: 0.25, Source: Drawn{}, Seed: 1, Draws: 4,
	}
}

// Point is what came out at one utilisation with one bucket.
type Point struct {
	Utilisation  float64 `json:"utilisation"`   // of the pool, on average: what was aimed at
	K            float64 `json:"k"`             // bucket / quota
	Measured     float64 `json:"measured"`      // utilisation that came out
	DelayAvgMsec float64 `json:"delay_avg_ms"`  // mean queueing delay over all requests
	DelayMaxMsec float64 `json:"delay_max_ms"`  // mean over applications of their largest
	UMax         float64 `json:"u_max"`         // largest mean utilisation of 5 consecutive periods
	Throttled    float64 `json:"throttled"`     // share of periods in which an application ran out of tokens
	ThrottledApp float64 `json:"throttled_app"` // share of applications that ever did
}

// windowPeriods is how many periods U_max is taken over.
const windowPeriods = 5

// Simulate plays one point. The requests depend on utilisation and seed alone, so that all
// buckets meet the same ones, and an application that uses more than others does so at any
// utilisation.
func Simulate(p *Params, utilisation, k float64) Point {
	apps := make([]application, p.Applications)
	rng := rand.New(rand.NewPCG(p.Seed, 0))
	for i := range apps {
		u := max(0.02, utilisation*(1+p.SpreadShare*rng.NormFloat64()))
		own := rand.New(rand.NewPCG(rng.Uint64(), 1))
		apps[i] = application{
			requests: p.Source.Requests(own, u*p.QuotaMsec/float64(p.PeriodMsec), p.Seconds*1000),
			bucket:   p.QuotaMsec * (1 + k), quota: p.QuotaMsec, width: p.Width,
		}
	}
	pool := newPool(p)
	for ms := range p.Seconds * 1000 {
		if ms%p.PeriodMsec == 0 {
			for i := range apps {
				apps[i].period()
			}
		}
		asked := 0.0
		for i := range apps {
			asked += apps[i].ask(ms)
		}
		share := 1.0
		if asked > pool.cpus {
			share = pool.cpus / asked
		}
		for i := range apps {
			pool.used(apps[i].work(ms, share))
		}
		pool.tick(ms)
	}
	return summarise(p, utilisation, k, apps, pool)
}

// mean is a point over all sets of applications.
func mean(p *Params, utilisation, k float64) Point {
	sum, n := Point{Utilisation: utilisation, K: k}, max(1, p.Draws)
	for draw := range n {
		one := *p
		one.Seed += uint64(draw) << 32
		got, part := Simulate(&one, utilisation, k), 1/float64(n)
		sum.Measured += got.Measured * part
		sum.DelayAvgMsec += got.DelayAvgMsec * part
		sum.DelayMaxMsec += got.DelayMaxMsec * part
		sum.UMax += got.UMax * part
		sum.Throttled += got.Throttled * part
		sum.ThrottledApp += got.ThrottledApp * part
	}
	return sum
}

func summarise(p *Params, utilisation, k float64, apps []application, pool *pool) Point {
	out := Point{Utilisation: utilisation, K: k, UMax: pool.most, Measured: pool.all / (pool.cpus * float64(p.Seconds) * 1000)}
	delays, requests, periods, throttled := 0.0, 0, 0, 0
	for i := range apps {
		a := &apps[i]
		delays += a.delaySum
		requests += a.done
		out.DelayMaxMsec += a.delayMax / float64(len(apps))
		periods += a.periods
		throttled += a.throttled
		if a.throttled > 0 {
			out.ThrottledApp += 1 / float64(len(apps))
		}
	}
	if requests > 0 {
		out.DelayAvgMsec = delays / float64(requests)
	}
	if periods > 0 {
		out.Throttled = float64(throttled) / float64(periods)
	}
	return out
}

// Request is CPU time that is asked for.
type Request struct {
	AtMsec int     // when it comes
	CPU    float64 // milliseconds of CPU time
}

// application works its requests off.
type application struct {
	requests              []Request
	next                  int     // the first that is not done
	left                  float64 // of it; 0: not begun
	bucket, quota, tokens float64
	width                 float64
	asked                 float64
	short                 bool // it ran out of tokens in this period

	done               int
	delaySum, delayMax float64
	periods, throttled int
}

// period gives the quota of the next period.
func (a *application) period() {
	if a.short {
		a.throttled++
		a.short = false
	}
	a.periods++
	a.tokens = min(a.tokens+a.quota, a.bucket)
}

// ask returns what the application could use in a millisecond.
func (a *application) ask(ms int) float64 {
	a.asked = 0
	for i := a.next; i < len(a.requests) && a.requests[i].AtMsec <= ms && a.asked < a.width; i++ {
		if i == a.next && a.left > 0 {
			a.asked += a.left
		} else {
			a.asked += a.requests[i].CPU
		}
	}
	a.asked = min(a.asked, a.width)
	if a.asked > a.tokens {
		a.asked, a.short = a.tokens, true
	}
	return a.asked
}

// work uses a share of what was asked for and returns it.
func (a *application) work(ms int, share float64) float64 {
	budget := a.asked * share
	a.tokens -= budget
	used := budget
	for budget > 1e-12 && a.next < len(a.requests) && a.requests[a.next].AtMsec <= ms {
		r := a.requests[a.next]
		a.left = cmp.Or(a.left, r.CPU)
		step := min(a.left, budget)
		a.left -= step
		budget -= step
		if a.left > 1e-9 {
			break
		}
		a.left = 0
		a.next++
		a.done++
		// What it would have taken alone is no delay.
		delay := max(0, float64(ms+1-r.AtMsec)-math.Ceil(r.CPU/a.width))
		a.delaySum += delay
		a.delayMax = max(a.delayMax, delay)
	}
	return used
}

// pool follows the utilisation of the CPUs that all share.
type pool struct {
	cpus    float64
	period  int
	window  [windowPeriods]float64 // CPU time of the last periods
	periods int
	now     float64
	all     float64
	most    float64
}

func newPool(p *Params) *pool {
	cpus := p.PoolCPUs
	if cpus <= 0 {
		cpus = float64(p.Applications) * p.QuotaMsec / float64(p.PeriodMsec)
	}
	return &pool{cpus: cpus, period: p.PeriodMsec}
}

func (p *pool) used(cpu float64) {
	p.now += cpu
	p.all += cpu
}

func (p *pool) tick(ms int) {
	if (ms+1)%p.period != 0 {
		return
	}
	p.window[p.periods%windowPeriods] = p.now
	p.periods++
	p.now = 0
	if p.periods < windowPeriods {
		return
	}
	sum := 0.0
	for _, v := range p.window {
		sum += v
	}
	p.most = max(p.most, sum/(p.cpus*float64(p.period)*windowPeriods))
}
