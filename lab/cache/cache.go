// Package cache asks what it does to services and to batch work that batch work has two ways of the last-level cache
// (ByteDance), on drawn mixes of published programs on a simulated socket, and whether comparing before and after
// (policy/cache) keeps the good of it without the harm.
//
// A mix is one or two services and one to three batch tasks, each on CPUs of its own, so that only cache and memory are
// shared. A third of them is invented, of kinds that a division may turn out badly for. Every arm meets the same mix. What counts are the last two of six minutes, in which all that was to be decided
// is. What it does not show: phases and tides (loads are steady), several sockets, and the hardware's own quirks.
//
// Written down before the first run: ours fails where LC's CPI is more than 3 % above that of the arm "off" in more than
// one mix of twenty, or where it keeps less than nine tenths of what the better of "off" and "two ways" gains, mix by
// mix. Ways of their own for services (exclusive) fail where the first is so of them, and where LC's CPI is in the mean of all mixes
// more than 1 % above what it is with ours without (overlapping), or BE work as much below: then they harm one of both. Seeds below 1000
// are for development.
package cache

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cache"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
	"github.com/commensal-io/commensal/twin/program"
)

// Arm is a way to treat the batch work.
type Arm int

// The arms.
const (
	Off       Arm = iota // as it is found
	TwoWays              // two ways, whatever comes of it (ByteDance)
	Level10              // memory bandwidth at 10 %, as figure 18 of Alibaba has it for its baseline
	Ours                 // two ways, compared before and after
	Apart                // two ways, and the others for services, whatever comes of it
	OursApart            // the same, compared before and after
	NumArms
)

var armNames = [NumArms]string{"off", "two ways", "MBA 10 %", "commensal", "two ways, exclusive", "commensal, exclusive"}

// String returns the arm's name in tables.
func (a Arm) String() string { return armNames[a] }

// Options of a run.
type Options struct {
	Seed  uint64
	Quick bool // fewer mixes
}

const (
	mixes, quickMixes = 60, 8
	secondsAll        = 360
	secondsLast       = 120
	lcCPUs            = 6 // of 16
)

// Mix is what came of one mix.
type Mix struct {
	Index    int      `json:"index"`
	Services []string `json:"services"`
	Batch    []string `json:"batch"`
	// CPI is LC's mean, each service's beside that of the arm "off"; Work the instructions of batch work, likewise.
	CPI  [NumArms]float64 `json:"cpi_ratio"`
	Work [NumArms]float64 `json:"work_ratio"`
	// Divided says of each arm whether batch work had its class at the end, Apart whether services had theirs.
	Divided [NumArms]bool `json:"divided"`
	Apart   [NumArms]bool `json:"apart"`
}

// Run plays all mixes. Equal seeds give equal results on any number of CPUs.
func Run(ctx context.Context, o Options) (*Result, error) {
	n := mixes
	if o.Quick {
		n = quickMixes
	}
	list, err := parallel.Map(ctx, 0, n, func(i int) (Mix, error) { return play(ctx, o.Seed, i) })
	if err != nil {
		return nil, err
	}
	r := &Result{Seed: o.Seed, Quick: o.Quick, Mixes: list}
	r.sum()
	return r, nil
}

// task is one task of a mix.
type task struct {
	class model.Class
	cfg   machine.TaskConfig
}

// draw draws a mix: the services divide the first CPUs, batch work the others.
func draw(rng *rand.Rand, hz float64) (list []task) {
	var services, all []string
	for _, name := range program.Names() {
		p, _ := program.Find(name)
		if all = append(all, name); p.Service {
			services = append(services, name)
		}
	}
	add := func(class model.Class, from, to int, names []string) {
		n := 1 + rng.IntN(2+int(class)%2)
		for i := range n {
			lo, hi := from+(to-from)*i/n, from+(to-from)*(i+1)/n
			p, _ := program.Find(names[rng.IntN(len(names))])
			if rng.Float64() < invented {
				p = invent(rng, class)
			}
			cfg := machine.TaskConfig{Name: p.Name, Threads: hi - lo, Spread: 0.04, SpreadNsec: 3e9}
			for cpu := lo; cpu < hi; cpu++ {
				cfg.CPUs.Add(cpu)
			}
			p.Apply(&cfg)
			if class == model.BE {
				cfg.Work = &machine.Work{}
			} else { // a load of a fifth to three fifths of its CPUs, at a CPI that it may have
				use := float64(hi-lo) * (0.2 + 0.4*rng.Float64())
				cfg.Requests = &machine.Requests{Instructions: 4e6, Variation: 1, PerSecond: use * hz / (2 * p.CPI * 4e6)}
			}
			list = append(list, task{class, cfg})
		}
	}
	add(model.LC, 0, lcCPUs, services)
	add(model.BE, lcCPUs, 16, all)
	return list
}

// invented is the share of tasks that are no published program: among those hardly any is hurt by having fewer ways in
// a way that hurts others, and a comparison that is never needed would prove nothing.
const invented = 1. / 3

// invent draws a program that a division may turn out badly for: batch work whose data fit into the cache, and who
// reads them from memory instead; a service that waits for memory and has little use for the cache.
func invent(rng *rand.Rand, class model.Class) program.Profile {
	between := func(lo, hi float64) float64 { return lo + (hi-lo)*rng.Float64() }
	if class == model.LC {
		miss := between(2, 12)
		return program.Profile{
			Name: "chaser", CPI: between(0.4, 0.9), APKI: 2 * miss, Overlap: between(1, 2), WriteShare: 0.2, Service: true,
			Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{1.05 * miss, miss}},
		}
	}
	most := between(20, 110)
	p := program.Profile{Name: "resident", CPI: between(0.4, 0.8), APKI: 1.1 * most, Overlap: between(3, 12), WriteShare: 0.3, Curve: machine.MissCurve{StepBytes: 2 << 20}}
	fits := between(4, 11)
	for step := range 11 {
		p.Curve.MPKI = append(p.Curve.MPKI, max(1, most*(1-float64(step)/fits)))
	}
	return p
}

// play plays a mix in all arms.
func play(ctx context.Context, seed uint64, i int) (Mix, error) {
	c := machine.Skylake()
	c.Sockets, c.ThreadsPerCore = 1, 1
	m := Mix{Index: i}
	var off outcome
	for arm := range NumArms {
		list := draw(rand.New(rand.NewPCG(seed, uint64(i))), c.Hz)
		out, err := playArm(ctx, c, seed*1000+uint64(i), list, arm)
		if err != nil {
			return m, fmt.Errorf("mix %d, %s: %w", i, arm, err)
		}
		if arm == Off {
			off = out
			for k := range list {
				if names := &m.Batch; list[k].class == model.LC {
					m.Services = append(m.Services, list[k].cfg.Name)
				} else {
					*names = append(*names, list[k].cfg.Name)
				}
			}
		}
		for k := range out.cpi {
			m.CPI[arm] += out.cpi[k] / off.cpi[k] / float64(len(out.cpi))
		}
		m.Work[arm], m.Divided[arm], m.Apart[arm] = out.work/off.work, out.divided, out.apart
	}
	return m, nil
}

// outcome is what an arm's last minutes say.
type outcome struct {
	cpi     []float64 // of the services
	work    float64   // instructions of batch work
	divided bool
	apart   bool
}

// configOf is the agent of an arm; nil: none.
func configOf(arm Arm) *config.Config {
	if arm == Off {
		return nil
	}
	c, _ := config.Defaults(config.ProfileSingleNode)
	c.Policies.SetModes(model.ModeOff)
	p := &c.Policies.CPU.Cache
	switch c.Policies.CPU.CacheMode = model.ModeEnforce; arm {
	case TwoWays, Apart:
		p.PatienceNsec, p.SettleNsec = 0, 3600e9
	case Level10:
		p.PatienceNsec, p.SettleNsec, p.Ways, p.Level = 0, 3600e9, 64, 10
	}
	if arm == Apart || arm == OursApart {
		p.Share = cache.Exclusive
	}
	return &c
}

func playArm(ctx context.Context, c machine.Config, seed uint64, list []task, arm Arm) (out outcome, err error) {
	mach, err := machine.New(c, seed)
	if err != nil {
		return out, err
	}
	host := twin.NewHost(mach, true)
	var nums []int
	for i := range list {
		t := model.Task{Path: fmt.Sprintf("/%s/%d-%s", list[i].class, i, list[i].cfg.Name), Class: list[i].class, Production: list[i].class == model.LC}
		t.Job = t.Path
		n, err := host.Start(t, list[i].cfg)
		if err != nil {
			return out, err
		}
		num, err := host.Physical(n)
		if err != nil {
			return out, err
		}
		nums = append(nums, num)
	}
	p := player.Player{Machine: mach}
	if conf := configOf(arm); conf != nil {
		core, err := agent.Assemble(conf, agent.Deps{Host: host, Clock: host, Platform: "twin"})
		if err != nil {
			return out, err
		}
		p.Agents = []*agent.Loop{agent.NewLoop(core)}
	}
	before := make([]machine.Counters, len(nums))
	for _, until := range []int64{secondsAll - secondsLast, secondsAll} {
		if err := p.Until(ctx, until*1e9); err != nil {
			return out, err
		}
		out = outcome{}
		for i, num := range nums {
			now, err := mach.Counters(num)
			if err != nil {
				return out, err
			}
			cycles, instructions := float64(now.RefCycles-before[i].RefCycles), float64(now.Instructions-before[i].Instructions)
			if before[i] = now; list[i].class == model.LC {
				out.cpi = append(out.cpi, cycles/instructions)
			} else {
				out.work += instructions
			}
		}
	}
	for i, num := range nums {
		class, err := mach.CLOS(num)
		if in := err == nil && class > 0; list[i].class == model.LC {
			out.apart = out.apart || in
		} else {
			out.divided = out.divided || in
		}
	}
	return out, nil
}
