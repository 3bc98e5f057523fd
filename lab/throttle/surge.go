package throttle

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/twin/machine"
)

// Surge is section 5.3: flash traffic arrives within seconds on machines with and without
// the shared pool (figure 23).
type Surge struct {
	Machines  int        `json:"machines"`
	Instances int        `json:"instances_per_machine"`
	Cores     int        `json:"cores_per_machine"`
	AtSec     float64    `json:"surge_at_s"`
	Arms      []SurgeArm `json:"arms"`
}

// SurgeArm is all machines under one way to run the pool.
type SurgeArm struct {
	Name string `json:"name"`
	// By window of 5 s: when it ended, the share of all instances that were throttled in
	// it, and U over the machines.
	EndSec    []float64 `json:"end_s"`
	Throttled []float64 `json:"throttled_instances"`
	U         []Spread  `json:"u"`
	// Before and During are the shares of instances throttled in a window of 5 s, before
	// the surge and from its first window on, and Peak the largest.
	Before float64 `json:"throttled_before"`
	During float64 `json:"throttled_during"`
	Peak   float64 `json:"throttled_peak"`
	// UBefore and UDuring are U over machines and windows.
	UBefore Spread `json:"u_before"`
	UDuring Spread `json:"u_during"`
}

// The surge. What comes before it lets the pool settle; the traffic grows within rampTime
// and stays. Instances take it unevenly (figure 21c: peak use "ranging from close to 0 % to
// 190 %").
const (
	surgeCores     = 16
	surgeInstances = 40
	surgeAt        = 90 * time.Second
	surgeRamp      = 5 * time.Second
	surgeEnd       = 210 * time.Second
	surgeSettled   = 45 * time.Second // from when on "before" counts
	surgeMean      = 1.8              // factor on the load, in the mean
	surgeSpread    = 0.7              // of its logarithm, of what is above 1
)

// surgeWorkload is calmer than the one of the four columns: about a tenth of the instances
// are throttled on an ordinary day (section 5.3).
func surgeWorkload() Workload {
	w := hostWorkload(surgeCores)
	w.Instances, w.Steady, w.Threads = surgeInstances, surgeInstances/4, 8
	w.Utilisation, w.SpikeShare = 0.17, 0.18
	return w
}

// surgeArms are the ways to run the pool.
func surgeArms() []struct {
	name   string
	kernel machine.Kernel
	column Column
} {
	return []struct {
		name   string
		kernel machine.Kernel
		column Column
	}{
		{"pool off", machine.Mainline, Default},
		{"pool on, mainline kernel", machine.Mainline, All},
		{"pool on, Alibaba's kernel", machine.AnyBurst, All},
	}
}

// playSurge plays all arms on machines that get the same traffic.
func playSurge(ctx context.Context, o *Options, machines int) (*Surge, error) {
	s := &Surge{Machines: machines, Instances: surgeInstances, Cores: surgeCores, AtSec: surgeAt.Seconds()}
	arms := surgeArms()
	runs, err := parallel.Map(ctx, o.Workers, machines*len(arms), func(i int) ([]surgeWindow, error) {
		arm := arms[i/machines]
		return surgeMachine(ctx, arm.kernel, arm.column, o.Seed<<16+uint64(i%machines))
	})
	if err != nil {
		return nil, fmt.Errorf("throttle: surge: %w", err)
	}
	for i, arm := range arms {
		s.Arms = append(s.Arms, surgeArm(arm.name, runs[i*machines:(i+1)*machines]))
	}
	return s, nil
}

// surgeWindow is what a machine said of one window.
type surgeWindow struct {
	end       time.Duration
	u         float64
	throttled int // instances
	instances int
}

// surgeMachine plays one machine.
func surgeMachine(ctx context.Context, k machine.Kernel, c Column, seed uint64) ([]surgeWindow, error) {
	load := surgeWorkload()
	list := load.Draw(seed, 0)
	sim, err := newSimulation(load.server(k), list, c, surgeEnd, seed)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 0x7375726765))
	growth := make([]float64, len(list))
	for i := range growth {
		growth[i] = 1 + (surgeMean-1)*math.Exp(surgeSpread*rng.NormFloat64()-surgeSpread*surgeSpread/2)
	}
	var windows []surgeWindow
	prev, err := sim.read()
	if err != nil {
		return nil, err
	}
	for at := time.Second; at <= surgeEnd; at += time.Second {
		if done := min(1, (at-surgeAt).Seconds()/surgeRamp.Seconds()); at > surgeAt && at <= surgeAt+surgeRamp {
			if err := sim.grow(growth, done); err != nil {
				return nil, err
			}
		}
		if err := sim.player.Until(ctx, at.Nanoseconds()); err != nil {
			return nil, err
		}
		if at%windowTime != 0 {
			continue
		}
		now, err := sim.read()
		if err != nil {
			return nil, err
		}
		windows = append(windows, between(at, &prev, &now, load.PoolCPUs))
		prev = now
	}
	return windows, nil
}

// grow brings the traffic to a part of its growth.
func (s *simulation) grow(growth []float64, part float64) error {
	for i := range s.list {
		s.growth[i] = 1 + (growth[i]-1)*part
		if err := s.setRate(i); err != nil {
			return err
		}
	}
	return nil
}

// between is the window from one reading to the next.
func between(end time.Duration, from, to *Reading, cpus float64) surgeWindow {
	w := surgeWindow{end: end, instances: len(to.Stat)}
	w.u = float64(total(to)-total(from)) / float64(to.MonoNsec-from.MonoNsec) / cpus
	for i := range to.Stat {
		if to.Stat[i].NrThrottled > from.Stat[i].NrThrottled {
			w.throttled++
		}
	}
	return w
}

// surgeArm brings the machines of one arm together.
func surgeArm(name string, runs [][]surgeWindow) SurgeArm {
	a := SurgeArm{Name: name}
	if len(runs) == 0 {
		return a
	}
	var before, during, uBefore, uDuring []float64
	for k := range runs[0] {
		throttled, instances := 0, 0
		var us []float64
		for _, run := range runs {
			throttled, instances = throttled+run[k].throttled, instances+run[k].instances
			us = append(us, run[k].u)
		}
		share, end := stat.Ratio(float64(throttled), float64(instances)), runs[0][k].end
		a.EndSec, a.Throttled, a.U = append(a.EndSec, end.Seconds()), append(a.Throttled, share), append(a.U, spread(us))
		switch {
		case end > surgeAt:
			during, uDuring = append(during, share), append(uDuring, us...)
			a.Peak = max(a.Peak, share)
		case end > surgeSettled:
			before, uBefore = append(before, share), append(uBefore, us...)
		}
	}
	a.Before, a.During, a.UBefore, a.UDuring = stat.Mean(before), stat.Mean(during), spread(uBefore), spread(uDuring)
	return a
}
