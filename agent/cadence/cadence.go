// Package cadence says when the agent's loop takes a turn: on a real machine and, with the
// same turns, on a simulated one.
package cadence

import (
	"math"
	"time"

	"github.com/commensal-io/commensal/model"
)

// TickEvery is the engine's own pace: claims expire, operators are heard and knobs are
// compared at least this often, however rarely the windows come.
const TickEvery = time.Second

// Turn is what the loop does when it wakes up.
type Turn struct {
	Mark    model.WindowMark // the edges of a sampling window; 0: no reading
	Compare bool             // held knobs are compared with the kernel
	Pulse   bool             // the fast reading is taken; the engine says of what
	Look    bool             // memory is read between windows
}

// First is the turn that an agent begins with.
func First() Turn { return Turn{Mark: model.WindowStart, Compare: true} }

// Pace is how often things are done. Times that are 0 are never.
type Pace struct {
	Duration  time.Duration // of a sampling window
	Frequency time.Duration // one window in each
	Pulse     time.Duration // between fast readings
}

// Schedule says when the loop wakes up. All times are nanoseconds since its origin,
// multiples of the periods, so that a late turn does not push the ones after it.
type Schedule struct {
	tick, duration, frequency, pulse int64
}

// New returns the schedule of a pace (CPI² §3.1: windows of 10 seconds, one a
// minute).
func New(p Pace) Schedule {
	return Schedule{
		tick: min(TickEvery, p.Duration).Nanoseconds(), duration: p.Duration.Nanoseconds(), frequency: p.Frequency.Nanoseconds(),
		pulse: p.Pulse.Nanoseconds(),
	}
}

// After returns the turn after the one that was due at a time, seen from now. A turn that lasted
// past the next one does not swallow it: edges of windows and comparisons that are overdue by
// less than a second are taken at once, all in one turn. Missed pulses are not made up for, nor
// is what a longer pause missed.
func (s Schedule) After(last, now int64) (at int64, t Turn) {
	if now-last >= TickEvery.Nanoseconds() {
		return s.Next(now)
	}
	var overdue Turn
	since := last
	for at, t = s.Next(last); at <= now; at, t = s.Next(at) {
		overdue.Mark |= t.Mark
		overdue.Compare = overdue.Compare || t.Compare
		overdue.Pulse = overdue.Pulse || t.Pulse
		since = at
	}
	if overdue.Compare {
		return since, overdue
	}
	return at, t
}

// Next returns the first turn after a time.
func (s Schedule) Next(after int64) (at int64, t Turn) {
	start := s.multiple(after, s.frequency, 0)
	end := s.multiple(after, s.frequency, s.duration)
	if s.duration == s.frequency {
		end = start
	}
	tick, pulse := s.multiple(after, s.tick, 0), s.multiple(after, s.pulse, 0)
	at = min(tick, start, end, pulse)
	if at == start {
		t.Mark |= model.WindowStart
	}
	if at == end {
		t.Mark |= model.WindowEnd
	}
	t.Compare = at == tick || t.Mark != 0
	t.Pulse = at == pulse
	return at, t
}

// multiple returns the first offset + k * period, k >= 0, after a time; never, without a
// period.
func (s Schedule) multiple(after, period, offset int64) int64 {
	if period == 0 {
		return math.MaxInt64
	}
	if after < offset {
		return offset
	}
	return offset + ((after-offset)/period+1)*period
}
