package program

import (
	"math"

	"github.com/commensal-io/commensal/twin/machine"
)

// way is the size of a way of machine.Skylake's LLC, and ways how many it has.
const (
	way  = 2 << 20
	ways = 11
)

// falling is a curve from first MPKI in one way to last in all: what lies above last falls
// by a factor of e every so many ways.
func falling(first, last, scale float64) machine.MissCurve {
	c := machine.MissCurve{StepBytes: way}
	// So that the curve ends at last and not near it.
	rest := math.Exp(-(ways - 1) / scale)
	for i := range ways {
		part := (math.Exp(-float64(i)/scale) - rest) / (1 - rest)
		c.MPKI = append(c.MPKI, last+(first-last)*part)
	}
	return c
}

// flat is the curve of a program to which caches of this size are all alike.
func flat(mpki float64) machine.MissCurve {
	return machine.MissCurve{StepBytes: way, MPKI: []float64{mpki}}
}

// alone sets the core's CPI so that in all, alone on an idle machine.Skylake, an
// instruction takes so many cycles.
func (p Profile) alone(cycles float64) Profile {
	c := machine.Skylake()
	p.CPI = 0
	p.CPI = cycles - p.cycles(&c)
	return p
}

// missesFor returns the MPKI with which threads at so many cycles an instruction read so
// many GB/s on a machine.Skylake.
func missesFor(readGB float64, threads int, cycles float64) float64 {
	c := machine.Skylake()
	return readGB * 1e9 / cacheLine / float64(threads) / (c.Hz / cycles) * 1000
}

const cacheLine = 64
