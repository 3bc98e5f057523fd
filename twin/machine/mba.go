package machine

import "math"

// Intel's MBA (Memory Bandwidth Allocation) is a gate between a core's L2 and the mesh that
// keeps its requests apart, so that it bounds what a core can ask for: of the LLC, whether
// that hits or not, and so of every memory node. A core that asks for less does not feel it.

const (
	// mbaStepBytes is what a core may move per second for each 10 % of the level. At 10 %
	// people measured 13.6 GB/s on 6 cores, "over 40" on 20, and that 10 cores with 20 GB/s
	// in all are not held back (intel-cmt-cat issues 277, 285, 185): 2.0 to 2.3 each. That
	// it is linear above is the kernel's reading of the percentage (resctrl.rst).
	mbaStepBytes = 2.2e9
	// Levels from 65 on are applied as 90 (intel-cmt-cat issues 69 and 115: Skylake-SP and
	// Cascade Lake), which leaves the 8 levels that BALM found.
	mbaCoarse, mbaHigh = 65, 90
)

// mbaGapNsec returns how far apart a gate at a level keeps requests: the level in per cent.
func mbaGapNsec(percent int) float64 {
	switch {
	case percent >= 100:
		return 0
	case percent >= mbaCoarse:
		percent = mbaHigh
	}
	return cacheLine * 1e9 / (mbaStepBytes * float64(max(10, percent)) / 10)
}

// gap returns how many cycles apart a task's requests on a socket are kept. The gate is the
// core's: what a sibling asks for passes it too, and siblings are taken to ask for as much;
// and of the levels of both threads' classes the stricter one holds for both (resctrl.rst,
// "thread_throttle_mode: max"). Where MBA is per thread, neither is so.
func (m *Machine) gap(i, s int) float64 {
	t := m.live[i]
	own := mbaGapNsec(m.clos[t.clos].mba[s])
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
		more := mbaGapNsec(m.clos[other.clos].mba[s]) - own
		if other == t || more <= 0 {
			continue
		}
		for _, a := range p.of[i] {
			if p.atoms[a].socket != s {
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
