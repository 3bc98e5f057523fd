package machine

// The clock of the cores. A core that is not halted runs at most at the clock of the turbo
// table for as many cores of its socket as are at work (Intel SDM volume 3, "Turbo boost":
// MSR_TURBO_RATIO_LIMIT); the reference clock, which PERF_COUNT_HW_REF_CPU_CYCLES counts and
// the TSC follows, is always Config.Hz. So a neighbour that wakes idle cores slows the others
// down without touching their caches or their memory: their instructions take as many cycles
// of the core's clock as before, and more of the reference clock.
//
// Left out: what it takes to change the clock, heat and power, and licences of wide vectors.

// clocks settles the clock of each socket, which is that of the cores at each of its caches, for the step, by the CPU time that was given.
func (m *Machine) clocks() {
	var working [maxSockets]float64
	if len(m.cfg.Turbo) > 0 {
		for _, t := range m.live {
			for s, on := range t.on {
				working[m.home[s]] += on
			}
		}
	}
	for s := range m.hz[:m.cfg.Caches()] {
		m.hz[s] = m.cfg.Hz
		if len(m.cfg.Turbo) > 0 {
			m.hz[s] = m.turbo(working[m.home[s]])
		}
	}
}

// turbo is the clock of a socket of which so many CPUs are at work. Cores fill up before their second threads do. Between whole
// numbers of cores it is the mean over the step.
func (m *Machine) turbo(working float64) float64 {
	table := m.cfg.Turbo
	at := min(working, float64(m.cfg.CoresPerSocket)) - 1
	switch last := len(table) - 1; {
	case at <= 0:
		return table[0]
	case at >= float64(last):
		return table[last]
	}
	i := int(at)
	return table[i] + (table[i+1]-table[i])*(at-float64(i))
}

// clockOf is the mean clock at which a task runs in the step.
func (m *Machine) clockOf(t *Task) float64 {
	if len(m.cfg.Turbo) == 0 || t.given <= 0 {
		return m.cfg.Hz
	}
	sum := 0.0
	for s, on := range t.on {
		sum += on * m.hz[s]
	}
	return sum / t.given
}
