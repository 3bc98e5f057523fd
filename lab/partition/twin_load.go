package partition

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// The twin's load, in CPUs of all services together: a day that is compressed into
// minutes and swings tenfold, with noise from second to second. Beyond what was asked there is
// one with surges besides, that begin at once.
const (
	nightCPU   = 2.0
	noonCPU    = 20.0
	mostCPU    = 32.0 // a surge goes no further: half of the machine
	noise      = 0.10 // standard deviation of the logarithm
	noiseKept  = 0.8  // of a second's noise that the next one still has
	surgeEvery = 40   // seconds, in the mean
	surgeFor   = 15   // seconds
)

// surgeTimes is by how much a surge multiplies the load.
var surgeTimes = [...]float64{1.5, 2, 3}

// shape is the load second by second.
type shape struct {
	cpus   []float64 // in CPUs that the services want together
	surges []int     // seconds at which one begins
}

// newShape draws a load, with surges or without.
func newShape(seed uint64, length, day time.Duration, surges bool) shape {
	rng := rand.New(rand.NewPCG(seed, 0x7368617065))
	n := int(length.Seconds())
	s := shape{cpus: make([]float64, n)}
	z, until, times := 0.0, 0, 1.0
	next := surgeEvery/2 + rng.IntN(surgeEvery)
	for i := range n {
		if i == next && surges {
			s.surges = append(s.surges, i)
			until, times = i+surgeFor, surgeTimes[rng.IntN(len(surgeTimes))]
			next += surgeFor + afterSeconds + rng.IntN(2*(surgeEvery-surgeFor-afterSeconds))
		}
		if i == until {
			times = 1
		}
		tide := (1 - math.Cos(2*math.Pi*float64(i)/day.Seconds())) / 2
		z = noiseKept*z + math.Sqrt(1-noiseKept*noiseKept)*rng.NormFloat64()
		s.cpus[i] = min(mostCPU, (nightCPU+(noonCPU-nightCPU)*tide)*times) * math.Exp(noise*z)
	}
	return s
}

// times makes every second's load so many times as great.
func (s shape) times(size float64) shape {
	for i := range s.cpus {
		s.cpus[i] *= size
	}
	return s
}

// afterSeconds is afterStep in whole seconds.
const afterSeconds = int(afterStep / time.Second)

// after says whether a second is among the five after a surge began.
func (s *shape) after(second int) bool {
	return slices.ContainsFunc(s.surges, func(at int) bool { return second >= at && second < at+afterSeconds })
}

// server64 is a server with 64 cores on two sockets. The Skylake of the twin has half of
// them; cache and memory bandwidth grow with the cores, as on its successors.
func server64(threadsPerCore int) machine.Config {
	c := machine.Skylake()
	c.CoresPerSocket, c.ThreadsPerCore = 32, threadsPerCore
	c.LLCBytes, c.MemPeakBytes = 2*c.LLCBytes, 190e9
	return c
}

// service is one LC service of the twin: its share of the load.
type service struct {
	program string
	share   float64
	msec    float64 // CPU time of a request, on a CPU of its own
}

// services are those that are measured. What a request takes differs, as it does between
// services.
func services() []service {
	return []service{{"web-frontend", 0.5, 4}, {"memcached-small", 0.3, 1}, {"web-search-leaf", 0.2, 8}}
}

// Batch work by what it asks of the shared cache and memory: none, so that the arms differ by
// the CPUs alone, and more than there is, which no partition of CPUs keeps away.
var (
	quietBatch = []string{"swaptions", "npb-ep", "swaptions"}
	loudBatch  = []string{"omnetpp", "npb-mg", "stream"}
)

// batchThreads is how many threads each batch job has: together more than there are CPUs.
const batchThreads = 48

// Kind is what a service's requests are like beside their number. The zero kind, Poisson and about as
// varied as exponential ones, is what the policy's formula takes them to be: a partition that is
// judged by that alone is judged by its own assumption.
type Kind struct {
	Tails  bool `json:"heavy_tails"`
	Bursts bool `json:"bursts"`
	FanOut bool `json:"fan_out"`
}

const (
	// variation is how much requests of a service differ, and tailVariation how much with heavy tails:
	// log-normal, so that one in a hundred takes more than ten times the mean.
	variation, tailVariation = 1, 3
	// fanOut is of how many parts a request is that fans out, each with its part of the work.
	fanOut = 8
)

// bursts: a seventh of the requests come in bursts of 50 ms in the mean with a heavy tail, one each
// second, in which they come nearly four times as fast.
var bursts = machine.Bursts{Share: 0.15, EveryNsec: 1e9, Nsec: 50e6, Tail: 1.5}

// burstStep is finer than the machine's own step: the shortest bursts are 20 ms.
const burstStep = 5 * time.Millisecond

// taskOf returns an LC service as a task of the twin.
func (s *service) taskOf(c *machine.Config, kind Kind) (model.Task, machine.TaskConfig) {
	p := mustFind(s.program)
	r := machine.Requests{Instructions: s.msec / 1e3 * c.Hz / alone(s.program), Variation: variation}
	if kind.Tails {
		r.Variation = tailVariation
	}
	if kind.Bursts {
		r.Bursts = &bursts
	}
	if kind.FanOut {
		r.FanOut, r.Instructions = fanOut, r.Instructions/fanOut
	}
	cfg := machine.TaskConfig{Name: s.program, Threads: c.CPUs(), Spread: 0.03, SpreadNsec: 1e9, Requests: &r}
	p.Apply(&cfg)
	return model.Task{Path: "/service/" + s.program, Job: s.program, Class: model.LC, Production: true}, cfg
}

// alone is a program's cycles per instruction alone on an idle machine, near enough to
// give its requests their length.
func alone(name string) float64 {
	p := mustFind(name)
	c := machine.Skylake()
	misses := p.Curve.At(c.LLCBytes, p.APKI)
	felt := (1 - p.Prefetched) / p.Overlap
	return p.CPI + felt/1000*((p.APKI-misses)*c.LLCHitCycles+misses*c.MemLatencyNsec*c.Hz/1e9)
}

func mustFind(name string) program.Profile {
	p, ok := program.Find(name)
	if !ok {
		panic("the catalogue has no " + name)
	}
	return p
}

// perSecond returns the rate at which a service gets its share of so many CPUs.
func (s *service) perSecond(cpus float64) float64 { return cpus * s.share / (s.msec / 1e3) }
