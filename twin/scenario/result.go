package scenario

import (
	"math"
	"strconv"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Number is a figure of a result: five digits in JSON, and null when there is none.
type Number float64

// MarshalJSON writes the figure.
func (n Number) MarshalJSON() ([]byte, error) {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, v, 'g', 5, 64), nil
}

// Known says whether there is a figure.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) }

// Result is what `twin run` prints: docs/SCENARIOS.md explains its fields.
type Result struct {
	Version     int     `json:"version"`
	Scenario    string  `json:"scenario"`
	About       string  `json:"about,omitempty"`
	Seed        uint64  `json:"seed"`
	Profile     string  `json:"profile"`
	Mode        string  `json:"mode"`
	Platform    string  `json:"platform"`
	CPUs        int     `json:"cpus"`
	Sockets     int     `json:"sockets"`
	DurationSec float64 `json:"duration_sec"`
	Seam        string  `json:"seam"`             // typed, or files and the layout of cgroups
	Runs        []Run   `json:"runs"`             // more than one with a sweep
	Checks      []Check `json:"checks,omitempty"` // across the runs
	Passed      *bool   `json:"passed,omitempty"`
}

// AllChecks returns the checks of all runs and those across them.
func (res *Result) AllChecks() []Check {
	var all []Check
	for i := range res.Runs {
		all = append(all, res.Runs[i].Checks...)
	}
	return append(all, res.Checks...)
}

// Run is one play.
type Run struct {
	Settings   []Setting         `json:"settings,omitempty"` // of a sweep
	Mode       string            `json:"mode"`
	Windows    []WindowResult    `json:"windows"`
	Incidents  []*model.Incident `json:"incidents"`
	Named      []Naming          `json:"named"`
	Events     []StoryEvent      `json:"events,omitempty"`
	Decisions  []model.Decision  `json:"decisions"`
	Left       int               `json:"decisions_left_out,omitempty"`
	Thresholds map[string]Number `json:"outlier_thresholds,omitempty"` // by job, at the end
	Refused    int               `json:"writes_refused,omitempty"`
	AsFound    bool              `json:"restored"`
	NotAsFound string            `json:"not_restored,omitempty"`
	Checks     []Check           `json:"checks,omitempty"`
	Series     Series            `json:"series"`
	Baseline   []WindowResult    `json:"baseline,omitempty"` // the same with policies off

	seam string
}

// WindowResult is what was measured in a window.
type WindowResult struct {
	Name    string        `json:"name"`
	FromSec float64       `json:"from_sec"`
	ToSec   float64       `json:"to_sec"`
	Node    NodeFigures   `json:"node"`
	Tasks   []TaskFigures `json:"tasks"`
}

// NodeFigures are the machine's; lists have an element a memory node.
type NodeFigures struct {
	Utilisation Number   `json:"utilisation"` // share of all CPUs
	LCCPU       Number   `json:"lc_cpu"`      // CPU-sec/sec
	BECPU       Number   `json:"be_cpu"`
	LatencyNsec []Number `json:"memory_latency_nsec"`
	GBPerSec    []Number `json:"memory_gb_per_sec"`

	Pressure PressureFigures `json:"pressure"`
}

// PressureFigures are shares of the time in which threads with work to do waited, as PSI
// has it: some of them, or all.
type PressureFigures struct {
	CPUSome    Number `json:"cpu_some"`
	CPUFull    Number `json:"cpu_full"`
	MemorySome Number `json:"memory_some"`
	MemoryFull Number `json:"memory_full"`
}

// MemoryFigures are of a task's own memory.
type MemoryFigures struct {
	ResidentBytes Number `json:"resident_bytes"` // mean
	SwappedBytes  Number `json:"swapped_bytes"`  // mean
	Faults        Number `json:"faults_per_sec"` // pages that came back
}

// DiskFigures are of a task that uses the disk.
type DiskFigures struct {
	Some     Number `json:"io_some"` // share of the time in which a thread waited for it (PSI)
	Full     Number `json:"io_full"`
	MBPerSec Number `json:"mb_per_sec"`
	Ops      Number `json:"ops_per_sec"`
	OpMs     Number `json:"op_ms"` // until an operation is done, in the mean
}

// TaskFigures are one task's.
type TaskFigures struct {
	Task  string      `json:"task"`
	Entry string      `json:"entry"` // of the file; several tasks with a count
	Path  string      `json:"path"`
	Job   string      `json:"job"`
	Class model.Class `json:"class"`

	AliveSec      Number   `json:"alive_sec"`
	CPI           Number   `json:"cpi"`
	MPKI          Number   `json:"mpki"`
	LLCBytes      Number   `json:"llc_bytes"` // mean, of all caches
	GBPerSec      Number   `json:"memory_gb_per_sec"`
	CPU           Number   `json:"cpu"`      // CPU-sec/sec
	Slowdown      Number   `json:"slowdown"` // (cpu + delay) / cpu
	ThrottledPart Number   `json:"throttled_periods"`
	HeldSec       Number   `json:"held_sec"` // under a cap of the agent
	Latency       *Latency `json:"latency,omitempty"`

	Pressure PressureFigures `json:"pressure"`
	Memory   *MemoryFigures  `json:"memory,omitempty"`
	Disk     *DiskFigures    `json:"disk,omitempty"`

	Work         Number  `json:"work_per_sec"` // requests of LC, instructions of BE
	RelativeWork *Number `json:"relative_work,omitempty"`
}

// Latency is that of requests, from arrival to completion.
type Latency struct {
	P50Ms        Number `json:"p50_ms"`
	P95Ms        Number `json:"p95_ms"`
	P99Ms        Number `json:"p99_ms"`
	MeanMs       Number `json:"mean_ms"`
	Requests     uint64 `json:"requests"`
	Lost         uint64 `json:"lost"`
	HasSLO       bool   `json:"has_slo"`
	ViolationSec Number `json:"slo_violation_sec"`
	JudgedSec    Number `json:"slo_judged_sec"`
}

// Naming is a task that a round of an incident picked.
type Naming struct {
	AtSec     float64 `json:"at_sec"`
	AfterSec  float64 `json:"after_sec"` // since the task started or the warm-up ended
	Task      string  `json:"task"`
	Incident  string  `json:"incident"`
	Victim    string  `json:"victim"`
	Score     Number  `json:"score"`
	Threshold Number  `json:"threshold"`
	Verdict   string  `json:"verdict"`
}

// result gathers a run.
func (r *runner) result() (*Run, error) {
	run := &Run{seam: r.bed.Seam(), Mode: r.config.Policies.Mode.String(), Decisions: r.story.decisions, Left: r.story.left, Events: r.story.events, Refused: r.story.refused}
	for i := range r.plan.Scenario.Measure {
		run.Windows = append(run.Windows, r.window(i))
	}
	run.Incidents = r.story.incidents
	run.Named = r.namings()
	run.Thresholds = r.thresholds()
	run.AsFound, run.NotAsFound = r.asFound()
	run.Series = r.meters.series.out
	if r.plan.judged && r.config.Policies.Mode == r.plan.config.Policies.Mode {
		run.Checks = r.check(run)
	}
	return run, nil
}

func (r *runner) window(i int) WindowResult {
	w, m := &r.meters.windows[i], &r.plan.Scenario.Measure[i]
	out := WindowResult{Name: m.Name, FromSec: m.From.Seconds(), ToSec: m.To.Seconds()}
	seconds := (m.To - m.From).Seconds()
	out.Node.Utilisation = Number(float64(w.node[1].busy-w.node[0].busy) / 1e9 / seconds / float64(r.plan.machine.CPUs()))
	for n := range w.node[0].latency {
		out.Node.LatencyNsec = append(out.Node.LatencyNsec, Number((w.node[1].latency[n]-w.node[0].latency[n])/seconds/1e9))
		out.Node.GBPerSec = append(out.Node.GBPerSec, Number((w.node[1].bytes[n]-w.node[0].bytes[n])/seconds/1e9))
	}
	out.Node.Pressure = pressure(&w.node[0].stall, &w.node[1].stall, 1e9*seconds)
	for k := range r.players {
		t := r.figures(k, &w.before[k], &w.after[k])
		if h := r.meters.gauges[k].inWindows; h != nil {
			t.Latency = r.latency(k, h[i], &w.before[k], &w.after[k])
		}
		used := Number(float64(w.after[k].count.UsageNsec-w.before[k].count.UsageNsec) / 1e9 / seconds)
		switch t.Class {
		case model.LC:
			out.Node.LCCPU += used
		case model.BE:
			out.Node.BECPU += used
		}
		out.Tasks = append(out.Tasks, t)
	}
	return out
}

// figures are what a player did between two readings.
func (r *runner) figures(k int, before, after *meter) TaskFigures {
	pl := &r.players[k]
	d := difference(&after.count, &before.count)
	alive := float64(after.alive - before.alive)
	n, usage := float64(d.Instructions), float64(d.UsageNsec)
	work := float64(d.WorkDone)
	if pl.cfg.Requests != nil {
		work = float64(d.Requests)
	}
	t := TaskFigures{
		Task: pl.name, Entry: r.plan.Scenario.Tasks[pl.entry].Name, Path: pl.task.Path, Job: pl.task.Job, Class: pl.task.Class,
		AliveSec: Number(alive / 1e9), CPI: ratio(float64(d.RefCycles), n), MPKI: ratio(1000*float64(d.LLCMisses), n),
		LLCBytes: ratio(after.occupancy-before.occupancy, alive), GBPerSec: ratio(float64(d.MemBytes), alive), CPU: ratio(usage, alive),
		Slowdown: ratio(usage+float64(d.DelayNsec), usage), ThrottledPart: ratio(float64(d.Throttled), float64(d.Periods)),
		HeldSec: Number(float64(after.held-before.held) / 1e9), Work: ratio(1e9*work, alive),
		Pressure: pressure(&before.stall, &after.stall, alive),
	}
	if pl.cfg.Disk != nil {
		u := after.disk.Plus(before.disk, -1)
		t.Disk = &DiskFigures{
			Some: ratio(float64(after.stall.IOSome-before.stall.IOSome), alive), Full: ratio(float64(after.stall.IOFull-before.stall.IOFull), alive),
			MBPerSec: ratio(1e3*(u.ReadBytes+u.WrittenBytes), alive), Ops: ratio(1e9*(u.Reads+u.Writes), alive), OpMs: ratio(u.WaitedNsec/1e6, u.Reads+u.Writes),
		}
	}
	if len(pl.cfg.Memory) > 0 {
		t.Memory = &MemoryFigures{
			ResidentBytes: ratio(after.resident-before.resident, alive), SwappedBytes: ratio(after.swapped-before.swapped, alive),
			Faults: ratio(1e9*float64(after.faults-before.faults), alive),
		}
	}
	return t
}

// ratio is a / b, NaN where there is nothing to divide by.
func ratio(a, b float64) Number {
	if b <= 0 {
		return Number(math.NaN())
	}
	return Number(a / b)
}

// pressure is the waiting between two readings, as shares of a time.
func pressure(before, after *machine.Pressure, nsec float64) PressureFigures {
	return PressureFigures{
		CPUSome: ratio(float64(after.CPUSome-before.CPUSome), nsec), CPUFull: ratio(float64(after.CPUFull-before.CPUFull), nsec),
		MemorySome: ratio(float64(after.MemorySome-before.MemorySome), nsec), MemoryFull: ratio(float64(after.MemoryFull-before.MemoryFull), nsec),
	}
}

func (r *runner) latency(k int, h *hdrhistogram.Histogram, before, after *meter) *Latency {
	l := &Latency{
		Requests: after.count.Requests - before.count.Requests, Lost: after.lost - before.lost,
		HasSLO:       r.plan.Scenario.Tasks[r.players[k].entry].SLO != nil,
		ViolationSec: Number(float64(after.bad-before.bad) / 1e9), JudgedSec: Number(float64(after.judged-before.judged) / 1e9),
	}
	nan := Number(math.NaN())
	l.P50Ms, l.P95Ms, l.P99Ms, l.MeanMs = nan, nan, nan, nan
	if h.TotalCount() > 0 {
		at := func(q float64) Number { return Number(float64(h.ValueAtQuantile(q)) / 1e6) }
		l.P50Ms, l.P95Ms, l.P99Ms, l.MeanMs = at(50), at(95), at(99), Number(h.Mean()/1e6)
	}
	return l
}

// namings lists whom the rounds of the incidents picked, in order of time.
func (r *runner) namings() []Naming {
	out := []Naming{}
	for _, inc := range r.story.incidents {
		for k := range inc.Rounds {
			round := &inc.Rounds[k]
			if round.Chosen == nil {
				continue
			}
			n := Naming{
				AtSec: float64(round.MonoNsec) / 1e9, Task: r.nameOf(round.ChosenPath), Incident: inc.ID, Victim: r.nameOf(inc.VictimPath),
				Score: scoreOf(round, round.ChosenPath), Threshold: Number(round.Threshold), Verdict: round.Verdict,
			}
			n.AfterSec = r.sinceThere(round.ChosenPath, round.MonoNsec)
			out = append(out, n)
			for _, m := range round.Members {
				if m.Path != round.ChosenPath {
					n.Task, n.Score, n.AfterSec = r.nameOf(m.Path), Number(m.Score), r.sinceThere(m.Path, round.MonoNsec)
					out = append(out, n)
				}
			}
		}
	}
	sortNamings(out)
	return out
}

func scoreOf(round *model.Round, path string) Number {
	for i := range round.Suspects {
		if round.Suspects[i].Path == path {
			return Number(round.Suspects[i].Score)
		}
	}
	return Number(math.NaN())
}

func (r *runner) nameOf(path string) string {
	for i := range r.players {
		if r.players[i].task.Path == path {
			return r.players[i].name
		}
	}
	return path
}

// sinceThere returns for how long a task was there, and policies were on, at a time.
func (r *runner) sinceThere(path string, at int64) float64 {
	since := int64(r.plan.warmUp())
	for i := range r.players {
		if pl := &r.players[i]; pl.task.Path == path {
			for _, began := range pl.lives {
				if began <= at {
					since = max(since, began)
				}
			}
		}
	}
	return float64(at-since) / 1e9
}
