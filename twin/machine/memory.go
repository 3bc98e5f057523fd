package machine

import (
	"math"
	"slices"
)

// memory is one node's.
type memory struct {
	latency float64 // as a share of idle
	peak    float64 // at the mix of reads and writes
	writes  float64 // share of the traffic
	link    float64 // factor on the latency of the links out of this node's socket
	held    float64 // how much longer a core's own lines are kept from this node than its latency, with Physics.QueueLines
	step    told    // of the step at hand, summed up
	told    told    // of the last step
}

// told is how a node fared in a step: the bytes that it moved, and means of its peak and its latency.
type told struct{ bytes, peak, latency float64 }

func newMemory(c *Config) memory {
	return memory{latency: 1, peak: c.MemPeakBytes, link: 1, held: 1}
}

// flow is what one task at one cache asks of the node at hand: rate bytes per second over
// the cycles of an instruction, which are fixed + slope x latency, or, when that is more,
// what its core can have in flight needs, or, when that is more, its gate.
type flow struct {
	rate, fixed, slope, floor, floorSlope, gate float64

	writes float64 // share of it
	socket int     // where it comes from
}

// ungated is small enough to be inlined, which cycles with their gate are not.
func (f *flow) ungated(latency float64) float64 {
	c := f.fixed + f.slope*latency
	if least := f.floor + f.floorSlope*latency; c < least {
		c = least
	}
	return c
}

// settle finds how many cycles an instruction takes each task at each cache, given what
// all of them ask of caches and memories in a part of a step of dt.
func (m *Machine) settle(dt float64) {
	for s := range m.cfg.Caches() {
		m.fillCache(s, dt)
	}
	const tries = 8 // until no link carries more than it can
	for range tries {
		var out [maxSockets]float64 // of each socket, over its links
		for n := range m.mem {
			m.deliver(n, &out)
		}
		if !m.crowd(&out) {
			break
		}
	}
	for n := range m.mem {
		mem, part := &m.mem[n], dt/float64(m.cfg.StepNsec)
		mem.step.peak += part * mem.peak
		mem.step.latency += part * mem.latency * m.cfg.MemLatencyNsec
	}
	for _, t := range m.live {
		for s, on := range t.on {
			if on > 0 {
				t.perf[s].cpi = m.cpi(t, s)
			}
		}
		t.ips = m.speed(t)
	}
}

// deliver finds at which latency a node delivers what is asked of it, and adds to out what crosses links for it.
func (m *Machine) deliver(n int, out *[maxSockets]float64) {
	m.mem[n].held = 1
	m.flows = slices.Grow(m.flows[:0], len(m.live)*m.cfg.Caches())
	for _, t := range m.live {
		if t.pages[n] <= 0 {
			continue
		}
		for s, on := range t.on {
			if on > 0 && t.perf[s].mpki > 0 {
				m.flows = m.flows[:len(m.flows)+1]
				m.flow(&m.flows[len(m.flows)-1], t, s, n)
			}
		}
	}
	m.copies(n)
	mem := &m.mem[n]
	if all, writes := m.mix(mem.latency); all > 0 {
		mem.writes = writes / all
	}
	mem.peak = m.cfg.MemPeakBytes * (1 - m.dram.writeLoss*mem.writes)
	curve := m.dram.at(mem.writes)
	mem.latency = meet(m.flows, mem.peak, &curve, mem.latency)
	if m.cfg.Physics.QueueLines > 0 {
		m.hold(mem, &curve)
	}
	for i := range m.flows {
		if f := &m.flows[i]; f.socket != n {
			bytes := f.at(mem.latency)
			out[n] += bytes * (1 - f.writes)
			out[f.socket] += bytes * f.writes
		}
	}
}

// mix returns what the flows at hand ask for at a latency, and how much of it they write.
func (m *Machine) mix(latency float64) (all, writes float64) {
	for i := range m.flows {
		bytes := m.flows[i].at(latency)
		all += bytes
		writes += bytes * m.flows[i].writes
	}
	return all, writes
}

// crowd finds how much longer the links take that carry so much, and reports whether one has more to carry than
// it can. Then whoever crosses it waits longer, until it has not.
func (m *Machine) crowd(out *[maxSockets]float64) (over bool) {
	for s := range m.mem {
		u := out[s] / m.cfg.LinkPeakBytes
		free := 1 + 2*math.Pow(min(u, 1), 4)
		link := max(free, m.mem[s].link*u)
		if u > 1.005 {
			over = true
		} else {
			link = (m.mem[s].link + link) / 2 // half way in each step: traffic answers to the latency that it makes
		}
		m.mem[s].link = link
	}
	return over
}

// flow finds what a task at a cache asks of node n.
func (m *Machine) flow(f *flow, t *Task, s, n int) {
	mpki, c := t.perf[s].mpki, &t.perf[s].cost
	node := t.pages[n] * m.cfg.MemLatencyNsec * m.hz[s] / 1e9 // cycles at idle latency
	wait, held := m.waits(t, s)
	rest := node * m.mem[n].latency
	*f = flow{
		rate:  t.on[s] * m.hz[s] * mpki / 1000 * cacheLine / (1 - t.cfg.WriteShare) * t.pages[n],
		fixed: c.own + c.felt*(wait-rest), slope: c.felt * node,
		floor: c.least * (held - rest), floorSlope: c.least * node,
		gate: c.gate, writes: t.cfg.WriteShare, socket: m.home[s],
	}
}

// at returns the bytes per second that a flow asks for at a latency.
func (f *flow) at(latency float64) float64 {
	cycles := f.ungated(latency)
	if f.gate > 0 {
		cycles = gated(cycles, f.gate)
	}
	return f.rate / cycles
}

// cost finds what an instruction takes, but for the gate, which is MBA's (mba.go).
//
// Own are the core's cycles, more of them beside a busy sibling, and hits in the LLC. Felt
// are misses that no prefetcher was ahead of, as many at a time as overlap, and those that
// were prefetched and lost again. The least is what remains when everything overlaps that
// can: a core's lines in flight, read and written back, which its siblings share. What was
// prefetched into the LLC and lost there never was on its way to the core.
func (m *Machine) cost(t *Task, s int) cost {
	p := &t.perf[s]
	unhidden := (1 - t.cfg.Prefetched) / t.cfg.Overlap / 1000
	first := p.mpki - p.again
	lines := first / 1000
	if !m.cfg.Physics.WritesApart {
		lines /= 1 - t.cfg.WriteShare
	}
	c := cost{
		own: t.cfg.CPI*t.spread*t.phase.cycles()*(1+m.cfg.SMTSlowdown*t.sib) +
			max(0, t.cfg.APKI-first)*unhidden*m.cfg.LLCHitCycles,
		felt:  first*unhidden + p.again/t.cfg.Overlap/1000,
		least: lines * (1 + t.sib) / m.cfg.InFlight,
	}
	return c
}

// waits is the cycles of one miss from cache s, before any overlap, and for how many its line is one of
// the core's on their way: longer where a node's queue holds no more.
func (m *Machine) waits(t *Task, s int) (wait, held float64) {
	nsec, more, home := 0.0, 0.0, m.home[s]
	for n, share := range t.pages {
		nsec += share * m.cfg.MemLatencyNsec * m.mem[n].latency
		more += share * m.cfg.MemLatencyNsec * m.mem[n].latency * (m.mem[n].held - 1)
		if n != home { // reads come over the other socket's links, and what is written goes over its own
			back := t.cfg.WriteShare / (1 - t.cfg.WriteShare)
			nsec += share * m.cfg.LinkLatencyNsec * (m.mem[n].link + back*(m.mem[home].link-1))
		}
	}
	wait = nsec * m.hz[s] / 1e9
	return wait, wait + more*m.hz[s]/1e9
}

func (m *Machine) cpi(t *Task, s int) float64 {
	c := &t.perf[s].cost
	wait, held := m.waits(t, s)
	return gated(max(c.own+c.felt*wait, c.least*held), c.gate)
}

// speed is a task's instructions per second on a CPU, where it runs now.
func (m *Machine) speed(t *Task) float64 {
	if t.given <= 0 {
		return t.ips // as it last was
	}
	sum := 0.0
	for s, on := range t.on {
		sum += on * m.hz[s] / t.perf[s].cpi
	}
	return sum / t.given
}

// meet finds the latency at which a memory delivers what the flows ask for at that
// latency. What they ask falls with it and what is delivered grows up to the peak, so
// that there is one; where requests pile up beyond the peak, it is the one at which they
// ask for no more than what an oversaturated memory delivers. The last step's latency is
// where the search begins.
func meet(flows []flow, peak float64, curve *loadCurve, last float64) (latency float64) {
	if len(flows) == 0 {
		return 1
	}
	over := func(l float64) float64 {
		sum := 0.0
		for i := range flows {
			sum += flows[i].at(l)
		}
		return sum - peak*curve.deliveredAt(l)
	}
	const near, exact = 1.02, 1.0 / 4096
	low, high := max(1, last/near), min(last*near, maxLatency)
	atLow, atHigh := over(low), over(high)
	// Of several meetings about the peak the one below it is meant.
	if top := curve.latency[loadPoints-1]; high > top && low > 1 || atHigh > 0 && high < top {
		if atTop := over(top); atTop <= 0 {
			high, atHigh = top, atTop
			if low >= top {
				low, atLow = top, atTop
			}
		}
	}
	for atLow <= 0 && low > 1 {
		high, atHigh = low, atLow
		low = max(1, low/2)
		atLow = over(low)
	}
	for atHigh > 0 && high < maxLatency {
		low, atLow = high, atHigh
		high = min(2*high, maxLatency)
		atHigh = over(high)
	}
	for range 24 { // each halves the interval at least every other time
		if high-low < exact*low || atHigh == 0 {
			break
		}
		// Where a line meets zero, and a little towards the far end, so that both close in.
		mid := low + (high-low)*min(0.95, max(0.05, atLow/(atLow-atHigh)))
		if v := over(mid); v > 0 {
			low, atLow, atHigh = mid, v, atHigh/2
		} else {
			high, atHigh, atLow = mid, v, atLow/2
		}
	}
	return high
}

// MemoryState is how a memory node fared in the last step.
type MemoryState struct {
	BytesPerSecond float64
	PeakBytes      float64 // at the mix of reads and writes
	LatencyNsec    float64 // from its own socket
}

// Memory returns how a node fares.
func (m *Machine) Memory(node int) MemoryState {
	n := &m.mem[node].told
	return MemoryState{BytesPerSecond: n.bytes * 1e9 / float64(m.cfg.StepNsec), PeakBytes: n.peak, LatencyNsec: n.latency}
}
