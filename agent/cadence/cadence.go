// Package cadence says when the agent's loop takes a turn: on a real machine and, with the
// same turns, on a simulated one.
package cadence

import (
	"time"

	"github.com/commensal-io/commensal/model"
)

// TickEvery is the engine's own pace: claims expire, operators are heard and knobs are
// compared at least this often, however rarely the windows come.
const TickEvery = time.Second

// Schedule says when the loop wakes up and which edge of a sampling window that is. All
// times are nanoseconds since its origin, multiples of the periods, so that a late tick
// does not push the ones after it.
type Schedule struct {
	tick, duration, frequency int64
}

// New returns the schedule of windows of a duration, one in each frequency (CPI2 section
// 3.1: 10 seconds once a minute).
func New(duration, frequency time.Duration) Schedule {
	return Schedule{tick: min(TickEvery, duration).Nanoseconds(), duration: duration.Nanoseconds(), frequency: frequency.Nanoseconds()}
}

// Next returns the first event after a time. Events that were missed are not made up.
func (s Schedule) Next(after int64) (at int64, mark model.WindowMark) {
	start := s.multiple(after, s.frequency, 0)
	end := s.multiple(after, s.frequency, s.duration)
	if s.duration == s.frequency {
		end = start
	}
	at = min(s.multiple(after, s.tick, 0), start, end)
	if at == start {
		mark |= model.WindowStart
	}
	if at == end {
		mark |= model.WindowEnd
	}
	return at, mark
}

// multiple returns the first offset + k * period, k >= 0, after a time.
func (s Schedule) multiple(after, period, offset int64) int64 {
	if after < offset {
		return offset
	}
	return offset + ((after-offset)/period+1)*period
}
