package cache

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/labtest"
)

// A short run is the same twice, meets the goals or says which not, and its arms did what they are called.
func TestRun(t *testing.T) {
	r := labtest.Twice(t, func() (*Result, error) { return Run(context.Background(), Options{Seed: 3, Quick: true}) })
	for arm, want := range map[Arm]int{Off: 0, TwoWays: quickMixes, Level10: quickMixes, Apart: quickMixes} {
		if got := r.Arms[arm].Divided; got != want {
			t.Errorf("%s: divided in %d of %d mixes", arm, got, want)
		}
	}
	for arm := range NumArms {
		switch got := r.Arms[arm].Apart; {
		case arm == Apart && got != quickMixes, arm != Apart && arm != OursApart && got != 0:
			t.Errorf("%s: services apart in %d of %d mixes", arm, got, quickMixes)
		}
	}
	for i := range r.Mixes {
		if m := &r.Mixes[i]; m.CPI[Off] < 0.999 || m.CPI[Off] > 1.001 || m.Work[TwoWays] > 1.01 || len(m.Services) == 0 || len(m.Batch) == 0 {
			t.Errorf("%+v", m)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "commensal") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// The goals can be missed, each by itself.
func TestGoals(t *testing.T) {
	apart := func(two, ours, apart, work float64) Mix {
		m := Mix{}
		m.CPI = [NumArms]float64{1, two, 1, ours, apart, apart}
		m.Work = [NumArms]float64{1, 0.8, 0.5, 0.9, 0.8, work}
		return m
	}
	mix := func(two, ours float64) Mix { return apart(two, ours, min(1, ours), 0.9) }
	for name, tt := range map[string]struct {
		list []Mix
		met  [4]bool
	}{
		"all well":                {[]Mix{mix(0.8, 0.8), mix(1.2, 1)}, [4]bool{true, true, true, true}},
		"harm in one of two":      {[]Mix{mix(0.8, 0.8), mix(1.2, 1.04)}, [4]bool{false, false, true, true}},
		"the good is not kept":    {[]Mix{mix(0.8, 0.9), mix(1.2, 1)}, [4]bool{true, false, true, true}},
		"harm, and the most kept": {[]Mix{mix(0.4, 0.4), mix(1.2, 1.04)}, [4]bool{false, true, true, true}},
		"apart harms":             {[]Mix{mix(0.8, 0.8), apart(1.2, 1, 1.04, 0.9)}, [4]bool{true, true, false, false}},
		"apart harms a little":    {[]Mix{apart(0.8, 0.8, 0.82, 0.9)}, [4]bool{true, true, true, false}},
		"apart costs work":        {[]Mix{apart(0.8, 0.8, 0.8, 0.8)}, [4]bool{true, true, true, false}},
	} {
		r := &Result{Mixes: tt.list}
		r.sum()
		if got := [4]bool{r.Goals[0].Met, r.Goals[1].Met, r.Goals[2].Met, r.Goals[3].Met}; got != tt.met {
			t.Errorf("%s: %+v", name, r.Goals)
		}
		if want := tt.met == [4]bool{true, true, true, true}; (r.Outcome().Code() == 0) != want {
			t.Errorf("%s: outcome %v", name, r.Outcome())
		}
	}
}
