package scenario

import "time"

// Event is something that happens at a time, or again and again.
type Event struct {
	At    time.Duration `yaml:"at"`
	Every time.Duration `yaml:"every"` // again; 0: once
	Until time.Duration `yaml:"until"` // of every; 0: to the end

	// Exactly one of these.
	Start    Names         `yaml:"start"`
	Stop     Names         `yaml:"stop"`
	Rate     *RateChange   `yaml:"rate"`
	Diurnal  *Diurnal      `yaml:"diurnal"`
	Become   *Become       `yaml:"become"`
	Ways     *WaysWrite    `yaml:"ways"`
	MBA      *MBAWrite     `yaml:"mba"`
	Move     *Move         `yaml:"move"`
	CPUMax   *CPUMaxWrite  `yaml:"cpu_max"`
	Shares   *SharesWrite  `yaml:"shares"`
	Idle     *IdleWrite    `yaml:"idle"`
	CPUs     *CPUsWrite    `yaml:"cpus"`
	Pages    *PagesWrite   `yaml:"pages"`
	Offline  string        `yaml:"offline"`
	Online   string        `yaml:"online"`
	Disk     *DiskWrite    `yaml:"disk"`
	SoftIRQ  *Taken        `yaml:"softirq"`
	Steal    *Taken        `yaml:"steal"`
	Lose     *Lose         `yaml:"lose_counters"`
	Refuse   *Refuse       `yaml:"refuse_writes"`
	Restart  *AgentRestart `yaml:"restart_agent"`
	Kill     *bool         `yaml:"kill_switch"`
	Operator *Operator     `yaml:"operator"`
}

// DiskWrite makes the disk another: slower, or as it was.
type DiskWrite struct {
	Bandwidth Size    `yaml:"bandwidth"`
	Ops       float64 `yaml:"ops"`
}

// RateChange changes how many requests come, at once or evenly over a time.
type RateChange struct {
	Task string        `yaml:"task"`
	To   float64       `yaml:"to"`
	Over time.Duration `yaml:"over"`
}

// Diurnal lets the rate of requests follow a sine: mean x (1 + amplitude x sin).
type Diurnal struct {
	Task      string        `yaml:"task"`
	Mean      float64       `yaml:"mean"`
	Amplitude float64       `yaml:"amplitude"`
	Period    time.Duration `yaml:"period"`
	Peak      time.Duration `yaml:"peak"` // when after the event the rate is greatest
}

// Become changes what a task's instructions are like, or how it works.
type Become struct {
	Task      string `yaml:"task"`
	Behaviour `yaml:",inline"`
	Phases    []Phase `yaml:"phases"`

	at string // its key
}

// WaysWrite writes a group's way mask.
type WaysWrite struct {
	Group string `yaml:"group"`
	Mask  Masks  `yaml:"mask"`
}

// MBAWrite writes a group's level of memory bandwidth.
type MBAWrite struct {
	Group   string `yaml:"group"`
	Percent Levels `yaml:"percent"`
}

// Move moves tasks into a group.
type Move struct {
	Task  string `yaml:"task"`
	Group string `yaml:"group"`
}

// CPUMaxWrite writes a limit as another program would: to the agent it is a stranger's.
type CPUMaxWrite struct {
	Task   string `yaml:"task"`
	CPUMax `yaml:",inline"`
}

// SharesWrite writes cpu.shares.
type SharesWrite struct {
	Task   string `yaml:"task"`
	Shares int64  `yaml:"shares"`
}

// IdleWrite writes cpu.idle.
type IdleWrite struct {
	Task string `yaml:"task"`
	Idle bool   `yaml:"idle"`
}

// CPUsWrite writes cpuset.cpus.
type CPUsWrite struct {
	Task string `yaml:"task"`
	CPUs string `yaml:"cpus"`
}

// PagesWrite moves pages: the share on each node.
type PagesWrite struct {
	Task  string    `yaml:"task"`
	Nodes []float64 `yaml:"nodes"`
}

// Taken is what is taken of CPUs from now on, whoever runs there: by soft interrupts or by the hypervisor.
type Taken struct {
	CPUs  string  `yaml:"cpus"`  // "": all
	Share float64 `yaml:"share"` // of their time; 0 ends it
}

// Lose makes hardware counters unreadable for a time.
type Lose struct {
	Task string        `yaml:"task"` // "": of all tasks
	For  time.Duration `yaml:"for"`
}

// Refuse makes the kernel refuse writes of limits for a time.
type Refuse struct {
	Task  string        `yaml:"task"` // "": of all tasks
	Error string        `yaml:"error"`
	For   time.Duration `yaml:"for"`
}

// AgentRestart kills the agent, and starts it again after a time. Its guardian puts back
// what it held.
type AgentRestart struct {
	Down time.Duration `yaml:"down"`
}

// Operator is what somebody tells the agent.
type Operator struct {
	Do   string        `yaml:"do"` // a model.Command's kind, but for reclaim
	Task string        `yaml:"task"`
	Job  string        `yaml:"job"`
	CPUs float64       `yaml:"cpus"`
	For  time.Duration `yaml:"for"`
	Node int           `yaml:"node"` // of move-pages
	Keep float64       `yaml:"keep"`
}
