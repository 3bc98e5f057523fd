package cputrace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Write writes the recording in the format that `commensal-lab run burst --trace` reads: a
// number a line, the CPU time in milliseconds that was used in that millisecond; lines that
// begin with "#" are comments, and say how it was taken.
func (r *Recording) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	head := append([]string{"CPU use by the millisecond: each line is the CPU time, in milliseconds, used in one millisecond."}, r.Facts()...)
	for _, line := range head {
		if _, err := fmt.Fprintf(out, "# %s\n", line); err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
	}
	var buf []byte
	for _, v := range r.UsedNsec {
		buf = appendMsec(buf[:0], v)
		if _, err := out.Write(append(buf, '\n')); err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}

// appendMsec writes nanoseconds as milliseconds, to the microsecond, without zeros at the
// end.
func appendMsec(buf []byte, nsec uint32) []byte {
	usec := (uint64(nsec) + 500) / 1000
	buf = strconv.AppendUint(buf, usec/1000, 10)
	rest := usec % 1000
	if rest == 0 {
		return buf
	}
	digits := [4]byte{'.', byte('0' + rest/100), byte('0' + rest/10%10), byte('0' + rest%10)}
	n := 4
	for digits[n-1] == '0' {
		n--
	}
	return append(buf, digits[:n]...)
}

// Facts returns what is to be known of the recording, in lines for people.
func (r *Recording) Facts() []string {
	took := fmt.Sprintf("recorded: %s, %d ms", r.Start.UTC().Format(time.RFC3339), len(r.UsedNsec))
	if r.Ended != "" {
		took += " (shorter than asked for: " + r.Ended + ")"
	}
	lines := []string{
		"task: " + strconv.Quote(r.Path),
		"kernel: " + r.Kernel + ", tick " + strconv.FormatFloat(r.Tick, 'g', 3, 64) + " ms",
		took,
		fmt.Sprintf("use: %.3f CPU on average; %.1f ms of CPU time in the largest 100 ms, %.1f in the largest millisecond", r.MeanCPU, r.Largest100, r.LargestMsec),
		"quota: " + r.Limit.String(),
	}
	lines = append(lines, r.resolution()...)
	return append(lines, fmt.Sprintf(
		"readings: %d, late by %d us at p99 and %d us at most; %.2f %% of the milliseconds were read late and are spread evenly; they took %.1f %% of a CPU",
		r.Readings, r.LateP99Usec, r.LateMaxUsec, r.Late*100, r.OwnCPU*100,
	))
}

// resolution says how fine the recording is.
func (r *Recording) resolution() []string {
	tick := strconv.FormatFloat(r.Tick, 'g', 3, 64)
	lines := []string{fmt.Sprintf(
		"resolution: %s steps when a task leaves a CPU and at each tick (%s ms); %.0f %% of the CPU time came in steps longer than a reading and was put back to where it was used",
		r.Source, tick, r.PutBack*100,
	)}
	if r.CPUs > 0 {
		return append(lines, "resolution: counters are by CPU: right to within 2 ms")
	}
	return append(lines, fmt.Sprintf("resolution: one counter of all CPUs: how many ran at a time is right on average over a tick (%s ms)", tick))
}

// String describes the limit for people.
func (l Limit) String() string {
	switch {
	case !l.Known:
		return "not known"
	case l.QuotaUsec < 0 && l.ThrottledAround == 0:
		return "none"
	}
	text := "none of its own"
	if l.QuotaUsec >= 0 {
		text = fmt.Sprintf("%d us in %d us, burst %d us; throttled in %d of %d periods", l.QuotaUsec, l.PeriodUsec, l.BurstUsec, l.Throttled, l.Periods)
	}
	if l.ThrottledAround > 0 {
		text += fmt.Sprintf("; THROTTLED %d times, counting groups above and below: what was held back is not in here, and a bucket chosen by it is too small", l.ThrottledAround)
	}
	return text
}

// Msec returns the trace as Write writes it: CPU time in milliseconds, by the millisecond.
func (r *Recording) Msec() []float64 {
	list := make([]float64, len(r.UsedNsec))
	for i, v := range r.UsedNsec {
		list[i] = float64((uint64(v)+500)/1000) / 1000
	}
	return list
}
