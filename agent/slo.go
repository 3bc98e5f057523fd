package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/slo"
	"github.com/commensal-io/commensal/slo/memcached"
)

// SLOStatus is one latency source's last reading.
type SLOStatus struct {
	Job     string    `json:"job"`
	State   slo.State `json:"state"`
	Reason  string    `json:"reason,omitempty"` // why it is unavailable
	P50     float64   `json:"p50_seconds"`
	P99     float64   `json:"p99_seconds"`
	P999    float64   `json:"p999_seconds"`
	Samples int       `json:"samples"`
	Errors  int       `json:"errors"`
	// Lateness is how late the probe itself was (p99): its own share in the latencies.
	Lateness float64 `json:"lateness_seconds"`
}

// sloSources are the latency sources of the configuration. The engine is told what they
// say; no policy of this version acts on it.
type sloSources struct {
	jobs    []string
	sources []slo.Source
}

func startSLO(ctx context.Context, list []config.SLO, log *slog.Logger) *sloSources {
	s := &sloSources{}
	for _, c := range list {
		src, err := newSource(c)
		if err == nil {
			err = src.Start(ctx)
		}
		if err != nil {
			log.Error("latency source cannot be started", "job", c.Job, "error", err)
			continue
		}
		s.jobs, s.sources = append(s.jobs, c.Job), append(s.sources, src)
	}
	return s
}

func newSource(c config.SLO) (slo.Source, error) {
	network, address := "tcp", c.Address
	if path, ok := strings.CutPrefix(c.Address, "unix:"); ok {
		network, address = "unix", path
	}
	switch c.Kind {
	case "memcached":
		return memcached.New(memcached.Config{Network: network, Address: address, Interval: c.Poll, Window: c.Window})
	default:
		return nil, fmt.Errorf("unknown kind %q", c.Kind) // the configuration was checked
	}
}

func (s *sloSources) status() []SLOStatus {
	out := []SLOStatus{}
	if s == nil {
		return out
	}
	now := time.Now()
	for i, src := range s.sources {
		r := src.Read(now)
		out = append(out, SLOStatus{
			Job: s.jobs[i], State: r.Status.State, Reason: r.Status.Reason, P50: r.P50.Seconds(), P99: r.P99.Seconds(), P999: r.P999.Seconds(),
			Samples: r.Samples, Errors: r.Errors, Lateness: r.Lateness.Seconds(),
		})
	}
	return out
}

// read appends what each source says now.
func (s *sloSources) read(dst []model.Latency) []model.Latency {
	now := time.Now()
	for i, src := range s.sources {
		r := src.Read(now)
		of := func(p slo.Percentiles, v time.Duration) model.Value {
			if r.Status.State == slo.StateUnavailable || !r.Valid.Has(p) {
				return model.Missing(model.Unavailable)
			}
			return model.Known(v.Seconds())
		}
		dst = append(dst, model.Latency{
			Job: s.jobs[i], P50: of(slo.HasP50, r.P50), P99: of(slo.HasP99, r.P99), P999: of(slo.HasP999, r.P999),
			Samples: r.Samples, Errors: r.Errors, Lateness: r.Lateness.Seconds(),
		})
	}
	return dst
}

func (s *sloSources) close() {
	for _, src := range s.sources {
		_ = src.Close() // measuring only: nothing is lost
	}
}
