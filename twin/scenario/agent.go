package scenario

import (
	"errors"
	"fmt"
	"math"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// startAgent starts an agent: it remembers nothing of an earlier one but what a fleet tells it
// anew. Until the warm-up is over all its policies are off.
func (r *runner) startAgent() error {
	d := agent.Deps{Platform: r.plan.Scenario.Machine.Platform, KillSwitch: func() bool { return r.kill }, SLO: r.latencies}
	if r.life > 0 {
		d.IDPrefix = fmt.Sprintf("r%d", r.life)
	}
	core, err := r.bed.Assemble(r.config, d)
	if err != nil {
		return err
	}
	r.agent, r.down = agent.NewLoop(core), false
	core.Tell(r.plan.specs()...)
	if warm := int64(r.plan.warmUp()); r.m.NowNsec() < warm {
		asked := core.Engine.Params
		off := asked
		off.SetModes(model.ModeOff)
		core.Change(off)
		r.agenda.note(warm, orderEvent, func() error { core.Change(asked); return nil })
	}
	r.turn()
	return nil
}

// specs are what a fleet is said to have learned.
func (p *Plan) specs() []model.Spec {
	var list []model.Spec
	for _, s := range p.Scenario.Specs {
		sp := model.Spec{Job: s.Job, NumSamples: s.Samples, Mean: s.Mean, StdDev: s.StdDev}
		_ = sp.Source.UnmarshalText([]byte(s.Source)) // checked
		list = append(list, sp)
	}
	return list
}

// turn puts the agent's next turn on the agenda.
func (r *runner) turn() {
	l, at := r.agent, r.agent.Due()
	if l.Stalls() != nil {
		at = min(at, r.m.NowNsec()+agent.WatchNsec)
	}
	r.agenda.note(at, orderAgent, func() error {
		if r.down || l != r.agent {
			return nil
		}
		if l.Hark(); l.Due() <= r.m.NowNsec() {
			if out := l.Next(); out != nil {
				if err := r.heard(out); err != nil {
					return err
				}
			}
		}
		r.turn()
		return nil
	})
}

// heard takes in what a turn of the agent led to.
func (r *runner) heard(out *engine.Output) error {
	if why := r.agent.Failing(); why != "" {
		return errors.New(why)
	}
	in, results := r.agent.Last()
	if in.Snapshot != nil {
		for k := range in.Snapshot.Added {
			r.meet(&in.Snapshot.Added[k])
		}
	}
	r.story.note(r, out)
	return r.watch(out.Changes, results)
}

// operate is what an operator tells the agent, which hears it at once or says why it does not.
func (r *runner) operate(o *Operator) error {
	if r.down {
		return nil
	}
	who := []int{-1} // everybody
	if o.Task != "" {
		who = r.plan.find(o.Task)
	}
	for _, i := range who {
		req := agent.Request{Kind: o.Do, Job: o.Job, Cap: o.CPUs, Duration: o.For.Seconds(), Node: o.Node, Keep: o.Keep}
		what := o.Do
		if i >= 0 {
			req.Task = r.players[i].task.Path
			what += " of " + r.players[i].name
		}
		if ans := r.agent.Take(req, "operator"); ans.Error != "" {
			r.story.say(r, fmt.Sprintf("%s is refused: %s", what, ans.Error))
		}
	}
	if out := r.agent.Hear(); out != nil {
		return r.heard(out)
	}
	return nil
}

// thresholds returns the outlier threshold of each job that has a spec.
func (r *runner) thresholds() map[string]Number {
	out := map[string]Number{}
	e := r.agent.Engine
	for i := range e.State.Specs.Entries {
		s := &e.State.Specs.Entries[i]
		// Entries are ordered by job, the preferred source first.
		if _, ok := out[s.Key.Job]; s.Spec == nil || ok {
			continue
		}
		if v := e.Params.Outlier.Threshold(s.Spec); !math.IsNaN(v) {
			out[s.Key.Job] = Number(v)
		}
	}
	return out
}
