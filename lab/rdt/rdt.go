// Package rdt asks what two ways of the cache for batch work do to how the tail latency of a service fluctuates, over 22 hours and a
// thousand instances (ByteDance and Intel, figures 6 and 7): alone, beside batch work, and beside batch work that may fill two ways.
//
// An instance is a service on four of a simulated socket's 16 cores, under a tide of load. The other cores are three slots for
// batch work: programs as published, drawn anew as jobs end. Two slots run what the machine was given; the third runs what the
// whole cluster does at that hour, since a thousand independent machines would average each other out, and a cluster's do not.
// Each step stands for ten minutes, of which two seconds are played after one that is not looked at. The fluctuation is the
// paper's, of the p99 over all instances: |p99(t) - p99(t-1)| / p99(t).
//
// Written down before the first run (the paper: beside batch work it is "much higher", with two ways "similar" to alone for two of
// three workloads): for both that gain, beside batch work at least 1.5 times what it is alone, with two ways at most 1.2 times; for the
// third, which gains nothing, two ways change it by less than a tenth. Seeds below 100 are for development; what is reported begins at 1000.
//
// What it does not show: batch work's own phases, several services on a machine, and hardware.
package rdt

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// Arm is what runs beside the service.
type Arm int

// The arms.
const (
	Alone   Arm = iota
	Beside      // batch work, as it likes
	TwoWays     // batch work that may fill two ways of the cache; the service may fill all
	NumArms
)

var armNames = [NumArms]string{"alone", "beside batch work", "batch work in two ways"}

// String returns the arm's name in tables.
func (a Arm) String() string { return armNames[a] }

// Options of a run.
type Options struct {
	Seed  uint64
	Quick bool // fewer instances and hours
}

const (
	steps, quickSteps         = 132, 24 // of ten minutes
	blocks                    = 4       // of instances, over which intervals are
	perBlock, quickPerBlock   = 28, 3
	settleNsec, measuredNsec  = 1e9, 2e9
	cores, lcCores, slotCores = 16, 4, 4
	slots, wave               = 3, 2 // the last slot follows the cluster
	instructions              = 5e6  // of a request
	noise                     = 0.04 // of CPI, as in the other labs
)

// workloads are the services: two that want the cache, and one that waits for memory and has little use for it.
func workloads() []program.Profile {
	find := func(name string) program.Profile {
		p, _ := program.Find(name)
		return p
	}
	return []program.Profile{find("web-search-leaf"), find("redis-big"), {
		Name: "chaser", CPI: 0.7, APKI: 12, Overlap: 1.5, WriteShare: 0.2, Service: true,
		Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{6.3, 6}},
	}}
}

// Workload is what came of one service.
type Workload struct {
	Name string `json:"name"`
	// P99 is by arm, block of instances and step, in milliseconds; the last block is all of them.
	P99 [NumArms][][]float64 `json:"p99_ms"`
}

// Run plays all. Equal seeds give equal results on any number of CPUs.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &Result{Seed: o.Seed, Quick: o.Quick, Instances: perBlock, Steps: steps}
	if o.Quick {
		r.Instances, r.Steps = quickPerBlock, quickSteps
	}
	list := workloads()
	per := int(NumArms) * blocks
	all, err := parallel.Map(ctx, 0, len(list)*per, func(i int) ([]*hdrhistogram.Histogram, error) {
		return block(ctx, list[i/per], Arm(i%per/blocks), o.Seed, uint64(i/per), i%blocks, r.Instances, r.Steps)
	})
	if err != nil {
		return nil, err
	}
	for k := range list {
		w := Workload{Name: list[k].Name}
		for arm := range NumArms {
			together := newSteps(r.Steps)
			for b := range blocks {
				of := all[k*per+int(arm)*blocks+b]
				w.P99[arm] = append(w.P99[arm], p99s(of))
				for t := range of {
					together[t].Merge(of[t])
				}
			}
			w.P99[arm] = append(w.P99[arm], p99s(together))
		}
		r.Workloads = append(r.Workloads, w)
	}
	r.Instances *= blocks
	r.sum()
	return r, nil
}

func newSteps(n int) []*hdrhistogram.Histogram {
	list := make([]*hdrhistogram.Histogram, n)
	for i := range list {
		list[i] = hdrhistogram.New(1000, int64(600e9), 2)
	}
	return list
}

func p99s(of []*hdrhistogram.Histogram) []float64 {
	list := make([]float64, len(of))
	for t, h := range of {
		list[t] = float64(h.ValueAtQuantile(99)) / 1e6
	}
	return list
}

// block plays some instances and adds up what their requests took, by step. All arms of an instance meet the same draws.
func block(ctx context.Context, p program.Profile, arm Arm, seed, workload uint64, block, instances, steps int) ([]*hdrhistogram.Histogram, error) {
	sum := newSteps(steps)
	for i := range instances {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := uint64(block*instances + i)
		if err := play(p, arm, seed, 1000*workload+n, sum); err != nil {
			return nil, fmt.Errorf("%s, %s, instance %d: %w", p.Name, arm, n, err)
		}
	}
	return sum, nil
}

// tide is the load at a step, as a share of the highest: lowest at night.
func tide(step int) float64 { return 0.7 - 0.3*math.Cos(2*math.Pi*float64(step)/144) }

// jobs draws what a slot runs at each step, "" nothing: a program for half an hour on the mean, with pauses.
func jobs(rng *rand.Rand, n int) []string {
	var batch []string
	for _, name := range program.Names() {
		if p, _ := program.Find(name); !p.Service {
			batch = append(batch, name)
		}
	}
	list, left, now := make([]string, n), 0, ""
	for t := range list {
		if left--; left <= 0 {
			if now, left = batch[rng.IntN(len(batch))], 1+int(3*rng.ExpFloat64()); rng.IntN(4) == 0 {
				now = ""
			}
		}
		list[t] = now
	}
	return list
}

// play plays one instance and adds its requests to those of the others.
func play(p program.Profile, arm Arm, seed, instance uint64, sum []*hdrhistogram.Histogram) error {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1, cores, 1
	m, err := machine.New(c, seed<<20|instance)
	if err != nil {
		return err
	}
	cfg := machine.TaskConfig{Name: p.Name, Threads: lcCores, Spread: noise, SpreadNsec: 3e9}
	for cpu := range lcCores {
		cfg.CPUs.Add(cpu)
	}
	p.Apply(&cfg)
	rate := 0.5 * lcCores * c.Hz / (2 * p.CPI * instructions)
	cfg.Requests = &machine.Requests{Instructions: instructions, Variation: 1, PerSecond: rate}
	service, err := m.Add(cfg)
	if err != nil {
		return err
	}
	class := 0
	if arm == TwoWays {
		class = m.AddCLOS()
		if err := m.SetWays(class, 0, 0b11); err != nil {
			return err
		}
	}
	work, running := programme(seed, instance, len(sum)), [slots]int{-1, -1, -1}
	for t := range sum {
		if err := m.SetRate(service, rate*tide(t)); err != nil {
			return err
		}
		for slot := range slots {
			if arm == Alone || t > 0 && work[slot][t] == work[slot][t-1] {
				continue
			}
			if running[slot], err = change(m, running[slot], slot, work[slot][t], class); err != nil {
				return err
			}
		}
		m.Advance(settleNsec)
		if _, _, err := m.Latencies(service); err != nil {
			return err
		}
		m.Advance(measuredNsec)
		h, _, err := m.Latencies(service)
		if err != nil {
			return err
		}
		sum[t].Merge(h)
	}
	return nil
}

// programme is what an instance's slots run at each step.
func programme(seed, instance uint64, n int) (work [slots][]string) {
	own := rand.New(rand.NewPCG(seed, instance))
	for slot := range work {
		if slot == wave {
			own = rand.New(rand.NewPCG(seed, math.MaxUint64)) // the same for all
		}
		work[slot] = jobs(own, n)
	}
	return work
}

// change ends what a slot runs and starts something else; -1: nothing.
func change(m *machine.Machine, was, slot int, name string, class int) (num int, err error) {
	if was >= 0 {
		if err := m.Remove(was); err != nil {
			return -1, err
		}
	}
	if name == "" {
		return -1, nil
	}
	p, _ := program.Find(name)
	cfg := machine.TaskConfig{Name: name, Threads: slotCores, Spread: noise, SpreadNsec: 3e9, Work: &machine.Work{}}
	for cpu := range slotCores {
		cfg.CPUs.Add(lcCores + slot*slotCores + cpu)
	}
	p.Apply(&cfg)
	if num, err = m.Add(cfg); err != nil {
		return -1, err
	}
	return num, m.SetCLOS(num, class)
}
