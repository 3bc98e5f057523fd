package burst

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxTrace bounds a recorded trace: an hour.
const maxTrace = 3_600_000

// shortTrace is from when on a trace says something about an application: a spike every few
// seconds comes often enough in it.
const shortTrace = 30

// Facts are what is to be known of a recorded trace before believing what follows from it.
type Facts struct {
	Seconds float64 `json:"seconds"`
	MeanCPU float64 `json:"mean_cpu"` // CPU-sec/sec
	// Largest is the greatest use in a period of 100 ms, as a multiple of the mean: with a
	// quota of less than that, and no bucket, the application is throttled.
	Largest float64 `json:"largest_period"`
	Idle    float64 `json:"idle"` // share of milliseconds without use
}

// Facts sums a trace up.
func (t Trace) Facts(periodMsec int) Facts {
	f := Facts{Seconds: float64(len(t)) / 1000}
	if len(t) == 0 {
		return f
	}
	sum, window, most := 0.0, 0.0, 0.0
	for i, v := range t {
		if v == 0 {
			f.Idle += 1 / float64(len(t))
		}
		sum += v
		if window += v; i >= periodMsec {
			window -= t[i-periodMsec]
		}
		most = max(most, window)
	}
	f.MeanCPU = sum / float64(len(t))
	if sum > 0 {
		f.Largest = most / (f.MeanCPU * float64(min(periodMsec, len(t))))
	}
	return f
}

// ReadTrace reads CPU use by the millisecond: a number a line, in milliseconds of CPU time
// used in that millisecond (2.5 is two and a half CPUs); lines that begin with "#" and
// empty ones are left out. Errors name the line.
func ReadTrace(name string, r io.Reader) (Trace, error) {
	var t Trace
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		text := strings.TrimSpace(in.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s:%d: %q: expected CPU time in milliseconds, as 2.5", name, n, text)
		}
		if len(t) == maxTrace {
			return nil, fmt.Errorf("%s:%d: more than %d lines", name, n, maxTrace)
		}
		t = append(t, v)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, v := range t {
		if v > 0 {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%s: no CPU use in %d lines", name, len(t))
}
