package throttle

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
	"github.com/commensal-io/commensal/twin/program"
)

// Twin is what was measured on simulated machines.
type Twin struct {
	Load      Workload       `json:"workload"`
	Burstiest []int          `json:"burstiest"`
	Kernels   []KernelResult `json:"kernels"`
	Hard      []HardResult   `json:"hard_loads"`
	Buckets   []Bucket       `json:"figure_13"`
	Surge     *Surge         `json:"figure_23"`
}

// KernelResult is the four columns on one kernel.
type KernelResult struct {
	Kernel  string    `json:"kernel"`
	Blocks  []Block   `json:"blocks"`
	Columns []Summary `json:"columns"`
}

// twinWorkload is 160 instances on 64 cores, in the proportions of the one on a host.
func twinWorkload() Workload {
	w := hostWorkload(64)
	w.Instances, w.Steady, w.Threads = 160, 40, 8
	return w
}

// twinStep is fine enough for bursts of milliseconds.
const twinStep = time.Millisecond

// twinService is what the instances' instructions are like.
const twinService = "web-frontend"

// server64 is a machine of 64 cores.
func server64(k machine.Kernel) machine.Config {
	c := machine.Skylake()
	c.CoresPerSocket, c.ThreadsPerCore = 32, 1
	c.Kernel, c.StepNsec = k, twinStep.Nanoseconds()
	return c
}

// taskConfig is an instance as the simulated machine knows it: requests come evenly there,
// and a simulation raises their rate for the length of a spike.
func taskConfig(in *Instance, hz float64) (machine.TaskConfig, error) {
	p, ok := program.Find(twinService)
	if !ok {
		return machine.TaskConfig{}, fmt.Errorf("throttle: no program %s", twinService)
	}
	c := machine.TaskConfig{Name: in.Name, Threads: in.Threads}
	p.Apply(&c)
	perSec, msec := in.evenly()
	variation := 1.0
	if in.SpikeMsec == 0 {
		variation = 0
	}
	// CPU time into instructions, by what one takes alone.
	c.Requests = &machine.Requests{PerSecond: perSec, Instructions: msec * hz / 1000 / cyclesAlone, Variation: variation}
	return c, nil
}

// cyclesAlone is twinService's cycles per instruction on an idle machine.
const cyclesAlone = 1.1

// change is a moment at which an instance's requests begin to come at another rate.
type change struct {
	at     int64
	i      int
	perSec float64
}

// changes are those of all instances, in order: each spike is one up and one down. They
// are drawn as the host's are.
func changes(list []Instance, length time.Duration) []change {
	var out []change
	for i := range list {
		in := &list[i]
		perSec, msec := in.evenly()
		rng := rand.New(rand.NewPCG(in.Seed, 0x7370696b))
		for _, at := range in.spikes(rng, length) {
			up := perSec + in.spikeSize(rng)/msec/spikeWithin.Seconds()
			out = append(out, change{int64(at), i, up}, change{int64(at + spikeWithin), i, perSec})
		}
	}
	slices.SortStableFunc(out, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return out
}

// simulation is one simulated machine with its instances and its agent.
type simulation struct {
	host    *twin.Host
	list    []Instance
	phys    []int
	changes []change  // that are still to come
	perSec  []float64 // by instance: the rate now, before growth
	growth  []float64 // by instance: a factor on its load
	batch   int       // the batch work's number on the machine; -1: there is none
	player  player.Player
}

// newSimulation starts the instances under their quotas, with the agent of a column, for at
// most so long.
func newSimulation(c machine.Config, list []Instance, col Column, length time.Duration, seed uint64) (*simulation, error) {
	m, err := machine.New(c, seed)
	if err != nil {
		return nil, err
	}
	s := &simulation{host: twin.NewHost(m, false), list: list, batch: -1, changes: changes(list, length)}
	for i := range list {
		cfg, err := taskConfig(&list[i], c.Hz)
		if err != nil {
			return nil, err
		}
		num, err := s.host.Start(model.Task{Path: "/" + list[i].Name, Job: "pool", Class: model.LC, Production: true}, cfg)
		if err != nil {
			return nil, err
		}
		phys, err := s.host.Physical(num)
		if err != nil {
			return nil, err
		}
		if err := m.SetCPUMax(phys, machine.CPUMax{QuotaUsec: list[i].QuotaUsec, PeriodUsec: list[i].PeriodUsec}); err != nil {
			return nil, err
		}
		s.phys, s.perSec, s.growth = append(s.phys, phys), append(s.perSec, cfg.Requests.PerSecond), append(s.growth, 1)
	}
	conf := agentConfig("/app-*", col)
	core, err := agent.Assemble(conf, agent.Deps{Host: s.host, Clock: s.host, Platform: "twin"})
	if err != nil {
		return nil, err
	}
	s.player = player.Player{Machine: m, Agents: []*agent.Loop{agent.NewLoop(core)}, World: s.due}
	return s, nil
}

// due changes the rates whose time has come, and returns when the next ones do.
func (s *simulation) due(nowNsec int64) (int64, error) {
	for ; len(s.changes) > 0; s.changes = s.changes[1:] {
		c := s.changes[0]
		if c.at > nowNsec {
			return c.at, nil
		}
		s.perSec[c.i] = c.perSec
		if err := s.setRate(c.i); err != nil {
			return 0, err
		}
	}
	return math.MaxInt64, nil
}

// setRate puts an instance's rate in force.
func (s *simulation) setRate(i int) error {
	return s.host.Machine().SetRate(s.phys[i], s.perSec[i]*s.growth[i])
}

// read takes a reading, as one of a host.
func (s *simulation) read() (Reading, error) {
	r := Reading{MonoNsec: s.host.Machine().NowNsec(), UsageNsec: make([]uint64, len(s.phys)), Stat: make([]cgroup.CPUStat, len(s.phys))}
	for i, n := range s.phys {
		k, err := s.host.Machine().Counters(n)
		if err != nil {
			return r, err
		}
		r.UsageNsec[i] = k.UsageNsec
		r.OtherNsec += k.UsageNsec
		r.Stat[i] = cgroup.CPUStat{HasQuota: true, NrPeriods: k.Periods, NrThrottled: k.Throttled, ThrottledNsec: k.ThrottledNsec, NrBursts: k.Bursts}
	}
	if s.batch >= 0 {
		k, err := s.host.Machine().Counters(s.batch)
		if err != nil {
			return r, err
		}
		r.OtherNsec += k.UsageNsec
	}
	return r, nil
}

// latencies fills in what the requests since the last call took.
func (s *simulation) latencies(i int, b *InstanceBlock) error {
	h, lost, err := s.host.Machine().Latencies(s.phys[i])
	if err != nil {
		return err
	}
	b.Requests, b.Unfinished = int(h.TotalCount()), int(lost)
	b.MeanMsec, b.P99Msec = h.Mean()/1e6, float64(h.ValueAtQuantile(99))/1e6
	return nil
}

// twinTimes is how long the parts of a run on the twin take, in simulated time.
type twinTimes struct {
	rounds        int
	lead, measure time.Duration
	bucket        time.Duration // of each point of figure 13
	machines      int           // of the surge
}

func (o *Options) twinTimes() twinTimes {
	switch {
	case o.twin.rounds > 0:
		return o.twin
	case o.Quick:
		return twinTimes{rounds: 1, lead: 120 * time.Second, measure: 20 * time.Second, bucket: 30 * time.Second, machines: 4}
	}
	return twinTimes{rounds: 3, lead: 180 * time.Second, measure: 60 * time.Second, bucket: 120 * time.Second, machines: 20}
}

// kernels are the profiles: Alibaba's takes any burst.
func kernels() []machine.Kernel { return []machine.Kernel{machine.Mainline, machine.AnyBurst} }

// playTwin plays the simulated part.
func playTwin(ctx context.Context, o *Options) (*Twin, error) {
	t := &Twin{Load: twinWorkload()}
	if o.twinLoad != nil {
		t.Load = *o.twinLoad
	}
	t.Burstiest = byDesign(t.Load.Draw(o.Seed, 0), theBurstiest)
	times := o.twinTimes()
	type job struct {
		kernel machine.Kernel
		column Column
		round  int
	}
	var jobs []job
	for _, k := range kernels() {
		for r := range times.rounds {
			for _, c := range columns() {
				// Without a burst the kernels are alike.
				if c.burst() || k == machine.Mainline {
					jobs = append(jobs, job{k, c, r})
				}
			}
		}
	}
	fmt.Fprintf(o.Log, "the twin: %d instances, %d machines of 64 cores\n", t.Load.Instances, len(jobs))
	blocks, err := parallel.Map(ctx, o.Workers, len(jobs), func(i int) (*Block, error) {
		j := jobs[i]
		return simulateBlock(ctx, &t.Load, times, j.kernel, j.column, j.round, o.Seed)
	})
	if err != nil {
		return nil, err
	}
	for _, k := range kernels() {
		res := KernelResult{Kernel: k.String()}
		for i, j := range jobs {
			if j.kernel == k || !j.column.burst() {
				res.Blocks = append(res.Blocks, *blocks[i])
			}
		}
		res.Columns = Summarise(res.Blocks, t.Burstiest)
		t.Kernels = append(t.Kernels, res)
	}
	if t.Hard, err = playHard(ctx, o, times); err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Log, "the twin: bucket sizes")
	if t.Buckets, err = twinBuckets(ctx, o, times.bucket); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "the twin: a surge on %d machines\n", times.machines)
	t.Surge, err = playSurge(ctx, o, times.machines)
	return t, err
}

// byDesign returns the indexes of the instances with the largest spikes for their mean.
func byDesign(list []Instance, n int) []int {
	return highest(n, len(list), func(i int) float64 { return list[i].SpikeMsec / list[i].CPUs })
}

// simulateBlock plays one column once. What comes when depends on seed and round alone.
func simulateBlock(ctx context.Context, load *Workload, times twinTimes, k machine.Kernel, c Column, round int, seed uint64) (*Block, error) {
	list := load.Draw(seed, uint64(round))
	s, err := newSimulation(load.server(k), list, c, times.lead+times.measure, seed<<8+uint64(round))
	if err != nil {
		return nil, fmt.Errorf("throttle: the twin: %w", err)
	}
	if err := s.startBatch(load.BatchThreads); err != nil {
		return nil, fmt.Errorf("throttle: the twin: %w", err)
	}
	if err := s.player.Until(ctx, times.lead.Nanoseconds()); err != nil {
		return nil, err
	}
	b := &Block{Column: c, Round: round, Instances: make([]InstanceBlock, len(list))}
	for i := range list {
		b.Instances[i].Name = list[i].Name
		if err := s.latencies(i, &b.Instances[i]); err != nil { // of the lead: forgotten
			return nil, err
		}
	}
	readings, err := s.sample(ctx, times.measure)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if err := s.latencies(i, &b.Instances[i]); err != nil {
			return nil, err
		}
		now, err := s.host.Machine().CPUMax(s.phys[i])
		if err != nil {
			return nil, err
		}
		b.Quota += float64(now.QuotaUsec) / float64(list[i].QuotaUsec) / float64(len(list))
		b.BurstK += float64(now.BurstUsec) / float64(list[i].QuotaUsec) / float64(len(list))
	}
	b.use(readings, load.PoolCPUs, time.Duration(load.PeriodUsec)*time.Microsecond, all)
	return b, nil
}

// sample reads every five periods for so long; the throttling counts every 5 s.
func (s *simulation) sample(ctx context.Context, length time.Duration) ([]Reading, error) {
	moment := momentPeriods * time.Duration(s.list[0].PeriodUsec) * time.Microsecond
	begin := s.host.Machine().NowNsec()
	var list []Reading
	for at := time.Duration(0); at <= length; at += moment {
		if err := s.player.Until(ctx, begin+int64(at)); err != nil {
			return nil, err
		}
		r, err := s.read()
		if err != nil {
			return nil, err
		}
		if at%windowTime != 0 && at+moment <= length {
			r.Stat = nil
		}
		list = append(list, r)
	}
	return list, nil
}

// server is the machine that a workload is for.
func (w *Workload) server(k machine.Kernel) machine.Config {
	c := server64(k)
	c.ThreadsPerCore = max(1, w.ThreadsPerCore)
	if cores := int(w.PoolCPUs) / c.ThreadsPerCore; cores < 64 {
		c.Sockets, c.CoresPerSocket = 1, cores
	}
	return c
}
