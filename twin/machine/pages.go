package machine

import (
	"fmt"
	"math"
)

// Heat is memory of a task that is used alike: each page of it once in EveryNsec in the
// mean, at random.
type Heat struct {
	Bytes     float64
	File      bool  // page cache: dropped instead of swapped out
	EveryNsec int64 // 0: all the time
	// OverNsec is for how long the task runs until it has all of it, evenly; 0: it begins with it. Ages are as if it had.
	OverNsec int64
	// Locked memory (mlock) is never taken, and the kernel keeps no age of it.
	Locked bool
}

const (
	// pageBytes is what comes back with one fault.
	pageBytes = 4096
	// defaultFaultNsec is about one read of a fast disk.
	defaultFaultNsec = 100e3
	// maxHeats bounds a task's description.
	maxHeats = 16
	// pagesEveryNsec is how often ages are moved on: page ages matter from seconds on.
	pagesEveryNsec = 1e9
	// growEveryNsec is how often tasks that grow take more: what runs out of memory does so within a second.
	growEveryNsec = 100e6
	// maxBlocked bounds the share of its time that a task waits for pages: what thrashes
	// still creeps.
	maxBlocked = 0.95
)

// heat is the state of a Heat: of its bytes, those that are not there.
//
// Pages are used at random, whether or not they are there: bytes/T come to age 0 in each
// second, and of those that came a seconds ago exp(-a/T) were not used again. Reclaim takes
// the oldest. So at any time exactly the pages older than some age are out, and
// bytes exp(-x/T) - out are there and older than x. What is out comes back as it is used.
type heat struct {
	out   float64
	taken float64 // of Heat.Bytes, so far
	since int64   // nothing of it is older
	swept int64   // until then it is used from one end to the other (Sweep)
}

// pageState is a task's memory.
type pageState struct {
	heats     []heat
	high, max float64 // bytes; 0: none
	blocked   float64 // share of its time that it waits for pages
	faults    float64 // pages that came back, since it started
	reclaimed float64 // bytes, since it started
	killed    bool    // it did not fit
}

// checkHeats returns what makes a task's memory impossible.
func checkHeats(c *TaskConfig, m *Config) error {
	if len(c.Memory) > maxHeats {
		return fmt.Errorf("machine: task %s: %d kinds of memory, at most %d", c.Name, len(c.Memory), maxHeats)
	}
	sum := 0.0
	for _, h := range c.Memory {
		if !(h.Bytes >= 0) || h.EveryNsec < 0 || h.OverNsec < 0 || c.AgedNsec < 0 {
			return fmt.Errorf("machine: task %s: memory is impossible: %+v", c.Name, h)
		}
		sum += h.Bytes
	}
	if whole := m.MemBytes*float64(m.Sockets) + m.SwapBytes; !(sum <= whole) {
		return fmt.Errorf("machine: task %s: %.3g bytes, and memory and swap have %.3g", c.Name, sum, whole)
	}
	return nil
}

// newHeats is the memory of a task that begins, and uses it since some time.
func newHeats(kinds []Heat, since int64) []heat {
	list := make([]heat, len(kinds))
	for i := range kinds {
		list[i].since = since
		if kinds[i].OverNsec == 0 {
			list[i].taken = kinds[i].Bytes
		}
	}
	return list
}

// grow lets tasks take the memory that they grow by, when the time for it has come, and reports whether one did.
func (m *Machine) grow() (grew bool) {
	dt := m.now - m.grownAt
	if dt < growEveryNsec {
		return false
	}
	m.grownAt = m.now
	for _, t := range m.live {
		for i := range t.mem.heats {
			h, c := &t.mem.heats[i], &t.cfg.Memory[i]
			if c.OverNsec > 0 && h.taken < c.Bytes && !t.frozen && !t.mem.killed {
				h.taken = min(c.Bytes, h.taken+c.Bytes*float64(dt)/float64(c.OverNsec))
				grew = true
			}
		}
	}
	return grew
}

// movePages lets pages come back and go, when the time for it has come.
func (m *Machine) movePages() {
	grew := m.grow()
	if m.now < m.pagesAt {
		if grew {
			m.bound()
		}
		return
	}
	m.pagesAt = m.now + pagesEveryNsec
	const seconds = pagesEveryNsec / 1e9
	for _, t := range m.live {
		if t.frozen { // it touches nothing
			t.mem.blocked = 0
			continue
		}
		back := 0.0
		for i := range t.mem.heats {
			h := &t.mem.heats[i]
			left := h.out * t.cfg.Memory[i].unused(pagesEveryNsec)
			if h.swept > m.now-pagesEveryNsec { // an even part of what is left until the sweep is over, and then it is all young
				left *= max(0, 1-pagesEveryNsec/float64(h.swept-m.now+pagesEveryNsec))
				if h.swept <= m.now {
					h.since = m.now
				}
			}
			back += h.out - left
			h.out = left
		}
		faults := back / pageBytes
		t.mem.faults += faults
		// Each fault keeps one of the threads that would run.
		running := max(1, min(t.want, float64(t.cfg.Threads)))
		t.mem.blocked = min(maxBlocked, faults/seconds*m.cfg.FaultNsec/1e9/running)
	}
	m.bound()
}

// bound takes what is over the limits of tasks, and over what there is.
func (m *Machine) bound() {
	for _, t := range m.live {
		for _, limit := range [...]float64{t.mem.high, t.mem.max} {
			if limit <= 0 {
				continue
			}
			if over := m.resident(t) + m.zswapped(t) - limit; over > 0 {
				m.reclaim([]*Task{t}, over, 0, true, true)
			}
		}
	}
	m.makeRoom()
}

// unused returns the share of the pages that are not used in so long a time.
func (h *Heat) unused(nsec float64) float64 {
	if h.EveryNsec <= 0 {
		if nsec > 0 {
			return 0
		}
		return 1
	}
	return math.Exp(-nsec / float64(h.EveryNsec))
}

// older returns the bytes of a task's i-th heat that are there and were not used for so
// long.
func (m *Machine) older(t *Task, i int, nsec float64) float64 {
	h := &t.mem.heats[i]
	if nsec > float64(m.now-h.since) || nsec > 0 && t.cfg.Memory[i].Locked {
		return 0
	}
	return max(0, h.taken*t.cfg.Memory[i].unused(nsec)-h.out)
}

// resident returns a task's bytes that are there.
func (m *Machine) resident(t *Task) float64 {
	sum := 0.0
	for i := range t.mem.heats {
		sum += m.older(t, i, 0)
	}
	return sum
}

// reclaim takes up to want bytes of pages of some tasks that were not used for so long,
// oldest first, and returns what it got. Page cache is dropped for nothing; anonymous pages
// go as far as there is swap.
func (m *Machine) reclaim(tasks []*Task, want, olderNsec float64, anon, file bool) float64 {
	room := 0.0
	if anon {
		room = m.swapRoom()
	}
	// The youngest age that has to be taken: what is older than it is enough.
	low, high := olderNsec, max(olderNsec, float64(m.now))
	if m.takeable(tasks, low, room, file) > want {
		for range 50 {
			mid := (low + high) / 2
			if m.takeable(tasks, mid, room, file) > want {
				low = mid
			} else {
				high = mid
			}
		}
		// A step between the two: memory of which every page has the same age.
		got := m.take(tasks, high, want, room, file)
		return got + m.take(tasks, low, want-got, room, file)
	}
	return m.take(tasks, low, want, room, file)
}

// takeable returns what of some tasks' memory is so old and may be taken.
func (m *Machine) takeable(tasks []*Task, nsec, room float64, file bool) float64 {
	cache, anon := 0.0, 0.0
	for _, t := range tasks {
		for i := range t.mem.heats {
			switch b := m.older(t, i, nsec); {
			case t.cfg.Memory[i].Locked:
			case !t.cfg.Memory[i].File:
				anon += b
			case file:
				cache += b
			}
		}
	}
	return cache + min(anon, room)
}

// take takes what is so old, page cache first.
func (m *Machine) take(tasks []*Task, nsec, want, room float64, file bool) float64 {
	got := 0.0
	for _, cache := range [...]bool{true, false} {
		for _, t := range tasks {
			for i := range t.mem.heats {
				if t.cfg.Memory[i].File != cache || cache && !file || t.cfg.Memory[i].Locked {
					continue
				}
				bytes := max(0, min(m.older(t, i, nsec), want-got))
				if !cache {
					bytes = min(bytes, room)
					room -= bytes
				}
				t.mem.heats[i].out += bytes
				t.mem.reclaimed += bytes
				got += bytes
			}
		}
	}
	return got
}

func (m *Machine) swapRoom() float64 {
	used := 0.0
	for _, t := range m.live {
		used += t.mem.swapped(&t.cfg)
	}
	return max(0, m.cfg.SwapBytes-used)
}

func (p *pageState) swapped(c *TaskConfig) float64 {
	sum := 0.0
	for i := range p.heats {
		if !c.Memory[i].File {
			sum += p.heats[i].out
		}
	}
	return sum
}

// zswapped returns the bytes of memory that compressed copies of a task's pages take: zswap's, which are charged to it.
func (m *Machine) zswapped(t *Task) float64 {
	if m.cfg.ZswapShare == 0 {
		return 0
	}
	return m.cfg.ZswapShare * t.mem.swapped(&t.cfg)
}

// over returns by how much all tasks have more than there is.
func (m *Machine) over() float64 {
	over := -m.cfg.MemBytes * float64(m.cfg.Sockets)
	for _, t := range m.live {
		over += m.resident(t)
	}
	if m.cfg.ZswapShare > 0 {
		for _, t := range m.live {
			over += m.zswapped(t)
		}
	}
	return over
}

// maxRounds of reclaim make room where what goes leaves a copy.
const maxRounds = 20

// makeRoom is the kernel's own reclaim: when the nodes together are full, the oldest pages
// of all tasks go, and when there is nothing left to take, the task with the most memory
// is marked as killed: to end it is for whoever started it.
func (m *Machine) makeRoom() {
	over := m.over()
	for round := 0; over > 0 && round < maxRounds; round++ {
		got := m.reclaim(m.live, over, 0, true, true)
		if m.cfg.ZswapShare == 0 {
			over -= got
			break
		}
		if over = m.over(); got < pageBytes {
			break
		}
	}
	for _, t := range m.live {
		if t.mem.killed { // what it has comes free as it ends
			over -= m.resident(t)
		}
	}
	if over <= pageBytes {
		return
	}
	var largest *Task
	for _, t := range m.live {
		if !t.mem.killed && (largest == nil || m.resident(t) > m.resident(largest)) {
			largest = t
		}
	}
	if largest != nil {
		largest.mem.killed = true
	}
}

// MemoryRoom is how the machine's memory stands, in bytes.
type MemoryRoom struct {
	Total, Free         float64
	Available           float64 // free, or page cache: what could be had without swapping
	SwapTotal, SwapFree float64
}

// MemoryRoom returns how the machine's memory stands. All memory that is not free is of tasks.
func (m *Machine) MemoryRoom() MemoryRoom {
	r := MemoryRoom{Total: m.cfg.MemBytes * float64(m.cfg.Sockets), SwapTotal: m.cfg.SwapBytes, SwapFree: m.swapRoom()}
	r.Free = r.Total
	cache := 0.0
	for _, t := range m.live {
		anon, file := m.olderOf(t, 0)
		r.Free -= anon + file + m.zswapped(t)
		cache += file
	}
	r.Free = max(0, r.Free)
	r.Available = min(r.Total, r.Free+cache)
	return r
}

// MemoryUse is how a task's memory stands, in bytes.
type MemoryUse struct {
	Anon, File     float64 // resident
	Swap, Dropped  float64 // not there: swapped out; page cache that was dropped
	Zswap          float64 // resident: compressed copies of what is swapped out
	FaultPages     uint64  // that came back, since it started
	ReclaimedBytes uint64  // taken, since it started
	Blocked        float64 // share of its time that it waits for pages
	Killed         bool    // out of memory: the kernel would have killed it
}

// MemoryUse returns how a task's memory stands.
func (m *Machine) MemoryUse(num int) (MemoryUse, error) {
	t, err := m.task(num)
	if err != nil {
		return MemoryUse{}, err
	}
	u := MemoryUse{FaultPages: uint64(t.mem.faults), ReclaimedBytes: uint64(t.mem.reclaimed), Blocked: t.mem.blocked, Killed: t.mem.killed, Zswap: m.zswapped(t)}
	u.Anon, u.File = m.olderOf(t, 0)
	for i := range t.mem.heats {
		if t.cfg.Memory[i].File {
			u.Dropped += t.mem.heats[i].out
		} else {
			u.Swap += t.mem.heats[i].out
		}
	}
	return u, nil
}

// ActiveNsec is how long after its last use a page counts as active.
const ActiveNsec = 16e9

// MemoryOlder returns the bytes of a task's memory that are there and were not used for so
// long: what the kernel's generations and access bits are for.
func (m *Machine) MemoryOlder(num int, nsec int64) (anon, file float64, err error) {
	t, err := m.task(num)
	if err != nil {
		return 0, 0, err
	}
	anon, file = m.olderOf(t, float64(nsec))
	return anon, file, nil
}

func (m *Machine) olderOf(t *Task, nsec float64) (anon, file float64) {
	for i := range t.mem.heats {
		if b := m.older(t, i, nsec); t.cfg.Memory[i].File {
			file += b
		} else {
			anon += b
		}
	}
	return anon, file
}

// Sweep has a task use all of its memory once, evenly over a time: a full garbage collection, a backup. What is out comes back.
func (m *Machine) Sweep(num int, nsec int64) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if nsec < pagesEveryNsec {
		return fmt.Errorf("machine: no sweep in %d ns: a second at least", nsec)
	}
	for i := range t.mem.heats {
		t.mem.heats[i].swept = m.now + nsec
	}
	return nil
}

// SetMemoryLimits sets what of a task's memory is reclaimed above: memory.high and
// memory.max, in bytes; 0 is none.
func (m *Machine) SetMemoryLimits(num int, high, limit float64) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if !(high >= 0 && limit >= 0) || math.IsInf(high, 0) || math.IsInf(limit, 0) {
		return fmt.Errorf("machine: no memory limits of %v and %v", high, limit)
	}
	t.mem.high, t.mem.max = high, limit
	return nil
}

// MemoryLimits returns what SetMemoryLimits set, in bytes; 0 is none.
func (m *Machine) MemoryLimits(num int) (high, limit float64, err error) {
	t, err := m.task(num)
	if err != nil {
		return 0, 0, err
	}
	return t.mem.high, t.mem.max, nil
}

// Reclaim takes up to so many bytes of a task's pages that were not used for so long,
// oldest first, and returns what it got (memory.reclaim).
func (m *Machine) Reclaim(num int, bytes float64, olderNsec int64, anon, file bool) (float64, error) {
	t, err := m.task(num)
	if err != nil {
		return 0, err
	}
	if !(bytes >= 0) || olderNsec < 0 {
		return 0, fmt.Errorf("machine: no reclaim of %v bytes older than %d ns", bytes, olderNsec)
	}
	return m.reclaim([]*Task{t}, bytes, float64(olderNsec), anon, file), nil
}

// ReclaimTogether takes up to so many bytes of the pages of some tasks, the oldest of all of
// them first, and returns what it got. Tasks that are not there are passed over.
func (m *Machine) ReclaimTogether(nums []int, bytes float64, anon, file bool) float64 {
	var tasks []*Task
	for _, num := range nums {
		if t, err := m.task(num); err == nil {
			tasks = append(tasks, t)
		}
	}
	return m.reclaim(tasks, max(0, bytes), 0, anon, file)
}
