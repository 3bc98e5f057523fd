package agent

import (
	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// told is what others have to say at the next turn.
type told struct {
	params *engine.Params
	specs  []model.Spec
	priors []model.Priors
	slo    func(dst []model.Latency) []model.Latency // nil: no latency source
}

// Tell hands specs in that were learned elsewhere; the next turn takes them.
func (c *Core) Tell(specs ...model.Spec) { c.told.specs = append(c.told.specs, specs...) }

// TellPriors hands in what a fleet has seen of who hurts a job; the next turn takes it.
func (c *Core) TellPriors(p model.Priors) { c.told.priors = append(c.told.priors, p) }

// Change hands new parameters in, for the next turn and those after it.
func (c *Core) Change(p engine.Params) { c.told.params = &p }

// hear puts into the turn's input what was said since the last. Latencies are read at the
// edges of windows, and each second where a policy goes by them.
func (c *Core) hear(t cadence.Turn) {
	c.in.Params, c.told.params = c.told.params, nil
	c.in.Specs, c.told.specs = c.told.specs, c.in.Specs[:0]
	c.in.Priors, c.told.priors = c.told.priors, c.in.Priors[:0]
	c.in.SLO = c.in.SLO[:0]
	if c.told.slo != nil && (t.Mark != 0 || t.Compare && c.Engine.Params.Needs().SLO) {
		c.in.SLO = c.told.slo(c.in.SLO)
	}
}
