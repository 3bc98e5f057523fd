package machine

import (
	"math"
	"math/bits"
)

// wayBytes is the size of a way of an LLC.
func (c *Config) wayBytes() float64 { return c.LLCBytes / float64(c.LLCWays) }

// filler is a task as one cache sees it in a part of a step.
type filler struct {
	perWay float64 // bytes per second that it brings into each way of its mask
	weight float64 // bytes per second at which it would fill what it holds
	mask   uint32
	ways   []float64
	last   *lastFill
	moved  float64 // by how many ways its share changes
	lag    float64 // by how many its mean over the part differs from where it ends
}

// lastFill is how a task's share of a cache changed in the last part of a step, and on how many CPUs.
type lastFill struct{ moved, on float64 }

// fillCache lets what misses in a part of a step of dt fill the ways that its class may fill. In
// each way the shares move towards what they are under LRU when every line not used for
// some time, the same for all, is gone: each task then holds what it fills in that time.
// They move as fast as insertions replace the way's content: a task that inserts nothing
// loses what others insert, and nothing else makes it lose anything.
func (m *Machine) fillCache(s int, dt float64) {
	m.fillers, m.throttled = m.fillers[:0], m.throttled[:0]
	for _, t := range m.live {
		p := &t.perf[s]
		if m.clos[t.clos].mba[s] < 100 && t.on[s] > 0 {
			m.throttled = append(m.throttled, t)
		}
		mask := m.clos[t.clos].mask[s]
		ways := float64(bits.OnesCount32(mask))
		perWay := t.inserts(s) / ways
		m.fillers = append(m.fillers, filler{perWay: perWay, weight: perWay * p.keeps, mask: mask, ways: p.ways, last: &p.fill})
	}
	var gone, rates [maxWays]float64
	m.fill(s, dt, &gone, &rates)
	m.calm(s)
	m.monitor.fade(s, gone[:m.cfg.LLCWays])
	for i, t := range m.live {
		t.perf[s].fill = lastFill{m.fillers[i].moved, t.on[s]}
		m.miss(i, s, &rates)
	}
}

// inserts is how many bytes per second a task brings into a cache: each of its CPUs as when it last ran, but
// for what it misses with what it has there now.
func (t *Task) inserts(s int) float64 {
	p := &t.perf[s]
	if t.on[s] <= 0 || p.each <= 0 || p.mpki <= 0 {
		return 0
	}
	misses := min(t.cfg.APKI, p.misses*t.phase.misses()) + p.again
	return t.on[s] * p.each * misses / p.mpki
}

// fill moves the shares of all ways, and finds what is gone of each and at what rate lines come into it.
func (m *Machine) fill(s int, dt float64, gone, rates *[maxWays]float64) {
	wayBytes := m.cfg.wayBytes()
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
		turned := rate * dt / 1e9 / wayBytes
		replaced := 1 - math.Exp(-turned)
		// The mean over the part of shares that go to where they are heading as e to the power of -turned.
		lag := 0.5
		if turned > 1e-6 {
			lag = 1/turned - (1-replaced)/replaced
		}
		replaced *= m.pace[s]
		for left := same; left != 0; {
			first := bits.TrailingZeros32(left)
			n := bits.TrailingZeros32(^(left >> first)) // in a row
			left &^= (1<<n - 1) << first
			for v := first; v < first+n; v++ {
				rates[v], gone[v] = rate, replaced
			}
			if replaced <= 0 {
				continue
			}
			for i := range m.fillers {
				f := &m.fillers[i]
				target := 0.0
				if f.mask>>w&1 == 1 {
					target = f.weight / weights
				}
				ways := f.ways[first : first+n]
				for v, share := range ways {
					d := replaced * (target - share)
					f.moved += d
					f.lag += d * lag
					ways[v] = share + d
				}
			}
		}
	}
}

// Where what tasks miss hangs steeply on what they hold, a cache that is filled many times over in each part of a
// step would go from one extreme to the other and back: who inserts how much is asked when a part begins. Where the shares go
// back although everybody runs as before, they move half as far from then on, and a little further each time that
// they do not.
const (
	backWorth  = 1e-3 // of the cache: less is nothing
	slowest    = 1.0 / 16
	pickUp     = 1.1
	sameLoad   = 0.2 // of the CPUs at work that may differ
	backEnough = 0.3 // of the way that it had come
)

// calm finds how far a cache's shares go of where they are heading.
func (m *Machine) calm(s int) {
	both, before, loads, changed, most := 0.0, 0.0, 0.0, 0.0, 0.0
	for i := range m.fillers {
		f, on := &m.fillers[i], m.live[i].on[s]
		both += f.moved * f.last.moved
		before += f.last.moved * f.last.moved
		most = max(most, math.Abs(f.moved))
		loads += on
		changed += math.Abs(on - f.last.on)
	}
	pace := &m.pace[s]
	if both < -backEnough*before && most > backWorth*float64(m.cfg.LLCWays) && changed <= sameLoad*loads {
		*pace = max(slowest, *pace/2)
	} else {
		*pace = min(1, *pace*pickUp)
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

// sets is how many working sets a task has.
func (t *Task) sets() float64 {
	if t.cfg.Apart && t.cfg.Work != nil {
		return float64(t.cfg.Threads)
	}
	return 1
}

// missesWith returns how many misses per thousand instructions a task has with so many bytes.
func (t *Task) missesWith(bytes float64) float64 {
	return t.cfg.Curve.At(bytes/t.sets(), t.cfg.APKI)
}

// keeps returns how much faster than it inserts now a task has filled so many bytes, with
// which it misses so often: LRU keeps lines that are used again, and the more a task has, the
// more of its accesses hit.
func (t *Task) keeps(bytes, misses float64) float64 {
	misses, bytes = max(misses, neverLeaves*t.cfg.APKI), bytes/t.sets()
	if time := t.cfg.Curve.fillTime(&t.filling, bytes, t.cfg.APKI); time > 0 && misses > 0 {
		return max(1, bytes/time/misses)
	}
	return 1
}

// miss finds what a task misses with what it has of a cache, given the bytes per
// second that go into each way.
func (m *Machine) miss(i, s int, rates *[maxWays]float64) {
	t := m.live[i]
	p := &t.perf[s]
	filled := 0.0
	for _, share := range p.ways {
		filled += share
	}
	p.bytes = filled * m.cfg.wayBytes()
	p.misses = t.missesWith(p.bytes)
	if t.on[s] <= 0 {
		return // it executes nothing here: what an instruction would take, nobody asks
	}
	p.keeps = t.keeps(p.bytes, p.misses)
	misses := t.missesWith(max(0, p.bytes-m.fillers[i].lag*m.cfg.wayBytes()))
	misses = min(t.cfg.APKI, misses*t.phase.misses())
	p.again = misses * t.cfg.Prefetched * m.lostEarly(t, s, rates)
	p.mpki = misses + p.again
	p.cost = m.cost(t, s)
	if len(m.throttled) > 0 {
		lines := t.cfg.APKI + p.again
		if m.cfg.Physics.MBAClocks {
			lines += p.mpki * t.cfg.WriteShare / (1 - t.cfg.WriteShare)
		}
		p.cost.gate = lines / 1000 * m.gap(i, s)
	}
}

// lostEarly returns the share of prefetched lines that are gone before they are used.
// Between a prefetch and its use its core fetches PrefetchedBytes more, and the others at
// their rate. Some of these lines go into the same set: as many as Poisson has it, with as
// many in the mean as bytes go into the mask's ways in that time, over a way's. A set of a
// mask with k ways forgets a line when k more come.
func (m *Machine) lostEarly(t *Task, s int, rates *[maxWays]float64) float64 {
	p := &t.perf[s]
	if t.cfg.Prefetched <= 0 || p.each <= 0 || t.on[s] <= 0 {
		return 0
	}
	mask := m.clos[t.clos].mask[s]
	rate := 0.0
	for w := range m.cfg.LLCWays {
		if mask>>w&1 == 1 {
			rate += rates[w]
		}
	}
	lead := m.cfg.PrefetchedBytes / (p.each * (1 + t.sib)) // seconds; siblings share their core's prefetchers
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

// Occupancy returns the bytes of an LLC that a task fills.
func (m *Machine) Occupancy(num, cache int) (float64, error) {
	t, err := m.task(num)
	if err != nil {
		return 0, err
	}
	return t.perf[cache].bytes, nil
}
