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
}

// lcQuota is what the LC tasks of the crowd may use: several times what they do.
var lcQuota = cgroup.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000}

// measurePolicies measures with the tasks that are on the stage. Seconds with and without
// the policies come by turns.
func measurePolicies(ctx context.Context, o *Options, c *crowd) (p *Policies, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p = &Policies{Tasks: len(c.groups)}
	for _, g := range c.groups {
		if strings.HasPrefix(filepath.Base(g), "serve") {
			p.LC++
			if err := c.stage.Cgroups().WriteCPUMax(g, lcQuota); err != nil {
				return nil, err
			}
		}
	}
	var loops [2]*loop
	for i, mode := range []model.Mode{model.ModeOff, model.ModeEnforce} {
		if loops[i], err = newLoop(c, mode); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, loops[i].cycle.close()) }()
	}
	for range 3 { // places are taken, and every buffer has grown
		for _, l := range loops {
			if err := l.second(ctx); err != nil {
				return nil, err
			}
		}
	}
	before := loops[1].cycle.core.Engine.State.Ledger.NextChange
	var cpu [2][]float64
	for range o.turns() / 2 {
		for i, l := range loops {
			if err := l.second(ctx); err != nil {
				return nil, err
			}
			cpu[i] = append(cpu[i], l.msec)
		}
	}
	p.Turns, p.Written = loops[1].turns, loops[1].cycle.core.Engine.State.Ledger.NextChange-before
	p.OffMsec, p.OnMsec = spread(cpu[0]), spread(cpu[1])
	p.Ratio = p.OnMsec.Median / p.OffMsec.Median
	return p, nil
}

// loop is the agent's, with what its turns cost.
type loop struct {
	*agent.Loop
	cycle *cycle
	msec  float64 // CPU time of the last second
	turns int     // in it
}

func newLoop(c *crowd, mode model.Mode) (*loop, error) {
	dir := filepath.Join(c.stage.Dir, "policies-"+mode.String())
	cfg := agentConfig(dir, c.rules(), "", mode)
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
	if l.Due() < l.Clock.MonoNsec() {
		l.Next()
	}
	l.msec, l.turns = 0, 0
	end := l.Clock.MonoNsec() + int64(time.Second)
	for ; l.Due() < end; l.turns++ {
		if err := wait(l.Due()); err != nil {
			return err
		}
		from := openloop.ThreadNsec()
		l.Next()
		l.msec += float64(openloop.ThreadNsec()-from) / 1e6
	}
	if l.cycle.core.Failing() != "" {
		return fmt.Errorf("bench: %s", l.cycle.core.Failing())
	}
	return wait(end)
}
