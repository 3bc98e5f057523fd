// Package scenario reads scenarios and plays them: a machine, tasks, what happens to them
// and when, and the policies that are to deal with it. docs/SCENARIOS.md describes the
// format for those who write them.
//
// The same scenario, seed, profile and policies give the same result, byte for byte.
package scenario

import "time"

// Version of the format.
const Version = 1

// Scenario is a whole file.
type Scenario struct {
	Version  int           `yaml:"version"`
	Name     string        `yaml:"name"`
	About    string        `yaml:"about"`
	Seed     uint64        `yaml:"seed"`
	Duration time.Duration `yaml:"duration"`
	Machine  Machine       `yaml:"machine"`
	Tasks    []Task        `yaml:"tasks"`
	Control  []Group       `yaml:"control"`
	Timeline []Event       `yaml:"timeline"`
	Policies Policies      `yaml:"policies"`
	Specs    []Spec        `yaml:"specs"`
	Measure  []Window      `yaml:"measure"`
	Sweep    []Sweep       `yaml:"sweep"`
	Expect   Expect        `yaml:"expect"`
}

// Machine is the server. Keys that are not written have the preset's values.
type Machine struct {
	Preset          string        `yaml:"preset"`
	Platform        string        `yaml:"platform"` // CPU type, as specs name it
	PMU             bool          `yaml:"pmu"`      // hardware counters
	Sockets         int           `yaml:"sockets"`
	CoresPerSocket  int           `yaml:"cores_per_socket"`
	CachesPerSocket int           `yaml:"caches_per_socket"` // last-level caches, each of as many cores, all near one memory; 0: one
	ThreadsPerCore  int           `yaml:"threads_per_core"`
	Hz              float64       `yaml:"hz"`    // the reference clock
	Turbo           []float64     `yaml:"turbo"` // clock with one, two ... cores at work; none: hz
	LLC             Size          `yaml:"llc"`   // of one cache
	LLCWays         int           `yaml:"llc_ways"`
	LLCHitCycles    float64       `yaml:"llc_hit_cycles"`
	MemLatency      time.Duration `yaml:"memory_latency"`
	MemBandwidth    Size          `yaml:"memory_bandwidth"` // of one node, per second, reads only
	LinkLatency     time.Duration `yaml:"link_latency"`
	LinkBandwidth   Size          `yaml:"link_bandwidth"`
	Memory          Size          `yaml:"memory"` // of one node
	Swap            Size          `yaml:"swap"`   // of the machine
	FaultTime       time.Duration `yaml:"fault_time"`
	DiskBandwidth   Size          `yaml:"disk_bandwidth"` // a second; 0: there is no disk
	DiskOps         float64       `yaml:"disk_ops"`       // operations of no bytes, a second
	SMTSlowdown     float64       `yaml:"smt_slowdown"`
	Step            time.Duration `yaml:"step"`
}

// Behaviour is what a task's instructions are like: a program of the catalogue, literal
// values, or a program of which some values are replaced.
type Behaviour struct {
	Program    string   `yaml:"program"`
	CPI        *float64 `yaml:"cpi"`
	APKI       *float64 `yaml:"apki"`
	Curve      *Curve   `yaml:"curve"`
	Apart      *bool    `yaml:"apart"`
	Overlap    *float64 `yaml:"overlap"`
	Prefetched *float64 `yaml:"prefetched"`
	WriteShare *float64 `yaml:"write_share"`
}

// Curve is LLC misses per 1000 instructions with one, two, three ... steps of cache.
type Curve struct {
	Step Size      `yaml:"step"`
	MPKI []float64 `yaml:"mpki"`
}

// Task is a task, or with count several of one kind.
type Task struct {
	Name        string `yaml:"name"`
	Path        string `yaml:"path"`
	Job         string `yaml:"job"`
	Class       string `yaml:"class"`
	Importance  string `yaml:"importance"`
	Production  *bool  `yaml:"production"`
	Eligible    bool   `yaml:"eligible"`
	Count       int    `yaml:"count"`
	Threads     int    `yaml:"threads"`
	Behaviour   `yaml:",inline"`
	Spread      float64       `yaml:"spread"`
	SpreadEvery time.Duration `yaml:"spread_every"`
	Shares      int64         `yaml:"shares"`
	Idle        bool          `yaml:"idle"`
	CPUs        string        `yaml:"cpus"`
	Pages       []float64     `yaml:"pages"`
	Memory      []Memory      `yaml:"memory"`
	Disk        *DiskIO       `yaml:"disk"`
	CPUMax      *CPUMax       `yaml:"cpu_max"`
	Start       time.Duration `yaml:"start"`
	Stop        time.Duration `yaml:"stop"`
	Requests    *Requests     `yaml:"requests"`
	Phases      []Phase       `yaml:"phases"`
	SLO         *SLO          `yaml:"slo"`
	OnCap       *OnCap        `yaml:"on_cap"`
}

// Memory is memory of a task that is used alike: each page of it once in so long in the
// mean, at random.
type Memory struct {
	Bytes Size          `yaml:"bytes"`
	Every time.Duration `yaml:"every"` // 0: all the time
	File  bool          `yaml:"file"`  // page cache: dropped instead of swapped out
	Over  time.Duration `yaml:"over"`  // it comes evenly as the task runs so long; 0: the task begins with it
}

// DiskIO is what a task does on the disk while it runs: so many operations a second whatever comes back, or as many under way at
// all times.
type DiskIO struct {
	Ops        float64 `yaml:"ops"`
	Depth      float64 `yaml:"depth"`
	Bytes      Size    `yaml:"bytes"` // of an operation
	WriteShare float64 `yaml:"write_share"`
}

// Requests come whether or not the earlier ones are done.
type Requests struct {
	Rate         float64  `yaml:"rate"`         // per second
	Instructions float64  `yaml:"instructions"` // of one, in the mean
	Variation    *float64 `yaml:"variation"`    // coefficient of variation; 1 when not written
}

// Phase is a stretch of closed-loop work that is alike.
type Phase struct {
	For    time.Duration `yaml:"for"`
	Jitter float64       `yaml:"jitter"`
	CPUs   float64       `yaml:"cpus"`
	CPI    float64       `yaml:"cpi"`    // factor
	Misses float64       `yaml:"misses"` // factor
}

// CPUMax is a limit of CFS bandwidth control.
type CPUMax struct {
	CPUs   float64       `yaml:"cpus"` // quota / period; 0: no limit
	Period time.Duration `yaml:"period"`
	Burst  time.Duration `yaml:"burst"`
}

// SLO is the bound on a latency that is not to be passed.
type SLO struct {
	Quantile float64       `yaml:"quantile"`
	Latency  time.Duration `yaml:"latency"`
	Every    time.Duration `yaml:"every"`
	Told     bool          `yaml:"told"` // to the agent, as by a latency source with this target
}

// OnCap is what a task does about being capped (CPI² §6.2).
type OnCap struct {
	Do    string        `yaml:"do"`    // lame-duck or quit
	After int           `yaml:"after"` // of which cap on; 1 when not written
	Wait  time.Duration `yaml:"wait"`  // quit: so long into the cap
	CPUs  float64       `yaml:"cpus"`  // lame-duck: what it does after the cap
	For   time.Duration `yaml:"for"`   // lame-duck: for so long
}

// Group is a CLOS of resctrl and a cpuset: what its tasks may use.
type Group struct {
	Name   string   `yaml:"name"`
	Tasks  []string `yaml:"tasks"`
	Ways   Masks    `yaml:"ways"`
	MBA    Levels   `yaml:"mba"`
	CPUs   string   `yaml:"cpus"`
	Shares int64    `yaml:"shares"`
	CPUMax *CPUMax  `yaml:"cpu_max"`
}

// Policies say what the agent does.
type Policies struct {
	Profile string        `yaml:"profile"`
	Mode    string        `yaml:"mode"`
	WarmUp  time.Duration `yaml:"warm_up"`
	Config  Config        `yaml:"config"`
}

// Spec is what a fleet has learned of a job before the scenario begins.
type Spec struct {
	Job     string  `yaml:"job"`
	Source  string  `yaml:"source"`
	Mean    float64 `yaml:"mean"`
	StdDev  float64 `yaml:"stddev"`
	Samples int64   `yaml:"samples"`
}

// Window is a time over which is measured.
type Window struct {
	Name string        `yaml:"name"`
	From time.Duration `yaml:"from"`
	To   time.Duration `yaml:"to"`
}

// Sweep plays the scenario once with each value; several sweeps with each combination.
type Sweep struct {
	Key    string   `yaml:"key"`
	Values []Scalar `yaml:"values"`
}

// Expect is what a run is judged by.
type Expect struct {
	Named        []string       `yaml:"named"`
	NobodyHeld   bool           `yaml:"nobody_held"`
	OnlyHeld     []string       `yaml:"only_held"`
	Recovered    *bool          `yaml:"recovered"`
	Incidents    *Range         `yaml:"incidents"`
	TopScore     *Range         `yaml:"top_score"`
	Blame        []BlameWant    `yaml:"blame"`
	TimeToName   time.Duration  `yaml:"time_to_name"`
	Decisions    []DecisionWant `yaml:"decisions"`
	Figures      []Figure       `yaml:"figures"`
	Trends       []Trend        `yaml:"trends"`
	RestoredLast bool           `yaml:"restored"`
}

// Range bounds a number; what is not written does not bound.
type Range struct {
	Above *float64 `yaml:"above"`
	Below *float64 `yaml:"below"`
}

// DecisionWant is a decision that has to be among those taken, or must not.
type DecisionWant struct {
	Kind  string `yaml:"kind"`
	Task  string `yaml:"task"`
	Never bool   `yaml:"never"`
	Says  string `yaml:"says"` // part of the reason
}

// BlameWant bounds what share of its victims' waiting a task, or what no task used, is charged
// with in rounds that go by blame.
type BlameWant struct {
	Of    string `yaml:"of"`
	Range `yaml:",inline"`
}

// Figure is a bound on a figure of a task in a window, or on its ratio to that of
// another window.
type Figure struct {
	Task   string `yaml:"task"`
	Window string `yaml:"window"`
	Figure string `yaml:"figure"`
	Over   string `yaml:"over"` // another window: the bounds are on the ratio to it
	Range  `yaml:",inline"`
}

// Trend is how a figure goes across the runs of a sweep, in the order of its values.
type Trend struct {
	Task      string   `yaml:"task"`
	Window    string   `yaml:"window"`
	Figure    string   `yaml:"figure"`
	RisesWith string   `yaml:"rises_with"` // key of a sweep
	FallsWith string   `yaml:"falls_with"`
	Slack     *float64 `yaml:"slack"` // share of the figure by which it may go back at a step; 0.02 when not written
}
