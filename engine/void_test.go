package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// touch has it that policy pressure changed something of a task just now.
func (n *sim) touch(path string, knob model.KnobKind, did model.ChangeKind) {
	n.e.State.Touched = append(n.e.State.Touched, policy.Touch{Task: n.task(path).Num, By: model.PolicyPressure, Knob: knob, Did: did, AtNsec: n.mono})
}

// until plays until something is so.
func (n *sim) until(t *testing.T, last int, so func() bool) {
	t.Helper()
	for !so() {
		if n.s == last {
			t.Fatalf("it does not come to that:\n%s", n.out.String())
		}
		n.run(n.s + 1)
	}
}

// A hold that is verified while somebody else changed something of the same task is looked at from the beginning; where what was changed
// stays, it is given back, and the next anomaly begins anew.
func TestVerificationDisturbed(t *testing.T) {
	for did, want := range map[model.ChangeKind]string{model.Run: "pressure took memory of /grind/1 back", model.Hold: "pressure froze /grind/1"} {
		n := restless(t, 2.4, 400)
		n.task("/web/1").hurtBy("/grind/1", 3)
		state := func(is model.IncidentState) bool {
			list := n.e.State.Hardcap.Incidents
			return len(list) == 1 && list[0].State == is
		}
		n.until(t, 200, func() bool { return state(model.Verifying) && n.e.State.Hardcap.Incidents[0].GoodInRow == 1 })
		knob := model.MemoryReclaim
		if did == model.Hold {
			knob = model.GroupFreeze
		}
		n.touch("/grind/1", knob, did)
		n.run(n.s + 1)
		if !strings.Contains(n.out.String(), "the trial says nothing: "+want) || strings.Contains(n.out.String(), "verified") {
			t.Errorf("%s:\n%s", want, n.out.String())
		}
		if did == model.Hold {
			if n.task("/grind/1").found != nil || len(n.e.State.Hardcap.Peace) > 0 || len(n.e.State.Hardcap.Pairs) > 0 {
				t.Errorf("something is left: %+v", n.e.State.Hardcap)
			}
			n.until(t, n.s+30, func() bool { return state(model.Recovered) })
			continue
		}
		if !state(model.Verifying) || n.e.State.Hardcap.Incidents[0].GoodInRow > 0 || n.task("/grind/1").found == nil {
			t.Errorf("it is not looked at anew: %+v", n.e.State.Hardcap.Incidents)
		}
		if n.run(n.s + 4); !state(model.Recovered) {
			t.Errorf("it is not verified afterwards:\n%s", n.out.String())
		}
	}
}

// A member of a group that is released on trial, and frozen meanwhile, is neither needed nor given back: it is held again, and released anew once nobody interferes.
func TestReleaseDisturbed(t *testing.T) {
	i := slices.IndexFunc(groupScenarios(), func(s scenario) bool { return s.name == "group-alike" })
	n := groupScenarios()[i].build(t)
	trial := func() bool {
		list := n.e.State.Hardcap.Incidents
		return len(list) == 1 && list[0].Trial != nil && list[0].Trial.Good > 0
	}
	n.until(t, 140, trial)
	n.touch("/copy/1", model.GroupFreeze, model.Hold)
	n.until(t, n.s+5, func() bool { return !trial() })
	inc := &n.e.State.Hardcap.Incidents[0]
	if text := n.out.String(); !strings.Contains(text, "void        /copy/1") || strings.Contains(text, "given back") || len(n.e.State.Hardcap.Tested) > 0 {
		t.Errorf("%+v:\n%s", n.e.State.Hardcap.Tested, text)
	}
	for _, m := range inc.Rounds[len(inc.Rounds)-1].Members {
		if m.Needed || m.Released {
			t.Errorf("%+v", m)
		}
	}
	n.until(t, 150, trial)
	n.run(n.s + 30)
	if !strings.Contains(n.out.String(), "given back") {
		t.Errorf("it is not released anew:\n%s", n.out.String())
	}
}
