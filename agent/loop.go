package agent

import (
	"math"

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
	look     int64 // when memory is read between windows, by the core's clock
}

// NewLoop returns a loop that begins now, at the pace of the core's configuration.
func NewLoop(c *Core) *Loop {
	return &Loop{Core: c, schedule: cadence.New(c.cfg.Pace()), origin: c.Clock.MonoNsec(), turn: cadence.First(), look: math.MaxInt64}
}

// Due returns when the next turn is; the first one is at once.
func (l *Loop) Due() int64 { return min(l.origin+l.at, l.look) }

// Stalls returns what is ready to be received from when programs begin to wait for memory; nil: nobody tells. Who received
// calls Wake.
func (l *Loop) Stalls() <-chan struct{} {
	if l.looking == nil {
		return nil
	}
	return l.looking.Stalls()
}

// Wake has memory read at once.
func (l *Loop) Wake() { l.look = min(l.look, l.Clock.MonoNsec()) }

// Hark wakes the loop if programs began to wait for memory: for who lets simulated time pass, in steps of WatchNsec at most
// while there is anything to hear.
func (l *Loop) Hark() {
	select {
	case <-l.Stalls():
		l.Wake()
	default:
	}
}

// nextLook is when memory is read next, a while after this turn at the least: one that told nothing leads to no other at once.
func (l *Loop) nextLook() int64 { return max(l.LookDue(), l.Clock.MonoNsec()+50e6) }

// WatchNsec is how often a simulated machine is asked whether programs wait for memory: ten times a window of a trigger, as
// the kernel does it itself.
const WatchNsec = int64(100e6)

// Next takes the turn that is due. What was missed meanwhile is made up for as
// cadence.Schedule.After says. The output is good until the next one; nil: nothing but a pulse was
// due, and a glance showed that nothing could come of it.
func (l *Loop) Next() *engine.Output {
	if l.look < l.origin+l.at {
		out := l.Turn(cadence.Turn{Look: true})
		l.look = l.nextLook()
		return out
	}
	var out *engine.Output
	turn := l.turn
	turn.Look = turn.Mark == 0 && l.look <= l.Clock.MonoNsec()
	if turn.Look || !l.idle() || !l.passes() {
		out = l.Turn(turn)
		l.look = l.nextLook()
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
	l.look = l.nextLook()
	if now := l.Clock.MonoNsec() - l.origin; now < l.at { // pulses that were to be passed over may be due now
		l.at, l.turn = l.schedule.Next(now)
		l.rest()
	}
	return out
}

// rest passes over turns for nothing but pulses that nobody needs: the loop sleeps through them.
func (l *Loop) rest() {
	for l.idle() && !l.Engine.PulseDue(l.origin+l.at) {
		l.at, l.turn = l.schedule.Next(l.at)
	}
}

// idle reports that the next turn is for nothing but a pulse.
func (l *Loop) idle() bool {
	return l.turn == (cadence.Turn{Pulse: true}) && len(l.results)+len(l.commands) == 0
}
