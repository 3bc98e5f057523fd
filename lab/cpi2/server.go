package cpi2

import (
	"context"
	"fmt"
	"maps"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/policy/outlier"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
)

// platform is the CPU type of all machines here, for the specs.
const platform = "twin-skylake"

// windowSeconds is CPI² table 2: 10 seconds, once a minute.
const windowSeconds = 10

// server is a mix that is being played.
type server struct {
	mix  *mix
	host *twin.Host
	next int // of mix.plan
	nums map[string]model.TaskNum
	snap model.Snapshot
	prev model.Snapshot
	obs  model.Observation // of the last window
	min  int               // minutes played
	read node.Readings     // that the host was asked for
}

func newServer(m *mix) (*server, error) {
	mach, err := machine.New(m.config, m.seed)
	if err != nil {
		return nil, err
	}
	return &server{mix: m, host: twin.NewHost(mach, true), nums: map[string]model.TaskNum{}}, nil
}

// fork copies the server between two minutes.
func (s *server) fork() *server {
	return &server{mix: s.mix, host: s.host.Fork(), next: s.next, nums: maps.Clone(s.nums), min: s.min, read: s.read}
}

// due lets happen what is due: the world is looked at once a second.
func (s *server) due(nowNsec int64) (nextNsec int64, err error) {
	for ; s.next < len(s.mix.plan) && s.mix.plan[s.next].atNsec <= nowNsec; s.next++ {
		if err := s.act(&s.mix.plan[s.next]); err != nil {
			return 0, err
		}
	}
	return nowNsec + 1e9, nil
}

// play plays some seconds, with agents that look on or act.
func (s *server) play(seconds int64, told func(i int, out *engine.Output), agents []*agent.Loop) error {
	p := player.Player{Machine: s.host.Machine(), Agents: agents, Told: told, World: s.due}
	return p.Until(context.Background(), p.Machine.NowNsec()+seconds*1e9)
}

func (s *server) act(a *action) error {
	switch {
	case a.start != nil:
		n, err := s.host.Start(a.start.task, a.start.cfg)
		if err != nil {
			return err
		}
		s.nums[a.start.task.Path] = n
		return nil
	case a.stop != "":
		return s.host.Stop(s.nums[a.stop])
	}
	phys, err := s.host.Physical(s.nums[a.rate])
	if err != nil {
		return err
	}
	for i := range s.mix.plan {
		if p := s.mix.plan[i].start; p != nil && p.task.Path == a.rate {
			return s.host.Machine().SetRate(phys, p.cfg.Requests.PerSecond*a.times)
		}
	}
	return fmt.Errorf("cpi2: no task %s to change the load of", a.rate)
}

// minute plays a minute: a window of 10 seconds, and 50 seconds more. told hears what the
// agents' turns lead to.
func (s *server) minute(told func(i int, out *engine.Output), agents ...*agent.Loop) error {
	for _, part := range []struct {
		mark    model.WindowMark
		seconds int64
	}{{model.WindowStart, windowSeconds}, {model.WindowEnd, 60 - windowSeconds}} {
		if err := s.host.Observe(part.mark, &s.snap); err != nil {
			return err
		}
		s.window(part.mark)
		if err := s.play(part.seconds, told, agents); err != nil {
			return err
		}
	}
	s.min++
	return nil
}

// window keeps what the window says, for those who judge.
func (s *server) window(mark model.WindowMark) {
	if mark == model.WindowEnd {
		model.Observe(&s.prev, &s.snap, &s.obs)
		return
	}
	tasks := append(s.prev.Tasks[:0], s.snap.Tasks...)
	s.prev = s.snap
	s.prev.Tasks = tasks
}

// seen returns what the last window says of a task; ok is false when it says nothing or
// the task hardly ran (table 2: 0.25 CPU-sec/sec).
func (s *server) seen(n model.TaskNum) (o *model.TaskObservation, ok bool) {
	for i := range s.obs.Tasks {
		if o := &s.obs.Tasks[i]; o.Num == n {
			return o, o.CPU.Outcome == model.OK && o.CPU.V >= requiredCPU && o.Signals[model.SourceCPI].Outcome == model.OK
		}
	}
	return nil, false
}

const requiredCPU = 0.25

// utilisation is the share of the machine's CPUs that was busy in the last window.
func (s *server) utilisation() float64 { return s.obs.Busy.V / float64(s.obs.CPUs) }

// hold caps a task by hand, as CPI²'s authors did; 0 frees it.
func (s *server) hold(n model.TaskNum, cpu float64) error {
	phys, err := s.host.Physical(n)
	if err != nil {
		return err
	}
	v := machine.CPUMax(twin.Unlimited())
	if cpu > 0 {
		v = machine.CPUMax{QuotaUsec: int64(cpu * capPeriodUsec), PeriodUsec: capPeriodUsec}
	}
	return s.host.Machine().SetCPUMax(phys, v)
}

const capPeriodUsec = 250_000 // section 5: 25 ms in each 250 ms

// seat is a server as one of several agents has it before itself: there is one reading of a
// moment for all of them.
type seat struct {
	*twin.Host
	s *server
}

// Observe implements node.Host.
func (v seat) Observe(_ model.WindowMark, snap *model.Snapshot) error {
	*snap = v.s.snap // nobody writes into its lists before the next one
	return nil
}

// Meter implements node.Metering. What is read already goes on: an agent on a fork has read it so far.
func (v seat) Meter(r node.Readings) {
	if r != v.s.read {
		v.s.read = r
		v.Host.Meter(r)
	}
}

// agent returns an agent with CPI²'s own values that looks at the server or acts on it. It
// goes on where a state left off, or, without one, knows the specs that the fleet sent.
func (s *server) agent(mode model.Mode, mutate func(*engine.Params), specs []model.Spec, state *engine.State) (*agent.Loop, error) {
	c, ok := config.Defaults(config.ProfileCPI2)
	if !ok {
		return nil, fmt.Errorf("cpi2: no profile %s", config.ProfileCPI2)
	}
	c.Policies.SetModes(model.ModeOff)
	c.Policies.Mode, c.Signals = mode, []string{model.SourceCPI.String()}
	core, err := agent.Assemble(&c, agent.Deps{
		Host: seat{s.host, s}, Clock: s.host, Platform: platform, State: state,
		Adjust: func(p *engine.Params) {
			// Specs come from the fleet, here from Fleet; what this node would learn is not used.
			p.Spec.RecalculateNsec = 1 << 62
			p.Hardcap.Confirm.ByLack = s.mix.counted // who looks on remembers what tasks have, and asks nobody for it
			if mutate != nil {
				mutate(p)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if state == nil {
		core.Tell(specs...)
	}
	return agent.NewLoop(core), nil
}

// threshold is the outlier threshold of a spec (table 2: 2 sigma).
func threshold(sp *model.Spec) float64 {
	p := outlier.Params{Sigmas: 2}
	return p.Threshold(sp)
}
