package hardcap

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// seen is what a fleet says of one pair: all of so many incidents recovered, as far as a confidence says that.
func seen(antagonist string, confidence float64) model.Prior {
	return model.Prior{Antagonist: antagonist, Incidents: 14, Nodes: 6, Degradation: 1.5, Low: 1.4, High: 1.6, Confidence: confidence}
}

func heard(p *Params, s *State, nowNsec int64, list ...model.Prior) *model.Decision {
	return s.Hear(p, &model.Priors{Job: "web", Pairs: list}, nowNsec)
}

func withPrior(share, doubt float64) *Params {
	return &Params{Repeat: Repeat{Enabled: true, HalfLifeNsec: dayNsec, Doubt: doubt, Prior: share}}
}

var grind = &model.Task{Job: "grind"}

// TestPriorNeverDecidesAlone: whatever a fleet says, and however often, it is less than what is asked for.
func TestPriorNeverDecidesAlone(t *testing.T) {
	for _, share := range []float64{0.5, 0.9} {
		for _, doubt := range []float64{1e-6, 0.02, 0.5} {
			for _, confidence := range []float64{0.6, 0.9, 0.999999, 1} {
				p, s := withPrior(share, doubt), &State{}
				for i := range int64(100) {
					heard(p, s, i, seen("grind", confidence))
				}
				if s.decided(p, 100, "web", grind) != nil || s.decided(p, 100, "", grind) != nil {
					t.Errorf("share %g, doubt %g, confidence %g: decided by the fleet's word alone", share, doubt, confidence)
				}
				if got, most := p.Repeat.total(&s.Pairs[0], 100), share*p.Repeat.asked(); got > most+1e-9 || got <= 0 {
					t.Errorf("share %g, doubt %g, confidence %g: worth %g; expected at most %g", share, doubt, confidence, got, most)
				}
			}
		}
	}
}

// TestPriorIsAHeadStart: with a prior of half of what is asked for it takes about half of the experiments, one at least; an innocent pair that the fleet
// accuses is decided within its head start with a chance of doubt^(1-prior) at most, and once that is used up as seldom as any other.
func TestPriorIsAHeadStart(t *testing.T) {
	const n, most = 600, 2000
	p := withPrior(0.5, 0.02)
	mean := func(effect float64, confidence float64) (experiments, early float64) {
		rng := rand.New(rand.NewPCG(7, 8))
		for range n {
			s, used := &State{}, false
			for k := int64(1); k <= most; k++ {
				heard(p, s, k, seen("grind", confidence))
				s.addUp(&p.Repeat, k, "web", "grind", effect+rng.NormFloat64())
				i, ok := s.findPair("web", "grind")
				used = used || !ok || p.Repeat.total(&s.Pairs[i], k) <= 1e-9
				if decided := s.decided(p, k, "web", grind) != nil; decided || k == most {
					experiments += float64(k)
					early += float64(bit(decided && !used))
					break
				}
			}
		}
		return experiments / n, early / n
	}
	for _, effect := range []float64{1, 3} {
		without, _ := mean(effect, 0)
		with, _ := mean(effect, 1)
		t.Logf("one that hurts by %g is decided after %.1f experiments, after %.1f with the fleet's word", effect, without, with)
		if with > 0.7*without || with < 1 {
			t.Errorf("effect %g: %.1f experiments with the fleet's word, %.1f without", effect, with, without)
		}
	}
	innocent, early := mean(0, 1)
	t.Logf("an innocent one is decided after %.0f experiments, within its head start in %.1f %%", innocent, 100*early)
	chance := math.Pow(p.Repeat.Doubt, 1-p.Repeat.Prior)
	if early > chance || innocent < (1-chance)/p.Repeat.Doubt {
		t.Errorf("innocent: decided after %.0f experiments, within the head start in %.3f; expected at most %.3f", innocent, early, chance)
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestPriorIsReplaced: what the fleet says takes the place of what it said; said twice it counts once; what it does not say any more fades, with its
// age and not with that of this machine's evidence.
func TestPriorIsReplaced(t *testing.T) {
	p, s := withPrior(0.5, 0.02), &State{}
	worth := func(now int64) float64 {
		i, ok := s.findPair("web", "grind")
		if !ok {
			return 0
		}
		return p.Repeat.total(&s.Pairs[i], now)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: %g, want %g", what, got, want)
		}
	}
	low, high := math.Log(3), p.Repeat.asked()/2
	if d := heard(p, s, 0, seen("grind", 0.75)); d == nil || d.Reason != "grind may hurt web: the fleet saw this pair 14 times on 6 nodes: prior 1.1 of 3.9 asked for" {
		t.Errorf("%+v", d)
	}
	near("said once", worth(0), low)
	if d := heard(p, s, 1, seen("grind", 0.75)); d != nil {
		t.Errorf("told again: %+v", d)
	}
	near("said twice", worth(1), low)
	if d := heard(p, s, 2, seen("grind", 1), seen("scan", 0.8)); d == nil || !strings.HasSuffix(d.Reason, "prior 2.0 of 3.9 asked for; it has news of 1 others, no worse") {
		t.Errorf("%+v", d)
	}
	near("more", worth(2), high)
	heard(p, s, 3, seen("grind", 0.75))
	near("less", worth(3), low)
	s.addUp(&p.Repeat, 3, "web", "grind", 1.5)
	near("and an experiment", worth(3), low+1)
	heard(p, s, dayNsec+3, seen("grind", 0.75))
	near("said again after a half-life", worth(dayNsec+3), low+0.5)
	heard(p, s, 2*dayNsec+3)
	near("not said any more", worth(2*dayNsec+3), low/2+0.25)
	if k, ok := s.findPair("web", "scan"); !ok || len(s.Pairs) != 2 {
		t.Errorf("scan fades with grind: %d %+v", k, s.Pairs)
	}
	heard(p, s, 9*dayNsec)
	if _, ok := s.findPair("web", "scan"); ok {
		t.Errorf("what has faded is kept: %+v", s.Pairs)
	}
	near("it is only evidence of this machine then", p.Repeat.faded(&s.Pairs[0], 9*dayNsec), math.Exp2(-9+3e-9/86400))
	heard(p, s, 9*dayNsec, seen("grind", 0.4))
	near("and worth nothing where the victim did not recover", p.Repeat.prior(&s.Pairs[0], 9*dayNsec), 0)
}

// TestPriorIsUsedUp: experiments that speak against the pair use the head start up, and so does a hold in vain; that the fleet says the same again does
// not bring it back. This machine's evidence counts from there on as ever.
func TestPriorIsUsedUp(t *testing.T) {
	p := withPrior(0.5, 0.02)
	for name, against := range map[string]func(s *State){
		"experiments": func(s *State) {
			for range 4 {
				s.addUp(&p.Repeat, 1, "web", "grind", -1)
			}
		},
		"a hold in vain": func(s *State) {
			s.forgetPair(&p.Repeat, 1, &Incident{Incident: model.Incident{VictimJob: "web"}}, grind)
		},
	} {
		s := &State{}
		heard(p, s, 0, seen("grind", 1))
		against(s)
		for day := range int64(5) {
			heard(p, s, day*dayNsec/4, seen("grind", 1))
		}
		now := dayNsec
		if got := p.Repeat.total(&s.Pairs[0], now); math.Abs(got) > 1e-4 {
			t.Errorf("%s: it is worth %g again", name, got)
		}
		for k := range 2 {
			if s.decided(p, now, "web", grind) != nil {
				t.Errorf("%s: decided by %d experiments", name, k)
			}
			s.addUp(&p.Repeat, now, "web", "grind", 9)
		}
		if pair := s.decided(p, now, "web", grind); pair == nil || !strings.Contains(pair.text(p, now), "the fleet saw this pair 14 times on 6 nodes: prior 2.0 of 3.9 asked for") {
			t.Errorf("%s: two sure experiments do not decide: %+v", name, s.Pairs)
		}
	}
}

// TestPriorIsOfItsPairOnly: it says nothing of other victims, of other suspects, nor of all services of the machine.
func TestPriorIsOfItsPairOnly(t *testing.T) {
	p, s := withPrior(0.9, 0.02), &State{}
	heard(p, s, 0, seen("grind", 1))
	for _, pair := range [][2]string{{"mail", "grind"}, {"", "grind"}, {"web", "scan"}} {
		s.addUp(&p.Repeat, 1, pair[0], pair[1], 9)
	}
	for _, job := range []string{"mail", "", "web"} {
		if s.decided(p, 1, job, grind) != nil || s.decided(p, 1, job, &model.Task{Job: "scan"}) != nil {
			t.Errorf("decided for %q by one experiment and a prior that is of another pair", job)
		}
	}
}

// TestPriorOff: without the switch, or with a share of none, nothing is taken in; and a share that became less counts at once.
func TestPriorOff(t *testing.T) {
	off := withPrior(0.5, 0.02)
	off.Repeat.Enabled = false
	for _, p := range []*Params{off, withPrior(0, 0.02)} {
		if s := (&State{}); heard(p, s, 0, seen("grind", 1)) != nil || len(s.Pairs) != 0 {
			t.Errorf("%+v", s.Pairs)
		}
	}
	p, s := withPrior(0.5, 0.02), &State{}
	heard(p, s, 0, seen("grind", 1))
	if p.Repeat.Prior = 0; p.Repeat.total(&s.Pairs[0], 0) != 0 {
		t.Errorf("%+v still counts", s.Pairs)
	}
}

// TestPriorOdd: what cannot be leaves nothing behind, and nothing is worth more than it may.
func TestPriorOdd(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 2, math.MaxFloat64}
	p, s := withPrior(0.5, 0.02), &State{}
	for _, v := range odd {
		bad := seen("grind", v)
		heard(p, s, 0, bad)
		bad = seen("grind", 1)
		bad.Degradation = v
		if v != 2 {
			heard(p, s, 0, bad)
		}
	}
	for _, bad := range []model.Prior{{}, {Antagonist: "grind"}, {Antagonist: "grind", Incidents: 1, Nodes: 2, Confidence: 1}, {Antagonist: "grind", Incidents: math.MaxInt, Nodes: 4, Confidence: 1}, {Antagonist: "grind", Incidents: -5, Nodes: -9, Confidence: 1}} {
		heard(p, s, 0, bad)
	}
	if s.Hear(p, &model.Priors{Pairs: []model.Prior{seen("grind", 1)}}, 0); len(s.Pairs) != 0 {
		t.Errorf("taken in: %+v", s.Pairs)
	}
}

// TestPriorsAreBounded: what a fleet says does not push out what this machine found out, is bounded, and does not outlive a restart.
func TestPriorsAreBounded(t *testing.T) {
	p, s := withPrior(0.5, 0.02), &State{}
	s.addUp(&p.Repeat, 0, "web", "own", 0.7)
	for k := range 20 {
		said := model.Priors{Job: fmt.Sprint("job", k)}
		for i := range 64 {
			said.Pairs = append(said.Pairs, seen(fmt.Sprint("a", i), 1))
		}
		s.Hear(p, &said, 1)
	}
	if i, ok := s.findPair("web", "own"); !ok || len(s.Pairs) != maxPairs || p.Repeat.total(&s.Pairs[i], 1) < 0.19 {
		t.Errorf("%d pairs, own evidence there: %t", len(s.Pairs), ok)
	}
	heard(p, s, 1, seen("own", 1))
	kept := s.KeepPairs(1, 1e18)
	if len(kept) != 1 || kept[0].Antagonist != "own" || kept[0].Fleet != (Heard{}) {
		t.Errorf("kept: %+v", kept)
	}
}
