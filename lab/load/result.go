package load

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// Span is a time.Duration that is a number of seconds in a document, to the nanosecond.
type Span struct{ time.Duration }

// MarshalJSON writes the seconds.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(s.Seconds()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Span) UnmarshalJSON(b []byte) error {
	var v float64
	err := json.Unmarshal(b, &v)
	s.Duration = time.Duration(math.Round(v * float64(time.Second)))
	return err
}

// Summary is what the requests due in some span of a run had to bear.
//
// Due = Done + Errors + Timeouts + Pending, and each of them is in the latency figures:
// an error with the time until it was known, a timeout and a pending request with their
// age, which is the least that their latency can be.
type Summary struct {
	Length Span  `json:"length_seconds"` // of the span
	Sent   int64 `json:"sent"`           // requests that fell due and were taken up by the sender
	Done   int64 `json:"done"`           // answered properly; Misses among them
	Misses int64 `json:"misses"`         // gets of keys that the server did not have
	Errors int64 `json:"errors"`         // refused by the server, or lost with a connection

	Timeouts int64 `json:"timeouts"` // unanswered at the end of the run
	Pending  int64 `json:"pending"`  // unanswered so far; zero in a Result

	// Latency, counted from the moment at which a request was due.
	P50  Span `json:"p50_seconds"`
	P99  Span `json:"p99_seconds"`
	P999 Span `json:"p999_seconds"`
	Max  Span `json:"max_seconds"`
	Mean Span `json:"mean_seconds"`
	// Lateness is how long after that moment the sender itself took the request up. It
	// is the client's fault and is contained in the latency.
	Lateness Lateness `json:"lateness"`
}

// Lateness is the distribution of the client's own delay.
type Lateness struct {
	P50  Span `json:"p50_seconds"`
	P99  Span `json:"p99_seconds"`
	P999 Span `json:"p999_seconds"`
	Max  Span `json:"max_seconds"`
}

// Window is one span of a run. Requests belong to the window in which they were due.
type Window struct {
	Start Span `json:"start_seconds"` // since the start of the run
	Summary

	// Latencies and Latenesses are there so that a reader can take windows together.
	Latencies  dist `json:"latency_distribution"`
	Latenesses dist `json:"lateness_distribution"`
}

// Result is one run.
type Result struct {
	Summary // of the whole run

	Seed       uint64  `json:"seed"`
	RatePerSec float64 `json:"rate_per_second"` // requests sent per second of Length
	// Protection is how the kernel schedules the client: "SCHED_FIFO 10", "nice -20", or
	// "none: " and why.
	Protection string `json:"protection"`
	// CPU is the time that this process used on CPUs during the run, in user and kernel mode.
	CPU        Span   `json:"cpu_seconds"`
	Reconnects int64  `json:"reconnects"`
	FirstError string `json:"first_error,omitempty"` // in words; "" when there was none

	Windows []Window `json:"windows"`
}

// Between returns the figures of the windows that lie within [from, to), times since the
// start of the run. Windows that are cut by an edge are left out.
func (r *Result) Between(from, to time.Duration) Summary {
	return r.Over(func(w *Window) bool { return w.Start.Duration >= from && w.Start.Duration+w.Length.Duration <= to })
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
		latency.merge(&w.Latencies)
		lateness.merge(&w.Latenesses)
	}
	s.fill(&latency, &lateness)
	return s
}

// add sums the counts.
func (s *Summary) add(o *Summary) {
	s.Length.Duration += o.Length.Duration
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
	s.Max, s.Mean = Span{latency.max}, Span{latency.mean()}
	s.Lateness.P50, s.Lateness.P99, s.Lateness.P999 = lateness.percentiles()
	s.Lateness.Max = Span{lateness.max}
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

func ms(s Span) string { return fmt.Sprintf("%.3f", s.Seconds()*1e3) }
