// Package outlier tells a task that suffers from one that is merely noisy (CPI2
// section 4.1).
//
// Intuition. A window is an outlier when its signal is above the 2 sigma point of the
// predicted distribution; a task suffers when that happens at least 3 times in 5
// minutes. A window in which the task hardly ran says nothing: near zero usage the
// signal rises by itself (case 3), hence the floor of 0.25 CPU-sec/sec.
//
// Signals that are time spent waiting for a CPU need three more rules (model.SignalRow says
// which these are), each from a measurement of run-delay slowdown:
//
//   - A quiet node gives a slowdown of 1.01 with a sigma of 0.005: two sigma above that
//     is still nothing a service would notice. The threshold is therefore at least
//     MinRise above the mean's own delay: mean + MinRise. CPI has no such rule (0).
//   - Delay counts a task's own throttling: one spinner under a quota of 0.1 CPU shows a
//     slowdown of 10 on an idle machine, and the kernel keeps throttled time per run
//     queue, so that it cannot be subtracted. A window in which a quota on the task's
//     own path throttled it is no evidence. CPI is not affected and keeps such windows.
//   - Delay counts a task's own queueing. The signal comes with that discounted
//     (model.TaskObservation.Discount); where only the raw value is above the threshold, the
//     window is reported as self-queueing and accuses nobody.
//
// A signal that has a target (latency) is an outlier above it. The floor is not for it: requests that
// are late are late however little CPU they take. Nor is it for what is judged beside (io): who waits for a disk runs little. Own throttling is: it makes requests late, too.
package outlier

import (
	"github.com/commensal-io/commensal/model"
)

// Params are the detector's parameters.
type Params struct {
	RequiredCPUUsage float64 `json:"required_cpu_usage"` // table 2: 0.25 CPU-sec/sec
	Sigmas           float64 `json:"sigmas"`             // table 2, "Outlier threshold 1": 2
	Violations       int     `json:"violations"`         // table 2, "Outlier threshold 2": 3 ...
	WindowNsec       int64   `json:"window_nsec"`        // ... in 5 minutes
	// MinRise is the least distance of the threshold from the mean, by source, in the
	// signal's own unit.
	MinRise [model.NumSources]float64 `json:"min_rise"`
	// MinRuns is the same in times of what the job runs between two waits, of signals that know it: who
	// waits for less than its own work takes hardly feels it.
	MinRuns [model.NumSources]float64 `json:"min_runs"`
	// MinTimes is a least distance in times of the mean, by source, that counts in place of MinRise where it is less, down to LeastRise in the
	// signal's own unit: many times as long is much for who waits little. 0: MinRise alone counts.
	MinTimes  [model.NumSources]float64 `json:"min_times,omitzero"`
	LeastRise [model.NumSources]float64 `json:"least_rise,omitzero"`
	// SignalSigmas is for signals that are noisier than CPI, where it is more than Sigmas.
	SignalSigmas [model.NumSources]float64 `json:"signal_sigmas,omitzero"`
}

// Threshold returns the abnormal value of a signal under its spec.
func (p *Params) Threshold(s *model.Spec) float64 {
	rise := max(p.Sigmas, p.SignalSigmas[s.Source]) * s.StdDev
	if s.Tail > s.Mean {
		rise = s.Tail - s.Mean
	}
	least := p.MinRise[s.Source]
	if times := p.MinTimes[s.Source]; times > 0 {
		least = min(least, max(times*s.Mean, p.LeastRise[s.Source]))
	}
	return s.Mean + max(rise, least, p.MinRuns[s.Source]*s.RunMean)
}

// Verdict is what one window says of one task.
type Verdict uint8

// The verdicts. Only Good and Outlier are evidence.
const (
	NoSignal      Verdict = iota // the signal could not be had
	NoSpec                       // nothing to compare with yet
	BelowFloor                   // the task hardly ran (case 3)
	OwnThrottling                // its own quota throttled it
	SelfQueueing                 // it queued behind itself
	Good
	Outlier
)

// verdictNames are the verdicts in records and in JSON, verdictTexts as people read them, and
// verdictWords where there is room for a word or two.
var (
	verdictNames = [...]string{"no-signal", "no-spec", "low-cpu", "own-throttling", "own-queue", "normal", "outlier"}
	verdictTexts = [...]string{
		"no signal", "no spec yet", "below the CPU floor", "throttled by its own quota", "queues behind itself", "normal", "outlier",
	}
	verdictWords = [...]string{"no signal", "learning", "low CPU", "own quota", "own queue", "normal", "OUTLIER"}
)

// String returns the verdict as people read it.
func (v Verdict) String() string { return verdictTexts[v] }

// Short returns the verdict in a word or two.
func (v Verdict) Short() string { return verdictWords[v] }

// MarshalText writes the verdict's name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(verdictNames[v]), nil }

// UnmarshalJSON reads a verdict's name.
func (v *Verdict) UnmarshalJSON(b []byte) error {
	n, err := model.EnumFromJSON(b, verdictNames[:], "verdict")
	*v = Verdict(n)
	return err
}

// Predicate returns what the task does, for a sentence about it.
func (v Verdict) Predicate() string {
	switch v {
	case OwnThrottling:
		return "was throttled by its own quota"
	case SelfQueueing:
		return "queues behind itself"
	}
	return "is " + v.String()
}

// Evidence reports whether the window may be used to accuse or acquit others.
func (v Verdict) Evidence() bool { return v == Good || v == Outlier }

// Usable reports whether the window's value may enter a spec.
func Usable(p *Params, src model.Source, o *model.TaskObservation) bool {
	if o.Signals[src].Outcome != model.OK || o.CPU.Outcome != model.OK {
		return false
	}
	if row := src.Row(); o.CPU.V < p.RequiredCPUUsage && !row.Beside || row.Targeted {
		return false
	}
	return !src.Row().Waits || (o.ThrottledKnown && !o.Throttled)
}

// Judge says what a window means. spec may be nil.
func Judge(p *Params, src model.Source, spec *model.Spec, o *model.TaskObservation) Verdict {
	row := src.Row()
	if o.CPU.Outcome == model.OK && o.CPU.V < p.RequiredCPUUsage && !row.Targeted && !row.Beside {
		return BelowFloor
	}
	if o.Signals[src].Outcome != model.OK || o.CPU.Outcome != model.OK {
		return NoSignal
	}
	if row.Waits || row.Targeted {
		if !o.ThrottledKnown && row.Waits {
			return NoSignal // whether it throttled itself cannot be told
		}
		if o.Throttled {
			return OwnThrottling
		}
	}
	if spec == nil {
		return NoSpec
	}
	t := p.Threshold(spec)
	switch {
	case o.Signals[src].V > t:
		return Outlier
	case row.Waits && o.Raw[src].V > t && mostlyOwn(src, o):
		return SelfQueueing
	}
	return Good
}

// mostlyOwn reports whether at least half of the delay is the task's own queueing. A raw
// value just above the threshold with a small own share is merely a normal window.
func mostlyOwn(src model.Source, o *model.TaskObservation) bool {
	rest := src.Row().Rest
	return o.Signals[src].V-rest <= (o.Raw[src].V-rest)/2
}

// Flags remembers when a task was last flagged: as many times as it takes to declare
// an anomaly, and no more.
type Flags struct {
	AtNsec []int64 `json:"at_nsec"` // oldest first, at most Params.Violations
}

// Flag notes a violation.
func (f *Flags) Flag(p *Params, monoNsec int64) {
	if len(f.AtNsec) >= p.Violations {
		copy(f.AtNsec, f.AtNsec[1:])
		f.AtNsec[len(f.AtNsec)-1] = monoNsec
		return
	}
	f.AtNsec = append(f.AtNsec, monoNsec)
}

// Recent counts the violations inside the window that ends at monoNsec.
func (f *Flags) Recent(p *Params, monoNsec int64) int {
	n := 0
	for _, at := range f.AtNsec {
		if monoNsec-at < p.WindowNsec {
			n++
		}
	}
	return n
}

// Anomalous reports whether the task suffers: at least Violations inside the window.
func (f *Flags) Anomalous(p *Params, monoNsec int64) bool {
	return f.Recent(p, monoNsec) >= p.Violations
}

// Clear forgets the violations: what comes next is judged afresh.
func (f *Flags) Clear() { f.AtNsec = f.AtNsec[:0] }
