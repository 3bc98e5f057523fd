// Package drc asks what following utilisation and latency is worth against a fixed limit on batch work's memory bandwidth
// (Alibaba, section 4.2 and figure 18), on drawn mixes of programs on a simulated server of two sockets.
//
// A mix is one or two services and one or two batch tasks a socket, each on CPUs of its own, so that only cache and
// memory are shared; two in three batch tasks are heavy on memory, all go through phases of a minute or so (figure 16), a
// third of the services is invented, to wait for memory. Idle memory answers within 100 to 130 ns, as the paper's
// machines do, and 24 cores a socket can bring it above 200. Every arm meets the same mix; the last five of ten minutes
// count. What it does not show: hardware DRC, memory of other sockets, tides of load, the hardware's own quirks.
//
// Written down before the first run (the paper: batch work's instructions a second rise by an order of magnitude over
// MBA 10 % at no noticeable change of LC's CPI, bandwidth in use from 15 to 30 %, latency from 100 to 140 ns):
//
//   - the heuristic: at least ten times the instructions of MBA 10 %, LC's CPI at most 5 % above that under MBA 10 %
//     on the mean, twice the bandwidth, latency at most 1.4 times;
//   - adaptive: at most as much CPI as the heuristic, in no more than one mix of twenty over 5 % above MBA 10 %, and at
//     least nine tenths of the heuristic's instructions.
//
// Seeds below 100 are for development; what is reported begins at 1000.
package drc

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
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
	Level10              // MBA at 10 %, which the paper's cluster had before
	Heuristic            // policy bandwidth
	Adaptive             // policy bandwidth, adaptive
	NumArms
)

var armNames = [NumArms]string{"off", "MBA 10 %", "heuristic", "adaptive"}

// String returns the arm's name in tables.
func (a Arm) String() string { return armNames[a] }

// Options of a run.
type Options struct {
	Seed  uint64
	Quick bool // fewer catalogues and mixes
}

// catalogues are drawn by seeds one after the other; intervals are over them.
const (
	catalogues, quickCatalogues = 10, 2
	mixes, quickMixes           = 6, 2
	secondsAll                  = 600
	secondsLast                 = 300
	cores, lcCores              = 24, 8 // of a socket
	peakGB                      = 112
)

// Mix is what came of one mix.
type Mix struct {
	Seed  uint64           `json:"seed"`
	Index int              `json:"index"`
	Tasks []string         `json:"tasks"`
	Idle  float64          `json:"idle_latency_nsec"`
	Arms  [NumArms]Outcome `json:"arms"`
}

// Outcome is what an arm's last minutes say.
type Outcome struct {
	// CPI and Work are LC's mean CPI, each service's beside that under MBA 10 %, and batch work's instructions likewise.
	CPI  float64 `json:"cpi_ratio"`
	Work float64 `json:"work_ratio"`
	// Use and Latency are medians over seconds and sockets: share of the peak, and nanoseconds.
	Use     float64 `json:"use"`
	Latency float64 `json:"latency_nsec"`
	Slow    float64 `json:"slow"` // share of the seconds and sockets in which memory takes over 200 ns

	cpi  []float64
	work float64
}

// Run plays all mixes. Equal seeds give equal results on any number of CPUs.
func Run(ctx context.Context, o Options) (*Result, error) {
	n, of := catalogues, mixes
	if o.Quick {
		n, of = quickCatalogues, quickMixes
	}
	list, err := parallel.Map(ctx, 0, n*of, func(i int) (Mix, error) { return play(ctx, o.Seed+uint64(i/of), i%of) })
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

// pool is the programs that a catalogue is drawn from.
type pool struct{ services, heavy, all []program.Profile }

func newPool() (p pool) {
	for _, name := range program.Names() {
		x, _ := program.Find(name)
		if x.Service {
			p.services = append(p.services, x)
			continue
		}
		if p.all = append(p.all, x); len(x.Curve.MPKI) > 0 && x.Curve.MPKI[len(x.Curve.MPKI)-1] >= heavyMPKI {
			p.heavy = append(p.heavy, x)
		}
	}
	return p
}

const (
	heavyMPKI  = 10     // misses with all the cache: batch work that is heavy on memory
	heavyShare = 2. / 3 // of batch tasks
	invented   = 1. / 3 // of services: published ones say little of how they wait for memory
)

// draw draws a mix: on each socket services have the first cores, batch work the others.
func draw(rng *rand.Rand, hz float64) (list []task) {
	p := newPool()
	for socket := range 2 {
		add := func(class model.Class, from, to int) {
			n := 1 + rng.IntN(2)
			for i := range n {
				lo, hi := from+(to-from)*i/n, from+(to-from)*(i+1)/n
				x := p.all[rng.IntN(len(p.all))]
				switch {
				case class == model.LC && rng.Float64() < invented:
					x = chaser(rng)
				case class == model.LC:
					x = p.services[rng.IntN(len(p.services))]
				case rng.Float64() < heavyShare:
					x = p.heavy[rng.IntN(len(p.heavy))]
				}
				cfg := machine.TaskConfig{Name: x.Name, Threads: hi - lo, Spread: 0.04, SpreadNsec: 3e9}
				for cpu := lo; cpu < hi; cpu++ {
					cfg.CPUs.Add(socket*cores + cpu)
				}
				x.Apply(&cfg)
				if class == model.BE {
					cfg.Work = phases(rng, hi-lo)
				} else { // a load of a fifth to half of its CPUs, at a CPI that it may have
					use := float64(hi-lo) * (0.2 + 0.3*rng.Float64())
					cfg.Requests = &machine.Requests{Instructions: 4e6, Variation: 1, PerSecond: use * hz / (2 * x.CPI * 4e6)}
				}
				list = append(list, task{class, cfg})
			}
		}
		add(model.LC, 0, lcCores)
		add(model.BE, lcCores, cores)
	}
	return list
}

// phases are a batch task's: all it has, then less of it.
func phases(rng *rand.Rand, threads int) *machine.Work {
	length := func() int64 { return int64(30e9 + 60e9*rng.Float64()) }
	return &machine.Work{Phases: []machine.Phase{
		{Nsec: 2 * length(), Jitter: 0.3, CPUs: float64(threads)},
		{Nsec: length(), Jitter: 0.3, CPUs: float64(threads) * (0.2 + 0.6*rng.Float64()), Misses: 0.3 + 0.5*rng.Float64()},
	}}
}

// chaser is a service that waits for memory and has little use for the cache.
func chaser(rng *rand.Rand) program.Profile {
	miss := 2 + 10*rng.Float64()
	return program.Profile{
		Name: "chaser", CPI: 0.4 + 0.5*rng.Float64(), APKI: 2 * miss, Overlap: 1 + rng.Float64(), WriteShare: 0.2, Service: true,
		Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{1.05 * miss, miss}},
	}
}

// play plays a mix in all arms.
func play(ctx context.Context, seed uint64, i int) (Mix, error) {
	c := machine.Skylake()
	c.CoresPerSocket, c.ThreadsPerCore, c.MemPeakBytes = cores, 1, peakGB*1e9
	rng := func() *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(i))) }
	c.MemLatencyNsec = 100 + 30*rng().Float64()
	m := Mix{Seed: seed, Index: i, Idle: c.MemLatencyNsec}
	for arm := range NumArms {
		list := draw(rng(), c.Hz)
		out, err := playArm(ctx, c, seed*1000+uint64(i), list, arm)
		if err != nil {
			return m, fmt.Errorf("seed %d, mix %d, %s: %w", seed, i, arm, err)
		}
		if m.Arms[arm] = out; arm == Off {
			for k := range list {
				m.Tasks = append(m.Tasks, list[k].cfg.Name)
			}
		}
	}
	base := m.Arms[Level10]
	for arm := range m.Arms {
		a := &m.Arms[arm]
		for k := range a.cpi {
			a.CPI += a.cpi[k] / base.cpi[k] / float64(len(a.cpi))
		}
		a.Work = a.work / base.work
	}
	return m, nil
}

// configOf is the agent of an arm; nil: none.
func configOf(arm Arm) *config.Config {
	if arm != Heuristic && arm != Adaptive {
		return nil
	}
	c, _ := config.Defaults(config.ProfileSingleNode)
	c.Policies.SetModes(model.ModeOff)
	p := &c.Policies.CPU
	p.BandwidthMode, p.Bandwidth.Peak, p.Bandwidth.Adaptive = model.ModeEnforce, peakGB, arm == Adaptive
	return &c
}

// start starts a mix's tasks and returns the machine's numbers of them.
func start(host *twin.Host, list []task, arm Arm) (nums []int, err error) {
	mach := host.Machine()
	class := 0
	if arm == Level10 {
		class = mach.AddCLOS()
		for socket := range 2 {
			if err := mach.SetMBA(class, socket, 10); err != nil {
				return nil, err
			}
		}
	}
	for i := range list {
		t := model.Task{Path: fmt.Sprintf("/%s/%d-%s", list[i].class, i, list[i].cfg.Name), Class: list[i].class, Production: list[i].class == model.LC}
		t.Job = t.Path
		n, err := host.Start(t, list[i].cfg)
		if err != nil {
			return nil, err
		}
		num, err := host.Physical(n)
		if err != nil {
			return nil, err
		}
		if list[i].class == model.BE {
			if err := mach.SetCLOS(num, class); err != nil {
				return nil, err
			}
		}
		nums = append(nums, num)
	}
	return nums, nil
}

func playArm(ctx context.Context, c machine.Config, seed uint64, list []task, arm Arm) (out Outcome, err error) {
	mach, err := machine.New(c, seed)
	if err != nil {
		return out, err
	}
	host := twin.NewHost(mach, true)
	nums, err := start(host, list, arm)
	if err != nil {
		return out, err
	}
	p := player.Player{Machine: mach}
	if conf := configOf(arm); conf != nil {
		core, err := agent.Assemble(conf, agent.Deps{Host: host, Clock: host, Platform: "twin"})
		if err != nil {
			return out, err
		}
		p.Agents = []*agent.Loop{agent.NewLoop(core)}
	}
	if err := p.Until(ctx, (secondsAll-secondsLast)*1e9); err != nil {
		return out, err
	}
	before, err := count(mach, nums)
	if err != nil {
		return out, err
	}
	var use, latency []float64
	for s := int64(1); s <= secondsLast; s++ {
		if err := p.Until(ctx, (secondsAll-secondsLast+s)*1e9); err != nil {
			return out, err
		}
		for socket := range 2 {
			m := mach.Memory(socket)
			use, latency = append(use, m.BytesPerSecond/c.MemPeakBytes), append(latency, m.LatencyNsec)
			if m.LatencyNsec > 200 {
				out.Slow += 1. / (2 * secondsLast)
			}
		}
	}
	out.Use, out.Latency = stat.Median(use), stat.Median(latency)
	after, err := count(mach, nums)
	if err != nil {
		return out, err
	}
	for i := range list {
		instructions := float64(after[i].Instructions - before[i].Instructions)
		if list[i].class == model.LC {
			out.cpi = append(out.cpi, float64(after[i].RefCycles-before[i].RefCycles)/instructions)
		} else {
			out.work += instructions
		}
	}
	return out, nil
}

func count(mach *machine.Machine, nums []int) (list []machine.Counters, err error) {
	for _, num := range nums {
		k, err := mach.Counters(num)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	return list, nil
}
