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
		v = c.MPKI[0] + (max(accesses, c.MPKI[0])-c.MPKI[0])*min(1, -x)
	case x >= float64(n-1):
		v = c.MPKI[n-1]
	default:
		i := int(x)
		v = c.MPKI[i] + (c.MPKI[i+1]-c.MPKI[i])*(x-float64(i))
	}
	return min(v, accesses)
}

// neverLeaves bounds how much longer than what a task inserts what it holds lives, as a
// share of its accesses: no replacement protects lines without end.
const neverLeaves = 0.02

// filling returns for each point of a curve the time, in thousands of instructions and per
// line of cache, in which a task that starts with an empty cache of endless size fills the
// bytes of that point: the integral of 1/misses.
func (c *MissCurve) filling(accesses float64) [maxCurve]float64 {
	var out [maxCurve]float64
	time, from := 0.0, max(accesses, c.MPKI[0])
	for i, to := range c.MPKI {
		time += c.StepBytes * meanInverse(from, to, neverLeaves*accesses)
		out[i], from = time, to
	}
	return out
}

// meanInverse returns the mean of 1/x for x falling from one value to another, and no
// further than to least.
func meanInverse(from, to, least float64) float64 {
	if to < least {
		if from <= least {
			return inverse(least)
		}
		above := (from - least) / (from - to)
		return above*meanInverse(from, least, least) + (1-above)*inverse(least)
	}
	if from <= 2*to {
		return (inverse(from) + inverse(to) + 8*inverse(from+to)) / 6 // Simpson's rule: to a five-hundredth
	}
	return math.Log(from/to) / (from - to)
}

func inverse(x float64) float64 { return 1 / max(x, 1e-9) }

// fillTime returns how long a task takes to fill so many bytes; table is what filling
// returned.
func (c *MissCurve) fillTime(table *[maxCurve]float64, bytes, accesses float64) float64 {
	least := neverLeaves * accesses
	n := len(c.MPKI)
	x := bytes / c.StepBytes
	i := int(x) // whole steps
	if i >= n {
		return table[n-1] + (bytes-float64(n)*c.StepBytes)*inverse(max(c.MPKI[n-1], least))
	}
	before, from, to := 0.0, max(accesses, c.MPKI[0]), c.MPKI[i]
	if i > 0 {
		before, from = table[i-1], c.MPKI[i-1]
	}
	part := x - float64(i)
	at := from + (to-from)*part
	return before + part*c.StepBytes*meanInverse(from, at, least)
}
