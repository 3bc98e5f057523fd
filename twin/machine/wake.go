package machine

import "slices"

// rank is what the scheduler knows of a task when it decides who makes room for a thread that is
// woken.
type rank struct {
	weight float64
	idle   bool // SCHED_IDLE
}

// stays returns which part of the time a task of another rank that runs stays in the way of one that
// is woken, against one of the same weight: 1 for that. The queueing formula, which knows no
// weights, is for such.
//
// A woken thread takes the CPU from a SCHED_IDLE one at once (check_preempt_wakeup_fair). From any
// other it takes it when it is eligible and its deadline is the earlier one (EEVDF, since Linux 6.6;
// CFS before compared virtual times by weight likewise). The one that runs may stay until it has had
// its part: as soon as its virtual time, which goes by 1/weight, is beyond the average of all that
// are runnable, it is eligible no more. Of two, with weights u for who runs and w for who is woken,
// it gets the part u/(u+w) of the time, so that the other waits by that much: half of the time at
// equal weights, which is what the formula has, and 2u/(u+w) of that in general. 2 shares beside
// 1024 are 0.4 %.
//
// Behind heavier ones it waits no longer than behind its equals: what they take beyond their part is
// in the division of CPU time. Left out: a group's weight on one CPU is its own over the CPUs that
// it is busy on, so that a group of many threads gives way sooner than here.
func (r rank) stays(other rank) float64 {
	if other.idle && !r.idle {
		return 0
	}
	return min(1, 2*other.weight/(other.weight+r.weight))
}

// meeting is among whom threads of a rank look for a CPU when they are woken, and what they wait for
// one per unit of run time: among those who stay in full, and among all but SCHED_IDLE ones. light is
// how far the lighter ones stay, in the mean by their load; 1 without any.
type meeting struct{ firm, firmWait, all, allWait, light float64 }

// waits returns what a task waits for CPUs of which it uses so many: for the part of the time that
// lighter ones stay they are as good as any, and for the rest they are not there.
func (k *meeting) waits(share float64) (firm, all float64) {
	all = k.light * share * max(0, k.all-share) / k.all * k.allWait
	if k.light < 1 {
		firm = (1 - k.light) * share * max(0, k.firm-share) / k.firm * k.firmWait
	}
	return firm, all
}

// rankAll finds the ranks there are. Few differ.
func (m *Machine) rankAll() {
	m.ranks = m.ranks[:0]
	for _, t := range m.live {
		r := rank{t.weight(), t.idle}
		if t.rank = slices.Index(m.ranks, r); t.rank < 0 {
			t.rank = len(m.ranks)
			m.ranks = append(m.ranks, r)
		}
	}
}

// meet works out what threads of each rank meet in each atom.
func (m *Machine) meet() {
	p := &m.placement
	m.rankAll()
	n := len(m.ranks)
	for a := range p.atoms {
		at := &p.atoms[a]
		at.by, at.met = slices.Grow(at.by[:0], n)[:n], slices.Grow(at.met[:0], n)[:n]
		clear(at.by)
		clear(at.met)
	}
	for i, t := range m.live {
		for _, a := range p.of[i] {
			p.atoms[a].by[t.rank] += t.share[a]
		}
	}
	for i, t := range m.live {
		for _, a := range p.of[i] {
			if at := &p.atoms[a]; t.cfg.Requests != nil && at.met[t.rank].all == 0 {
				at.met[t.rank] = m.met(at, m.ranks[t.rank])
			}
		}
	}
}

// met is what threads of a rank meet in an atom.
func (m *Machine) met(at *atom, r rank) meeting {
	idle, light, stay := 0.0, 0.0, 0.0
	for j, other := range m.ranks {
		switch c := r.stays(other); {
		case c == 0:
			idle += at.by[j]
		case c < 1:
			light, stay = light+at.by[j], stay+c*at.by[j]
		}
	}
	taken := at.taken.all()
	k := meeting{all: at.load - idle, light: 1}
	k.all += taken * (at.cpus - k.all) // of what those who stay have, it is in theirs
	k.allWait = queueing(max(0, k.all)/at.cpus, at.cpus)
	if light > 0 {
		k.light, k.firm = stay/light, at.load-idle-light
		k.firm += taken * (at.cpus - k.firm)
		k.firmWait = queueing(max(0, k.firm)/at.cpus, at.cpus)
	}
	return k
}

// chargeWoken charges what a watched task waited for a CPU when it was woken in an atom to those who
// were in the way, and returns what nobody was for: a rounding's.
func (m *Machine) chargeWoken(i, a int, step float64) (own float64) {
	t, r := m.live[i], &m.ran[a]
	k, mine := &m.placement.atoms[a].met[t.rank], m.ranks[t.rank]
	at := &m.placement.atoms[a]
	taken := at.taken.all()
	had := t.share[a] / (1 - taken)
	firmNsec, allNsec := k.waits(had)
	firm := taken*max(0, at.cpus-had) + at.mover // who shares them, in CPUs: takers stay, whoever has the CPU, and nobody knows whose thread copies
	all := firm
	for _, o := range m.live {
		c := mine.stays(m.ranks[o.rank])
		if o == t || c == 0 {
			continue
		}
		if c == 1 {
			firm += r.by[o.num]
		}
		all += r.by[o.num]
	}
	least := 1e-9 * at.cpus
	if firm <= least {
		own, firmNsec = own+firmNsec*step, 0
	}
	if all <= least {
		return own + allNsec*step
	}
	stays := allNsec / all // for each CPU of one that stays in full
	if firmNsec > 0 {
		stays += firmNsec / firm
	}
	t.waits.took(&at.taken, stays*max(0, at.cpus-had)*step)
	own += stays * at.mover * step
	for _, o := range m.live {
		c := mine.stays(m.ranks[o.rank])
		if o == t || c == 0 {
			continue
		}
		part := allNsec / all * c / k.light
		if c == 1 {
			part = stays
		}
		t.waits.Charged[o.num] += part * r.by[o.num] * step
	}
	return own
}
