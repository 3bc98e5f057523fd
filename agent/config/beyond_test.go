package config

import (
	"reflect"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// The profiles cpi2 and single-node have the policies beyond CPI² off, and one line turns each on.
func TestBeyondTheSeedIsOff(t *testing.T) {
	for _, name := range []string{ProfileCPI2, ProfileSingleNode} {
		c, _ := Defaults(name)
		h := c.Params("cpu").Hardcap
		if h.Groups.Enabled || h.Feedback.Enabled || h.Confirm.Enabled || h.Repeat.Enabled || h.Coded.Enabled || h.First.Enabled ||
			h.Groups.ByJob || h.Groups.Witnesses || h.Feedback.ThroughPauses || h.Feedback.Witnesses {
			t.Errorf("profile %s: %+v", name, h)
		}
		for i := range h.Antagonist {
			if h.Antagonist[i].Steady != 0 && name == ProfileCPI2 && !model.Source(i).Row().Beside {
				t.Errorf("profile %s: a margin over a steady suspect, which CPI² has not", name)
			}
		}
	}
	c, err := Parse("f.yaml", []byte(good+"groups: {enabled: true}\nfeedback: {enabled: true}\nconfirm: {enabled: true}\ncpi2: {margin_over_steady: 0.05}\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := c.Params("cpu").Hardcap
	if !h.Groups.Enabled || !h.Feedback.Enabled || !h.Confirm.Enabled || h.Antagonist[0].Steady != 0.05 {
		t.Errorf("not turned on: %+v", h)
	}
}

// The profile relief measures as cpi2 does, and has them on.
func TestRelief(t *testing.T) {
	one, _ := Defaults(ProfileCPI2)
	two, ok := Defaults(ProfileRelief)
	if !ok || two.Profile != ProfileRelief || one.Sampling != two.Sampling {
		t.Fatalf("%+v", two)
	}
	a, b := one.Params("cpu"), two.Params("cpu")
	h := b.Hardcap
	if !h.Groups.Enabled || !h.Feedback.Enabled || !h.Confirm.Enabled || !h.Confirm.Witnesses || h.Confirm.Share != 0.5 || h.Antagonist[0].Steady != 0.05 {
		t.Errorf("%+v", h)
	}
	if !h.Groups.ByJob || !h.Groups.Witnesses || !h.Feedback.ThroughPauses || !h.Feedback.Witnesses || !h.Repeat.Enabled || h.Coded.Enabled || h.First.Enabled {
		t.Errorf("what was kept, and what was not, of what development catalogues have tried: %+v", h)
	}
	if h.Groups.MaxMembers > b.Limits.MaxHeldTasks || h.Feedback.TightenAfter != 1 || b.Limits.MaxBETaken != a.Limits.MaxBETaken {
		t.Errorf("a job of %d tasks, of which %d may be held, %.1f of all CPU; tightened after %d windows", h.Groups.MaxMembers, b.Limits.MaxHeldTasks, b.Limits.MaxBETaken, h.Feedback.TightenAfter)
	}
	b.Hardcap, b.Limits.MaxHeldTasks = a.Hardcap, a.Limits.MaxHeldTasks
	if !reflect.DeepEqual(a, b) {
		t.Errorf("it differs in more than who is held, and how many:\n%+v\n%+v", a, b)
	}
}
