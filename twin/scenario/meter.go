package scenario

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/commensal-io/commensal/twin/machine"
)

// The range of latencies that are told apart, to two digits, as in the physics.
const minLatencyNsec, maxLatencyNsec = 1_000, 600_000_000_000

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(minLatencyNsec, maxLatencyNsec, 2)
}

// meter is what a player has done since the scenario began. It only grows.
type meter struct {
	count     machine.Counters
	lost      uint64  // requests
	alive     int64   // ns
	held      int64   // ns under a cap of the agent
	judged    int64   // ns in which the SLO could be judged
	bad       int64   // of them, in violation
	occupancy float64 // byte-nanoseconds of the LLCs

	stall             machine.Pressure
	disk              machine.DiskUse
	faults            uint64  // pages that came back
	resident, swapped float64 // byte-nanoseconds of memory
}

// add takes in the counters of a life that is over.
func (m *meter) add(c machine.Counters) {
	t := &m.count
	t.UsageNsec += c.UsageNsec
	t.DelayNsec += c.DelayNsec
	t.Cycles += c.Cycles
	t.RefCycles += c.RefCycles
	t.Instructions += c.Instructions
	t.LLCReferences += c.LLCReferences
	t.LLCMisses += c.LLCMisses
	t.MemBytes += c.MemBytes
	t.Periods += c.Periods
	t.Throttled += c.Throttled
	t.ThrottledNsec += c.ThrottledNsec
	t.WorkDone += c.WorkDone
	t.Requests += c.Requests
}

// addStalls takes in the waiting of a life that is over.
func (m *meter) addStalls(p machine.Pressure, disk machine.DiskUse, faults uint64) {
	m.stall.IOSome += p.IOSome
	m.stall.IOFull += p.IOFull
	m.disk = m.disk.Plus(disk, 1)
	m.stall.CPUSome += p.CPUSome
	m.stall.CPUFull += p.CPUFull
	m.stall.MemorySome += p.MemorySome
	m.stall.MemoryFull += p.MemoryFull
	m.faults += faults
}

// nodeMeter is the same for the machine.
type nodeMeter struct {
	elapsed int64
	busy    uint64    // ns of CPU time
	latency []float64 // ns x ns, by node
	bytes   []float64 // by node
	stall   machine.Pressure
}

// gauge is one player's meter with what is not yet added to it.
type gauge struct {
	meter
	from      int64            // since when it is held; -1: it is not
	seen      machine.Counters // at the last beat: what is left of one whom the agent ends
	slo       *hdrhistogram.Histogram
	sloFrom   int64
	source    source // what a latency source has seen
	sloLost   uint64
	point     *hdrhistogram.Histogram // of the series' present point
	inWindows []*hdrhistogram.Histogram
}

// meters measure.
type meters struct {
	gauges  []gauge
	node    nodeMeter
	last    int64 // when the last beat was
	windows []window
	series  series
}

// window is one time over which is measured.
type window struct {
	open          bool
	before, after []meter
	node          [2]nodeMeter
}

func (ms *meters) init(r *runner) {
	s := r.plan.Scenario
	ms.gauges = make([]gauge, len(r.players))
	ms.windows = make([]window, len(s.Measure))
	n := r.plan.machine.Sockets
	ms.node = nodeMeter{latency: make([]float64, n), bytes: make([]float64, n)}
	for i := range ms.gauges {
		g := &ms.gauges[i]
		g.from = -1
		if r.players[i].cfg.Requests == nil {
			continue
		}
		g.slo, g.point = newHistogram(), newHistogram()
		for range s.Measure {
			g.inWindows = append(g.inWindows, newHistogram())
		}
	}
	ms.series.init(r)
}

// schedule puts the beats and the windows' edges on the agenda.
func (ms *meters) schedule(r *runner) {
	s := r.plan.Scenario
	for i := range s.Measure {
		w := &s.Measure[i]
		r.agenda.note(int64(w.From), orderSample, func() error { ms.edge(r, i, true); return nil })
		r.agenda.note(int64(w.To), orderSample, func() error { ms.edge(r, i, false); return nil })
	}
	every := beatEvery(s.Duration)
	var tick func(at int64)
	tick = func(at int64) {
		r.agenda.note(at, orderSample, func() error {
			r.beat()
			ms.series.beat(r, at)
			tick(at + every)
			return nil
		})
	}
	tick(every)
}

// maxBeats bounds how often a run is sampled: a second for an hour, more for more.
const maxBeats = 3600

func beatEvery(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds()/maxBeats))) * int64(time.Second)
}

// edge opens or closes a window.
func (ms *meters) edge(r *runner, i int, open bool) {
	r.beat()
	w := &ms.windows[i]
	now := make([]meter, len(r.players))
	for k := range r.players {
		now[k] = ms.total(r, k)
	}
	w.open = open
	if open {
		w.before, w.node[0] = now, ms.node.copy()
		return
	}
	w.after, w.node[1] = now, ms.node.copy()
}

func (n *nodeMeter) copy() nodeMeter {
	c := *n
	c.latency = append([]float64(nil), n.latency...)
	c.bytes = append([]float64(nil), n.bytes...)
	return c
}

// total returns a player's meter as of the last beat.
func (ms *meters) total(r *runner, i int) meter {
	t := ms.gauges[i].meter
	if pl := &r.players[i]; pl.alive {
		c, err := r.m.Counters(pl.num)
		if err != nil {
			c = ms.gauges[i].seen
		}
		t.add(c)
		stall, _ := r.m.Pressure(pl.num) // nothing of one that the agent has ended
		use, _ := r.m.MemoryUse(pl.num)
		disk, _ := r.m.DiskUse(pl.num)
		t.addStalls(stall, disk, use.FaultPages)
	}
	return t
}

// bury keeps what a player did that is about to end.
func (ms *meters) bury(r *runner, i int) { ms.gauges[i].meter = ms.total(r, i) }

func (ms *meters) holdFrom(i int, now int64) { ms.gauges[i].from = now }

func (ms *meters) holdTo(i int, now int64) {
	g := &ms.gauges[i]
	ms.series.held(i, g.from, now)
	g.from = -1
}

// beat measures what has passed since the last one.
func (r *runner) beat() {
	ms := &r.meters
	now := r.m.NowNsec()
	dt := now - ms.last
	if dt <= 0 {
		return
	}
	ms.last = now
	ms.node.elapsed += dt
	ms.node.busy, ms.node.stall = r.m.BusyNsec(), r.m.SystemPressure()
	for n := range ms.node.latency {
		s := r.m.Memory(n)
		ms.node.latency[n] += s.LatencyNsec * float64(dt)
		ms.node.bytes[n] += s.BytesPerSecond * float64(dt) / 1e9
	}
	for i := range r.players {
		if r.players[i].alive {
			r.beatPlayer(i, now, dt)
		}
	}
}

func (r *runner) beatPlayer(i int, now, dt int64) {
	ms, pl := &r.meters, &r.players[i]
	g := &ms.gauges[i]
	c, err := r.m.Counters(pl.num)
	if err != nil {
		r.toEnd(i, "is ended by the agent")
		return
	}
	g.seen = c
	g.alive += dt
	if g.from >= 0 {
		g.held += dt
	}
	for s := range r.plan.machine.Caches() {
		if bytes, err := r.m.Occupancy(pl.num, s); err == nil {
			g.occupancy += bytes * float64(dt)
		}
	}
	r.beatMemory(i, dt)
	h, lost, err := r.m.Latencies(pl.num)
	if err != nil || h == nil {
		return
	}
	g.lost += lost
	g.point.Merge(h)
	for k := range ms.windows {
		if ms.windows[k].open {
			g.inWindows[k].Merge(h)
		}
	}
	r.judge(i, h, lost, now)
	if o := r.plan.Scenario.Tasks[pl.entry].SLO; o != nil && o.Told {
		g.source.see(h, lost, now, int64(o.Every))
	}
}

// beatMemory measures a player's memory. One that does not fit is ended, as the kernel does
// it when nothing is left to reclaim.
func (r *runner) beatMemory(i int, dt int64) {
	pl := &r.players[i]
	if len(pl.cfg.Memory) == 0 {
		return
	}
	use, err := r.m.MemoryUse(pl.num)
	if err != nil {
		return
	}
	g := &r.meters.gauges[i]
	g.resident += (use.Anon + use.File) * float64(dt)
	g.swapped += use.Swap * float64(dt)
	if use.Killed {
		r.toEnd(i, "is killed: out of memory")
	}
}

// toEnd has a player's life end at once, and says why.
func (r *runner) toEnd(i int, why string) {
	pl := &r.players[i]
	num := pl.num
	r.agenda.note(r.m.NowNsec(), orderEvent, func() error {
		if !pl.alive || pl.num != num {
			return nil
		}
		r.story.say(r, pl.name+" "+why)
		return r.stop(i)
	})
}

// judge holds a player's latency against its objective.
func (r *runner) judge(i int, h *hdrhistogram.Histogram, lost uint64, now int64) {
	o := r.plan.Scenario.Tasks[r.players[i].entry].SLO
	if o == nil {
		return
	}
	g := &r.meters.gauges[i]
	if g.sloFrom < r.players[i].since {
		g.sloFrom = r.players[i].since
	}
	g.slo.Merge(h)
	g.sloLost += lost
	span := now - g.sloFrom
	if span < int64(o.Every) {
		return
	}
	done := g.slo.TotalCount()
	// A service that completes nothing of what comes is the worst violation of all.
	stuck := done == 0 && r.rate(i, now)*float64(span)/1e9 >= stuckRequests
	if done > 0 || g.sloLost > 0 || stuck {
		g.judged += span
	}
	if g.sloLost > 0 || stuck || done > 0 && g.slo.ValueAtQuantile(100*o.Quantile) > int64(o.Latency) {
		g.bad += span
	}
	g.slo.Reset()
	g.sloLost, g.sloFrom = 0, now
}

// stuckRequests have to have come before "none was served" means anything.
const stuckRequests = 10
