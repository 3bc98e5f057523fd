package machine

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/commensal-io/commensal/model"
)

// TaskConfig describes a task: what its instructions are like, where it may run, and
// what it has to do.
type TaskConfig struct {
	Name    string
	Threads int
	// Kernel is true of kernel threads: they are scheduled as any others are, and blamed as the kernel's.
	Kernel bool
	// Apart is true where each thread of closed-loop work is a process of its own, with the curve
	// for itself: sixteen copies of a program have sixteen working sets.
	Apart bool

	// CPI is cycles per instruction on a core of its own, without what LLC accesses cost.
	CPI float64
	// APKI is accesses to the LLC per thousand instructions; Curve is how many of them
	// miss.
	APKI  float64
	Curve MissCurve
	// Overlap is how many of the accesses that the core waits for are under way at once
	// (memory-level parallelism).
	Overlap float64
	// Prefetched is the share of its accesses that prefetchers begin early enough for the
	// core not to wait. They take as much of the memory's bandwidth as others.
	Prefetched float64
	// WriteShare is the share of writes in its memory traffic.
	WriteShare float64
	// Spread is the relative standard deviation of its CPI from one piece of work to the
	// next, and SpreadNsec how long work stays alike (CPI² figure 5: about 4 %).
	Spread     float64
	SpreadNsec int64

	Shares int64 // cpu.shares; 0: 1024
	// Exactly one of the two.
	Requests *Requests
	Work     *Work

	// CPUs and Nodes restrict it; empty: everywhere. Pages is the share of its pages on
	// each node; empty: on the sockets that it may run on, evenly.
	CPUs  model.CPUSet
	Pages []float64

	// Memory is what it has in memory beside the traffic of its misses; empty: nothing
	// that could be reclaimed.
	Memory []Heat
	// AgedNsec is for how long it had used that memory so when it starts: what is left of a life that is not played.
	AgedNsec int64

	Disk *DiskIO // nil: it does nothing there
}

const (
	maxThreads    = 1024
	defaultShares = 1024
)

// ErrNoTask: the task is not, or not any more, on the machine.
var ErrNoTask = errors.New("machine: no such task")

// Check returns what makes the task impossible on a machine.
func (c *TaskConfig) Check(m *Config) error {
	type bound struct {
		name           string
		value, min, to float64
	}
	for _, b := range []bound{
		{"threads", float64(c.Threads), 1, maxThreads},
		{"CPI", c.CPI, 0.1, 100},
		{"LLC accesses per 1000 instructions", c.APKI, 0, 1000},
		{"overlap", c.Overlap, 1, 64},
		{"share prefetched", c.Prefetched, 0, 1},
		{"share of writes", c.WriteShare, 0, 0.99},
		{"spread", c.Spread, 0, 0.5},
		{"shares", float64(c.Shares), 0, 262144},
	} {
		if !(b.value >= b.min && b.value <= b.to) {
			return fmt.Errorf("machine: task %s: %s %v is not in [%g, %g]", c.Name, b.name, b.value, b.min, b.to)
		}
	}
	if err := c.Curve.Check(); err != nil {
		return fmt.Errorf("task %s: %w", c.Name, err)
	}
	if c.CPUs != (model.CPUSet{}) && c.CPUs.And(model.FullSet(m.CPUs())) != c.CPUs {
		return fmt.Errorf("machine: task %s: CPUs %s, and the machine has 0-%d", c.Name, c.CPUs, m.CPUs()-1)
	}
	if len(c.Pages) > m.Sockets {
		return fmt.Errorf("machine: task %s: pages on %d nodes, and the machine has %d", c.Name, len(c.Pages), m.Sockets)
	}
	for _, p := range c.Pages {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("machine: task %s: a share of pages of %v", c.Name, p)
		}
	}
	if err := checkHeats(c, m); err != nil {
		return err
	}
	if c.Disk != nil {
		if err := c.Disk.check(c.Name, m); err != nil {
			return err
		}
	}
	if (c.Requests == nil) == (c.Work == nil) {
		return fmt.Errorf("machine: task %s: wants either requests or work", c.Name)
	}
	if c.Requests != nil {
		return c.Requests.check(c.Name)
	}
	return c.Work.check(c.Name)
}

// Counters are what a task has done since it started. All but the times of Delay only
// grow by what really happened.
type Counters struct {
	UsageNsec     uint64 // on CPUs
	DelayNsec     uint64 // ready, and waiting for a CPU or for its quota
	Cycles        uint64 // of the core's clock
	RefCycles     uint64 // of the reference clock
	Instructions  uint64
	LLCReferences uint64
	LLCMisses     uint64
	MemBytes      uint64 // moved to and from memory
	Periods       uint64 // of CFS bandwidth control
	Throttled     uint64 // of these, with the quota used up
	ThrottledNsec uint64
	Bursts        uint64 // periods in which it used more than a quota
	BurstNsec     uint64 // and how much more
	WorkDone      uint64 // instructions of closed-loop work
	Requests      uint64 // completed
}

// Task is a task on a machine.
type Task struct {
	// Of the current step. What a step's many passes over all tasks look at lies together,
	// from here to cfg: all of it is more than a core's first cache holds.
	want    float64   // CPUs that it could use
	given   float64   // CPUs that it got
	asks    float64   // with a quota: CPUs that it could use, 0 while that is used up
	wait    float64   // ready and waiting, in CPUs
	robbed  taken     // of the CPUs that it had, what takers took
	stretch float64   // how much longer its work takes for that
	ask     float64   // of the atom at hand
	on      []float64 // given, by cache
	share   []float64 // given, by atom of the placement
	late    float64   // mean wait for a CPU per unit of its work, of threads that come and go
	sib     float64   // share of its time with a busy sibling
	perf    []cachePerf
	ips     float64 // instructions per second on a CPU, over all caches
	may     int     // CPUs that it may run on

	shares  float64
	idle    bool // SCHED_IDLE
	frozen  bool
	clos    int
	rmid    int
	moved   []traffic // by cache, under whatever RMID
	rank    int       // of this step
	pages   []float64
	copying *copying // nil: none of them are on their way
	spread  float64  // factor on the CPI of the work at hand
	phase   phase    // of closed-loop work

	cfg   TaskConfig
	num   int
	rng   generator
	drawn int64

	count counters
	limit bandwidth
	cpus  model.CPUSet // that it is restricted to; none: no restriction
	mem   pageState
	stall pressure
	disk  disk
	queue queue  // of open-loop requests
	waits *Waits // nil: nobody asks for them

	filling [maxCurve]float64 // of its curve
}

// counters are Counters before rounding.
type counters struct {
	usage, delay, cycles, refCycles, instructions, references, misses, bytes float64
	periods, throttled, bursts, requests                                     uint64
	throttledNsec, burstNsec, work                                           float64
}

// cachePerf is how a task's instructions go on the cores of one cache.
type cachePerf struct {
	ways   []float64 // share of each way of the LLC that it fills
	bytes  float64   // of the LLC
	misses float64   // per 1000 instructions, with what it fills, in a phase like others
	mpki   float64   // the same in the mean over a part of a step, in its phase, with again
	again  float64   // per 1000 instructions: prefetched, lost and missed once more
	cost   cost
	cpi    float64
	fill   lastFill
	insert float64 // bytes per second that it brought into the LLC in the last part of a step
	each   float64 // the same of one CPU that it used, when last it used one
	keeps  float64 // how much faster it filled bytes than it inserts
}

// cost is what an instruction takes: own cycles without memory, of the cycles that a miss
// waits the part that is felt and the part that it takes at least, and the cycles that it
// takes at least whatever the memory does.
type cost struct{ own, felt, least, gate float64 }

// Add starts a task and returns its number, which is not used again.
func (m *Machine) Add(cfg TaskConfig) (int, error) {
	if err := cfg.Check(&m.cfg); err != nil {
		return 0, err
	}
	t := &Task{
		cfg: cfg, num: len(m.tasks), rng: newGenerator(m.rng.Uint64(), m.rng.Uint64()),
		shares: defaultShares, cpus: cfg.CPUs, spread: 1, stretch: 1, drawn: math.MinInt64 / 2,
		on: make([]float64, m.cfg.Caches()), perf: make([]cachePerf, m.cfg.Caches()), moved: make([]traffic, m.cfg.Caches()),
	}
	if cfg.Shares > 0 {
		t.shares = float64(cfg.Shares)
	}
	for s := range t.perf {
		t.perf[s].ways = make([]float64, m.cfg.LLCWays)
		t.perf[s].cpi = cfg.CPI
	}
	t.filling = cfg.Curve.filling(cfg.APKI)
	t.ips = m.cfg.Hz / cfg.CPI
	t.limit = unlimited(m.cfg.Kernel, t.num, m.now)
	t.pages = placePages(&m.cfg, &cfg)
	t.queue.init(&cfg)
	t.mem = pageState{heats: newHeats(cfg.Memory, m.now-cfg.AgedNsec)}
	m.tasks = append(m.tasks, t)
	m.live = append(m.live, t)
	m.placement.stale = true
	return t.num, nil
}

// placePages returns the share of a task's pages on each node, in sum 1.
func placePages(m *Config, c *TaskConfig) []float64 {
	pages := make([]float64, m.Sockets)
	sum := 0.0
	for i, p := range c.Pages {
		pages[i] = p
		sum += p
	}
	if sum == 0 {
		return m.PagesBeside(cmp.Or(c.CPUs, model.FullSet(m.CPUs())))
	}
	for i := range pages {
		pages[i] /= sum
	}
	return pages
}

// PagesBeside returns the share of pages on each node, in sum 1, that were touched first on CPUs of the machine, evenly.
func (c *Config) PagesBeside(cpus model.CPUSet) []float64 {
	pages := make([]float64, c.Sockets)
	sum := 0.0
	for cpu := range c.CPUs() {
		if cpus.Has(cpu) {
			pages[c.SocketOf(cpu)]++
			sum++
		}
	}
	for i := range pages {
		pages[i] /= sum
	}
	return pages
}

// Remove ends a task.
func (m *Machine) Remove(num int) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	m.leaveLines(t, noTask)
	m.tasks[num] = nil
	for i, l := range m.live {
		if l == t {
			m.live = append(m.live[:i], m.live[i+1:]...)
			break
		}
	}
	m.placement.stale = true
	return nil
}

func (m *Machine) task(num int) (*Task, error) {
	if num < 0 || num >= len(m.tasks) || m.tasks[num] == nil {
		return nil, fmt.Errorf("%w: %d", ErrNoTask, num)
	}
	return m.tasks[num], nil
}

// Counters returns what a task has done.
func (m *Machine) Counters(num int) (Counters, error) {
	t, err := m.task(num)
	if err != nil {
		return Counters{}, err
	}
	c := &t.count
	return Counters{
		UsageNsec: uint64(c.usage), DelayNsec: uint64(c.delay),
		Cycles: uint64(c.cycles), RefCycles: uint64(c.refCycles), Instructions: uint64(c.instructions),
		LLCReferences: uint64(c.references), LLCMisses: uint64(c.misses), MemBytes: uint64(c.bytes),
		Periods: c.periods, Throttled: c.throttled, ThrottledNsec: uint64(c.throttledNsec),
		Bursts: c.bursts, BurstNsec: uint64(c.burstNsec),
		WorkDone: uint64(c.work), Requests: c.requests,
	}, nil
}

// held is what of a step its own quota holds back, in CPUs.
func (t *Task) held() float64 { return max(0, t.want-t.had()-t.wait) }

// beginStep asks what a task could use in the step that begins.
func (t *Task) beginStep(now, dt int64) {
	if t.cfg.Spread > 0 && now-t.drawn >= max(t.cfg.SpreadNsec, dt) {
		t.drawn = now
		// Log-normal, with mean 1: work that takes longer than usual does so by more
		// than other work falls short, as CPI2's figure 7 has it.
		t.spread = math.Exp(t.cfg.Spread*t.rng.NormFloat64() - t.cfg.Spread*t.cfg.Spread/2)
	}
	t.limit.begin(now, &t.count)
	if t.cfg.Requests != nil {
		t.want = t.queue.wanted(t, now, dt)
		t.want = max(t.want, min(t.want*t.stretch, float64(t.may)))
	} else {
		t.want = t.phase.wanted(t, now) * (1 - t.mem.blocked) * t.stretch
	}
	t.want = min(t.want, float64(t.cfg.Threads))
	if t.frozen {
		t.want = 0
	}
}
