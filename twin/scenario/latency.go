package scenario

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/slo"
)

// source is what a latency source has seen of a player: the requests of the last seconds.
type source struct{ beats []beat }

// beat is the requests that ended between two looks.
type beat struct {
	at   int64 // ns
	of   *hdrhistogram.Histogram
	lost uint64
}

// see takes in what came since the last look, and forgets what is older than the window.
func (s *source) see(h *hdrhistogram.Histogram, lost uint64, now, window int64) {
	old := 0
	for old < len(s.beats) && now-s.beats[old].at >= window {
		old++
	}
	of := newHistogram()
	of.Merge(h)
	s.beats = append(s.beats[old:], beat{now, of, lost})
}

// latencies is what the sources say at the edge of a window: of all players of a job together.
func (r *runner) latencies(dst []model.Latency) []model.Latency {
	for e := range r.plan.Scenario.Tasks {
		t := &r.plan.Scenario.Tasks[e]
		if t.SLO == nil || !t.SLO.Told || slices.ContainsFunc(dst, func(l model.Latency) bool { return l.Job == t.Job }) {
			continue
		}
		r.beat() // what ended since the last one
		all, lost := newHistogram(), uint64(0)
		for i := range r.players {
			if o := &r.plan.Scenario.Tasks[r.players[i].entry]; o.Job != t.Job || !r.players[i].alive {
				continue
			}
			for _, b := range r.meters.gauges[i].source.beats {
				all.Merge(b.of)
				lost += b.lost
			}
		}
		asked := config.SLO{Job: t.Job, Target: t.SLO.Latency, Quantile: t.SLO.Quantile, Window: t.SLO.Every}
		l, _ := agent.Latency(&asked, reading(&asked, all, lost))
		dst = append(dst, l)
	}
	return dst
}

// reading is a window of requests as a probe would tell it: those that were lost took as long as it
// waits.
func reading(o *config.SLO, h *hdrhistogram.Histogram, lost uint64) *slo.Reading {
	n := uint64(h.TotalCount()) + lost
	r := &slo.Reading{Samples: int(n), Errors: int(lost), Window: o.Window, Status: slo.Status{State: slo.StateOK}}
	if n < uint64(slo.MinSamples(o.Quantile)) {
		r.Status.State = slo.StateTooFew
		return r
	}
	at := func(q float64) time.Duration {
		rank := q * float64(n)
		if rank > float64(h.TotalCount()) {
			return o.Patience()
		}
		return time.Duration(h.ValueAtQuantile(100 * rank / float64(h.TotalCount())))
	}
	r.P50, r.P99, r.Asked, r.Valid = at(0.5), at(0.99), at(o.Quantile), slo.HasP50|slo.HasP99|slo.HasAsked
	return r
}
