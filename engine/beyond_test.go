package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// beyondSets are the combinations of the switches beyond CPI².
func beyondSets(t *testing.T) map[string]engine.Params {
	t.Helper()
	sets := map[string]engine.Params{}
	for i := 1; i < 8; i++ {
		p := with(t, i&1 != 0, i&2 != 0, i&4 != 0)
		// The storm's single suspects are clear; with a higher threshold the evidence is split.
		p.Hardcap.Antagonist[model.SourceCPI].Threshold = 0.5
		sets[fmt.Sprintf("groups %t, feedback %t, confirm %t", i&1 != 0, i&2 != 0, i&4 != 0)] = p
		if i >= 6 {
			p.Hardcap.Confirm.Share, p.Hardcap.Confirm.Witnesses, p.Hardcap.Confirm.MaxPerIncident = 0.5, true, 4
			sets[fmt.Sprintf("witnesses, groups %t", i&1 != 0)] = p
		}
	}
	return sets
}

// soundHolds checks what must be true of the ledger after any tick. top is the latest time that
// was seen: the storm's clock goes back at times.
func soundHolds(w *storm, top int64, in *engine.Input, e *engine.Engine) error {
	held := 0
	for _, k := range e.State.Ledger.Knobs {
		policy := false
		for _, c := range k.Claims {
			policy = policy || c.Owner == model.OwnerPolicy
			if c.Owner == model.OwnerPolicy && w.cls[c.Task()] != model.BE {
				return fmt.Errorf("a policy claims %s task %d", w.cls[c.Task()], c.Task())
			}
			if w.mono >= c.ExpiresNsec {
				return fmt.Errorf("claim %d is past its time", c.ID)
			}
			most := e.Params.Hardcap.DurationNsec
			if c.Value.Knob == model.CPUWeight { // a demotion has a time of its own
				most = e.Params.Hardcap.Demote.DurationNsec
			}
			if c.Owner == model.OwnerPolicy && c.ExpiresNsec > top+most {
				return fmt.Errorf("claim %d lasts longer than a hold may", c.ID)
			}
			if c.Owner == model.OwnerPolicy && !(c.Cap > 0) {
				return fmt.Errorf("claim %d is for %v CPU", c.ID, c.Cap)
			}
		}
		if policy {
			held++
		}
	}
	if limit := max(1, e.Params.Limits.MaxHeldTasks); held > limit {
		return fmt.Errorf("%d tasks are held, %d allowed", held, limit)
	}
	if in.KillSwitch && held > 0 {
		return fmt.Errorf("%d held under the kill switch", held)
	}
	return nil
}

// boundedState checks that what the policies remember is bounded.
func boundedState(w *storm, e *engine.Engine) error {
	h, p := &e.State.Hardcap, &e.Params.Hardcap
	if len(h.Incidents) > len(w.tasks) || len(h.Tested) > len(w.tasks) || len(h.NudgedAt) > p.Confirm.MaxPerHour {
		return fmt.Errorf("%d incidents, %d tested, %d nudges of %d tasks", len(h.Incidents), len(h.Tested), len(h.NudgedAt), len(w.tasks))
	}
	for i, r := range h.Refuted {
		if slices.Contains(h.Refuted[:i], r) {
			return fmt.Errorf("a nudge in vain is noted twice: %+v", r)
		}
	}
	for i := range h.Incidents {
		nudges := 0
		for _, r := range h.Incidents[i].Rounds {
			if r.Nudge {
				nudges++
			}
			if len(r.Members) > p.Groups.MaxMembers || r.Level < 0 || r.Level > 1 {
				return fmt.Errorf("%s: %d members, level %v", h.Incidents[i].ID, len(r.Members), r.Level)
			}
		}
		if nudges > p.Confirm.MaxPerIncident {
			return fmt.Errorf("%s: %d nudges", h.Incidents[i].ID, nudges)
		}
	}
	return nil
}

// The policies beyond CPI² stay sound in any world, in every combination: nobody who is
// not BE is claimed, no limit is passed, nothing outlives its time, the memory is bounded,
// nothing is NaN, and a checkpoint at any tick leads to the same future.
func TestStormBeyondTheSeed(t *testing.T) {
	kinds := map[model.DecisionKind]int{}
	for name, p := range beyondSets(t) {
		for seed := range uint64(5) {
			stormOnce(t, name, p, seed, kinds)
		}
	}
	for _, k := range []model.DecisionKind{model.DecideNudge, model.DecideStep, model.DecideRefute} {
		if kinds[k] == 0 {
			t.Errorf("the storm never led to %q: %v", k, kinds)
		}
	}
}

func stormOnce(t *testing.T, name string, p engine.Params, seed uint64, kinds map[model.DecisionKind]int) {
	t.Helper()
	w, e := newStorm(seed), engine.New(p)
	var twin *engine.Engine
	top := int64(0)
	for i := range 500 {
		in := w.input()
		top = max(top, w.mono)
		if i%60 == 3 {
			twin = enginetest.Resumed(t, e)
		}
		out := e.Step(in)
		want, err := json.Marshal(out)
		if err != nil {
			t.Fatalf("%s, seed %d, tick %d: %v", name, seed, i, err)
		}
		if twin != nil {
			if got, err := json.Marshal(twin.Step(in)); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s, seed %d, tick %d: a checkpoint leads elsewhere (%v):\n%s\n%s", name, seed, i, err, want, got)
			}
			if want, got := remembered(t, e), remembered(t, twin); !bytes.Equal(got, want) {
				t.Fatalf("%s, seed %d, tick %d: a checkpoint leads to another memory:\n%s\n%s", name, seed, i, want, got)
			}
		}
		for k := range out.Decisions {
			kinds[out.Decisions[k].Kind]++
		}
		if err := soundHolds(w, top, in, e); err != nil {
			t.Fatalf("%s, seed %d, tick %d: %v", name, seed, i, err)
		}
		if err := boundedState(w, e); err != nil {
			t.Fatalf("%s, seed %d, tick %d: %v", name, seed, i, err)
		}
		w.due = append(w.due, out.Changes...)
	}
}

// With every switch off the parameters of what is off change nothing.
func TestOffIsOff(t *testing.T) {
	p, q := singleNode(t), singleNode(t)
	p.Hardcap.Demote.Enabled, q.Hardcap.Demote.Enabled, q.Hardcap.Demote.CapShare = false, false, 0.1
	q.Hardcap.Groups.MaxMembers, q.Hardcap.Feedback.Step, q.Hardcap.Confirm.Margin = 99, 7, 5
	w, a, b := newStorm(1), engine.New(p), engine.New(q)
	for i := range 400 {
		in := w.input()
		out := a.Step(in)
		x, _ := json.Marshal(out)
		y, _ := json.Marshal(b.Step(in))
		if !bytes.Equal(x, y) {
			t.Fatalf("tick %d:\n%s\n%s", i, x, y)
		}
		for _, word := range []string{"members", "nudge", "level", "mean_before", "steps", "peak", "demoted", "uncapped"} {
			if bytes.Contains(x, []byte(`"`+word+`"`)) {
				t.Fatalf("tick %d: %q in the output", i, word)
			}
		}
		w.due = append(w.due, out.Changes...)
	}
}

// A limit that holds back a part of a group leaves the rest of it held.
func TestGroupInPart(t *testing.T) {
	p := with(t, true, false, false)
	p.Limits.MaxHeldTasks = 2
	n := crowd(t, p)
	n.run(260)
	story := n.out.String()
	if !bytes.Contains([]byte(story), []byte("limits.max_held_tasks")) || !bytes.Contains([]byte(story), []byte("group       /web/1")) {
		t.Errorf("the limit was never met:\n%s", story)
	}
	for s := range n.e.State.Ledger.Knobs {
		if s >= 2 && len(n.e.State.Ledger.Knobs[s].Claims) > 0 {
			t.Errorf("a third task is held")
		}
	}
}

// Wherever the harm begins, feedback settles close below it, with few changes, and the
// victim's bad windows stay few.
func TestFeedbackSettles(t *testing.T) {
	for _, free := range []float64{0.3, 0.6, 1, 1.7, 2.4, 2.8} {
		n := restless(t, free, 400)
		n.task("/web/1").hurtBy("/grind/1", 3)
		n.run(340)
		left := n.task("/grind/1").limit.Ratio()
		if left > free+0.15 || left < free-0.4 {
			t.Errorf("harm from %.1f CPU on: the cap ends at %.2f", free, left)
		}
		if n.holds > 40 {
			t.Errorf("harm from %.1f CPU on: %d writes", free, n.holds)
		}
	}
}
