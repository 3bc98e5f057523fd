package machine

import "slices"

// What the monitoring of RDT sees: each core's requests bear the RMID of the task that runs
// there. Traffic is counted by RMID. A line of the LLC keeps the RMID that it was filled
// with, so that a task that changes its RMID, or ends, leaves its lines behind under the old
// one until others are filled in their place (resctrl.rst, "llc_occupancy").

// monitor is the machine's counting by RMID. A task begins with RMID 0.
type monitor struct {
	traffic []traffic // by RMID, and within it by cache
	marks   []mark
}

// traffic is bytes to and from memory, from one cache.
type traffic struct{ total, local float64 }

// mark is lines that do not bear their task's present RMID.
type mark struct {
	task int // ended: noTask
	rmid int
	ways []float64 // share of each way, cache by cache
}

// MonitorBytes is the unit in which the hardware counts lines of a cache and traffic, in bytes: some 10 to 100 KiB on Intel.
const MonitorBytes = 64 << 10

const (
	noTask = -1
	// faded is the sum of shares of ways below which marked lines are forgotten: a line or
	// less of a large cache's.
	faded = 1e-5
)

func newMonitor(c *Config) monitor { return monitor{traffic: make([]traffic, c.Caches())} }

func (k *monitor) fork() monitor {
	f := monitor{traffic: slices.Clone(k.traffic), marks: slices.Clone(k.marks)}
	for i := range f.marks {
		f.marks[i].ways = slices.Clone(f.marks[i].ways)
	}
	return f
}

// SetRMID lets what a task fills and moves from now on count for an RMID.
func (m *Machine) SetRMID(num, rmid int) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if rmid == t.rmid || rmid < 0 {
		return nil
	}
	for len(m.monitor.traffic) < (rmid+1)*m.cfg.Caches() {
		m.monitor.traffic = append(m.monitor.traffic, traffic{})
	}
	m.leaveLines(t, num)
	// Lines from an earlier time with this RMID are the task's own again.
	m.monitor.marks = slices.DeleteFunc(m.monitor.marks, func(k mark) bool { return k.task == num && k.rmid == rmid })
	t.rmid = rmid
	return nil
}

// leaveLines marks the lines that bear a task's present RMID; owner is the task, or noTask
// when it ends.
func (m *Machine) leaveLines(t *Task, owner int) {
	ways := make([]float64, 0, m.cfg.Caches()*m.cfg.LLCWays)
	for s := range t.perf {
		ways = append(ways, t.perf[s].ways...)
	}
	for i := range m.monitor.marks {
		k := &m.monitor.marks[i]
		if k.task != t.num {
			continue
		}
		k.task = owner
		for w, share := range k.ways {
			ways[w] = max(0, ways[w]-share)
		}
	}
	if sumOf(ways) > faded {
		m.monitor.add(mark{task: owner, rmid: t.rmid, ways: ways})
	}
}

// add adds marked lines to those of the same owner and RMID.
func (k *monitor) add(n mark) {
	for i := range k.marks {
		if o := &k.marks[i]; o.task == n.task && o.rmid == n.rmid {
			for w := range o.ways {
				o.ways[w] += n.ways[w]
			}
			return
		}
	}
	k.marks = append(k.marks, n)
}

// fade takes from the marked lines what was replaced in each way of an LLC, as a
// share of the way.
func (k *monitor) fade(cache int, replaced []float64) {
	if len(k.marks) == 0 {
		return
	}
	for i := range k.marks {
		ways := k.marks[i].ways[cache*len(replaced):]
		for w, share := range replaced {
			ways[w] *= 1 - share
		}
	}
	k.marks = slices.DeleteFunc(k.marks, func(m mark) bool { return sumOf(m.ways) < faded })
}

func sumOf(shares []float64) float64 {
	sum := 0.0
	for _, share := range shares {
		sum += share
	}
	return sum
}

// count counts traffic of a task from a cache.
func (m *Machine) count(t *Task, cache int, bytes float64) {
	k := &m.monitor.traffic[t.rmid*m.cfg.Caches()+cache]
	k.total += bytes
	k.local += bytes * t.pages[m.home[cache]]
	t.moved[cache].total += bytes
	t.moved[cache].local += bytes * t.pages[m.home[cache]]
}

// Traffic returns what a task that lives moved to and from memory from a cache's cores since it started, in bytes, and the
// part of it that was its socket's own memory.
func (m *Machine) Traffic(num, cache int) (total, local float64) {
	t, err := m.task(num)
	if err != nil {
		return 0, 0
	}
	return t.moved[cache].total, t.moved[cache].local
}

// RMIDOccupancy returns the bytes of an LLC whose lines bear an RMID.
func (m *Machine) RMIDOccupancy(rmid, cache int) float64 {
	bytes := 0.0
	for _, t := range m.live {
		if t.rmid == rmid {
			bytes += t.perf[cache].bytes
		}
	}
	for i := range m.monitor.marks {
		k := &m.monitor.marks[i]
		lines := sumOf(k.ways[cache*m.cfg.LLCWays:(cache+1)*m.cfg.LLCWays]) * m.cfg.wayBytes()
		if k.rmid == rmid {
			bytes += lines
		}
		if k.task != noTask && m.tasks[k.task].rmid == rmid {
			bytes -= lines
		}
	}
	return max(0, bytes)
}

// RMIDTraffic returns what tasks on a cache's cores moved to and from memory under an
// RMID since the machine started, in bytes, and the part of it that was its socket's own
// memory. Both only grow.
func (m *Machine) RMIDTraffic(rmid, cache int) (total, local float64) {
	i := rmid*m.cfg.Caches() + cache
	if rmid < 0 || i >= len(m.monitor.traffic) {
		return 0, 0
	}
	return m.monitor.traffic[i].total, m.monitor.traffic[i].local
}
