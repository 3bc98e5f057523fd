package machine

import (
	"math"
	"math/bits"
)

// wayBytes is the size of a way of a socket's LLC.
func (c *Config) wayBytes() float64 { return c.LLCBytes / float64(c.LLCWays) }

// filler is a task as one socket's cache sees it in a step.
type filler struct {
	perWay float64 // bytes per second into each way of its mask
	weight float64 // bytes per second at which it would fill what it holds
	mask   uint32
	ways   []float64
}

// fillCache lets what missed in the last step fill the ways that its class may fill. In
// each way the shares move towards what they are under LRU when every line not used for
// some time, the same for all, is gone: each task then holds what it fills in that time.
// They move as fast as insertions replace the way's content: a task that inserts nothing
// loses what others insert, and nothing else makes it lose anything.
func (m *Machine) fillCache(s int, dt int64) {
	seconds, wayBytes := float64(dt)/1e9, m.cfg.wayBytes()
	m.fillers, m.throttled = m.fillers[:0], m.throttled[:0]
	borders := uint32(0) // ways that some mask has and not the one before, or the reverse
	for _, t := range m.live {
		p := &t.perf[s]
		if m.clos[t.clos].mba[s] < 100 && t.on[s] > 0 {
			m.throttled = append(m.throttled, t)
		}
		mask := m.clos[t.clos].mask[s]
		perWay := p.insert / float64(bits.OnesCount32(mask))
		m.fillers = append(m.fillers, filler{perWay: perWay, weight: perWay * p.keeps, mask: mask, ways: p.ways})
		borders |= mask ^ mask<<1
	}
	var gone, rates [maxWays]float64
	for todo := uint32(1)<<m.cfg.LLCWays - 1; todo != 0; {
		w := bits.TrailingZeros32(todo)
		same := m.sameWays(s, w) & todo
		todo &^= same
		rate, weights := 0.0, 0.0
		for i := range m.fillers {
			if f := &m.fillers[i]; f.mask>>w&1 == 1 {
				rate += f.perWay
				weights += f.weight
			}
		}
		if rate <= 0 {
			continue
		}
		replaced := 1 - math.Exp(-rate*seconds/wayBytes)
		for left := same; left != 0; {
			first := bits.TrailingZeros32(left)
			n := bits.TrailingZeros32(^(left >> first)) // in a row
			left &^= (1<<n - 1) << first
			for v := first; v < first+n; v++ {
				rates[v], gone[v] = rate, replaced
			}
			for i := range m.fillers {
				f := &m.fillers[i]
				target := 0.0
				if f.mask>>w&1 == 1 {
					target = f.weight / weights
				}
				ways := f.ways[first : first+n]
				for v, share := range ways {
					ways[v] = share + replaced*(target-share)
				}
			}
		}
	}
	m.monitor.fade(s, gone[:m.cfg.LLCWays])
	for i := range m.live {
		m.miss(i, s, &rates)
	}
}

// sameWays returns the ways that the same classes may fill as way w: what comes into them
// is the same.
func (m *Machine) sameWays(s, w int) uint32 {
	same := ^uint32(0)
	for k := range m.clos {
		mask := m.clos[k].mask[s]
		if mask>>w&1 == 0 {
			mask = ^mask
		}
		same &= mask
	}
	return same
}

// keeps returns how much faster than it inserts now a task has filled so many bytes, with
// which it misses so often: LRU keeps lines that are used again, and the more a task has, the
// more of its accesses hit.
func (t *Task) keeps(bytes, misses float64) float64 {
	misses = max(misses, neverLeaves*t.cfg.APKI)
	if time := t.cfg.Curve.fillTime(&t.filling, bytes, t.cfg.APKI); time > 0 && misses > 0 {
		return max(1, bytes/time/misses)
	}
	return 1
}

// miss finds what a task misses with what it has of a socket's cache, given the bytes per
// second that go into each way.
func (m *Machine) miss(i, s int, rates *[maxWays]float64) {
	t := m.live[i]
	p := &t.perf[s]
	filled := 0.0
	for _, share := range p.ways {
		filled += share
	}
	p.bytes = filled * m.cfg.wayBytes()
	if t.on[s] <= 0 {
		return // it executes nothing here: what an instruction would take, nobody asks
	}
	misses := t.cfg.Curve.At(p.bytes, t.cfg.APKI)
	p.keeps = t.keeps(p.bytes, misses)
	misses = min(t.cfg.APKI, misses*t.phase.misses())
	p.again = misses * t.cfg.Prefetched * m.lostEarly(t, s, rates)
	p.mpki = misses + p.again
	p.cost = m.cost(t, s)
	if len(m.throttled) > 0 {
		p.cost.gate = (t.cfg.APKI + p.again) / 1000 * m.gap(i, s)
	}
}

// lostEarly returns the share of prefetched lines that are gone before they are used.
// Between a prefetch and its use its core fetches PrefetchedBytes more, and the others at
// their rate. Some of these lines go into the same set: as many as Poisson has it, with as
// many in the mean as bytes go into the mask's ways in that time, over a way's. A set of a
// mask with k ways forgets a line when k more come.
func (m *Machine) lostEarly(t *Task, s int, rates *[maxWays]float64) float64 {
	p := &t.perf[s]
	on := t.on[s]
	if t.cfg.Prefetched <= 0 || p.insert <= 0 || on <= 0 {
		return 0
	}
	mask := m.clos[t.clos].mask[s]
	rate := 0.0
	for w := range m.cfg.LLCWays {
		if mask>>w&1 == 1 {
			rate += rates[w]
		}
	}
	lead := m.cfg.PrefetchedBytes * on / p.insert // seconds
	mean := rate * lead / m.cfg.wayBytes()
	k := bits.OnesCount32(mask)
	if mean < 0.05*float64(k) && k > 1 {
		return 0
	}
	// 1 less the chance of fewer than k.
	term := math.Exp(-mean)
	fewer := term
	for i := 1; i < k; i++ {
		term *= mean / float64(i)
		fewer += term
	}
	return max(0, 1-fewer)
}

// Occupancy returns the bytes of a socket's LLC that a task fills.
func (m *Machine) Occupancy(num, socket int) (float64, error) {
	t, err := m.task(num)
	if err != nil {
		return 0, err
	}
	return t.perf[socket].bytes, nil
}
