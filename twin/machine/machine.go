// Package machine is the physics of a simulated server: CPU time, caches, memory
// bandwidth and latency, and the requests and work that tasks get done with them. It is
// deterministic: the same configuration, seed and calls give the same results.
//
// Time advances in steps (Config.StepNsec, 10 ms), which are played in parts where quotas are
// used up within one. In a step tasks first get CPU time
// (sched.go), then the cache and the memory settle how many cycles an instruction takes
// each of them (cache.go, memory.go), and then the instructions are spent on requests or
// work (request.go, work.go). What one step leaves open, such as how long the memory
// takes under the load that its own latency lets through, is settled over several: the
// next one begins with what the last one ended with.
//
// docs/TWIN.md has the model in equations, with sources, and what it leaves out.
package machine

import (
	"fmt"
	"math"

	"github.com/commensal-io/commensal/model"
)

// Config describes a server. Sizes are bytes, times nanoseconds, rates per second.
type Config struct {
	Sockets        int
	CoresPerSocket int
	// CachesPerSocket is how many last-level caches a socket has, each of as many of its cores (AMD's core complexes); all
	// are near the socket's one memory node. 0: one.
	CachesPerSocket int
	ThreadsPerCore  int // 1, or 2 with SMT

	// Hz is the reference clock, and that of every core that is not halted where there is no
	// Turbo: the clock with one, two, three ... cores of a socket at work.
	Hz    float64
	Turbo []float64

	LLCBytes float64 // of one cache
	LLCWays  int
	// LLCHitCycles is for how long a hit in the LLC stalls a core that waits for it alone.
	LLCHitCycles float64
	// InFlight is how many lines a core can have on their way from and to memory, prefetches
	// and both threads' included; 0: 18.
	InFlight float64
	// PrefetchedBytes is how far ahead of its use a core's prefetchers fetch; 0: 32 streams
	// of 20 lines.
	PrefetchedBytes float64

	DRAM            DRAM        // what the latency under load is like
	LoadCurve       []LoadPoint // in place of DRAM's curve up to the peak: a server's own, from {0, 1} to its peak; nil: DRAM's
	MemLatencyNsec  float64     // of an unloaded memory node, from its own socket
	MemPeakBytes    float64     // of one node, with reads only
	LinkLatencyNsec float64     // what an access to another socket's node adds
	LinkPeakBytes   float64     // of the links out of one socket
	MemBytes        float64     // of one node
	SwapBytes       float64     // of the machine; 0: none
	ZswapShare      float64     // of what is swapped out, that stays in memory, compressed; 0: no zswap
	FaultNsec       float64     // until a page is back from swap or disk; 0: 100 us
	MoveNsec        float64     // what the kernel does for 4 KiB that move to another node beside copying them; 0: 2 us, small pages
	DiskBytes       float64     // that the disk moves a second; 0: there is none
	DiskOps         float64     // operations that it does a second, of no bytes

	// MBAPerThread is true where each thread of a core has its own level (Ice Lake and
	// later); else the stricter one of both threads' classes holds for the core.
	MBAPerThread bool

	// SMTSlowdown is how much longer a thread's instructions take while its sibling
	// works: 0.6 means 1.6 times.
	SMTSlowdown float64

	Kernel Kernel // whose CFS bandwidth control it has

	Physics Physics // terms beyond the model of the docs' tables; none

	StepNsec int64
}

// Skylake is a server with two sockets of the kind that most published curves are of.
func Skylake() Config {
	return Config{
		Sockets: 2, CoresPerSocket: 16, ThreadsPerCore: 2,
		Hz: 2.6e9, LLCBytes: 22 << 20, LLCWays: 11, LLCHitCycles: 26,
		MemLatencyNsec: 67, MemPeakBytes: 112e9, LinkLatencyNsec: 60, LinkPeakBytes: 41e9, MemBytes: 192 << 30,
		SMTSlowdown: 0.6, StepNsec: 10e6,
	}
}

// CPUs returns the number of logical CPUs. They are numbered as Linux numbers them on
// most servers: the first threads of all cores, socket by socket, then the second ones.
func (c *Config) CPUs() int { return c.Sockets * c.CoresPerSocket * c.ThreadsPerCore }

// SocketOf returns a logical CPU's socket.
func (c *Config) SocketOf(cpu int) int {
	return cpu % (c.Sockets * c.CoresPerSocket) / c.CoresPerSocket
}

// Caches returns the number of last-level caches. They are numbered socket by socket.
func (c *Config) Caches() int { return c.Sockets * max(1, c.CachesPerSocket) }

// CacheOf returns a logical CPU's last-level cache.
func (c *Config) CacheOf(cpu int) int {
	return c.CoreOf(cpu) * max(1, c.CachesPerSocket) / c.CoresPerSocket
}

// Home returns the socket, and so the memory node, that a last-level cache belongs to.
func (c *Config) Home(cache int) int { return cache / max(1, c.CachesPerSocket) }

// CoreOf returns a logical CPU's core, numbered over all sockets.
func (c *Config) CoreOf(cpu int) int { return cpu % (c.Sockets * c.CoresPerSocket) }

// Check returns what makes the configuration impossible.
func (c *Config) Check() error {
	type bound struct {
		name           string
		value, min, to float64
	}
	for _, b := range []bound{
		{"sockets", float64(c.Sockets), 1, maxSockets},
		{"cores per socket", float64(c.CoresPerSocket), 1, 256},
		{"caches of a socket", float64(c.CachesPerSocket), 0, maxCaches},
		{"last-level caches", float64(c.Caches()), 1, maxCaches},
		{"threads per core", float64(c.ThreadsPerCore), 1, 2},
		{"frequency", c.Hz, 1e8, 1e10},
		{"LLC size", c.LLCBytes, 1 << 16, 1 << 40},
		{"LLC ways", float64(c.LLCWays), 1, maxWays},
		{"cycles of an LLC hit", c.LLCHitCycles, 1, 1000},
		{"lines in flight", c.InFlight, 0, 1024},
		{"bytes prefetched", c.PrefetchedBytes, 0, 1 << 24},
		{"kind of DRAM", float64(c.DRAM), float64(DDR4), float64(DDR5)},
		{"memory latency", c.MemLatencyNsec, 1, 1e5},
		{"memory bandwidth", c.MemPeakBytes, 1e6, 1e13},
		{"link latency", c.LinkLatencyNsec, 0, 1e5},
		{"link bandwidth", c.LinkPeakBytes, 1e6, 1e13},
		{"swap", c.SwapBytes, 0, 1 << 50},
		{"share that zswap keeps", c.ZswapShare, 0, 1},
		{"time of a page fault", c.FaultNsec, 0, 1e9},
		{"time of a page that moves", c.MoveNsec, 0, 1e9},
		{"disk bandwidth", c.DiskBytes, 0, 1e12},
		{"disk operations", c.DiskOps, 0, 1e8},
		{"memory size", c.MemBytes, 1 << 20, 1 << 50},
		{"SMT slowdown", c.SMTSlowdown, 0, 3},
		{"kernel", float64(c.Kernel), float64(Mainline), float64(NoBurst)},
		{"lines that wait at a memory node", c.Physics.QueueLines, 0, 1e6},
		{"step", float64(c.StepNsec), 1e5, 1e9},
	} {
		// Written so that NaN fails.
		if !(b.value >= b.min && b.value <= b.to) {
			return fmt.Errorf("machine: %s %v is not in [%g, %g]", b.name, b.value, b.min, b.to)
		}
	}
	if c.CachesPerSocket > 1 && c.CoresPerSocket%c.CachesPerSocket != 0 {
		return fmt.Errorf("machine: %d cores a socket cannot be divided evenly among %d caches", c.CoresPerSocket, c.CachesPerSocket)
	}
	if (c.DiskBytes > 0) != (c.DiskOps > 0) {
		return fmt.Errorf("machine: a disk of %v bytes and %v operations a second; expected both, or neither", c.DiskBytes, c.DiskOps)
	}
	last := 1e10
	for i, hz := range c.Turbo {
		if !(hz >= c.Hz && hz <= last) {
			return fmt.Errorf("machine: turbo falls from at most 10 GHz to not below %v; with %d cores it is %v after %v", c.Hz, i+1, hz, last)
		}
		last = hz
	}
	return c.checkLoadCurve()
}

const (
	maxSockets = 8
	maxCaches  = 32
	maxWays    = 32
	// A core of Skylake-SP keeps 17 to 18 lines on their way: MLC on two Xeon Silver 4110
	// reads 131 GB/s at 124 ns and 136 at 130 with 15 cores, as one measures; Mess ends at
	// 98 GB/s and 268 ns with 23 cores, a fifth of it writes.
	defaultInFlight = 18
	// Intel's optimization manual: the L2 streamer follows 32 streams, up to 20 lines ahead.
	defaultPrefetched = 32 * 20 * cacheLine
	// cacheLine is what a miss moves.
	cacheLine = 64
)

// Machine is a running server.
type Machine struct {
	cfg   Config
	now   int64
	rng   generator
	tasks []*Task // in the order of their numbers; gone ones are nil
	live  []*Task

	clos []clos
	mem  []memory // one a node, which is one a socket
	dram dram     // of all of them

	monitor   monitor
	placement placement
	flows     []flow             // scratch
	fillers   []filler           // scratch
	throttled []*Task            // scratch: those with an MBA level, at the cache at hand
	ran       []ran              // scratch: of each atom
	ranks     []rank             // scratch: of the tasks that live
	hz        [maxCaches]float64 // clock of each cache's cores, which is that of its socket
	pace      [maxCaches]float64 // how far the shares of each cache go of where they are heading (calm)
	home      [maxCaches]int     // the memory node near each cache
	online    model.CPUSet
	busyNsec  float64
	taken     []taken // by CPU; nil: nobody ever took any
	tookNsec  [takers]float64
	byCPU     []float64 // what tasks used on each CPU until it was last placed
	stall     pressure
	pagesAt   int64 // when pages age next
	grownAt   int64 // when tasks last grew
	partNsec  int64 // how long the last part of a step was
	longest   int64 // how long the next may be
}

// New returns a machine without tasks.
func New(cfg Config, seed uint64) (*Machine, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.InFlight == 0 {
		cfg.InFlight = defaultInFlight
	}
	if cfg.PrefetchedBytes == 0 {
		cfg.PrefetchedBytes = defaultPrefetched
	}
	m := &Machine{cfg: cfg, dram: cfg.curve(), partNsec: cfg.StepNsec, longest: cfg.StepNsec, rng: newGenerator(seed, 0x6d616368696e65), online: model.FullSet(cfg.CPUs()), byCPU: make([]float64, cfg.CPUs()), monitor: newMonitor(&cfg)}
	if m.cfg.FaultNsec == 0 {
		m.cfg.FaultNsec = defaultFaultNsec
	}
	if m.cfg.MoveNsec == 0 {
		m.cfg.MoveNsec = moveNsec
	}
	m.clos = []clos{defaultCLOS(&cfg)}
	for range cfg.Sockets {
		m.mem = append(m.mem, newMemory(&cfg))
	}
	for s := range cfg.Caches() {
		m.pace[s], m.home[s] = 1, cfg.Home(s)
	}
	return m, nil
}

// Config returns the machine's description.
func (m *Machine) Config() Config { return m.cfg }

// NowNsec returns the time since the machine started.
func (m *Machine) NowNsec() int64 { return m.now }

// BusyNsec returns the CPU time that tasks used on all CPUs together.
func (m *Machine) BusyNsec() uint64 { return uint64(m.busyNsec) }

// CPUNsec returns the CPU time that tasks used on one CPU. On CPUs that the same tasks may use it is
// the same.
func (m *Machine) CPUNsec(cpu int) uint64 {
	used := m.byCPU[cpu]
	for i := range m.placement.atoms {
		if at := &m.placement.atoms[i]; at.member.Has(cpu) {
			used += at.used / at.cpus
		}
	}
	return uint64(used)
}

// Advance lets a time pass, in whole steps; what is left of the last one is not played.
func (m *Machine) Advance(nsec int64) {
	for end := m.now + nsec; m.now+m.cfg.StepNsec <= end; {
		m.step()
	}
}

// step plays one step.
func (m *Machine) step() {
	if m.placement.stale {
		m.place()
	}
	for n := range m.mem {
		m.mem[n].step = told{}
	}
	for left := m.cfg.StepNsec; left > 0; {
		left -= m.part(left)
	}
	for n := range m.mem {
		m.mem[n].told = m.mem[n].step
	}
	m.movePages()
}

// part plays the beginning of what is left of a step, and returns how long it was.
func (m *Machine) part(left int64) int64 {
	m.begin(left)
	dt := m.length(left)
	if dt < left {
		m.begin(dt) // what requests want of this part alone
	}
	m.schedule(dt)
	m.clocks()
	m.press(dt)
	m.serveDisk(dt)
	m.pressDisk(dt)
	m.settle(float64(dt))
	for _, t := range m.live {
		m.spend(t, dt)
	}
	m.copied(float64(dt))
	m.took(dt)
	m.chargeAll(dt)
	m.now += dt
	m.partNsec = dt
	return dt
}

// begin asks all tasks what they could use in a part of a step.
func (m *Machine) begin(dt int64) {
	for _, t := range m.live {
		t.beginStep(m.now, dt)
	}
}

// A part that begins with a jump of a task with a quota by so many CPUs is short, and those after it twice as long
// each: caches are filled and emptied within such a time.
const (
	jumpCPUs  = 2
	firstPart = 250e3 // ns
)

// length is how long the part is that begins: all of what is left of a step, or as long as until a task with
// many threads has used up its quota. What twenty threads take from caches and memory in a millisecond is not what
// two take in ten.
func (m *Machine) length(left int64) int64 {
	part, jump := left, 0.0
	for _, t := range m.live {
		if t.limit.max.QuotaUsec < 0 {
			continue
		}
		want, asks := min(t.want, float64(t.may)), 0.0
		if t.limit.left >= worthPart {
			asks = want
		}
		jump = max(jump, math.Abs(asks-t.asks))
		if t.given < t.asks {
			want *= t.given / t.asks // others have the CPUs as well
		}
		t.asks = asks
		part = min(part, t.limit.lasts(want, left))
	}
	if m.longest = min(2*m.longest, m.cfg.StepNsec); jump > jumpCPUs {
		m.longest = firstPart
	}
	if m.longest <= left-leastPart {
		part = min(part, m.longest)
	}
	return part
}
