package model

import "fmt"

// Latency is what a service's own latency source says of a job: percentiles over the
// source's window (seconds long), in seconds. A percentile for which there are too few
// requests is Unavailable, as all are while the service does not answer.
type Latency struct {
	Job  string `json:"job"`
	P50  Value  `json:"p50"`
	P99  Value  `json:"p99"`
	P999 Value  `json:"p999"`
	// Target is what the job promises, in seconds: that the Quantile of its latencies, Figure, stays at
	// or under it; 0: it promises nothing. State is how it stands to that: red, yellow, green, or grey,
	// which lies between the last two, and where there is no valid figure; Why then says why.
	Target   float64 `json:"target,omitempty"`
	Quantile float64 `json:"quantile,omitempty"`
	Figure   Value   `json:"figure"`
	State    string  `json:"state,omitempty"`
	Why      string  `json:"why,omitempty"`
	// Samples are the requests in the window; Errors of them failed or timed out.
	Samples int `json:"samples"`
	Errors  int `json:"errors"`
	// Lateness is how late the probe itself was (p99, seconds): its own share in the rest.
	Lateness float64 `json:"lateness"`
}

// The states of a job that has a target (docs/SLO.md).
const (
	LatencyRed    = "red"
	LatencyYellow = "yellow"
	LatencyGrey   = "grey"
	LatencyGreen  = "green"
)

// Text tells how the job stands to its target, for people; "" where it has none.
func (l *Latency) Text() string {
	switch {
	case l.Target == 0:
		return ""
	case l.Figure.Outcome != OK:
		return fmt.Sprintf("%s: no valid figure: %s", l.State, l.Why)
	}
	return fmt.Sprintf("%s: p%g %.4g ms, target %.4g ms", l.State, 100*l.Quantile, 1e3*l.Figure.V, 1e3*l.Target)
}

// Tell puts the figure among the signals of a task of the job, and returns which signal that is.
func (l *Latency) Tell(o *TaskObservation) Source {
	v := l.Figure
	v.V *= 1e3
	o.Raw[SourceLatency], o.Signals[SourceLatency] = v, v
	return SourceLatency
}

// Spec is what the job promises, in the place of what could be learned.
func (l *Latency) Spec(platform string) *Spec {
	return &Spec{Job: l.Job, Platform: platform, Source: SourceLatency, Definition: SourceLatency.Definition(false), Mean: 1e3 * l.Target}
}
