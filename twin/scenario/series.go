package scenario

import (
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

const (
	// maxPoints bounds the points of a series, maxSeries the tasks that have one: those
	// with requests first, then in the order of the file.
	maxPoints = 600
	maxSeries = 64
)

// Series are a run's course, for plots. A value that there is not is null.
type Series struct {
	EverySec float64      `json:"every_sec"`
	AtSec    []Number     `json:"at_sec"` // end of each point's time
	Node     NodeSeries   `json:"node"`
	Tasks    []TaskSeries `json:"tasks"`
}

// NodeSeries is the machine's part, memory by node.
type NodeSeries struct {
	Utilisation []Number   `json:"utilisation"` // share of all CPUs
	LatencyNsec [][]Number `json:"memory_latency_nsec"`
	GBPerSec    [][]Number `json:"memory_gb_per_sec"`
}

// TaskSeries is one task's part.
type TaskSeries struct {
	Task  string       `json:"task"`
	CPI   []Number     `json:"cpi"`
	CPU   []Number     `json:"cpu"`  // CPU-sec/sec
	GIPS  []Number     `json:"gips"` // 10⁹ instructions a second
	P99Ms []Number     `json:"p99_ms,omitempty"`
	Slow  []Number     `json:"slowdown"`
	Held  [][2]float64 `json:"held_sec,omitempty"` // from, to of each cap
	// Demoted is from when to when it gave way to everybody by the agent's doing.
	Demoted [][2]float64 `json:"demoted_sec,omitempty"`
}

// series collects them.
type series struct {
	out    Series
	index  []int // of the players in out.Tasks; -1: not drawn
	every  int64
	beats  int64
	last   []meter
	node   nodeMeter
	player []int
}

func (s *series) init(r *runner) {
	s.every = beatEvery(r.plan.Scenario.Duration)
	s.beats = int64(math.Ceil(float64(r.plan.Scenario.Duration) / float64(s.every) / maxPoints))
	s.beats = max(1, s.beats)
	s.out.EverySec = float64(s.every*s.beats) / 1e9
	n := r.plan.machine.Sockets
	s.out.Node.LatencyNsec, s.out.Node.GBPerSec = make([][]Number, n), make([][]Number, n)
	s.node = nodeMeter{latency: make([]float64, n), bytes: make([]float64, n)}
	s.last = make([]meter, len(r.players))
	s.index = make([]int, len(r.players))
	for i := range s.index {
		s.index[i] = -1
	}
	for _, serving := range []bool{true, false} {
		for i := range r.players {
			if (r.players[i].cfg.Requests != nil) == serving && len(s.player) < maxSeries {
				s.index[i] = len(s.player)
				s.player = append(s.player, i)
				s.out.Tasks = append(s.out.Tasks, TaskSeries{Task: r.players[i].name})
			}
		}
	}
}

// beat adds a point when one is due.
func (s *series) beat(r *runner, at int64) {
	if at/s.every%s.beats != 0 {
		return
	}
	ms := &r.meters
	seconds := float64(ms.node.elapsed-s.node.elapsed) / 1e9
	if seconds <= 0 {
		return
	}
	s.out.AtSec = append(s.out.AtSec, Number(float64(at)/1e9))
	cpus := float64(r.plan.machine.CPUs())
	s.out.Node.Utilisation = append(s.out.Node.Utilisation, Number(float64(ms.node.busy-s.node.busy)/1e9/seconds/cpus))
	for n := range s.node.latency {
		s.out.Node.LatencyNsec[n] = append(s.out.Node.LatencyNsec[n], Number((ms.node.latency[n]-s.node.latency[n])/seconds/1e9))
		s.out.Node.GBPerSec[n] = append(s.out.Node.GBPerSec[n], Number((ms.node.bytes[n]-s.node.bytes[n])/seconds/1e9))
	}
	s.node = ms.node.copy()
	for k, i := range s.player {
		now := ms.total(r, i)
		s.task(&s.out.Tasks[k], &now, &s.last[i])
		s.last[i] = now
		if g := &ms.gauges[i]; g.point != nil {
			p99 := math.NaN()
			if g.point.TotalCount() > 0 {
				p99 = float64(g.point.ValueAtQuantile(99)) / 1e6
			}
			s.out.Tasks[k].P99Ms = append(s.out.Tasks[k].P99Ms, Number(p99))
			g.point.Reset()
		}
	}
}

// Of returns a task's signal over time.
func (t *TaskSeries) Of(src model.Source) []Number {
	return [model.NumSources][]Number{model.SourceCPI: t.CPI, model.SourceSlowdown: t.Slow}[src]
}

func (s *series) task(out *TaskSeries, now, before *meter) {
	d := difference(&now.count, &before.count)
	alive := float64(now.alive - before.alive)
	cpi, cpu, gips, slow := math.NaN(), math.NaN(), math.NaN(), math.NaN()
	if d.Instructions > 0 {
		cpi = float64(d.RefCycles) / float64(d.Instructions)
	}
	if alive > 0 {
		cpu, gips = float64(d.UsageNsec)/alive, float64(d.Instructions)/alive
	}
	if d.UsageNsec > 0 {
		slow = 1 + float64(d.DelayNsec)/float64(d.UsageNsec)
	}
	out.CPI, out.CPU, out.GIPS, out.Slow = append(out.CPI, Number(cpi)), append(out.CPU, Number(cpu)), append(out.GIPS, Number(gips)), append(out.Slow, Number(slow))
}

// difference returns what was counted between two readings.
func difference(now, before *machine.Counters) machine.Counters {
	return machine.Counters{
		UsageNsec: now.UsageNsec - before.UsageNsec, DelayNsec: now.DelayNsec - before.DelayNsec,
		Cycles: now.Cycles - before.Cycles, RefCycles: now.RefCycles - before.RefCycles,
		Instructions: now.Instructions - before.Instructions, LLCReferences: now.LLCReferences - before.LLCReferences,
		LLCMisses: now.LLCMisses - before.LLCMisses, MemBytes: now.MemBytes - before.MemBytes,
		Periods: now.Periods - before.Periods, Throttled: now.Throttled - before.Throttled,
		ThrottledNsec: now.ThrottledNsec - before.ThrottledNsec, WorkDone: now.WorkDone - before.WorkDone,
		Requests: now.Requests - before.Requests,
	}
}

// maxHolds bounds the shaded times of a task.
const maxHolds = 200

// shaded adds a time to be shaded.
func shaded(list [][2]float64, from, to int64) [][2]float64 {
	if len(list) >= maxHolds {
		return list
	}
	return append(list, [2]float64{float64(from) / 1e9, float64(to) / 1e9})
}

// held notes a time under a cap.
func (s *series) held(i int, from, to int64) {
	if k := s.index[i]; k >= 0 {
		s.out.Tasks[k].Held = shaded(s.out.Tasks[k].Held, from, to)
	}
}

// demoted notes a time in which a task gave way to everybody.
func (s *series) demoted(i int, from, to int64) {
	if k := s.index[i]; k >= 0 {
		s.out.Tasks[k].Demoted = shaded(s.out.Tasks[k].Demoted, from, to)
	}
}
