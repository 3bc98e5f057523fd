package scenario

import (
	"fmt"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// Bed is a simulated machine that a scenario can be played on: the agent's seams on one
// side, the world on the other. Tasks are known by their cgroup paths, and to the physics
// by their numbers there. What no kernel interface of ours does (requests, what a program
// is like, pages, ways, MBA levels) is done to the machine itself.
type Bed interface {
	// Assemble makes the core of an agent that starts, on the seams that the machine has and
	// what else d says. Every task is new to it, and what an earlier one left is put back.
	Assemble(c config.Config, d agent.Deps) (*agent.Core, error)
	// Guard is what the guardian of an agent that was killed does: it puts back what that held.
	Guard() (node.Report, error)
	// Seam names it: typed, or files and their layout.
	Seam() string
	// Machine is the physics. Time passes only by its Advance.
	Machine() *machine.Machine
	// Start makes a task's cgroup, with the task in it, and returns its number on the machine. One
	// without a job is none of the agent's.
	Start(t model.Task, cfg machine.TaskConfig) (num int, err error)
	// Stop ends a task and removes its cgroup.
	Stop(path string) error
	// Setting returns what one of a task's knobs is set to.
	Setting(path string, kind model.KnobKind) (model.Setting, error)
	// Stranger writes a task's limit as another program would; SetShares, SetIdle and
	// SetCPUs write what the agent leaves alone.
	Stranger(path string, v model.CPUMax) error
	SetShares(path string, shares int64) error
	SetIdle(path string, idle bool) error
	SetCPUs(path string, cpus model.CPUSet) error
	// SetOnline takes a CPU away or brings it back.
	SetOnline(cpu int, online bool) error
	// LoseCounters makes a task's hardware counters unreadable, or readable again.
	LoseCounters(path string, lost bool) error
	// Refuse makes the kernel refuse writes of a task's limit; "" ends that.
	Refuse(path, text string) error
}

// NewBed makes the machine of a plan.
type NewBed func(p *Plan, seed uint64) (Bed, error)

// typed is a Bed on the typed seam.
type typed struct {
	*twin.Host
	nums map[string]model.TaskNum
}

var _ Bed = (*typed)(nil)

// Typed returns a bed on the typed seam: the fast one.
func Typed(p *Plan, seed uint64) (Bed, error) {
	m, err := machine.New(p.machine, seed)
	if err != nil {
		return nil, err
	}
	return &typed{Host: twin.NewHost(m, p.Scenario.Machine.PMU), nums: map[string]model.TaskNum{}}, nil
}

// Start implements Bed.
func (b *typed) Start(t model.Task, cfg machine.TaskConfig) (int, error) {
	start := b.Host.Start
	if t.Job == "" {
		start = b.StartUnmanaged
	}
	num, err := start(t, cfg)
	if err != nil {
		return 0, err
	}
	b.nums[t.Path] = num
	return b.Physical(num)
}

// Seam implements Bed.
func (b *typed) Seam() string { return "typed" }

func (b *typed) num(path string) (model.TaskNum, error) {
	num, ok := b.nums[path]
	if !ok {
		return 0, fmt.Errorf("twin: no task at %s", path)
	}
	return num, nil
}

// physical returns the machine's number of a task.
func (b *typed) physical(path string) (int, error) {
	num, err := b.num(path)
	if err != nil {
		return 0, err
	}
	return b.Physical(num)
}

// Stop implements Bed.
func (b *typed) Stop(path string) error {
	num, err := b.num(path)
	if err != nil {
		return err
	}
	delete(b.nums, path)
	if _, err := b.Physical(num); err != nil {
		return nil // the agent has ended it
	}
	return b.Host.Stop(num)
}

// Setting implements Bed.
func (b *typed) Setting(path string, kind model.KnobKind) (model.Setting, error) {
	num, err := b.num(path)
	if err != nil {
		return model.Setting{}, err
	}
	return b.Host.Setting(num, kind)
}

// Stranger implements Bed.
func (b *typed) Stranger(path string, v model.CPUMax) error {
	num, err := b.num(path)
	if err != nil {
		return err
	}
	return b.Host.Stranger(num, model.Bandwidth(v))
}

// SetShares implements Bed.
func (b *typed) SetShares(path string, shares int64) error {
	num, err := b.physical(path)
	if err != nil {
		return err
	}
	return b.Machine().SetShares(num, shares)
}

// SetIdle implements Bed.
func (b *typed) SetIdle(path string, idle bool) error {
	num, err := b.physical(path)
	if err != nil {
		return err
	}
	return b.Machine().SetIdle(num, idle)
}

// SetCPUs implements Bed.
func (b *typed) SetCPUs(path string, cpus model.CPUSet) error {
	num, err := b.physical(path)
	if err != nil {
		return err
	}
	return b.Machine().SetCPUs(num, cpus)
}

// SetOnline implements Bed.
func (b *typed) SetOnline(cpu int, online bool) error { return b.Machine().SetOnline(cpu, online) }

// LoseCounters implements Bed.
func (b *typed) LoseCounters(path string, lost bool) error {
	num, err := b.num(path)
	if err != nil {
		return err
	}
	return b.Host.LoseCounters(num, lost)
}

// Refuse implements Bed.
func (b *typed) Refuse(path, text string) error {
	num, err := b.num(path)
	if err != nil {
		return err
	}
	return b.Host.Refuse(num, model.CPUBandwidth, text)
}

// Guard implements Bed.
func (b *typed) Guard() (node.Report, error) { return b.Restore() }

// Assemble implements Bed. What an earlier agent held and nobody could put back stays held.
func (b *typed) Assemble(c config.Config, d agent.Deps) (*agent.Core, error) {
	b.Reopen()
	d.Host, d.Clock = b.Host, b.Host
	return agent.Assemble(&c, d)
}
