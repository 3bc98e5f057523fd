package scenario

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// Bed is a simulated machine that a scenario can be played on: the agent's seam on one
// side, the world on the other. Tasks are known by their cgroup paths, and to the physics
// by their numbers there. What a bed does not have a method for (shares, ways, CPUs,
// pages) is done to the machine itself.
type Bed interface {
	node.Host
	// Machine is the physics. Time passes only by its Advance.
	Machine() *machine.Machine
	// Start makes a task's cgroup, with the task in it, and returns its number on the machine.
	Start(t model.Task, cfg machine.TaskConfig) (num int, err error)
	// Stop ends a task and removes its cgroup.
	Stop(path string) error
	// Stranger writes a task's limit as another program would.
	Stranger(path string, v model.CPUMax) error
	// LoseCounters makes a task's hardware counters unreadable, or readable again.
	LoseCounters(path string, lost bool) error
	// Refuse makes the kernel refuse writes of a task's limit; "" ends that.
	Refuse(path, text string) error
	// Reopen lets a new agent open the machine: every task is new to it. The one before was
	// closed, and what it held is restored.
	Reopen() error
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

// MachineConfig returns the machine of the plan, for beds of other kinds.
func (p *Plan) MachineConfig() machine.Config { return p.machine }

// PMU says whether the plan's machine has hardware counters.
func (p *Plan) PMU() bool { return p.Scenario.Machine.PMU }

// Start implements Bed.
func (b *typed) Start(t model.Task, cfg machine.TaskConfig) (int, error) {
	num, err := b.Host.Start(t, cfg)
	if err != nil {
		return 0, err
	}
	b.nums[t.Path] = num
	return b.Physical(num)
}

func (b *typed) num(path string) (model.TaskNum, error) {
	num, ok := b.nums[path]
	if !ok {
		return 0, fmt.Errorf("twin: no task at %s", path)
	}
	return num, nil
}

// Stop implements Bed.
func (b *typed) Stop(path string) error {
	num, err := b.num(path)
	if err != nil {
		return err
	}
	delete(b.nums, path)
	return b.Host.Stop(num)
}

// Stranger implements Bed.
func (b *typed) Stranger(path string, v model.CPUMax) error {
	num, err := b.num(path)
	if err != nil {
		return err
	}
	return b.Host.Stranger(num, v)
}

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
	return b.Host.Refuse(num, text)
}

// Reopen implements Bed.
func (b *typed) Reopen() error {
	b.Host.Reopen()
	return nil
}
