package machine

import (
	"fmt"
	"math/bits"

	"github.com/commensal-io/commensal/model"
)

// What the kernel's knobs do to a task and to the machine.

// SetShares sets a task's cpu.shares; the kernel clamps to [2, 262144].
func (m *Machine) SetShares(num int, shares int64) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	t.shares = float64(max(2, min(262144, shares)))
	return nil
}

// Weight returns a task's cpu.shares, and whether it is SCHED_IDLE, which then goes before.
func (m *Machine) Weight(num int) (shares int64, idle bool, err error) {
	t, err := m.task(num)
	if err != nil {
		return 0, false, err
	}
	return int64(t.shares), t.idle, nil
}

// SetIdle makes a task SCHED_IDLE, or normal again.
func (m *Machine) SetIdle(num int, idle bool) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	t.idle = idle
	return nil
}

// SetCPUs restricts a task to CPUs, as cgroup v2 does: none is no restriction, and while
// none of them is online the task runs on all that are.
func (m *Machine) SetCPUs(num int, cpus model.CPUSet) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if !cpus.Within(model.FullSet(m.cfg.CPUs())) {
		return fmt.Errorf("machine: CPUs %s, and the machine has 0-%d", cpus, m.cfg.CPUs()-1)
	}
	if t.cpus != cpus {
		t.cpus = cpus
		m.placement.stale = true
	}
	return nil
}

// CPUs returns what a task is restricted to; none is no restriction.
func (m *Machine) CPUs(num int) (model.CPUSet, error) {
	t, err := m.task(num)
	if err != nil {
		return model.CPUSet{}, err
	}
	return t.cpus, nil
}

// allowed returns the CPUs that a task may in fact use.
func (m *Machine) allowed(t *Task) model.CPUSet {
	if cpus := t.cpus.And(m.online); !cpus.Empty() {
		return cpus
	}
	return m.online
}

// SetOnline takes a CPU away or brings it back. The first CPU stays.
func (m *Machine) SetOnline(cpu int, online bool) error {
	if cpu <= 0 || cpu >= m.cfg.CPUs() {
		return fmt.Errorf("machine: CPU %d cannot be switched", cpu)
	}
	if online {
		m.online.Add(cpu)
	} else {
		m.online.Remove(cpu)
	}
	m.placement.stale = true
	return nil
}

// Online returns the CPUs that are online.
func (m *Machine) Online() model.CPUSet { return m.online }

// SetPages says where a task's pages are: shares of the nodes, in sum 1. Nothing is copied for it (MovePages).
func (m *Machine) SetPages(num int, pages []float64) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	sum := 0.0
	for _, p := range pages {
		if !(p >= 0) {
			return fmt.Errorf("machine: a share of pages of %v", p)
		}
		sum += p
	}
	if len(pages) != m.cfg.Sockets || !(sum > 0) {
		return fmt.Errorf("machine: pages on %d nodes with sum %v", len(pages), sum)
	}
	t.pages, t.copying = make([]float64, len(pages)), nil
	for i, p := range pages {
		t.pages[i] = p / sum
	}
	return nil
}

// Pages returns the share of a task's pages on each node, of pages on their way where they go.
func (m *Machine) Pages(num int) ([]float64, error) { return m.AppendPages(num, nil) }

// AppendPages appends them to dst.
func (m *Machine) AppendPages(num int, dst []float64) ([]float64, error) {
	t, err := m.task(num)
	if err != nil {
		return dst, err
	}
	return append(dst, t.told()...), nil
}

// clos is a class of service: the ways that it may fill and the MBA level, by cache.
type clos struct {
	mask []uint32
	mba  []int
}

func defaultCLOS(c *Config) clos {
	k := clos{mask: make([]uint32, c.Caches()), mba: make([]int, c.Caches())}
	for s := range k.mask {
		k.mask[s] = 1<<c.LLCWays - 1
		k.mba[s] = 100
	}
	return k
}

// AddCLOS makes a class with all ways and no delay and returns its number. 0 is there
// from the start, and every task begins in it.
func (m *Machine) AddCLOS() int {
	m.clos = append(m.clos, defaultCLOS(&m.cfg))
	return len(m.clos) - 1
}

// Classes returns how many classes there are.
func (m *Machine) Classes() int { return len(m.clos) }

// SetCLOS moves a task into a class.
func (m *Machine) SetCLOS(num, class int) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if class < 0 || class >= len(m.clos) {
		return fmt.Errorf("machine: no class %d", class)
	}
	t.clos = class
	return nil
}

// CLOS returns the class that a task is in.
func (m *Machine) CLOS(num int) (int, error) {
	t, err := m.task(num)
	if err != nil {
		return 0, err
	}
	return t.clos, nil
}

// Class returns the ways and the MBA level that a class has at a cache.
func (m *Machine) Class(class, cache int) (mask uint32, mba int, err error) {
	if class < 0 || class >= len(m.clos) || cache < 0 || cache >= m.cfg.Caches() {
		return 0, 0, fmt.Errorf("machine: no class %d at cache %d", class, cache)
	}
	return m.clos[class].mask[cache], m.clos[class].mba[cache], nil
}

// SetWays sets the ways of an LLC that a class may fill. It evicts nothing: what
// its tasks have elsewhere goes as others fill it (resctrl.rst, "llc_occupancy").
func (m *Machine) SetWays(class, cache int, mask uint32) error {
	if class < 0 || class >= len(m.clos) || cache < 0 || cache >= m.cfg.Caches() {
		return fmt.Errorf("machine: no class %d at cache %d", class, cache)
	}
	if mask == 0 || bits.Len32(mask) > m.cfg.LLCWays {
		return fmt.Errorf("machine: mask %#x, and the cache has %d ways", mask, m.cfg.LLCWays)
	}
	m.clos[class].mask[cache] = mask
	return nil
}

// SetMBA sets the level of a class in per cent, 10 to 100.
func (m *Machine) SetMBA(class, cache, percent int) error {
	if class < 0 || class >= len(m.clos) || cache < 0 || cache >= m.cfg.Caches() || percent < 10 || percent > 100 {
		return fmt.Errorf("machine: no MBA level %d of class %d at cache %d", percent, class, cache)
	}
	m.clos[class].mba[cache] = percent
	return nil
}
