package engine_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/hardcap"
)

// What one engine keeps another goes on with: it has the same specs, protection stays off and
// the bound is not sought anew; each is told once.
func TestKeptIsRestored(t *testing.T) {
	p := cpuParams(t)
	w, e := newCPUStorm(3), engine.New(p)
	last := &engine.Input{}
	for i := range 900 {
		in := w.input()
		if in.Commands = nil; i == 899 {
			in.Commands = []model.Command{{Kind: model.CommandProtectOff, Job: "lc", By: "test"}}
		}
		w.due = append(w.due, e.Step(in).Changes...)
		last = in
	}
	kept := e.Keep(last.MonoNsec, last.WallNsec)
	if len(kept.Specs) == 0 || len(kept.ProtectOff) != 1 {
		t.Fatalf("the storm teaches nothing: %+v", kept)
	}
	mark := e.KeepMark()
	again := engine.New(p)
	if again.KeepMark() == mark {
		t.Error("an engine that knows nothing has the mark of one that does")
	}
	e.State.ProtectOff[0] = "be" // as long as before
	if e.KeepMark() == mark {
		t.Error("protection is off for another job, and the mark is the same")
	}
	out := again.Step(&engine.Input{Seq: 1, MonoNsec: 1, WallNsec: last.WallNsec, Restored: &kept})
	told := 0
	for _, d := range out.Decisions {
		if strings.Contains(d.Reason, "before the agent was restarted") {
			told++
		}
	}
	want := len(kept.Specs) + len(kept.ProtectOff)
	if kept.BurstBound != nil {
		want++
	}
	if told != want {
		t.Errorf("%d of %d told: %+v", told, want, out.Decisions)
	}
	for _, k := range kept.Specs {
		if sp := again.State.Specs.Lookup(k.Spec.Job, k.Spec.Source); sp == nil || sp.Mean != k.Spec.Mean {
			t.Errorf("%s: %+v, kept %+v", k.Spec.Job, sp, k.Spec)
		}
	}
	if back := again.Keep(1, last.WallNsec); len(back.Specs) != len(kept.Specs) || len(back.ProtectOff) != 1 || (back.BurstBound == nil) != (kept.BurstBound == nil) {
		t.Errorf("%+v", back)
	}
}

// TestPairsAreRestored: what nudges have shown of two jobs is kept and taken up, with its age, and told with its evidence; an engine
// without the switch leaves it.
func TestPairsAreRestored(t *testing.T) {
	p := singleNode(t)
	p.Hardcap.Repeat.Enabled = true
	e := engine.New(p)
	mark := e.KeepMark()
	e.State.Hardcap.Pairs = []hardcap.Pair{{Victim: "web", Antagonist: "grind", Evidence: 8, Times: 6, AtNsec: 100 * second}}
	if e.KeepMark() == mark {
		t.Error("a pair is known, and the mark is the same")
	}
	kept := e.Keep(160*second, 1e18)
	wall := int64(1e18) - 60*second + p.Hardcap.Repeat.HalfLifeNsec
	again := engine.New(p)
	out := again.Step(&engine.Input{Seq: 1, MonoNsec: second, WallNsec: wall, Restored: &kept})
	if len(out.Decisions) != 1 || !strings.Contains(out.Decisions[0].Reason, "grind hurts web: evidence 4.0 of 3.9 asked for, from 6 experiments") {
		t.Fatalf("%+v", out.Decisions)
	}
	if v, ok := out.Decisions[0].Fact(model.FactEvidence); !ok || v < 3.99 || v > 4.01 {
		t.Errorf("evidence %v", v)
	}
	p.Hardcap.Repeat.Enabled = false
	without := engine.New(p)
	if out := without.Step(&engine.Input{Seq: 1, MonoNsec: second, WallNsec: wall, Restored: &kept}); len(out.Decisions) != 0 || len(without.State.Hardcap.Pairs) != 0 {
		t.Errorf("taken up with the switch off: %+v", out.Decisions)
	}
}
