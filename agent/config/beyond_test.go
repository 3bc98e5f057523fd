package config

import "testing"

// Every profile has the policies beyond CPI² off, and one line turns each on.
func TestBeyondTheSeedIsOff(t *testing.T) {
	for _, name := range Profiles() {
		c, _ := Defaults(name)
		h := c.Params("cpu").Hardcap
		if h.Groups.Enabled || h.Feedback.Enabled || h.Confirm.Enabled {
			t.Errorf("profile %s: %+v", name, h)
		}
		for i := range h.Antagonist {
			if h.Antagonist[i].Steady != 0 && name == ProfileCPI2 {
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
