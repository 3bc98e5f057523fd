package agent

import (
	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/engine"
)

// Loop says when a core takes which turn, by the core's own clock: of the agent on a real
// machine, and of everything that lets an agent run on a simulated one.
type Loop struct {
	*Core
	schedule cadence.Schedule
	origin   int64
	at       int64 // of the next turn, since origin
	turn     cadence.Turn
}

// NewLoop returns a loop that begins now, at the pace of the core's configuration.
func NewLoop(c *Core) *Loop {
	return &Loop{Core: c, schedule: cadence.New(c.cfg.Pace()), origin: c.Clock.MonoNsec(), turn: cadence.First()}
}

// Due returns when the next turn is; the first one is at once.
func (l *Loop) Due() int64 { return l.origin + l.at }

// Next takes the turn that is due. What was missed meanwhile is made up for as
// cadence.Schedule.After says. The output is good until the next one; nil: nothing but a pulse was
// due, and a glance showed that nothing could come of it.
func (l *Loop) Next() *engine.Output {
	var out *engine.Output
	if !l.idle() || !l.passes() {
		out = l.Turn(l.turn)
	}
	l.at, l.turn = l.schedule.After(l.at, l.Clock.MonoNsec()-l.origin)
	l.rest()
	return out
}

// Hear takes a turn at once where an operator's command waits, who is not left waiting for the
// next second; nil: none does.
func (l *Loop) Hear() *engine.Output {
	if len(l.commands) == 0 {
		return nil
	}
	out := l.Turn(cadence.Turn{Compare: true})
	if now := l.Clock.MonoNsec() - l.origin; now < l.at { // pulses that were to be passed over may be due now
		l.at, l.turn = l.schedule.Next(now)
		l.rest()
	}
	return out
}

// rest passes over turns for nothing but pulses that nobody needs: the loop sleeps through them.
func (l *Loop) rest() {
	for l.idle() && !l.Engine.PulseDue(l.Due()) {
		l.at, l.turn = l.schedule.Next(l.at)
	}
}

// idle reports that the next turn is for nothing but a pulse.
func (l *Loop) idle() bool {
	return l.turn == (cadence.Turn{Pulse: true}) && len(l.results)+len(l.commands) == 0
}
