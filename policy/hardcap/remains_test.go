package hardcap

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Once something is held that helped, a suspect answers for its part of the whole harm, and not of what is left.
func TestWhatRemains(t *testing.T) {
	round := func(waited float64, kept bool) model.Round {
		return model.Round{ByBlame: true, WaitedNsec: waited, UsualNsec: 40, Kept: kept}
	}
	for name, c := range map[string]struct {
		rounds []model.Round
		now    float64
		want   float64
	}{
		"the first":                  {nil, 300, 1},
		"nothing helped":             {[]model.Round{round(340, false)}, 60, 1},
		"a fifth is left":            {[]model.Round{round(340, true)}, 60, 0.2},
		"it helped at first":         {[]model.Round{{ByBlame: true, WaitedNsec: 340, UsualNsec: 40, State: model.RoundHelped}}, 60, 0.2},
		"it is worse than at first":  {[]model.Round{round(340, true)}, 400, 1},
		"it was worst in the second": {[]model.Round{round(340, true), round(640, false)}, 60, 0.1},
		"less than usual":            {[]model.Round{round(340, true)}, -5, 0},
	} {
		if got := (&Incident{Incident: model.Incident{Rounds: c.rounds}}).remains(c.now); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A nudge that helped nobody is in vain once for each victim: whoever says so, and however many tasks it held.
func TestInVainOnce(t *testing.T) {
	p := Defaults()
	in := &policy.View{NowNsec: 100}
	in.Window.Victims = []policy.Victim{{Num: 1}, {Num: 2}}
	s := &State{}
	for _, task := range []model.TaskNum{8, 9} { // held together
		s.clear(&p, in, task)
	}
	s.noteRefuted(&p, in, 1, 8)
	if s.inVain(1) != 1 || s.inVain(2) != 1 || s.inVain(3) != 0 || len(s.Refuted) != 4 {
		t.Errorf("in vain %d, %d and %d times: %+v", s.inVain(1), s.inVain(2), s.inVain(3), s.Refuted)
	}
	in.NowNsec += 60e9
	s.noteRefuted(&p, in, 1, 8)
	if s.inVain(1) != 2 {
		t.Errorf("two nudges were in vain %d times", s.inVain(1))
	}
}
