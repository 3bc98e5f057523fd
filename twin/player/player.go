// Package player lets agents run on a simulated machine: their turns are those of the agent's
// own loop, at the machine's time.
package player

import (
	"context"
	"errors"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/twin/machine"
)

// Player is a machine with the agents that run on it; there may be none, or several that look
// on. What happens at one time happens in this order: the agents' turns, then the world.
type Player struct {
	Machine *machine.Machine
	Agents  []*agent.Loop
	// Told hears what a turn of an agent led to; nil: nobody does.
	Told func(agent int, out *engine.Output)
	// World lets happen what is due by now, and returns when something will be next. nil:
	// nothing does.
	World func(nowNsec int64) (nextNsec int64, err error)
}

// Until lets time pass until it is nsec, in whole steps of the machine. What is due then is
// left for the next call. An agent that cannot look at the machine is an error.
func (p *Player) Until(ctx context.Context, nsec int64) error {
	step := p.Machine.Config().StepNsec
	for p.Machine.NowNsec() < nsec {
		if err := ctx.Err(); err != nil {
			return err
		}
		now, next := p.Machine.NowNsec(), nsec
		for i, a := range p.Agents {
			if a.Stalls() != nil {
				next = min(next, now+agent.WatchNsec)
				a.Hark()
			}
			if a.Due() <= now {
				out := a.Next()
				if a.Failing() != "" {
					return errors.New(a.Failing())
				}
				if out != nil && p.Told != nil {
					p.Told(i, out)
				}
			}
			next = min(next, a.Due())
		}
		if p.World != nil {
			at, err := p.World(now)
			if err != nil {
				return err
			}
			next = min(next, at)
		}
		p.Machine.Advance((next - now + step - 1) / step * step)
	}
	return nil
}
