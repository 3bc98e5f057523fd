package machine

// hold bounds what waits at a node to the lines of its queue (Physics.QueueLines), given the latency at
// which it would deliver what the flows at hand ask for. By Little's law as many lines wait as it
// delivers in the time that they wait, which is latency less that of an idle node. Where that is more
// than the queue holds, latency is what a full queue makes it, and a core whose lines on their way
// are all used keeps each of them longer, so long that all together ask for what is delivered. Who
// asks for little waits for the queue alone.
func (m *Machine) hold(mem *memory, curve *loadCurve) {
	most := m.cfg.Physics.QueueLines
	waiting := func(latency float64) float64 {
		return mem.peak * curve.deliveredAt(latency) / cacheLine * (latency - 1) * m.cfg.MemLatencyNsec / 1e9
	}
	if waiting(mem.latency) <= most {
		return
	}
	mem.latency = bisect(1, mem.latency, func(l float64) bool { return waiting(l) <= most })
	delivered := mem.peak * curve.deliveredAt(mem.latency)
	tooMuch := func(held float64) bool {
		sum := 0.0
		for i := range m.flows {
			f := m.flows[i]
			f.floorSlope *= held
			sum += f.at(mem.latency)
		}
		return sum > delivered
	}
	high := 1.0
	for high < maxLatency && tooMuch(high) {
		high *= 2
	}
	mem.held = bisect(1, high, tooMuch)
	for i := range m.flows {
		m.flows[i].floorSlope *= mem.held
	}
}

// bisect returns how far from low towards high a condition holds that holds up to somewhere.
func bisect(low, high float64, holds func(float64) bool) float64 {
	for range 40 {
		if mid := (low + high) / 2; holds(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}
