package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Source says which measurement a signal and its spec come from. Specs of different
// sources are never compared.
type Source uint8

// The sources. Records number them: a new one goes to the end, and into preference.
const (
	SourceCPI Source = iota
	SourceSlowdown
	SourcePressure
	SourceWait
	SourceLatency
	SourceIO
	SourceMemory
	NumSources
)

// SignalRow describes one measure of how much a task suffers. Whoever handles signals goes by
// these rows, and by no signal's name.
type SignalRow struct {
	Name  string // in the configuration, specs and records
	Short string // on a screen, before the value
	Title string // what it is, on charts and for people
	// Probe is what the probe of the machine calls that which it is measured by (doctor).
	Probe string
	// Definition says how it is calculated. A spec that was learned under another definition
	// says nothing about this one: who changes a calculation changes its text.
	Definition string
	// ByCore is the definition where reference cycles cannot be had and core cycles take their
	// place; "": there are none in it.
	ByCore string
	// Column is the heading of the column in which every task has it, whatever its signal is;
	// "": there is none. Suffix follows a value there, which is shown Times as large.
	Column, Suffix string
	Times          float64
	// Derive works the value out of what counters grew by in a window.
	Derive func(before, now *TaskSample, elapsedNsec int64) Value
	// Waits: it is time that the task's threads waited for a CPU, whoever they waited for. So a
	// window in which its own quota throttled the task is no evidence against anybody, and of
	// the rest the part that it queued behind itself is discounted (Discount).
	Waits bool
	// Charged: of its waits it is measured, and no guess, which were for the task itself.
	Charged bool
	// Targeted: its threshold is what the task's job promises, and no spec is learned; it is no counter's,
	// but told by a latency source (Latency.Tell), and means the same however little the task runs.
	Targeted bool
	// Beside: it says of another means than the CPU how much the task suffers for it. It is judged beside the signal that is used, whatever
	// that says and however little the task runs, and is no choice of the configuration's.
	Beside bool
	// Resource is what the task has less of while it is bad: cpu, memory (caches and bandwidth with it), disk, or pages (memory to hold); "": that cannot be told by it.
	Resource string
	// Rest is its value when nothing disturbs the task.
	Rest float64
	// Section is where its parameters stand in the configuration, and Calibrated where the
	// default of its threshold is from. Explained says in a line what it is and needs.
	Section, Calibrated, Explained string
	// Optional: the configuration must ask for it.
	Optional bool
	// MinRise is the least distance of the outlier threshold from the mean, in the signal's
	// unit: where a quiet task hardly varies, two sigmas are nothing that anybody would notice.
	MinRise float64
	// MinRuns is the same in times of what the job runs between two waits.
	MinRuns float64
	// MinTimes is the same in times of the mean, where that is less than MinRise, and LeastRise in any case; 0: MinRise alone counts.
	MinTimes, LeastRise float64
	// Sigmas is the same in standard deviations, where CPI²'s 2 are too few.
	Sigmas float64
	// What is asked of a suspect's correlation with it: package antagonist says what each is.
	Correlation, Bound, MinSuspectCPU, Margin, Steady float64
}

// CPI² table 2 for CPI. Of the others what was calibrated: docs/EVALUATION.md.
var signals = [NumSources]SignalRow{
	SourceCPI: {
		Name: "cpi", Short: "cpi", Title: "CPI", Resource: "memory", Probe: "cpi", Definition: "reference cycles / instructions", ByCore: "core cycles / instructions", Times: 1, Derive: cpi, Correlation: 0.35,
		Section: "cpi2", Calibrated: "CPI² table 2: 0.35; for the cpi signal", Explained: "cpi needs hardware counters",
	},
	SourceSlowdown: {
		Name: "slowdown", Short: "slow", Title: "slowdown", Resource: "cpu", Probe: "run-delay slowdown", Definition: "(cpu + delay) / cpu, delay without the task's own queueing",
		Column: "DELAY", Suffix: "x", Times: 1, Derive: slowdown,
		Waits: true, Rest: 1, MinRise: 0.5, Correlation: 0.25, Bound: 2, MinSuspectCPU: 0.1, Margin: 0.15,
		Section: "slowdown", Calibrated: "calibrated for slowdown, see docs/FIRST-LIGHT.md", Explained: "slowdown is (cpu + run-queue delay) / cpu",
	},
	// The parameters are slowdown's, but for the rise: a tenth of the time. None was calibrated.
	SourcePressure: {
		Name: "pressure", Short: "psi", Title: "CPU pressure", Resource: "cpu", Probe: "psi stall", Definition: "cpu.pressure some / time, without the task's own queueing",
		Column: "PSI", Suffix: "%", Times: 100, Derive: pressure,
		Waits: true, MinRise: 0.1, Correlation: 0.25, Bound: 2, MinSuspectCPU: 0.1, Margin: 0.15, Optional: true,
		Section: "pressure", Calibrated: "as for slowdown; not calibrated", Explained: "pressure is the share of time in which a thread waited for a CPU (cgroup v2)",
	},
	// The parameters are slowdown's, but for the rise: docs/WAITS.md says what it is from.
	SourceWait: {
		Name: "wait", Short: "wait", Title: "waiting (p99)", Resource: "cpu", Probe: "scheduler waits", Definition: "p99 of waits for a CPU after a wake-up, in ms, times the share of all waiting in which others had the CPU",
		Times: 1, Derive: wait,
		Waits: true, Charged: true, MinRise: 0.1, MinRuns: 3, Sigmas: 3, Correlation: 0.25, Bound: 2, MinSuspectCPU: 0.1, Margin: 0.15, Optional: true,
		Section: "wait", Calibrated: "as for slowdown; not calibrated", Explained: "wait is how long one in a hundred waits for a CPU lasts, as far as others had it (BPF, docs/WAITS.md)",
	},
	// The parameters are slowdown's. None was calibrated.
	SourceLatency: {
		Name: "latency", Short: "latency", Title: "latency in ms", Probe: "slo latency", Definition: "the quantile that the job's target is for, of what its latency source saw, in ms",
		Times: 1, Derive: func(*TaskSample, *TaskSample, int64) Value { return Missing(Unavailable) },
		Targeted: true, Correlation: 0.25, Bound: 2, MinSuspectCPU: 0.1, Margin: 0.15, Optional: true,
		Section: "latency", Calibrated: "as for slowdown; not calibrated", Explained: "latency is used by itself wherever a job has a target under slo (docs/SLO.md)",
	},
	// The parameters are pressure's, but for the correlation, which is CPI²'s, and the margin over a steady suspect: a disk that is slow by itself makes all look guilty. None was calibrated.
	SourceIO: {
		Name: "io", Short: "io", Title: "time stalled on I/O", Resource: "disk", Probe: "io stall", Definition: "io.pressure some / time; where a kernel has none, block-I/O delay of all threads / time",
		Times: 1, Derive: ioShare,
		Beside: true, MinRise: 0.1, MinTimes: 2, LeastRise: 0.01, Correlation: 0.35, Bound: 2, Margin: 0.15, Steady: 0.1, Optional: true,
		Section: "io_stall", Calibrated: "CPI² table 2: 0.35; not calibrated for I/O", Explained: "io is the share of time in which a task waits for block devices, and is judged beside the others where policy io is not off (docs/policies/io.md)",
	},
	// The parameters are io's, but for the correlation, which is slowdown's: the policy has an alibi beside it. None was calibrated.
	SourceMemory: {
		Name: "memory", Short: "mem", Title: "time stalled on memory", Resource: "pages", Probe: "memory stall", Definition: "memory.pressure some / time",
		Times: 1, Derive: memoryShare,
		Beside: true, MinRise: 0.1, Correlation: 0.25, Bound: 2, Margin: 0.15, Steady: 0.1, Optional: true,
		Section: "memory_stall", Calibrated: "as for slowdown; not calibrated", Explained: "memory is the share of time in which a thread of a task waits for memory (cgroup v2), and is judged beside the others where policy memory is not off (docs/policies/memory.md)",
	},
}

// preference is the order in which signals are used.
var preference = [NumSources]Source{SourceLatency, SourceCPI, SourceWait, SourceSlowdown, SourcePressure, SourceIO, SourceMemory}

// Sources returns all signals, in order of preference.
func Sources() []Source { return preference[:] }

// Row describes the signal.
func (s Source) Row() *SignalRow { return &signals[s] }

// SourceNames returns the names of all signals.
func SourceNames() []string {
	names := make([]string, NumSources)
	for i := range signals {
		names[i] = signals[i].Name
	}
	return names
}

func (s Source) String() string {
	if s < NumSources {
		return signals[s].Name
	}
	return fmt.Sprintf("unknown(%d)", uint8(s))
}

// Definition says how the source is calculated; coreCycles: of core cycles, as before
// reference cycles were, and on machines that have none.
func (s Source) Definition(coreCycles bool) string {
	if row := &signals[s]; coreCycles && row.ByCore != "" {
		return row.ByCore
	}
	return signals[s].Definition
}

// ByCore puts core cycles in the place of reference cycles: a neighbour that takes turbo away
// is not seen then.
func (o *Observation) ByCore() {
	for i := range o.Tasks {
		t := &o.Tasks[i]
		t.Raw[SourceCPI] = t.CoreCPI
		t.Signals[SourceCPI] = t.CoreCPI
	}
}

// Task returns what the window says of one task; nil: nothing, or no window closed.
func (o *Observation) Task(num TaskNum) *TaskObservation {
	if o == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(o.Tasks, num, func(t TaskObservation, n TaskNum) int { return cmp.Compare(t.Num, n) })
	if !ok {
		return nil
	}
	return &o.Tasks[i]
}

// MarshalText writes the source's name.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a source's name.
func (s *Source) UnmarshalText(b []byte) error {
	return parseName(SourceNames(), string(b), "signal source", (*uint8)(s))
}

// Measures are a value of each signal, by Source.
type Measures [NumSources]Value

// MarshalJSON writes the values by name.
func (m Measures) MarshalJSON() ([]byte, error) {
	byName := make(map[string]Value, len(m))
	for i, v := range m {
		byName[signals[i].Name] = v
	}
	return json.Marshal(byName)
}

// UnmarshalJSON reads the values by name, and passes over names that it does not know.
func (m *Measures) UnmarshalJSON(b []byte) error {
	var byName map[string]Value
	if err := json.Unmarshal(b, &byName); err != nil {
		return err
	}
	for i := range m {
		m[i] = byName[signals[i].Name]
	}
	return nil
}

// minCoverage is the share of a task's CPU time that the followed thread groups must
// account for before their delay speaks for the task. Below it most of the work was
// done by processes too short-lived to be seen twice, and the ratio would be that of
// a supervisor that does nothing.
const minCoverage = 0.5

// cpi is reference cycles per instruction (CPI² §3.1: "CPU_CLK_UNHALTED.REF divided by
// INSTRUCTIONS_RETIRED"). The reference clock does not slow down with the core's, so that a
// neighbour that takes turbo away is seen.
func cpi(p, c *TaskSample, _ int64) Value { return c.ratio(p, CountRefCycles, CountInstructions) }

// slowdown is (run + delay) / run over the window: 1 means that the task's threads
// never waited for a CPU.
func slowdown(p, c *TaskSample, _ int64) Value {
	run, oc := c.grown(p, CountRun)
	if oc != OK {
		return Missing(oc)
	}
	delay, oc := c.grown(p, CountDelay)
	if oc != OK {
		return Missing(oc)
	}
	if run == 0 {
		return Missing(Absent) // it did not run: there is nothing to slow down
	}
	if used, oc := c.grown(p, CountUsage); oc == OK && float64(run) < minCoverage*float64(used) {
		return Missing(Unavailable)
	}
	return Known(1 + float64(delay)/float64(run)) // their sum could overflow
}

// pressure is the share of the window in which at least one thread of the task waited for a
// CPU (PSI, "some").
func pressure(p, c *TaskSample, elapsed int64) Value {
	stalled, oc := c.grown(p, CountCPUStall)
	if oc != OK {
		return Missing(oc)
	}
	return Known(min(1, float64(stalled)/float64(elapsed))) // the two clocks are not read at one instant
}

// ioShare is the share of the window in which a thread of the task waited for a block device; where only the delay of each thread
// is counted, of how many threads that is true in the mean.
func ioShare(p, c *TaskSample, elapsed int64) Value {
	delayed, oc := c.grown(p, CountIODelay)
	if oc != OK {
		return Missing(oc)
	}
	return Known(float64(delayed) / float64(elapsed))
}

// memoryShare is the share of the window in which at least one thread of the task waited for memory: for pages that come back, or for reclaim
// (PSI, "some").
func memoryShare(p, c *TaskSample, elapsed int64) Value {
	stalled, oc := c.grown(p, CountMemoryStall)
	if oc != OK {
		return Missing(oc)
	}
	return Known(min(1, float64(stalled)/float64(elapsed))) // the two clocks are not read at one instant
}

// wait is the p99 of the reading's own waits, in milliseconds. Observation.Discount leaves of it what others caused.
func wait(p, c *TaskSample, _ int64) Value {
	waited, oc := c.grown(p, CountWaited)
	if oc != OK {
		return Missing(oc)
	}
	if waited == 0 {
		return Known(0)
	}
	if c.C[CountWaitP99].Outcome != OK {
		return Missing(c.C[CountWaitP99].Outcome)
	}
	return Known(float64(c.C[CountWaitP99].Value) / 1e6)
}
