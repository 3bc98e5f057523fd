package machine

import "math"

// Intel's MBA (Memory Bandwidth Allocation) is a gate between a core's L2 and the mesh that
// keeps its requests apart, so that it bounds what a core can ask for: of the LLC, whether
// that hits or not, and so of every memory node. A core that asks for less does not feel it.

const (
	// mbaStepBytes is what a core may move per second for each 10 % of the level. At 10 %
	// people measured 13.6 GB/s on 6 cores, "over 40" on 20, and that 10 cores with 20 GB/s
	// in all are not held back (intel-cmt-cat issues 277, 285, 185): 2.0 to 2.3 each. That
	// it is linear above is the kernel's reading of the percentage (resctrl.rst); levels that were
	// measured are not: mbaClocks.
	mbaStepBytes = 2.2e9
	// Levels from 65 on are applied as 90 (intel-cmt-cat issues 69 and 115: Skylake-SP and
	// Cascade Lake), which leaves the 8 levels that BALM found.
	mbaCoarse, mbaHigh = 65, 90
)

// mbaClocks is by how many reference clocks each level keeps lines apart, read and written: what makes
// of the 13.2 GB/s that one core of STREAM moved without a level what it moved with it (2.78, 4.08,
// 5.48, 8.82, 9.70, 10.80 and 11.80 GB/s), by gated, on a Xeon Gold 6136 of 3.0 GHz, two runs alike
// (the artifact of Temenos, CloudCom'26: kaltinsoy/cloud, exp9_mba_calibration.txt). That lines
// written count, and clocks of the reference and not of the turbo, was chosen by the other CPU
// that was measured, a Gold 6148 of 2.4 GHz (intel-cmt-cat issue 277): 68 clocks at 10 %, so.
var mbaClocks = []struct{ percent, clocks float64 }{{10, 69.0}, {20, 47.0}, {30, 34.8}, {40, 20.6}, {50, 18.2}, {60, 15.3}, {mbaHigh, 12.6}}

// mbaGapNsec returns how far apart a gate at a level keeps requests: the level in per cent.
func (c *Config) mbaGapNsec(percent int) float64 {
	switch {
	case percent >= 100:
		return 0
	case percent >= mbaCoarse:
		percent = mbaHigh
	}
	if c.Physics.MBAClocks {
		return clocksAt(float64(max(10, percent))) / c.Hz * 1e9
	}
	return cacheLine * 1e9 / (mbaStepBytes * float64(max(10, percent)) / 10)
}

// clocksAt is mbaClocks with lines between its levels.
func clocksAt(percent float64) float64 {
	i := 1
	for mbaClocks[i].percent < percent {
		i++
	}
	a, b := &mbaClocks[i-1], &mbaClocks[i]
	return a.clocks + (b.clocks-a.clocks)*(percent-a.percent)/(b.percent-a.percent)
}

// gap returns how many cycles apart a task's requests at a cache are kept. The gate is the
// core's: what a sibling asks for passes it too, and siblings are taken to ask for as much;
// and of the levels of both threads' classes the stricter one holds for both (resctrl.rst,
// "thread_throttle_mode: max"). Where MBA is per thread, neither is so.
func (m *Machine) gap(i, s int) float64 {
	t := m.live[i]
	own := m.cfg.mbaGapNsec(m.clos[t.clos].mba[s])
	if m.cfg.MBAPerThread {
		return own * m.hz[s] / 1e9
	}
	if m.cfg.ThreadsPerCore > 1 && t.on[s] > 0 {
		own += m.stricterSibling(i, s, own)
	}
	return own * (1 + t.sib) * m.hz[s] / 1e9
}

// stricterSibling returns what the classes of those that run on sibling threads add to a
// gap, in the mean.
func (m *Machine) stricterSibling(i, s int, own float64) float64 {
	p, t, sum := &m.placement, m.live[i], 0.0
	for _, other := range m.throttled {
		more := m.cfg.mbaGapNsec(m.clos[other.clos].mba[s]) - own
		if other == t || more <= 0 {
			continue
		}
		for _, a := range p.of[i] {
			if p.atoms[a].cache != s {
				continue
			}
			for b, part := range p.atoms[a].sibling {
				if load := p.atoms[b].load; part > 0 && load > 0 {
					sum += t.share[a] * part * p.siblingLoad(a, b) * other.share[b] / load * more
				}
			}
		}
	}
	return sum / t.on[s]
}

// gated returns the cycles of an instruction that would take so many without a gate, and
// whose requests the gate lets pass in no less than least: about the larger of the two,
// more when they are close, as requests come in bursts.
func gated(cycles, least float64) float64 {
	if least <= 0 {
		return cycles
	}
	a, b := cycles*cycles, least*least
	return math.Sqrt(math.Sqrt(a*a + b*b))
}
