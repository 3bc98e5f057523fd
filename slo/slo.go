// Package slo says how well a latency-critical service does, seen from where its
// clients stand. A source measures one service (BALM section III: plug-ins that keep
// the requests of the last three seconds and are polled every 20 ms); an Objective says
// what the figures mean for what the service has promised.
package slo

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// BALM's own figures (BALM §III-B). Three seconds of one probe every 20 ms
// are 150 samples: enough for a p99, never for a p99.9.
const (
	DefaultInterval = 20 * time.Millisecond
	DefaultWindow   = 3 * time.Second
)

// Source is one service's latency.
//
// Start begins to measure and returns at once; a service that is not there yet is no
// error, it is a reading with StateUnavailable. Measuring ends with ctx or with Close,
// whichever comes first. Close waits until it has ended and releases everything; it may
// be called without Start and more than once. Read may be called at any time from any
// goroutine, never blocks on the service and does not allocate.
type Source interface {
	Start(ctx context.Context) error
	Read(now time.Time) Reading
	Close() error
}

// State is the first thing to ask of a reading.
type State uint8

// The states. The zero value is StateUnavailable, so that a reading that nobody filled
// in cannot pass for a quiet service.
const (
	StateUnavailable State = iota // the service cannot be reached; Status.Reason says why
	StateTooFew                   // too few samples for a p99; Reading.Valid says what holds
	StateOK                       // p50 and p99 are valid
)

var stateNames = [...]string{"unavailable", "too-few", "ok"}

// String returns the state's name as it stands in records.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(b []byte) error {
	for i, name := range stateNames {
		if name == string(b) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("unknown state of a latency source %q", b)
}

// Status is a state and, where it is StateUnavailable, the reason in one line.
type Status struct {
	State  State
	Reason string
}

// String returns the state's name, and the reason where there is one.
func (s Status) String() string {
	if s.Reason == "" {
		return s.State.String()
	}
	return s.State.String() + ": " + s.Reason
}

// Percentiles is the set of a reading's percentiles that may be used.
type Percentiles uint8

// The members of the set. A percentile that leaves a share 1-q above it needs at least
// 1/(1-q) samples; with fewer it would be the maximum under another name.
const (
	HasP50   Percentiles = 1 << iota // at least 2 samples
	HasP99                           // at least 100 samples
	HasP999                          // at least 1000 samples
	HasAsked                         // as many as the percentile that was asked for takes
)

// million: percentiles are in millionths, for whole numbers keep 0.99 of 100 at the 99th sample.
const million = 1_000_000

// share returns a quantile in millionths.
func share(q float64) int { return int(math.Round(q * million)) }

// MinSamples returns how many samples a quantile takes: with fewer it would be the greatest one.
func MinSamples(q float64) int {
	above := max(1, million-share(q))
	return (million + above - 1) / above
}

// Has reports whether all of want may be used.
func (p Percentiles) Has(want Percentiles) bool { return p&want == want }

// ValidFor returns the percentiles that n samples support; asked is the quantile that was asked for, 0: none.
func ValidFor(n int, asked float64) (p Percentiles) {
	for _, of := range [...]struct {
		q   float64
		bit Percentiles
	}{{0.5, HasP50}, {0.99, HasP99}, {0.999, HasP999}, {asked, HasAsked}} {
		if of.q > 0 && n >= MinSamples(of.q) {
			p |= of.bit
		}
	}
	return p
}

// Reading is what a source knows at one moment.
type Reading struct {
	// P50, P99 and P999 are nearest-rank percentiles of the latencies in the window.
	// One that is not in Valid is zero and means nothing.
	P50, P99, P999 time.Duration
	// Asked is the percentile that the source was asked for: that of its service's objective.
	Asked time.Duration
	Valid Percentiles

	Samples int // latencies in the window; those of Errors and of overdue requests count
	Errors  int // of them, requests that timed out or were answered with an error: these count as at least the timeout
	Overdue int // of them, requests still unanswered that are already slower than the p99

	// Lateness is the p99 of how late the source itself was with its requests in the
	// window. It is the observer's own fault and is contained in the latencies: where it
	// is of their size the reading says more about this node's CPUs than about the service.
	Lateness time.Duration

	Window time.Duration // the window's length
	Status Status
}

// maxReason bounds a reason: some of its words are the service's own.
const maxReason = 200

// Unavailable returns r without figures, and with the reason.
func (r Reading) Unavailable(reason string) Reading {
	if len(reason) > maxReason {
		reason = reason[:maxReason] + "..."
	}
	r.Status = Status{State: StateUnavailable, Reason: strings.ToValidUTF8(reason, "?")}
	r.Valid, r.P50, r.P99, r.P999, r.Asked = 0, 0, 0, 0, 0
	return r
}
