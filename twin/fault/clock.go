package fault

import (
	"slices"
	"time"
)

// Step is a change of the wall clock at a time, as by somebody who sets it.
type Step struct {
	AtNsec int64 // simulated
	Nsec   int64 // forward, or back when negative
}

// Clock is a wall clock that somebody sets. The monotonic clock stays: no kernel sets it.
type Clock struct {
	mono, wall func() int64
	steps      []Step
	slept      time.Duration
}

// NewClock returns a clock over a machine's own, in nanoseconds.
func NewClock(mono, wall func() int64, steps []Step) *Clock {
	steps = slices.Clone(steps)
	slices.SortFunc(steps, func(a, b Step) int { return int(a.AtNsec - b.AtNsec) })
	return &Clock{mono: mono, wall: wall, steps: steps}
}

// MonoNsec returns CLOCK_MONOTONIC; see linux.Clock.
func (c *Clock) MonoNsec() int64 { return c.mono() }

// WallNsec returns CLOCK_REALTIME with the steps that are due.
func (c *Clock) WallNsec() int64 {
	now, wall := c.mono(), c.wall()
	for _, s := range c.steps {
		if s.AtNsec <= now {
			wall += s.Nsec
		}
	}
	return wall
}

// Now is the wall clock of who works beside the agent's loop, with the time for which he slept.
func (c *Clock) Now() time.Time { return time.Unix(0, c.wall()).Add(c.slept) }

// Sleep passes for who sleeps, and for nobody else: he works beside others, whose time is the machine's.
func (c *Clock) Sleep(d time.Duration) { c.slept += d }
