package coldpages

import (
	"context"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
)

// seen is what is kept of one task while an arm is played.
type seen struct {
	phys        int
	before      machine.Counters // when measuring began
	faults      uint64
	stall       uint64
	sum, worst  float64 // of latencies, ns
	count       int64
	nextSweepAt int64
}

// play plays an arm of a mix, and notes the ages at its beginning in m.
func (p *plan) play(ctx context.Context, a *arm, hours int, m *Mix) (out Outcome, err error) {
	c := p.config
	if c.SwapBytes = p.swap; a.roomy {
		c.SwapBytes = c.MemBytes
	}
	mach, err := machine.New(c, p.seed)
	if err != nil {
		return out, err
	}
	host := twin.NewHost(mach, true)
	tasks := make([]seen, len(p.tasks))
	for i := range p.tasks {
		t := &p.tasks[i]
		of := model.Task{Path: "/" + t.class.String() + "/" + t.cfg.Name, Class: t.class, Production: t.class == model.LC}
		of.Job = of.Path
		num, err := host.Start(of, t.cfg)
		if err != nil {
			return out, err
		}
		if tasks[i].phys, err = host.Physical(num); err != nil {
			return out, err
		}
		tasks[i].nextSweepAt = t.first
	}
	p.figure6(mach, tasks, m)
	pl := player.Player{Machine: mach, Told: func(_ int, o *engine.Output) {
		for i := range o.Decisions {
			if o.Decisions[i].Kind == model.DecideRest {
				out.Rests++
			}
		}
	}}
	if pl.Agents, err = agentOf(a, host); err != nil {
		return out, err
	}
	end := int64(hours) * hour
	for at := minute; at <= end; at += minute {
		if err := pl.Until(ctx, at); err != nil {
			return out, err
		}
		for i := range tasks {
			if err := p.minute(mach, &p.tasks[i], &tasks[i], at, end/2); err != nil {
				return out, err
			}
		}
	}
	return out, p.sum(mach, tasks, &out, end/2)
}

// agentOf is the agent of an arm, with a window a minute; none where nothing is done.
func agentOf(a *arm, host *twin.Host) ([]*agent.Loop, error) {
	if a.by == "" {
		return nil, nil
	}
	conf, _ := config.Defaults(config.ProfileCPI2)
	conf.Sampling.Duration, conf.Sampling.Frequency = time.Minute, time.Minute
	conf.Policies.SetModes(model.ModeOff)
	conf.Policies.CPU.ColdPagesMode = model.ModeEnforce
	p := &conf.Policies.CPU.ColdPages
	p.By = a.by
	p.LCAnonNsec, p.BEAnonNsec, p.LCFileNsec, p.BEFileNsec = a.anon, a.anon, a.file, a.file
	if a.unstopped {
		p.Refaults, p.Stall, p.MachineStall = 1, 1, 1
	}
	core, err := agent.Assemble(&conf, agent.Deps{Host: host, Clock: host, Platform: "twin"})
	if err != nil {
		return nil, err
	}
	return []*agent.Loop{agent.NewLoop(core)}, nil
}

// minute lets happen what is due to a task, and takes in how it fared.
func (p *plan) minute(m *machine.Machine, t *task, s *seen, at, from int64) error {
	if t.sweep > 0 && at >= s.nextSweepAt {
		s.nextSweepAt += t.sweep
		if err := m.Sweep(s.phys, minute/2); err != nil {
			return err
		}
	}
	if t.class == model.LC {
		h, _, err := m.Latencies(s.phys)
		if err != nil {
			return err
		}
		if n := h.TotalCount(); at > from && n > 0 {
			s.sum, s.count, s.worst = s.sum+h.Mean()*float64(n), s.count+n, max(s.worst, h.Mean())
		}
	}
	if at != from {
		return nil
	}
	use, err := m.MemoryUse(s.phys)
	if err != nil {
		return err
	}
	stall, err := m.Pressure(s.phys)
	if err != nil {
		return err
	}
	s.faults, s.stall = use.FaultPages, stall.MemorySome
	s.before, err = m.Counters(s.phys)
	return err
}

// figure6 notes the ages of the services' pages.
func (p *plan) figure6(m *machine.Machine, tasks []seen, mix *Mix) {
	all := 0.0
	for i := range tasks {
		if p.tasks[i].class != model.LC {
			continue
		}
		if use, err := m.MemoryUse(tasks[i].phys); err == nil {
			all += use.Anon + use.File
		}
		for k, edge := range model.AgeEdges {
			if anon, file, err := m.MemoryOlder(tasks[i].phys, edge); err == nil {
				mix.Figure6.Anon[k] += anon
				mix.Figure6.File[k] += file
			}
		}
	}
	for k := range model.AgeEdges {
		mix.Figure6.Anon[k] /= all
		mix.Figure6.File[k] /= all
	}
}

// sum adds up what came of the measured hours.
func (p *plan) sum(m *machine.Machine, tasks []seen, out *Outcome, nsec int64) error {
	services := 0.0
	for i := range tasks {
		t, s := &p.tasks[i], &tasks[i]
		use, err := m.MemoryUse(s.phys)
		if err != nil {
			return err
		}
		out.Saved += use.Swap + use.Dropped
		if t.class != model.LC {
			out.Batch += use.Swap + use.Dropped
			continue
		}
		now, err := m.Counters(s.phys)
		if err != nil {
			return err
		}
		stall, err := m.Pressure(s.phys)
		if err != nil {
			return err
		}
		services++
		out.Anon, out.File = append(out.Anon, use.Anon/t.limit), append(out.File, use.File/t.limit)
		out.RT, out.Worst = append(out.RT, s.sum/float64(max(1, s.count))/1e6), append(out.Worst, s.worst/1e6)
		out.CPI = append(out.CPI, float64(now.Cycles-s.before.Cycles)/float64(now.Instructions-s.before.Instructions))
		out.Faults += float64(use.FaultPages-s.faults) / (float64(nsec) / 1e9)
		out.Stalled += float64(stall.MemorySome-s.stall) / float64(nsec)
	}
	out.Stalled /= services
	return nil
}
