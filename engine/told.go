package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// Take takes new parameters over. The platform and which cycles are counted are the
// machine's, and how long the history is was settled when it began: these do not change while
// an engine lives.
func (p *Params) Take(n *Params) {
	platform, windows, core := p.Platform, p.HistoryWindows, p.Spec.CoreCycles
	*p = *n
	p.Platform, p.HistoryWindows, p.Spec.CoreCycles = platform, windows, core
}

// told takes in what others say: parameters, specs, who hurts whom, and what the services themselves see of
// their latency.
func (e *Engine) told(in *Input) {
	if in.Params != nil {
		e.Params.Take(in.Params)
		e.touched(in, model.Target{}, 0, model.Set, byConfiguration)
		e.moved() // policies look at everything anew: what they wished for followed from the old ones
	}
	s := e.State
	for i := range in.Specs {
		sp := &in.Specs[i]
		if err := s.Specs.Teach(e.Params.Spec, sp, in.MonoNsec); err != nil {
			e.decide(in, model.Decision{Kind: model.DecideSpec, Path: sp.Job, Reason: fmt.Sprintf("a spec of %s for %s is left aside: %v", sp.Source, sp.Job, err)})
		}
	}
	for i := range in.Priors {
		if d := s.Hardcap.Hear(&e.Params.Hardcap, &in.Priors[i], in.MonoNsec); d != nil {
			e.decide(in, *d)
		}
	}
	for i := range in.SLO {
		at, ok := slices.BinarySearchFunc(s.SLO, in.SLO[i].Job, func(l model.Latency, job string) int { return cmp.Compare(l.Job, job) })
		if !ok {
			s.SLO = slices.Insert(s.SLO, at, model.Latency{})
		}
		s.SLO[at] = in.SLO[i]
	}
}
