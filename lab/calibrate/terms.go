package calibrate

import (
	"fmt"

	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// physics is the terms under which something is played; nil: those of all other tables.
type physics struct {
	name    string
	machine func(c *machine.Config)
	exposed bool // services have the memory parallelism that was published of them
}

// on returns a machine under the terms.
func (p *physics) on(c machine.Config) machine.Config {
	if p != nil && p.machine != nil {
		p.machine(&c)
	}
	return c
}

// find returns a program under the terms.
func (p *physics) find(name string) (program.Profile, error) {
	prog, ok := program.Find(name)
	if !ok {
		return prog, fmt.Errorf("calibrate: no program %s", name)
	}
	if p != nil && p.exposed {
		prog = prog.Exposed()
	}
	return prog, nil
}

// queueLines is the read queues of six channels, of as many entries as a Xeon E5-2600's (Intel 327043,
// RPQ_OCCUPANCY: at most 22 at a time).
const queueLines = 6 * 22

// terms are what the ablation plays: each alone, all that public measurements support, and two
// that they refute.
func terms() []physics {
	return []physics{
		{name: "none: the model of the other tables"},
		{name: "services' memory parallelism 1.8, not 3", exposed: true},
		{name: "MBA by measured clocks", machine: func(c *machine.Config) { c.Physics.MBAClocks = true }},
		{name: "siblings meet in bursts", machine: func(c *machine.Config) { c.Physics.SiblingBursts = true }},
		{name: "clock by active cores", machine: func(c *machine.Config) { c.Turbo = machine.TurboOver(c.Hz, c.CoresPerSocket) }},
		{name: "all of these", machine: func(c *machine.Config) { *c = machine.Published(*c) }, exposed: true},
		{name: "refuted: write-backs apart from reads", machine: func(c *machine.Config) { c.Physics.WritesApart = true }},
		{name: "refuted: a queue of 22 lines a channel", machine: func(c *machine.Config) { c.Physics.QueueLines = queueLines }},
	}
}
