package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// Policies is what the policies of the CPU cost beside collection: a second of the agent's
// loop with all of them enforcing, fast readings of each LC task included, against a second
// with all of them off.
type Policies struct {
	Tasks   int     `json:"tasks"`
	LC      int     `json:"lc_tasks"`      // with a quota each
	Turns   int     `json:"turns"`         // of the loop in a second, with them
	OnMsec  Spread  `json:"on_cpu_ms"`     // a second
	OffMsec Spread  `json:"off_cpu_ms"`    // a second
	Ratio   float64 `json:"ratio"`         // of the medians
	Written uint64  `json:"writes_steady"` // while it was measured
	// Above: BE has more than its floor, so that LC may want cores back at any time. Elsewhere
	// are the seconds at whose end that was otherwise than it says.
	Above bool `json:"above_floor"`
	// All: every policy there is observes, those of the CPU enforce.
	All       bool `json:"all_policies"`
	Elsewhere int  `json:"seconds_in_another_state"`
	// Glances are the pulses of a second that a glance ended. In a quiet second it ends most, since
	// no others' work hides LC's: where there are a few of those, all figures are of them.
	Glances int `json:"glances"`
	Quiet   int `json:"quiet_seconds"`
}

// state is where the border stands meanwhile.
func (p *Policies) state() string {
	switch {
	case p.All:
		return "all others observing"
	case p.Above:
		return "BE above its floor"
	}
	return "BE at its floor"
}

// lcQuota is what the LC tasks of the crowd may use: several times what they do.
var lcQuota = cgroup.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000}

// measurePolicies measures with the tasks that are on the stage, in each state.
func measurePolicies(ctx context.Context, o *Options, c *crowd) ([]Policies, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lc := 0
	for _, g := range c.groups {
		if strings.HasPrefix(filepath.Base(g), "serve") {
			lc++
			if err := c.stage.Cgroups().WriteCPUMax(g, lcQuota); err != nil {
				return nil, err
			}
		}
	}
	var list []Policies
	for _, p := range []Policies{{}, {Above: true}, {All: true}} {
		p.Tasks, p.LC = len(c.groups), lc
		if err := p.measure(ctx, o, c); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// measure lets seconds with and without the policies come by turns.
func (p *Policies) measure(ctx context.Context, o *Options, c *crowd) (err error) {
	var loops [2]*loop
	for i, mode := range []model.Mode{model.ModeOff, model.ModeEnforce} {
		if loops[i], err = newLoop(c, mode, p); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, loops[i].cycle.close()) }()
	}
	on := loops[1].cycle.core.Engine.State
	for range 6 { // places are taken, BE has been given cores, and every buffer has grown
		for _, l := range loops {
			if err := l.second(ctx); err != nil {
				return err
			}
		}
	}
	before := on.Ledger.NextChange
	var all, quiet seconds
	for range o.turns() / 2 {
		for _, l := range loops {
			if err := l.second(ctx); err != nil {
				return err
			}
		}
		if (on.CPU.CPUSet.BE > on.CPU.CPUSet.FloorCores) != p.Above {
			p.Elsewhere++
		}
		if all.add(loops); loops[1].turns <= loops[1].glances {
			quiet.add(loops)
		}
	}
	p.Written = on.Ledger.NextChange - before
	if p.Quiet = len(quiet.on); p.Quiet >= leastQuiet {
		all = quiet
	}
	p.Turns, p.Glances = int(stat.Median(all.turns)), int(stat.Median(all.glances))
	p.OffMsec, p.OnMsec = spread(all.off), spread(all.on)
	p.Ratio = p.OnMsec.Median / p.OffMsec.Median
	return nil
}

// leastQuiet is how many quiet seconds stand for all.
const leastQuiet = 3

// seconds are what was measured in each.
type seconds struct{ off, on, turns, glances []float64 }

func (s *seconds) add(loops [2]*loop) {
	s.off, s.on = append(s.off, loops[0].msec), append(s.on, loops[1].msec)
	s.turns, s.glances = append(s.turns, float64(loops[1].turns)), append(s.glances, float64(loops[1].glances))
}

// loop is the agent's, with what its turns cost.
type loop struct {
	*agent.Loop
	cycle *cycle
	msec  float64 // CPU time of the last second
	turns int     // in it, those aside that a glance ended
	// glances are those that did: a pulse was due, and nothing could have come of it.
	glances int
}

// newLoop opens one. Above its floor BE is since that is so low, and LC content with so few CPUs, that it has more
// also on two CPUs.
func newLoop(c *crowd, mode model.Mode, of *Policies) (*loop, error) {
	dir := filepath.Join(c.stage.Dir, fmt.Sprintf("policies-%s-%t-%t", mode, of.Above, of.All))
	cfg := agentConfig(dir, c.rules(), "", mode)
	if of.All {
		others := model.ModeOff
		if mode == model.ModeEnforce {
			others = model.ModeObserve
		}
		cfg.Policies.SetModes(others)
		cpu := &cfg.Policies.CPU
		cpu.CPUSetMode, cpu.CPUPoolMode, cpu.BurstMode = mode, mode, mode
	}
	if of.Above {
		p := &cfg.Policies.CPU.CPUSet
		p.FloorCores, p.FloorShare, p.Wait = 0, 0, 0.5
	}
	cy, err := newCycle(cfg, dir)
	if err != nil {
		return nil, err
	}
	l := &loop{Loop: agent.NewLoop(cy.core), cycle: cy}
	l.Next() // the first turn is at once
	return l, nil
}

// second plays one second of real time. What was due in the second of the other loop is taken
// first, and not counted.
func (l *loop) second(ctx context.Context) error {
	wait := func(until int64) error { return stage.Sleep(ctx, time.Duration(until-l.Clock.MonoNsec())) }
	for l.Due() < l.Clock.MonoNsec() {
		l.Next()
	}
	l.msec, l.turns, l.glances = 0, 0, 0
	end := l.Clock.MonoNsec() + int64(time.Second)
	for l.Due() < end {
		if err := wait(l.Due()); err != nil {
			return err
		}
		from := openloop.ThreadNsec()
		out := l.Next()
		l.msec += float64(openloop.ThreadNsec()-from) / 1e6
		if out != nil {
			l.turns++
		} else {
			l.glances++
		}
	}
	if l.cycle.core.Failing() != "" {
		return fmt.Errorf("bench: %s", l.cycle.core.Failing())
	}
	return wait(end)
}
