package soak

import (
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/slo"
)

// promise is a latency that a job has promised, and what its source says of it: spells in which the
// target is met, missed or nearly so, and others in which there is no valid figure. They follow
// nobody's load: that latencies lie about their cause is what is tested here.
type promise struct {
	of    config.SLO
	draw  source
	now   slo.Reading
	until int64 // simulated ns; what it says then is drawn anew
}

// drawPromises lets the LC jobs of a quarter of the runs promise something. It draws from a stream
// of its own, as it came after the others.
func (p *plan) drawPromises(r source) {
	if !r.chance(0.25) && !p.far {
		return
	}
	for i := range p.config.Tasks {
		if t := &p.config.Tasks[i]; t.Class == model.LC.String() && r.chance(0.7) {
			target := time.Duration(r.between(0.2, 50) * 1e6)
			p.promises = append(p.promises, &promise{of: config.SLO{Job: t.Job, Target: target}, draw: r})
		}
	}
}

// latencies is what the sources say at the edge of a window.
func (w *world) latencies(dst []model.Latency) []model.Latency {
	for _, p := range w.plan.promises {
		if w.now() >= p.until {
			p.now, p.until = p.spell(), w.now()+p.draw.seconds(1, pick[float64](p.draw, 3, 20, 90))
		}
		l, _ := agent.Latency(&p.of, &p.now)
		dst = append(dst, l)
	}
	return dst
}

// spell draws what a source says for a while.
func (p *promise) spell() slo.Reading {
	at := func(times float64) time.Duration { return time.Duration(times * float64(p.of.Target)) }
	r := slo.Reading{Status: slo.Status{State: slo.StateOK}, Samples: 150, Valid: slo.HasP50 | slo.HasP99 | slo.HasAsked, Window: 3 * time.Second}
	r.Asked = at(pick(p.draw, p.draw.between(0.1, 0.8), p.draw.between(0.8, 1), p.draw.between(1, 1.2), p.draw.between(1, 50)))
	r.P50, r.P99 = r.Asked/10, r.Asked
	switch p.draw.IntN(8) {
	case 0:
		return r.Unavailable("connection refused \x1b]0;\xff")
	case 1:
		r.Status.State, r.Samples, r.Valid = slo.StateTooFew, 3, slo.HasP50
	case 2:
		r.Lateness = r.Asked
	case 3:
		r.Errors, r.Asked = r.Samples, at(4)
	}
	return r
}
