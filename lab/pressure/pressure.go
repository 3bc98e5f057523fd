// Package pressure asks who is killed when batch work takes all the memory there is (Alibaba, section 3.2), in drawn rounds on simulated
// machines: by the kernel's own rules, with a limit for each batch task set by hand, and under the policy pressure.
//
// A round is a machine of 8 to 64 GiB with swap or without, one or two services that use a fifth to a half of it, two to four batch
// tasks with memory of all kinds, and one to three hogs: batch tasks that begin some time and take from a tenth to one and a half times
// the machine within ten seconds to five minutes. Six minutes are played. Whom the kernel would kill is killed.
//
// Written down before the first run with looks between windows (before, two services of 1,000 rounds were lost within one window): the
// policy fails if a service is killed in any round, whether it may end batch tasks or not; or if batch work does less than four fifths of what it does with limits by
// hand. Seeds below 1000 are for development.
//
// What it does not show: memory that is not tasks' own, groups' limits that kill inside, real reclaim; for that a guest of the rig runs
// out of real memory (docs/RIG.md).
package pressure

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
	"github.com/commensal-io/commensal/twin/program"
)

// Arm is what is done about it.
type Arm int

// The arms.
const (
	Nothing Arm = iota // the kernel's rules
	ByHand             // memory.max of each batch task: an equal part of what services leave
	Policy             // policy pressure
	Ending             // the same, which may end batch tasks
	NumArms
)

var armNames = [NumArms]string{"nothing", "memory.max by hand", "pressure", "pressure, end: batch"}

// String returns the arm's name in tables.
func (a Arm) String() string { return armNames[a] }

// Options of a run.
type Options struct {
	Seed  uint64
	Quick bool // fewer rounds
}

const (
	rounds, quickRounds = 1000, 24
	seconds             = 360
	gib                 = 1 << 30
)

// Round is what came of one.
type Round struct {
	Index int     `json:"index"`
	GiB   float64 `json:"gib"`
	Swap  bool    `json:"swap"`
	// Arms is what came of each arm.
	Arms [NumArms]Outcome `json:"arms"`
}

// Outcome counts who was killed, and what batch work did.
type Outcome struct {
	Services int     `json:"services_killed"`
	Batch    int     `json:"batch_killed"`
	Ended    int     `json:"batch_ended"` // by the policy
	Work     float64 `json:"work"`        // instructions of batch work
	Stalls   float64 `json:"stalls"`      // share of the time in which services waited for memory
}

// Run plays all rounds. Equal seeds give equal results on any number of CPUs.
func Run(ctx context.Context, o Options) (*Result, error) {
	n := rounds
	if o.Quick {
		n = quickRounds
	}
	list, err := parallel.Map(ctx, 0, n, func(i int) (Round, error) {
		r := Round{Index: i}
		for arm := range NumArms {
			var err error
			if r.Arms[arm], err = play(ctx, o.Seed, i, arm, &r); err != nil {
				return r, fmt.Errorf("round %d, %s: %w", i, arm, err)
			}
		}
		return r, nil
	})
	if err != nil {
		return nil, err
	}
	r := &Result{Seed: o.Seed, Quick: o.Quick, Rounds: list}
	r.sum()
	return r, nil
}

// task is one task of a round.
type task struct {
	class  model.Class
	cfg    machine.TaskConfig
	atNsec int64 // when it starts
	num    model.TaskNum
	phys   int     // on the machine; -1: it does not run (any more)
	work   float64 // instructions, as of the last second
}

// draw draws a round.
func draw(rng *rand.Rand, r *Round) (c machine.Config, list []task) {
	between := func(lo, hi float64) float64 { return lo + (hi-lo)*rng.Float64() }
	c = machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1, 16, 1
	r.GiB = math.Round(8 * math.Exp2(between(0, 3)))
	if c.MemBytes, c.SwapBytes = r.GiB*gib, 0; rng.IntN(2) == 0 {
		c.SwapBytes, r.Swap = c.MemBytes*between(0.1, 0.5), true
	}
	cpu := 0
	add := func(class model.Class, name string, threads int, heats ...machine.Heat) *task {
		p, _ := program.Find(name)
		cfg := machine.TaskConfig{Name: fmt.Sprintf("%s-%d", name, len(list)), Threads: threads, Spread: 0.04, SpreadNsec: 3e9, Memory: heats}
		for range threads {
			cfg.CPUs.Add(cpu % 16)
			cpu++
		}
		p.Apply(&cfg)
		if class == model.BE {
			cfg.Work = &machine.Work{}
		}
		list = append(list, task{class: class, cfg: cfg, phys: -1})
		return &list[len(list)-1]
	}
	services := 1 + rng.IntN(2)
	for range services {
		t := add(model.LC, "web-frontend", 2, machine.Heat{Bytes: c.MemBytes * between(0.1, 0.25) * 2 / float64(services), EveryNsec: 1e9},
			machine.Heat{Bytes: c.MemBytes * between(0, 0.1), EveryNsec: 60e9, File: true})
		t.cfg.Requests = &machine.Requests{Instructions: 3e6, Variation: 1, PerSecond: between(50, 250)}
	}
	for range 2 + rng.IntN(3) {
		add(model.BE, "compute", 1, machine.Heat{Bytes: c.MemBytes * between(0.01, 0.08), EveryNsec: int64(math.Exp(between(math.Log(1e9), math.Log(600e9))))},
			machine.Heat{Bytes: c.MemBytes * between(0, 0.1), EveryNsec: 600e9, File: true})
	}
	for range 1 + rng.IntN(3) {
		t := add(model.BE, "compute", 1, machine.Heat{
			Bytes: min(c.MemBytes*math.Exp(between(math.Log(0.1), math.Log(1.5))), c.MemBytes+c.SwapBytes), EveryNsec: 1e9, OverNsec: int64(math.Exp(between(math.Log(10e9), math.Log(300e9)))),
		})
		t.atNsec = int64(between(20e9, 240e9))
	}
	return c, list
}

// play plays a round under an arm.
func play(ctx context.Context, seed uint64, i int, arm Arm, r *Round) (out Outcome, err error) {
	c, list := draw(rand.New(rand.NewPCG(seed, uint64(i))), r)
	m, err := machine.New(c, seed*100_000+uint64(i))
	if err != nil {
		return out, err
	}
	w := &world{host: twin.NewHost(m, true), list: list, arm: arm}
	w.room = w.share(c.MemBytes)
	p := player.Player{Machine: m}
	if err := w.start(0); err != nil {
		return out, err
	}
	if arm == Policy || arm == Ending {
		conf, _ := config.Defaults(config.ProfileSingleNode)
		conf.Policies.SetModes(model.ModeOff)
		conf.Policies.CPU.PressureMode = model.ModeEnforce
		if arm == Ending {
			conf.Policies.CPU.Pressure.End = policy.EndBatch
		}
		core, err := agent.Assemble(&conf, agent.Deps{Host: w.host, Clock: w.host, Platform: "twin"})
		if err != nil {
			return out, err
		}
		p.Agents = []*agent.Loop{agent.NewLoop(core)}
	}
	for s := int64(1); s <= seconds; s++ {
		if err := p.Until(ctx, s*1e9); err != nil {
			return out, err
		}
		if err := w.look(&out); err != nil {
			return out, err
		}
		if err := w.start(s * 1e9); err != nil {
			return out, err
		}
	}
	for k := range w.list {
		w.sum(&w.list[k], &out)
	}
	return out, nil
}

// world is a round as it runs.
type world struct {
	host *twin.Host
	list []task
	arm  Arm
	room float64 // that a batch task has by hand
}

// share is an equal part, for each batch task, of what services leave.
func (w *world) share(all float64) float64 {
	batch := 0
	for k := range w.list {
		if w.list[k].class == model.BE {
			batch++
			continue
		}
		for _, h := range w.list[k].cfg.Memory {
			all -= h.Bytes
		}
	}
	return all / float64(max(1, batch))
}

// start starts who is due.
func (w *world) start(nowNsec int64) error {
	for k := range w.list {
		t := &w.list[k]
		if t.num != 0 || t.atNsec > nowNsec {
			continue
		}
		of := model.Task{Path: "/" + t.class.String() + "/" + t.cfg.Name, Class: t.class, Production: t.class == model.LC}
		of.Job = of.Path
		var err error
		if t.num, err = w.host.Start(of, t.cfg); err != nil {
			return err
		}
		if t.phys, err = w.host.Physical(t.num); err != nil {
			return err
		}
		if w.arm == ByHand && t.class == model.BE {
			if err := w.host.Machine().SetMemoryLimits(t.phys, w.room, w.room); err != nil {
				return err
			}
		}
	}
	return nil
}

// look ends whom the kernel has killed, and notes whom the policy has ended.
func (w *world) look(out *Outcome) error {
	for k := range w.list {
		t := &w.list[k]
		if t.phys < 0 {
			continue
		}
		if _, err := w.host.Physical(t.num); err != nil {
			out.Ended++
			out.Work += t.work
			t.phys = -1
			continue
		}
		use, err := w.host.Machine().MemoryUse(t.phys)
		if err != nil {
			return err
		}
		if t.class == model.LC {
			out.Stalls += use.Blocked / seconds
		} else if c, err := w.host.Machine().Counters(t.phys); err == nil {
			t.work = float64(c.Instructions)
		}
		if !use.Killed {
			continue
		}
		if t.class == model.LC {
			out.Services++
		} else {
			out.Batch++
		}
		w.sum(t, out)
		if err := w.host.Stop(t.num); err != nil {
			return err
		}
		t.phys = -1
	}
	return nil
}

// sum adds up what a batch task did.
func (w *world) sum(t *task, out *Outcome) {
	if t.phys < 0 || t.class != model.BE {
		return
	}
	if c, err := w.host.Machine().Counters(t.phys); err == nil {
		out.Work += float64(c.Instructions)
	}
}
