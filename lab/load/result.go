package load

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// Summary is what the requests due in some span of a run had to bear.
//
// Due = Done + Errors + Timeouts + Pending, and each of them is in the latency figures:
// an error with the time until it was known, a timeout and a pending request with their
// age, which is the least that their latency can be.
type Summary struct {
	Length time.Duration // of the span
	Sent   int64         // requests that fell due and were taken up by the sender
	Done   int64         // answered properly; Misses among them
	Misses int64         // gets of keys that the server did not have
	Errors int64         // refused by the server, or lost with a connection

	Timeouts int64 // unanswered at the end of the run
	Pending  int64 // unanswered so far; zero in a Result

	// Latency, counted from the moment at which a request was due.
	P50, P99, P999, Max, Mean time.Duration
	// Lateness is how long after that moment the sender itself took the request up. It
	// is the client's fault and is contained in the latency.
	Lateness Lateness
}

// Lateness is the distribution of the client's own delay.
type Lateness struct {
	P50, P99, P999, Max time.Duration
}

// Window is one span of a run. Requests belong to the window in which they were due.
type Window struct {
	Start time.Duration // since the start of the run
	Summary

	latency, lateness dist
}

// Result is one run.
type Result struct {
	Summary // of the whole run

	Seed       uint64
	RatePerSec float64 // requests sent per second of Length
	// Protection is how the kernel schedules the client: "SCHED_FIFO 10", "nice -20", or
	// "none: " and why.
	Protection string
	// CPU is the time that this process used on CPUs during the run, in user and kernel mode.
	CPU        time.Duration
	Reconnects int64
	FirstError string // in words; "" when there was none

	Windows []Window
}

// Between returns the figures of the windows that lie within [from, to), times since the
// start of the run. Windows that are cut by an edge are left out.
func (r *Result) Between(from, to time.Duration) Summary {
	return r.Over(func(w *Window) bool { return w.Start >= from && w.Start+w.Length <= to })
}

// Over returns the figures of all windows that keep accepts, as if their requests had been
// one run: percentiles are those of all the latencies together.
func (r *Result) Over(keep func(w *Window) bool) Summary {
	var s Summary
	var latency, lateness dist
	for i := range r.Windows {
		w := &r.Windows[i]
		if !keep(w) {
			continue
		}
		s.add(&w.Summary)
		latency.merge(&w.latency)
		lateness.merge(&w.lateness)
	}
	s.fill(&latency, &lateness)
	return s
}

// Merge returns the figures of several runs together, as Over does for windows.
func Merge(results ...*Result) Summary {
	var all Result
	for _, r := range results {
		all.Windows = append(all.Windows, r.Windows...)
	}
	return all.Over(func(*Window) bool { return true })
}

// add sums the counts.
func (s *Summary) add(o *Summary) {
	s.Length += o.Length
	s.Sent += o.Sent
	s.Done += o.Done
	s.Misses += o.Misses
	s.Errors += o.Errors
	s.Timeouts += o.Timeouts
	s.Pending += o.Pending
}

// fill sets the figures that come from the distributions.
func (s *Summary) fill(latency, lateness *dist) {
	s.P50, s.P99, s.P999 = latency.percentiles()
	s.Max, s.Mean = latency.max, latency.mean()
	s.Lateness.P50, s.Lateness.P99, s.Lateness.P999 = lateness.percentiles()
	s.Lateness.Max = lateness.max
}

// Table writes the result as aligned text, durations in milliseconds.
func (r *Result) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format, args...) } // Flush reports
	p("start\tsent\tdone\terrors\ttimeouts\tp50\tp99\tp99.9\tmax\tlate p99\tlate max\t\n")
	p("s\t\t\t\t\tms\tms\tms\tms\tms\tms\t\n")
	row := func(name string, s *Summary) {
		p("%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, s.Sent, s.Done, s.Errors, s.Timeouts,
			ms(s.P50), ms(s.P99), ms(s.P999), ms(s.Max), ms(s.Lateness.P99), ms(s.Lateness.Max))
	}
	for i := range r.Windows {
		row(fmt.Sprintf("%.6g", r.Windows[i].Start.Seconds()), &r.Windows[i].Summary)
	}
	row("all", &r.Summary)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("load: write table: %w", err)
	}
	_, err := fmt.Fprintf(w, "seed %d; %.1f requests/s over %.1f s; client: %s, %.3f CPU; reconnects %d\n",
		r.Seed, r.RatePerSec, r.Length.Seconds(), r.Protection, r.CPU.Seconds()/max(r.Length.Seconds(), 1e-9), r.Reconnects)
	if err == nil && r.FirstError != "" {
		_, err = fmt.Fprintf(w, "first error: %s\n", r.FirstError)
	}
	if err != nil {
		return fmt.Errorf("load: write table: %w", err)
	}
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond)) }

// The wire forms. Durations are in seconds and say so in their names.

type summaryJSON struct {
	LengthSeconds float64      `json:"length_seconds"`
	Sent          int64        `json:"sent"`
	Done          int64        `json:"done"`
	Misses        int64        `json:"misses"`
	Errors        int64        `json:"errors"`
	Timeouts      int64        `json:"timeouts"`
	Pending       int64        `json:"pending"`
	P50Seconds    float64      `json:"p50_seconds"`
	P99Seconds    float64      `json:"p99_seconds"`
	P999Seconds   float64      `json:"p999_seconds"`
	MaxSeconds    float64      `json:"max_seconds"`
	MeanSeconds   float64      `json:"mean_seconds"`
	Lateness      latenessJSON `json:"lateness"`
}

type latenessJSON struct {
	P50Seconds  float64 `json:"p50_seconds"`
	P99Seconds  float64 `json:"p99_seconds"`
	P999Seconds float64 `json:"p999_seconds"`
	MaxSeconds  float64 `json:"max_seconds"`
}

type windowJSON struct {
	StartSeconds float64 `json:"start_seconds"`
	summaryJSON
	LatencyDist  dist `json:"latency_distribution"`
	LatenessDist dist `json:"lateness_distribution"`
}

type resultJSON struct {
	summaryJSON
	Seed       uint64   `json:"seed"`
	RatePerSec float64  `json:"rate_per_second"`
	Protection string   `json:"protection"`
	CPUSeconds float64  `json:"cpu_seconds"`
	Reconnects int64    `json:"reconnects"`
	FirstError string   `json:"first_error,omitempty"`
	Windows    []Window `json:"windows"`
}

// fromSeconds undoes Duration.Seconds, to the nanosecond.
func fromSeconds(s float64) time.Duration {
	return time.Duration(math.Round(s * float64(time.Second)))
}

func (s *Summary) wire() summaryJSON {
	return summaryJSON{
		LengthSeconds: s.Length.Seconds(), Sent: s.Sent, Done: s.Done, Misses: s.Misses,
		Errors: s.Errors, Timeouts: s.Timeouts, Pending: s.Pending,
		P50Seconds: s.P50.Seconds(), P99Seconds: s.P99.Seconds(), P999Seconds: s.P999.Seconds(),
		MaxSeconds: s.Max.Seconds(), MeanSeconds: s.Mean.Seconds(),
		Lateness: latenessJSON{
			P50Seconds: s.Lateness.P50.Seconds(), P99Seconds: s.Lateness.P99.Seconds(),
			P999Seconds: s.Lateness.P999.Seconds(), MaxSeconds: s.Lateness.Max.Seconds(),
		},
	}
}

func (j *summaryJSON) summary() Summary {
	return Summary{
		Length: fromSeconds(j.LengthSeconds), Sent: j.Sent, Done: j.Done, Misses: j.Misses,
		Errors: j.Errors, Timeouts: j.Timeouts, Pending: j.Pending,
		P50: fromSeconds(j.P50Seconds), P99: fromSeconds(j.P99Seconds), P999: fromSeconds(j.P999Seconds),
		Max: fromSeconds(j.MaxSeconds), Mean: fromSeconds(j.MeanSeconds),
		Lateness: Lateness{
			P50: fromSeconds(j.Lateness.P50Seconds), P99: fromSeconds(j.Lateness.P99Seconds),
			P999: fromSeconds(j.Lateness.P999Seconds), Max: fromSeconds(j.Lateness.MaxSeconds),
		},
	}
}

// MarshalJSON writes the summary, durations in seconds.
func (s Summary) MarshalJSON() ([]byte, error) { return json.Marshal(s.wire()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Summary) UnmarshalJSON(b []byte) error {
	var j summaryJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*s = j.summary()
	return nil
}

// MarshalJSON writes the window with its histograms, so that a reader can merge windows.
func (w Window) MarshalJSON() ([]byte, error) {
	return json.Marshal(windowJSON{w.Start.Seconds(), w.wire(), w.latency, w.lateness})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (w *Window) UnmarshalJSON(b []byte) error {
	var j windowJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*w = Window{Start: fromSeconds(j.StartSeconds), Summary: j.summary(), latency: j.LatencyDist, lateness: j.LatenessDist}
	return nil
}

// MarshalJSON writes the result with all its windows.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(resultJSON{
		summaryJSON: r.wire(), Seed: r.Seed, RatePerSec: r.RatePerSec, Protection: r.Protection,
		CPUSeconds: r.CPU.Seconds(), Reconnects: r.Reconnects, FirstError: r.FirstError, Windows: r.Windows,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote; Between, Over and Merge work on it as on
// the original, so that the load can run in a process of its own.
func (r *Result) UnmarshalJSON(b []byte) error {
	var j resultJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*r = Result{
		Summary: j.summary(), Seed: j.Seed, RatePerSec: j.RatePerSec, Protection: j.Protection,
		CPU: fromSeconds(j.CPUSeconds), Reconnects: j.Reconnects, FirstError: j.FirstError, Windows: j.Windows,
	}
	return nil
}
