package machine

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// Taker takes CPUs from whatever runs on them, without standing in line.
type Taker int

// The takers.
const (
	SoftIRQ Taker = iota // soft interrupts, as of a network card whose packets come on some CPUs
	Steal                // a hypervisor that runs another guest
	takers
)

// MaxTaken bounds what each may take of a CPU: a machine that stands still has no physics.
const MaxTaken = 0.9

// Take has a taker take a share of the time of CPUs from now on; 0 ends it. Of a CPU from which both
// take, soft interrupts take a share of what the hypervisor leaves.
//
// A thread that has the CPU keeps it, and gets on that much more slowly: the scheduler does not hear of
// it, so that this is no waiting. Who waits for that thread waits that much longer, and who is woken
// while the CPU is taken waits for the taker. Both look to the scheduler like CPUs that nobody uses:
// it sends threads there as to any other. Left out: how long a taker stays at a time, and what its work
// does to caches.
func (m *Machine) Take(by Taker, cpus model.CPUSet, share float64) error {
	switch {
	case by < 0 || by >= takers:
		return fmt.Errorf("machine: nobody takes CPUs by the number %d", by)
	case !cpus.Within(model.FullSet(m.cfg.CPUs())):
		return fmt.Errorf("machine: CPUs %s, and the machine has 0-%d", cpus, m.cfg.CPUs()-1)
	case !(share >= 0 && share <= MaxTaken):
		return fmt.Errorf("machine: a share of %v of a CPU is taken; expected 0 to %g", share, MaxTaken)
	}
	if m.taken == nil {
		m.taken = make([]taken, m.cfg.CPUs())
	}
	for _, cpu := range cpus.Members() {
		m.taken[cpu][by] = share
	}
	m.placement.stale = true
	return nil
}

// TakenNsec returns for how long a taker had CPUs that had something to run, on all together. What a
// hypervisor does with CPUs that are idle takes nothing.
func (m *Machine) TakenNsec(by Taker) uint64 { return uint64(m.tookNsec[by]) }

// taken is the share of a CPU's time that each taker takes: as it was asked for by CPU, and of all the
// time by atom.
type taken [takers]float64

// all is what both take.
func (k *taken) all() float64 { return k[SoftIRQ] + k[Steal] }

// takenOf returns what is taken of a CPU's time.
func (m *Machine) takenOf(cpu int) taken {
	if m.taken == nil {
		return taken{}
	}
	k := m.taken[cpu]
	k[SoftIRQ] *= 1 - k[Steal]
	return k
}

// distinct returns a number for CPUs from which different shares are taken.
func (m *Machine) distinct(cpu int) uint16 {
	if m.taken == nil {
		return 0
	}
	return uint16(slices.Index(m.taken, m.taken[cpu]))
}

// rob takes from a task what takers take of the CPUs that it has: of CPUs in atom a.
func (t *Task) rob(a int, k *taken) {
	had := t.share[a]
	for by, share := range k {
		t.robbed[by] += had * share
	}
	t.share[a] -= had * k.all()
	t.given -= had * k.all()
}

// had is for how many CPUs' time a task's threads were on CPUs, with what takers took of it.
func (t *Task) had() float64 { return t.given + t.robbed.all() }

// stretched notes how much longer its work takes for what takers take.
func (t *Task) stretched() {
	if t.given > 0 {
		t.stretch = t.had() / t.given
	}
}

// took counts for how long takers had CPUs in a step.
func (m *Machine) took(dt int64) {
	if m.taken == nil {
		return
	}
	for a := range m.placement.atoms {
		at := &m.placement.atoms[a]
		alone := at.taken[SoftIRQ] / (1 - at.taken[Steal]) // of what the hypervisor leaves
		load := (at.used - at.counted) / (1 - at.taken.all()) / float64(dt)
		at.counted = at.used
		runs := load + alone*(at.cpus-load)
		m.tookNsec[SoftIRQ] += at.taken[SoftIRQ] * at.cpus * float64(dt)
		m.tookNsec[Steal] += at.taken[Steal] * runs * float64(dt)
	}
}
