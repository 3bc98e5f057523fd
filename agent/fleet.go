package agent

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/outlier"
)

// spoolDir is where batches wait for the hub, below the state directory.
const spoolDir = "spool"

// newGather returns what collects for the hub; nil: this node is of no fleet.
func (a *Agent) newGather() *uplink.Gather {
	if a.cfg.Fleet.Hub == "" {
		return nil
	}
	return uplink.NewGather(a.cfg.Fleet.Every.Nanoseconds())
}

// startUplink connects this node with its fleet. That the hub cannot be reached is no error.
func (a *Agent) startUplink(ctx context.Context, g *uplink.Gather) (*uplink.Uplink, error) {
	if g == nil {
		return nil, nil
	}
	f := &a.cfg.Fleet
	boot, err := procstat.ReadBootID(a.fs)
	if err != nil {
		boot = "unknown"
	}
	return uplink.Start(ctx, uplink.Config{
		URL: f.Hub, Node: f.Node, SeedFile: f.SeedFile, Creds: f.CredsFile, CAFile: f.CAFile, Dir: filepath.Join(a.cfg.Agent.StateDir, spoolDir), MaxBytes: f.SpoolBytes,
	}, uplink.Node{Boot: boot, Platform: a.core.Engine.Params.Platform, Program: a.version}, g, uplink.Hooks{
		Log: a.log,
		Specs: func(specs []model.Spec) {
			_ = a.ask(ctx, func() { a.core.Tell(specs...) }) // of an agent that ends nobody needs them
		},
		Priors: func(p model.Priors) {
			_ = a.ask(ctx, func() { a.core.TellPriors(p) }) // likewise
		},
		Rollout: func(overlay string, on bool) error { return a.rollOut(ctx, overlay, on) },
		Command: func(ctx context.Context, c *wire.Command) (ans wire.Answer) {
			by := c.By
			if c.Why != "" {
				by += " (" + c.Why + ")"
			}
			err := a.ask(ctx, func() {
				done := a.core.Take(Request{Kind: c.Kind, Task: c.Task, Job: c.Job, Cap: c.Cap, Duration: c.Duration}, by)
				ans = wire.Answer{Done: done.Done, Error: done.Error}
			})
			if err != nil {
				ans.Error = "the agent does not answer: " + err.Error()
			}
			return ans
		},
	})
}

// rollOut lays a change over the configuration's policies, or takes it off.
func (a *Agent) rollOut(ctx context.Context, overlay string, on bool) error {
	cfg := a.cfg
	if on {
		var err error
		if cfg, err = a.cfg.Overlaid(overlay); err != nil {
			return err
		}
	}
	return a.ask(ctx, func() { a.core.RollOut(cfg) })
}

// RollOut has the agent go by what a configuration says of its policies, which is its file's, perhaps with a change over it (config.Overlaid).
func (c *Core) RollOut(cfg *config.Config) {
	p := cfg.Params(c.Engine.Params.Platform)
	p.Hardcap.IDPrefix = c.Engine.Params.Hardcap.IDPrefix
	c.Change(p)
}

// fleetOff lists the jobs whose protection is off in the whole fleet, as the hub said last: the engine hears it with the next turn.
func (c *Core) fleetOff() []string {
	if c.protection == nil {
		return nil
	}
	return c.protection().Jobs()
}

// fleetProtects has the next turn told what the fleet's word on protection is otherwise than what the engine knows.
func (c *Core) fleetProtects() {
	if c.protection == nil {
		return
	}
	p, was := c.protection(), c.Engine.State.FleetOff
	if p == c.protects {
		return
	}
	c.protects = p
	now := p.Jobs()
	tell := func(kind, job string) {
		c.commands = append(c.commands, model.Command{Kind: kind, Job: job, Fleet: true, By: p.Says(job)})
	}
	for _, job := range now {
		if !slices.Contains(was, job) {
			tell(model.CommandProtectOff, job)
		}
	}
	for _, job := range was {
		if !slices.Contains(now, job) {
			tell(model.CommandProtectOn, job)
		}
	}
}

// goesUp hands to the fleet's end of this node what a turn brought.
func (c *Core) goesUp(out *engine.Output) {
	if c.gather == nil {
		return
	}
	if out.Observed {
		c.windowGoesUp()
	}
	for i := range out.Decisions {
		c.gather.Event(c.in.MonoNsec, &out.Decisions[i])
	}
	for _, inc := range out.Incidents {
		c.gather.Incident(c.in.MonoNsec, inc)
	}
}

func (c *Core) windowGoesUp() {
	e := c.Engine
	p, s, obs := &e.Params, e.State, e.Window()
	w := uplink.Window{MonoNsec: c.in.MonoNsec, WallNsec: c.in.WallNsec, Tasks: s.Tasks.Tasks, Observed: obs.Tasks, Flags: make([]uint32, len(obs.Tasks)), CoreCycles: p.Spec.CoreCycles}
	j := 0
	for i := range obs.Tasks {
		o := &obs.Tasks[i]
		for j < len(s.Tracks) && s.Tracks[j].Num < o.Num {
			j++
		}
		if o.CPU.Outcome == model.OK && o.CPU.V >= p.Outlier.RequiredCPUUsage {
			w.Flags[i] |= wire.Usable
		}
		if !o.ThrottledKnown || o.Throttled {
			w.Flags[i] |= wire.Stopped
		}
		if j < len(s.Tracks) && s.Tracks[j].Num == o.Num && s.Tracks[j].Verdict == outlier.Outlier {
			w.Flags[i] |= wire.Outlier
		}
	}
	c.gather.Add(&w)
}
