package rig

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Tenant is what the contention rule knows of the task behind an RMID.
type Tenant struct {
	RMID        int
	CPI         float64 // alone on the machine
	MPKI        float64 // alone
	Sensitivity float64 // share of its CPI that one unit of pressure adds
	Appetite    float64 // units of pressure on the others while it is on one CPU
	// Spread is the standard deviation of its CPI alone, as a share of it: a service's
	// work is never the same twice (CPI² figure 5: about 4 %).
	Spread float64
}

// Contention is what a shared cache would have shown, as a rule: a task's CPI and misses
// grow by its sensitivity times the pressure of those that ran in the same domain,
//
//	CPI_r = CPI_r(alone) * (1 + sensitivity_r * sum over o != r of appetite_o * cpus_o)
//
// with cpus_o the CPUs that o kept busy lately. It stands for no particular machine: it
// makes what perf reads in the guest depend on who really ran there, and so on what the
// agent did about it. The twin has the physics.
type Contention struct {
	Table   *Table
	Tenants []Tenant
	Seed    uint64
}

const (
	// contentionEvery is how often the rule is applied, in the host's time.
	contentionEvery = 20 * time.Millisecond
	// contentionSpan is the guest's time over which "lately" averages: several
	// periods of CFS bandwidth control, so that a capped task counts by its mean.
	contentionSpan = 400 * time.Millisecond
	// spreadEvery is how long, in the guest's time, a task's work stays alike.
	spreadEvery = 500 * time.Millisecond
)

// Run applies the rule until ctx ends. The emulator need not have started.
func (c *Contention) Run(ctx context.Context) error {
	var now [tableDomains][tableRMIDs]Ran
	state := newPressure(c.Tenants, c.Seed)
	tick := time.NewTicker(contentionEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		clock, err := c.Table.Clock()
		if errors.Is(err, ErrNoTable) {
			continue
		}
		if err == nil {
			err = c.Table.ReadRan(&now)
		}
		if err != nil {
			return err
		}
		if !state.advance(clock, &now) {
			continue
		}
		for d := range tableDomains {
			for i, a := range state.answers(d) {
				if err := c.Table.Set(d, c.Tenants[i].RMID, a); err != nil {
					return err
				}
			}
		}
	}
}

// pressure follows how many CPUs each tenant keeps busy in each domain.
type pressure struct {
	tenants []Tenant
	clock   uint64
	ran     [tableDomains][]uint64  // CPU time as of clock
	busy    [tableDomains][]float64 // CPUs, averaged
	rng     *rand.Rand
	spread  []float64 // factor on the CPI of each tenant alone
	drawn   uint64    // guest's time of the last draw
}

func newPressure(tenants []Tenant, seed uint64) *pressure {
	p := &pressure{tenants: tenants, rng: rand.New(rand.NewPCG(seed, 0)), spread: make([]float64, len(tenants))}
	p.draw()
	for d := range tableDomains {
		p.ran[d] = make([]uint64, len(tenants))
		p.busy[d] = make([]float64, len(tenants))
	}
	return p
}

// draw gives each tenant another piece of work.
func (p *pressure) draw() {
	for i, t := range p.tenants {
		// Three standard deviations at most, so that no factor is absurd.
		p.spread[i] = 1 + t.Spread*max(-3, min(3, p.rng.NormFloat64()))
	}
}

// advance takes in a reading; false when no guest time has passed since the last one.
func (p *pressure) advance(clock uint64, now *[tableDomains][tableRMIDs]Ran) bool {
	if clock <= p.clock {
		return false
	}
	span := float64(clock - p.clock)
	weight := min(span/float64(contentionSpan), 1)
	for d := range tableDomains {
		for i, t := range p.tenants {
			ran := now[d][t.RMID].CPUNsec
			if ran >= p.ran[d][i] {
				p.busy[d][i] += weight * (float64(ran-p.ran[d][i])/span - p.busy[d][i])
			}
			p.ran[d][i] = ran
		}
	}
	p.clock = clock
	if clock-p.drawn >= uint64(spreadEvery) {
		p.drawn = clock
		p.draw()
	}
	return true
}

// answers applies the rule in one domain, in the order of the tenants.
func (p *pressure) answers(domain int) []Answer {
	list := make([]Answer, len(p.tenants))
	for i, t := range p.tenants {
		sum := 0.0
		for j, o := range p.tenants {
			if j != i {
				sum += o.Appetite * p.busy[domain][j]
			}
		}
		factor := 1 + t.Sensitivity*sum
		list[i] = Answer{CPIMilli: uint64(1000 * t.CPI * p.spread[i] * factor), MPKI: uint64(t.MPKI*factor + 0.5)}
	}
	return list
}
