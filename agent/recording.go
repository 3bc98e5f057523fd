package agent

import (
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/record"
)

// Recorder keeps what was read and decided; *record.Writer is the real one. An error is what is
// wrong with the record, and comes as long as it is.
type Recorder interface {
	// Due reports whether the next Tick should have a Begin before it; the time is the node's,
	// monotonic, in nanoseconds.
	Due(monoNsec int64) bool
	// Begin starts a segment with the engine's state as it is between two ticks.
	Begin(s *engine.State, monoNsec, wallNsec int64) error
	// Tick appends one turn. Without a segment it is lost.
	Tick(in *engine.Input, out *engine.Output) error
	// Lost returns how many turns were lost so far.
	Lost() uint64
}

// beginRecord begins a segment of the record where one is due.
func (c *Core) beginRecord() {
	if c.record == nil || !c.record.Due(c.in.MonoNsec) {
		return
	}
	if err := c.record.Begin(c.Engine.State, c.in.MonoNsec, c.in.WallNsec); err != nil {
		c.fail(failRecord, err)
	}
}

// recordTurn records the turn. A checkpoint that is due is taken behind it, not before the next: by
// then the turn has written what it had to.
func (c *Core) recordTurn(out *engine.Output) {
	if c.record == nil {
		return
	}
	if err := c.record.Tick(&c.in, out); err != nil {
		c.fail(failRecord, err)
	} else {
		c.well(failRecord)
	}
	c.counts.lost = c.record.Lost()
	c.beginRecord()
}

// closeRecord writes what waits of the record at the end; nil: nothing was recorded.
func (a *Agent) closeRecord(rec *record.Writer) {
	if rec == nil {
		return
	}
	if err := rec.Close(); err != nil {
		a.log.Warn("the end of the record is not written", "error", err)
	}
}
