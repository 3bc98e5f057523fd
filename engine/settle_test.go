package engine_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Pulses in which nothing happens leave the ledger alone, but not a moment longer than it has
// nothing to do: what an operator capped is free in the pulse in which the time is over, and a
// write that was refused is tried again in the one in which its pause is.
func TestStillLedgerWakesInTime(t *testing.T) {
	e, next := placedNode(t, 20)
	settle(e, next, 200)
	var be model.TaskNum
	for _, task := range e.State.Tasks.Tasks {
		if task.Class == model.BE {
			be = task.Num
		}
	}
	in := next()
	in.Commands = []model.Command{{Kind: model.CommandCap, Task: be, Cap: 0.5, DurationNsec: 3e9, By: "test"}}
	out := e.Step(in)
	if in.Commands = nil; len(out.Changes) != 1 || out.Changes[0].Kind != model.Hold {
		t.Fatalf("an operator's cap led to %+v", out.Changes)
	}
	from, c := in.MonoNsec, out.Changes[0]
	refused := next()
	refused.Results = []model.Result{{Seq: c.Seq, Target: c.Target, Kind: model.Refused, Found: c.Value, Now: c.Value, Error: "busy", MonoNsec: refused.MonoNsec}}
	if out = e.Step(refused); len(out.Changes) != 0 {
		t.Fatalf("tried again at once: %+v", out.Changes)
	}
	again, at := refused.MonoNsec+1e9, int64(0) // the first pause
	refused.Results = nil
	for at == 0 {
		in := next()
		if out = e.Step(in); len(out.Changes) > 0 || in.MonoNsec > again {
			at = in.MonoNsec
		}
	}
	if at != again || len(out.Changes) != 1 {
		t.Fatalf("tried again after %d ms: %+v", (at-refused.MonoNsec)/1e6, out.Changes)
	}
	c = out.Changes[0]
	applied := next()
	applied.Results = []model.Result{{Seq: c.Seq, Target: c.Target, Kind: model.Applied, Found: model.Bandwidth(model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}), Now: c.Value, MonoNsec: applied.MonoNsec}}
	e.Step(applied)
	applied.Results = nil
	for {
		in := next()
		if out = e.Step(in); len(out.Changes) > 0 || in.MonoNsec > from+3e9 {
			at = in.MonoNsec
			break
		}
	}
	if at != from+3e9 || len(out.Changes) != 1 || out.Changes[0].Kind != model.Release {
		t.Errorf("%d ms after the cap: %+v", (at-from)/1e6, out.Changes)
	}
}
