package machine

import (
	"math"
	"math/bits"
)

// cache is one socket's LLC.
type cache struct {
	wayBytes float64
}

func newCache(c *Config) cache { return cache{wayBytes: c.LLCBytes / float64(c.LLCWays)} }

// filler is a task as one socket's cache sees it in a step.
type filler struct {
	perWay float64 // bytes per second into each way of its mask
	mask   uint32
	ways   []float64
}

// fillCache lets what missed in the last step fill the ways that its class may fill. In
// each way the shares move towards those of the insertions, as fast as the insertions
// replace the way's content: a task that inserts nothing loses what others insert, and
// nothing else makes it lose anything.
func (m *Machine) fillCache(s int, dt int64) {
	seconds := float64(dt) / 1e9
	m.fillers = m.fillers[:0]
	for _, t := range m.live {
		mask := m.clos[t.clos].mask[s]
		m.fillers = append(m.fillers, filler{
			perWay: t.perf[s].insert / float64(bits.OnesCount32(mask)), mask: mask, ways: t.perf[s].ways,
		})
	}
	for w := range m.cfg.LLCWays {
		rate := 0.0
		for i := range m.fillers {
			if f := &m.fillers[i]; f.mask>>w&1 == 1 {
				rate += f.perWay
			}
		}
		if rate <= 0 {
			continue
		}
		replaced := 1 - math.Exp(-rate*seconds/m.cache[s].wayBytes)
		for i := range m.fillers {
			f := &m.fillers[i]
			target := 0.0
			if f.mask>>w&1 == 1 {
				target = f.perWay / rate
			}
			f.ways[w] += replaced * (target - f.ways[w])
		}
	}
	for _, t := range m.live {
		p := &t.perf[s]
		filled := 0.0
		for _, share := range p.ways {
			filled += share
		}
		p.bytes = filled * m.cache[s].wayBytes
		p.mpki = math.Min(t.cfg.APKI, t.cfg.Curve.At(p.bytes, t.cfg.APKI)*t.phase.misses())
	}
}

// Occupancy returns the bytes of a socket's LLC that a task fills.
func (m *Machine) Occupancy(num, socket int) (float64, error) {
	t, err := m.task(num)
	if err != nil {
		return 0, err
	}
	return t.perf[socket].bytes, nil
}
