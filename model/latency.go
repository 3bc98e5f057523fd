package model

// Latency is what a service's own latency source says of a job: percentiles over the
// source's window (seconds long), in seconds. A percentile for which there are too few
// requests is Unavailable, as all are while the service does not answer.
type Latency struct {
	Job  string `json:"job"`
	P50  Value  `json:"p50"`
	P99  Value  `json:"p99"`
	P999 Value  `json:"p999"`
	// Samples are the requests in the window; Errors of them failed or timed out.
	Samples int `json:"samples"`
	Errors  int `json:"errors"`
	// Lateness is how late the probe itself was (p99, seconds): its own share in the rest.
	Lateness float64 `json:"lateness"`
}
