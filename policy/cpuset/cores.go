package cpuset

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// core is one physical core with those of its logical CPUs that are online.
type core struct {
	id      int
	socket  int // index in order of the sockets' numbers
	llc     int // likewise of last-level caches
	threads int
	pinned  bool // an LC task may run on a part of the machine only, and this core is of it
	cpus    model.CPUSet
}

// machine is the topology by physical cores.
type machine struct {
	cores         []core // ordered by id
	sockets, llcs int
	threads       int // logical CPUs of the largest core
}

// machineOf gathers siblings into cores.
func machineOf(t *model.Topology) *machine {
	m := &machine{cores: make([]core, 0, len(t.CPUs))}
	sockets, llcs := make([]int, 0, 8), make([]int, 0, 16)
	for i := range t.CPUs {
		c := &t.CPUs[i]
		if c.ID < 0 || c.ID >= model.MaxCPUs {
			continue // no set holds it
		}
		at, ok := m.find(c.Core)
		if !ok {
			m.cores = slices.Insert(m.cores, at, core{id: c.Core, socket: c.Socket, llc: c.LLC})
			sockets, llcs = insert(sockets, c.Socket), insert(llcs, c.LLC)
		}
		m.cores[at].cpus.Add(c.ID)
		m.cores[at].threads++
		m.threads = max(m.threads, m.cores[at].threads)
	}
	for i := range m.cores {
		c := &m.cores[i]
		c.socket, _ = slices.BinarySearch(sockets, c.socket)
		c.llc, _ = slices.BinarySearch(llcs, c.llc)
	}
	m.sockets, m.llcs = len(sockets), len(llcs)
	return m
}

// insert adds a number to an ordered list without repetition.
func insert(list []int, n int) []int {
	if i, ok := slices.BinarySearch(list, n); !ok {
		return slices.Insert(list, i, n)
	}
	return list
}

// find returns the index of a core, or where it would be.
func (m *machine) find(id int) (int, bool) {
	lo, hi := 0, len(m.cores)
	for lo < hi { // slices.BinarySearchFunc copies a core a step
		if mid := (lo + hi) / 2; m.cores[mid].id < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(m.cores) && m.cores[lo].id == id
}

// census counts the cores of each socket and cache by who has them.
type census struct {
	be, own       []int // of sockets: BE's so far, and exclusive ones
	llcBE, llcOwn []int // of caches
}

// pin marks the cores that LC tasks need which cannot run elsewhere.
func (m *machine) pin(cpus model.CPUSet) {
	for i := range m.cores {
		m.cores[i].pinned = !m.cores[i].cpus.And(cpus).Empty()
	}
}

// order returns the ids of the cores that no exclusive task has, in the order in which BE
// takes them. It begins with those that BE has, so that nothing moves for the sake of
// order. Cores to which LC tasks are pinned come last. Then, spread, comes the socket of which BE has the fewest; gathered, the one of
// which it has the most, at first the one with the fewest exclusive cores. Within a socket
// BE fills one last-level cache after the other. Ties go to the highest number: what is not
// confined at all (interrupts, housekeeping) usually lives on the lowest CPUs, and that
// these are not BE's keeps it from adding to it.
func (m *machine) order(kept []int, own []Own, sockets string) []int {
	n := census{make([]int, m.sockets), make([]int, m.sockets), make([]int, m.llcs), make([]int, m.llcs)}
	taken := make([]bool, len(m.cores))
	left := len(m.cores)
	for i := range own {
		for _, id := range own[i].Cores {
			if at, ok := m.find(id); ok && !taken[at] {
				taken[at] = true
				n.own[m.cores[at].socket]++
				n.llcOwn[m.cores[at].llc]++
				left--
			}
		}
	}
	list := make([]int, 0, left)
	add := func(at int) {
		taken[at] = true
		n.be[m.cores[at].socket]++
		n.llcBE[m.cores[at].llc]++
		list = append(list, m.cores[at].id)
	}
	for _, id := range kept {
		if at, ok := m.find(id); ok && !taken[at] {
			add(at)
		}
	}
	for len(list) < left {
		best := -1
		for at := range m.cores {
			if !taken[at] && (best < 0 || n.compare(&m.cores[at], &m.cores[best], sockets) < 0) {
				best = at
			}
		}
		add(best)
	}
	return list
}

// compare is negative when BE takes a before b.
func (n *census) compare(a, b *core, sockets string) int {
	if a.pinned != b.pinned {
		return policy.One(a.pinned) - policy.One(b.pinned)
	}
	if a.socket != b.socket {
		bySize := cmp.Compare(n.be[a.socket], n.be[b.socket])
		if sockets == Gather {
			bySize = -bySize
		}
		return cmp.Or(bySize, cmp.Compare(n.own[a.socket], n.own[b.socket]), cmp.Compare(b.socket, a.socket))
	}
	return cmp.Or(
		-cmp.Compare(n.llcBE[a.llc], n.llcBE[b.llc]),
		cmp.Compare(n.llcOwn[a.llc], n.llcOwn[b.llc]),
		cmp.Compare(b.llc, a.llc),
		cmp.Compare(b.id, a.id),
	)
}
