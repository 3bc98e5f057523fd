package machine

import (
	"fmt"
)

// Work is closed-loop: as soon as a thread may run, it does, and what it gets done is
// counted. Without phases all threads are always ready.
type Work struct {
	Phases []Phase // one after the other, and again
}

// Phase is a stretch of a task's work that is alike.
type Phase struct {
	Nsec   int64
	Jitter float64 // each time it is up to this share longer or shorter
	CPUs   float64 // that it could use; more than the threads is all threads
	// CPI and Misses are factors on the task's own; 0 is 1.
	CPI, Misses float64
}

func (w *Work) check(name string) error {
	for i, p := range w.Phases {
		if p.Nsec < 1e6 || !(p.Jitter >= 0 && p.Jitter < 1) || !(p.CPUs >= 0) || !(p.CPI >= 0 && p.CPI <= 100) || !(p.Misses >= 0 && p.Misses <= 100) {
			return fmt.Errorf("machine: task %s: phase %d is impossible: %+v", name, i+1, p)
		}
	}
	return nil
}

// phase is where a task's work is in its phases.
type phase struct {
	i    int
	ends int64
	cur  *Phase
}

// wanted moves on to the phase that is due and returns the CPUs that it could use.
func (p *phase) wanted(t *Task, now int64) float64 {
	list := t.cfg.Work.Phases
	if len(list) == 0 {
		return float64(t.cfg.Threads)
	}
	for p.cur == nil || now >= p.ends {
		if p.cur == nil {
			// Tasks of one job do not run in step.
			p.i = t.rng.IntN(len(list))
			p.ends = now - int64(t.rng.Float64()*float64(list[p.i].Nsec))
		} else {
			p.i = (p.i + 1) % len(list)
		}
		p.cur = &list[p.i]
		p.ends += int64(float64(p.cur.Nsec) * (1 + p.cur.Jitter*(2*t.rng.Float64()-1)))
	}
	return p.cur.CPUs
}

func (p *phase) cycles() float64 {
	if p.cur == nil || p.cur.CPI == 0 {
		return 1
	}
	return p.cur.CPI
}

func (p *phase) misses() float64 {
	if p.cur == nil || p.cur.Misses == 0 {
		return 1
	}
	return p.cur.Misses
}

// spend turns a task's CPU time of a step into requests or work, and counts.
func (m *Machine) spend(t *Task, dt int64) {
	used := t.given * float64(dt)
	switch {
	case t.frozen:
		t.queue.hold(m.now, dt)
	case t.cfg.Requests != nil:
		used = min(used, t.queue.run(t, m.now, dt))
		t.count.delay += t.queue.own
	}
	t.limit.take(used)
	m.busyNsec += used
	c := &t.count
	c.usage += used
	c.refCycles += used * m.cfg.Hz / 1e9
	c.cycles += used * m.clockOf(t) / 1e9
	part := 0.0 // of the CPU time given that was used
	if t.given > 0 {
		part = used / (t.given * float64(dt))
	}
	for a, cpus := range t.share {
		m.placement.atoms[a].used += cpus * part * float64(dt)
	}
	for s := range t.perf {
		p := &t.perf[s]
		if t.on[s] <= 0 {
			p.insert = 0
			continue // p.each stays: what a CPU brought in when last it did
		}
		rate := part * t.on[s] * m.hz[s] / p.cpi // instructions per second
		n := rate * float64(dt) / 1e9
		c.instructions += n
		c.references += n * (t.cfg.APKI + p.again) / 1000
		c.misses += n * m.counted(t, p) / 1000
		p.insert = rate * p.mpki / 1000 * cacheLine
		p.each = p.insert / t.on[s]
		moved := p.insert * float64(dt) / 1e9 / (1 - t.cfg.WriteShare)
		c.bytes += moved
		m.count(t, s, moved)
		for n, share := range t.pages {
			m.mem[n].step.bytes += moved * share
		}
		if t.cfg.Work != nil {
			c.work += n
		}
	}
}

// counted is how many of a task's misses per thousand instructions its counter sees: those that were prefetched, lost and missed once more in any case.
func (m *Machine) counted(t *Task, p *cachePerf) float64 {
	if !m.cfg.Physics.DemandMisses {
		return p.mpki
	}
	return (p.mpki-p.again)*(1-t.cfg.Prefetched) + p.again
}
