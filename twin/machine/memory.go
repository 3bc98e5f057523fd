package machine

import "math"

// memory is one node's.
type memory struct {
	latency float64 // as a share of idle
	bytes   float64 // per second, delivered in the last step
	peak    float64 // at the last step's mix of reads and writes
	crossed float64 // of bytes, over the links
	link    float64 // factor on the links' latency
}

func newMemory(c *Config) memory { return memory{latency: 1, peak: c.MemPeakBytes, link: 1} }

// flow is what one task on one socket asks of the node at hand: rate / (fixed + slope x
// latency) bytes per second.
type flow struct{ rate, fixed, slope float64 }

// settle finds how many cycles an instruction takes each task on each socket, given what
// all of them ask of caches and memories.
func (m *Machine) settle(dt int64) {
	for s := range m.cfg.Sockets {
		m.fillCache(s, dt)
	}
	for n := range m.mem {
		m.mix(n)
		m.flows = m.flows[:0]
		for _, t := range m.live {
			for s, on := range t.on {
				if f, ok := m.flowOf(t, s, n, on); ok {
					m.flows = append(m.flows, f)
				}
			}
		}
		m.mem[n].latency, m.mem[n].bytes = meet(m.flows, m.mem[n].peak)
	}
	for _, t := range m.live {
		for s := range t.perf {
			t.perf[s].cpi = m.cpi(t, s)
		}
		t.ips = m.speed(t)
	}
}

// mix finds a node's peak at the mix of the last step's traffic, and how busy its links are.
func (m *Machine) mix(n int) {
	writes, all, crossed := 0.0, 0.0, 0.0
	for _, t := range m.live {
		for s := range t.perf {
			b := t.perf[s].insert / (1 - t.cfg.WriteShare) * t.pages[n]
			all += b
			writes += b * t.cfg.WriteShare
			if s != n {
				crossed += b
			}
		}
	}
	mem := &m.mem[n]
	mem.peak = m.cfg.MemPeakBytes
	if all > 0 {
		mem.peak *= 1 - readLoss*writes/all
	}
	mem.crossed = crossed
	u := math.Min(crossed/m.cfg.LinkPeakBytes, 1.5)
	// Half way in each step: traffic answers to the latency that it makes.
	mem.link += 0.5 * (1 + 2*math.Pow(u, 4) - mem.link)
}

// flowOf returns what a task on a socket asks of node n.
func (m *Machine) flowOf(t *Task, s, n int, on float64) (flow, bool) {
	mpki := t.perf[s].mpki
	if on <= 0 || mpki <= 0 || t.pages[n] <= 0 {
		return flow{}, false
	}
	perMiss := m.cfg.MemLatencyNsec * m.cfg.Hz / 1e9 // cycles at idle latency
	misses := mpki / 1000 / t.cfg.Overlap
	fixed := m.coreCPI(t, s) + misses*(m.waits(t, s)-t.pages[n]*m.mem[n].latency*perMiss)
	return flow{
		rate:  on * m.cfg.Hz * mpki / 1000 * cacheLine / (1 - t.cfg.WriteShare) * t.pages[n],
		fixed: fixed,
		slope: misses * t.pages[n] * perMiss,
	}, true
}

// coreCPI is the cycles that an instruction takes without memory: the core's own, more of
// them beside a busy sibling, and hits in the LLC, of which two at a time overlap.
func (m *Machine) coreCPI(t *Task, s int) float64 {
	own := t.cfg.CPI * t.spread * t.phase.cycles() * (1 + m.cfg.SMTSlowdown*t.sib)
	hits := math.Max(0, t.cfg.APKI-t.perf[s].mpki) / 1000
	return own + hits*m.cfg.LLCHitCycles/math.Min(t.cfg.Overlap, 2)
}

// waits is the cycles of one miss from socket s, before any overlap.
func (m *Machine) waits(t *Task, s int) float64 {
	nsec := m.cfg.MemLatencyNsec * delayAt(m.clos[t.clos].mba[s])
	for n, share := range t.pages {
		nsec += share * m.cfg.MemLatencyNsec * m.mem[n].latency
		if n != s {
			nsec += share * m.cfg.LinkLatencyNsec * m.mem[n].link
		}
	}
	return nsec * m.cfg.Hz / 1e9
}

func (m *Machine) cpi(t *Task, s int) float64 {
	return m.coreCPI(t, s) + t.perf[s].mpki/1000/t.cfg.Overlap*m.waits(t, s)
}

// speed is a task's instructions per second on a CPU, where it runs now.
func (m *Machine) speed(t *Task) float64 {
	sum := 0.0
	for s, on := range t.on {
		sum += on * m.cfg.Hz / t.perf[s].cpi
	}
	if t.given <= 0 {
		return t.ips // as it last was
	}
	return sum / t.given
}

// meet finds the latency at which a memory delivers what the flows ask for at that
// latency. What they ask falls with it and what is delivered grows up to the peak, so
// that there is one; where requests pile up beyond the peak, it is the one at which they
// ask for no more than what an oversaturated memory delivers.
func meet(flows []flow, peak float64) (latency, bytes float64) {
	asked := func(l float64) float64 {
		sum := 0.0
		for i := range flows {
			sum += flows[i].rate / (flows[i].fixed + flows[i].slope*l)
		}
		return sum
	}
	low, high := 1.0, 2.0
	if asked(low) <= 0 {
		return 1, 0
	}
	for high < maxLatency && asked(high) > peak*deliveredAt(high) {
		low, high = high, high*2
	}
	for range 12 { // to a four-thousandth of it
		mid := (low + high) / 2
		if asked(mid) > peak*deliveredAt(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return high, math.Min(asked(high), peak*deliveredAt(high))
}

// MemoryState is how a memory node fares.
type MemoryState struct {
	BytesPerSecond float64
	PeakBytes      float64 // at the present mix of reads and writes
	LatencyNsec    float64 // from its own socket
}

// Memory returns how a node fares.
func (m *Machine) Memory(node int) MemoryState {
	n := &m.mem[node]
	return MemoryState{BytesPerSecond: n.bytes, PeakBytes: n.peak, LatencyNsec: n.latency * m.cfg.MemLatencyNsec}
}
