package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/slo"
)

// SLOStatus is one latency source's last reading.
type SLOStatus struct {
	Job     string    `json:"job"`
	Kind    string    `json:"kind"`
	State   slo.State `json:"state"`
	Reason  string    `json:"reason,omitempty"` // why it is unavailable
	P50     float64   `json:"p50_seconds"`
	P99     float64   `json:"p99_seconds"`
	P999    float64   `json:"p999_seconds"`
	Samples int       `json:"samples"`
	Errors  int       `json:"errors"`
	// Lateness is how late the probe itself was (p99): its own share in the latencies.
	Lateness float64 `json:"lateness_seconds"`
	// What is held against the job's target, and how it stands to it; no target: 0 and grey.
	Target   float64    `json:"target_seconds"`
	Quantile float64    `json:"quantile"`
	Figure   *float64   `json:"figure_seconds"` // null: none is valid
	Colour   slo.Colour `json:"colour"`
	Text     string     `json:"text,omitempty"` // the same in words
}

// sloSources are the latency sources of the configuration. The engine is told what they say.
type sloSources struct {
	of      []config.SLO
	sources []slo.Source
}

func startSLO(ctx context.Context, list []config.SLO, log *slog.Logger) *sloSources {
	s := &sloSources{}
	for _, c := range list {
		src, err := c.Source()
		if err == nil {
			err = src.Start(ctx)
		}
		if err != nil {
			log.Error("latency source cannot be started", "job", c.Job, "error", err)
			src = broken(err.Error())
		}
		s.of, s.sources = append(s.of, c), append(s.sources, src)
	}
	return s
}

// broken is a source that could not be started: it has no figures, and says why.
type broken string

func (b broken) Start(context.Context) error { return nil }
func (b broken) Read(time.Time) slo.Reading  { return slo.Reading{}.Unavailable(string(b)) }
func (b broken) Close() error                { return nil }

func (s *sloSources) status() []SLOStatus {
	out := []SLOStatus{}
	if s == nil {
		return out
	}
	now := time.Now()
	for i, src := range s.sources {
		r := src.Read(now)
		l, colour := Latency(&s.of[i], &r)
		st := SLOStatus{
			Job: l.Job, Kind: s.of[i].Kind, State: r.Status.State, Reason: r.Status.Reason, P50: r.P50.Seconds(), P99: r.P99.Seconds(), P999: r.P999.Seconds(),
			Samples: r.Samples, Errors: r.Errors, Lateness: r.Lateness.Seconds(), Target: l.Target, Quantile: l.Quantile, Colour: colour, Text: l.Text(),
		}
		if l.Figure.Outcome == model.OK {
			st.Figure = &l.Figure.V
		}
		out = append(out, st)
	}
	return out
}

// read appends what each source says now.
func (s *sloSources) read(dst []model.Latency) []model.Latency {
	if s == nil {
		return dst // not started
	}
	now := time.Now()
	for i, src := range s.sources {
		r := src.Read(now)
		l, _ := Latency(&s.of[i], &r)
		dst = append(dst, l)
	}
	return dst
}

// Latency is a source's reading as the engine is told it, and how the job stands to its target.
func Latency(c *config.SLO, r *slo.Reading) (model.Latency, slo.Colour) {
	of := func(p slo.Percentiles, v time.Duration) model.Value {
		if r.Status.State == slo.StateUnavailable || !r.Valid.Has(p) {
			return model.Missing(model.Unavailable)
		}
		return model.Known(v.Seconds())
	}
	l := model.Latency{
		Job: c.Job, P50: of(slo.HasP50, r.P50), P99: of(slo.HasP99, r.P99), P999: of(slo.HasP999, r.P999),
		Samples: r.Samples, Errors: r.Errors, Lateness: r.Lateness.Seconds(),
	}
	o := c.Objective()
	colour, figure, ok, why := o.Judge(r)
	if o.Target > 0 {
		l.Target, l.Quantile, l.State, l.Why = o.Target.Seconds(), o.Quantile, colour.String(), why
	}
	if ok {
		l.Figure = model.Known(figure.Seconds())
	}
	return l, colour
}

func (s *sloSources) close() {
	for _, src := range s.sources {
		_ = src.Close() // measuring only: nothing is lost
	}
}
