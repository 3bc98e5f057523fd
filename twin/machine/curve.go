package machine

import (
	"fmt"
	"math"
)

// MissCurve is how many LLC misses a task has per thousand instructions, depending on
// the cache that it has to itself: MPKI[k] with k+1 times StepBytes. Between the points
// it is linear; with less than the first it grows towards the accesses.
type MissCurve struct {
	StepBytes float64
	MPKI      []float64
}

// maxCurve bounds the points of a curve.
const maxCurve = 64

// Check returns what makes a curve impossible.
func (c *MissCurve) Check() error {
	if len(c.MPKI) == 0 || len(c.MPKI) > maxCurve || !(c.StepBytes >= 1024 && c.StepBytes <= 1<<40) {
		return fmt.Errorf("machine: a miss curve has 1 to %d points, a step of at least 1 KiB apart", maxCurve)
	}
	last := 1000.0 // an instruction that misses is one instruction
	for i, v := range c.MPKI {
		if !(v >= 0 && v <= last) {
			return fmt.Errorf("machine: a miss curve falls from at most 1000; point %d is %v after %v", i+1, v, last)
		}
		last = v
	}
	return nil
}

// At returns the misses per thousand instructions with so many bytes, at most accesses.
func (c *MissCurve) At(bytes, accesses float64) float64 {
	x := bytes/c.StepBytes - 1
	n := len(c.MPKI)
	var v float64
	switch {
	case x <= 0:
		// Nothing is kept with no cache at all; half the way to it is twice the loss.
		v = c.MPKI[0] + (math.Max(accesses, c.MPKI[0])-c.MPKI[0])*math.Min(1, -x)
	case x >= float64(n-1):
		v = c.MPKI[n-1]
	default:
		i := int(x)
		v = c.MPKI[i] + (c.MPKI[i+1]-c.MPKI[i])*(x-float64(i))
	}
	return math.Min(v, accesses)
}

// The published curve of memory latency against utilisation: Mess (MICRO'24), Skylake
// with DDR4 and 78 % reads, as shares of the idle latency (67 ns) and of the peak (101
// GB/s).
var loadedLatency = []struct{ utilisation, latency float64 }{
	{0, 1}, {0.10, 1.04}, {0.20, 1.10}, {0.30, 1.13}, {0.41, 1.18}, {0.51, 1.22}, {0.61, 1.24},
	{0.69, 1.36}, {0.79, 1.57}, {0.83, 1.69}, {0.90, 1.84}, {0.93, 1.96}, {0.95, 2.06},
	{0.97, 2.33}, {0.98, 2.48}, {1.00, 3.10},
}

const (
	// From saturated on, as a share of the idle latency, more demand delivers less: 0.97
	// of the peak at overSaturated, where the measured bend ends.
	saturated, overSaturated, overDelivered = 3.1, 4.0, 0.97
	// maxLatency bounds the search for a latency. The requests that cores can have in
	// flight hold it far below.
	maxLatency = 64.0
	// readLoss is the share of the peak that a traffic of writes only would lose: 101
	// GB/s are the peak at 78 % reads, 92 at 60 %, so 112 at 100 %.
	readLoss = 0.446
)

// deliveredAt returns which share of its peak a memory delivers at a latency: the inverse
// of the published curve.
func deliveredAt(latency float64) float64 {
	if latency >= saturated {
		bend := math.Min(1, (latency-saturated)/(overSaturated-saturated))
		return 1 - (1-overDelivered)*bend
	}
	i := 1
	for loadedLatency[i].latency < latency {
		i++
	}
	a, b := loadedLatency[i-1], loadedLatency[i]
	return a.utilisation + (b.utilisation-a.utilisation)*(latency-a.latency)/(b.latency-a.latency)
}

// mbaDelay is what a level of Intel's MBA adds to each request of a CLOS, as a share of
// the idle latency, at 10, 20 ... 100 %. On a Skylake-SP under STREAM the step from 10 to
// 40 % does most of the damage to a co-runner, and that from 40 to 100 % almost none:
// STREAM keeps about 0.15, 0.35, 0.6 and 0.85 of its bandwidth at the first four levels.
var mbaDelay = [11]float64{0, 5.7, 1.9, 0.67, 0.18, 0.1, 0.06, 0.03, 0.02, 0.01, 0}

// delayAt returns the added latency at a level in per cent.
func delayAt(percent int) float64 {
	p := max(10, min(100, percent))
	a, b := mbaDelay[p/10], mbaDelay[min(10, p/10+1)]
	return a + (b-a)*float64(p%10)/10
}
