package machine

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// atom is a set of CPUs that no task's cpuset and no cache's border divides: within it,
// every task that may use one of them may use all, and as much is taken of each.
type atom struct {
	cache  int // the last-level cache near them
	cpus   float64
	member model.CPUSet
	// sibling[i] is the share of its CPUs whose SMT sibling is in atom i.
	sibling  []float64
	load     float64   // CPUs in use
	variance float64   // of their number within a step, with Physics.SiblingBursts
	busy     float64   // share of the time in which the sibling of a CPU in use works
	by       []float64 // load, by rank
	met      []meeting // by rank of who is woken
	used     float64   // CPU time, since the CPUs were divided so
	taken    taken     // of the time of each of its CPUs
	counted  float64   // of used, in what takers took
	mover    float64   // CPUs that who copies pages has
	idle     float64   // and that nobody had in the last part
}

// placement is the machine's CPUs as the cpusets divide them.
type placement struct {
	stale bool
	atoms []atom
	of    [][]int // by position in live: the atoms that the task may use
}

// schedule gives CPU time: each task's want is spread over the CPUs that it may use,
// first evenly, then to where there is room; where an atom is short, its CPUs are divided
// by cpu.shares (weighted max-min, which is what CFS comes to over a few periods). What a
// task does not get although it is ready is its run-queue delay.
func (m *Machine) schedule(dt int64) {
	p := &m.placement
	m.seat()
	for a := range p.atoms {
		p.atoms[a].load = p.atoms[a].mover
	}
	for _, t := range m.live {
		t.given, t.wait, t.robbed = 0, t.limit.allow(t.want, dt), taken{}
		clear(t.share)
		clear(t.on)
	}
	const rounds = 3
	for range rounds {
		if !m.offer() {
			break
		}
	}
	m.meet()
	if m.cfg.Physics.SiblingBursts {
		m.fluctuate(float64(dt))
	}
	for a := range p.atoms {
		at := &p.atoms[a]
		at.busy = 0
		for b, part := range at.sibling {
			at.busy += part * p.siblingLoad(a, b)
		}
	}
	for i, t := range m.live {
		collisions := 0.0
		for _, a := range p.of[i] {
			at := &p.atoms[a]
			if t.cfg.Requests != nil && t.share[a] > 0 {
				firm, all := at.met[t.rank].waits(t.share[a])
				collisions += all + firm
			}
			if at.taken != (taken{}) {
				t.rob(a, &at.taken)
			}
			t.on[at.cache] += t.share[a]
		}
		t.stretched()
		t.late = 0
		if t.given > 0 {
			t.late = collisions / t.given
		}
		held := t.held()
		waited := (t.wait + collisions) * float64(dt)
		t.count.delay += waited + held*float64(dt)
		t.count.throttledNsec += held * float64(dt)
		t.sib = m.siblingBusy(i)
	}
}

// offer spreads what tasks still wait for over their atoms and lets each atom divide its
// room; false when nobody waits, or no room is left to wait for.
func (m *Machine) offer() bool {
	p := &m.placement
	again := false
	for a := range p.atoms {
		at := &p.atoms[a]
		room := at.cpus - at.load
		if room <= 1e-9 {
			continue
		}
		m.divide(a, room)
		again = true
	}
	if !again {
		return false
	}
	for _, t := range m.live {
		if t.wait > 1e-9 {
			return true
		}
	}
	return false
}

// divide gives an atom's room to those that wait for it: everyone up to the same
// multiple of its shares, nobody more than it asks for here.
func (m *Machine) divide(a int, room float64) {
	p := &m.placement
	// What each asks for here: its part of the room that it has everywhere.
	asks, weights := 0.0, 0.0
	for i, t := range m.live {
		t.ask = 0
		if t.wait <= 1e-9 || !slices.Contains(p.of[i], a) {
			continue
		}
		all := 0.0
		for _, b := range p.of[i] {
			if b >= a { // earlier ones have had their turn in this round
				all += p.atoms[b].cpus - p.atoms[b].load
			}
		}
		t.ask = t.wait * room / max(all, room)
		asks += t.ask
		weights += t.weight()
	}
	if asks <= 0 {
		return
	}
	level := math.Inf(1)
	if asks > room {
		level = m.waterLevel(room, weights)
	}
	for _, t := range m.live {
		if t.ask <= 0 {
			continue
		}
		got := min(t.ask, level*t.weight())
		t.share[a] += got
		t.given += got
		t.wait = max(0, t.wait-got) // rounding may go below
		p.atoms[a].load += got
	}
}

// waterLevel finds the level at which min(ask, level x weight) fills the room.
func (m *Machine) waterLevel(room, weights float64) float64 {
	level := room / weights
	for {
		left, open := room, 0.0
		for _, t := range m.live {
			switch {
			case t.ask <= 0:
			case t.ask <= level*t.weight():
				left -= t.ask
			default:
				open += t.weight()
			}
		}
		if open == 0 {
			return level
		}
		next := left / open
		if next <= level*(1+1e-12) {
			return next
		}
		level = next
	}
}

// idleWeight is the weight of a SCHED_IDLE entity against 1024 (kernel/sched/sched.h).
const idleWeight = 3

func (t *Task) weight() float64 {
	if t.idle {
		return idleWeight
	}
	return t.shares
}

// queueing is the mean wait for a CPU per unit of run time of threads that come and go,
// when k CPUs are used to the share rho: Sakasegawa's approximation of M/M/k. It stands
// for the moments in which the balancer has not yet found the idle CPU. Threads that
// always run meet nobody that way: what they wait is in the division of CPU time.
func queueing(rho, k float64) float64 {
	rho = min(rho, 0.95) // beyond, that division has the waiting
	return math.Pow(rho, math.Sqrt(2*(k+1))-1) / (k * (1 - rho))
}

// siblingBusy returns the share of a task's time in which its SMT sibling works.
func (m *Machine) siblingBusy(i int) float64 {
	t, p := m.live[i], &m.placement
	if m.cfg.ThreadsPerCore < 2 || t.given <= 0 {
		return 0
	}
	sum := 0.0
	for _, a := range p.of[i] {
		sum += t.share[a] * p.atoms[a].busy
	}
	return sum / t.given
}

// siblingLoad returns how busy siblings in atom b are while a CPU of atom a works.
func (p *placement) siblingLoad(a, b int) float64 {
	at := &p.atoms[b]
	rho := at.load / at.cpus
	if b == a {
		// Within one set of CPUs the scheduler prefers cores that are wholly idle: only
		// what does not fit on them shares.
		meet := 2 - 1/max(rho, 0.5)
		if at.variance > 0 {
			meet = together(at.cpus, at.load, at.variance)
		}
		rho = max(meet, 0.3*rho*rho)
	}
	return rho
}

// place divides the CPUs anew.
func (m *Machine) place() {
	p := &m.placement
	for i := range p.atoms {
		for _, cpu := range p.atoms[i].member.Members() {
			m.byCPU[cpu] += p.atoms[i].used / p.atoms[i].cpus
		}
	}
	*p = placement{of: make([][]int, len(m.live))}
	index := map[string]int{}
	atomOf := make([]int, m.cfg.CPUs())
	key := make([]byte, 0, len(m.live)+3)
	allowed := make([]model.CPUSet, len(m.live))
	for i, t := range m.live {
		allowed[i] = m.allowed(t)
		t.may = allowed[i].Len()
	}
	for cpu := range m.cfg.CPUs() {
		atomOf[cpu] = -1
		if !m.online.Has(cpu) {
			continue
		}
		key = binary.LittleEndian.AppendUint16(append(key[:0], byte(m.cfg.CacheOf(cpu))), m.distinct(cpu))
		for i := range m.live {
			may := byte(0)
			if allowed[i].Has(cpu) {
				may = 1
			}
			key = append(key, may)
		}
		a, ok := index[string(key)]
		if !ok {
			a = len(p.atoms)
			index[string(key)] = a
			p.atoms = append(p.atoms, atom{cache: m.cfg.CacheOf(cpu), taken: m.takenOf(cpu)})
		}
		p.atoms[a].member.Add(cpu)
		p.atoms[a].cpus++
		atomOf[cpu] = a
	}
	for i, t := range m.live {
		for a := range p.atoms {
			if p.atoms[a].member.Within(allowed[i]) {
				p.of[i] = append(p.of[i], a)
			}
		}
		t.share = make([]float64, len(p.atoms))
	}
	m.placeSiblings(atomOf)
}

func (m *Machine) placeSiblings(atomOf []int) {
	p := &m.placement
	cores := m.cfg.Sockets * m.cfg.CoresPerSocket
	for a := range p.atoms {
		p.atoms[a].sibling = make([]float64, len(p.atoms))
	}
	if m.cfg.ThreadsPerCore < 2 {
		return
	}
	for cpu, a := range atomOf {
		if b := atomOf[(cpu+cores)%(2*cores)]; a >= 0 && b >= 0 {
			p.atoms[a].sibling[b] += 1 / p.atoms[a].cpus
		}
	}
}
