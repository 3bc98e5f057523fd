package hardcap

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// drawn adds up the experiments of one pair until it is decided, and returns how many that took; most: it never was.
func drawn(rng *rand.Rand, r *Repeat, effect float64, most int) int {
	s := &State{}
	for n := 1; n <= most; n++ {
		s.addUp(r, int64(n), "web", "grind", effect+rng.NormFloat64())
		if s.decided(&Params{Repeat: *r}, int64(n), "web", &model.Task{Job: "grind"}) != nil {
			return n
		}
	}
	return most
}

// TestEvidenceBound: at least 1/doubt experiments pass on average before a pair of which one does nothing is decided; one that hurts
// by as much as the noise of a nudge takes about ten.
func TestEvidenceBound(t *testing.T) {
	const n = 400
	for _, doubt := range []float64{0.1, 0.02} {
		r := &Repeat{Enabled: true, HalfLifeNsec: dayNsec, Doubt: doubt}
		mean := func(effect float64, most int) float64 {
			rng, sum := rand.New(rand.NewPCG(7, 8)), 0.0
			for range n {
				sum += float64(drawn(rng, r, effect, most))
			}
			return sum / n
		}
		innocent, little, much := mean(0, 2000), mean(1, 2000), mean(3, 2000)
		t.Logf("doubt %g: an innocent pair is decided after %.0f experiments, one that hurts by 1 after %.1f, by 3 after %.1f", doubt, innocent, little, much)
		if innocent < 1/doubt || little > 12 || much > 4 || much < 2 {
			t.Errorf("doubt %g: %.0f, %.1f, %.1f experiments", doubt, innocent, little, much)
		}
	}
}

// TestEvidenceFades: evidence halves in its half-life, and goes with what speaks against it.
func TestEvidenceFades(t *testing.T) {
	r := &Repeat{Enabled: true, HalfLifeNsec: dayNsec, Doubt: 0.02}
	s := &State{}
	s.addUp(r, 0, "", "grind", 1.5)
	if got := r.faded(&s.Pairs[0], dayNsec); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("after a day %v is left of 1", got)
	}
	if got := r.faded(&s.Pairs[0], -dayNsec); got != 1 {
		t.Errorf("before it was found it is %v", got)
	}
	s.addUp(r, dayNsec, "", "grind", -3)
	if len(s.Pairs) != 0 {
		t.Errorf("%+v is kept", s.Pairs)
	}
}

// TestEvidenceOdd: figures that cannot be leave nothing behind, and none decides alone.
func TestEvidenceOdd(t *testing.T) {
	for _, sigmas := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, 0} {
		for _, r := range []*Repeat{{Enabled: true, HalfLifeNsec: dayNsec, Doubt: 0.02}, {Enabled: true, Doubt: 0.5}, {Enabled: true, HalfLifeNsec: 1, Doubt: 1e-6}} {
			s := &State{}
			s.addUp(r, 1, "web", "grind", sigmas)
			if s.decided(&Params{Repeat: *r}, 1, "web", &model.Task{Job: "grind"}) != nil {
				t.Errorf("%v decides alone: %+v", sigmas, s.Pairs)
			}
			for _, p := range s.Pairs {
				if !(p.Evidence >= 0) || math.IsInf(p.Evidence, 0) {
					t.Errorf("%v: %+v", sigmas, p)
				}
			}
		}
	}
}

// TestPairsAreBounded: the one with least evidence goes; they are ordered and found.
func TestPairsAreBounded(t *testing.T) {
	r := &Repeat{Enabled: true, HalfLifeNsec: dayNsec, Doubt: 0.02}
	s := &State{}
	for i := range 2 * maxPairs {
		s.addUp(r, int64(i), fmt.Sprint("v", i%7), fmt.Sprint("a", i), 0.6+float64(i)/1000)
	}
	if len(s.Pairs) != maxPairs {
		t.Fatalf("%d pairs", len(s.Pairs))
	}
	for i := range s.Pairs {
		if k, ok := s.findPair(s.Pairs[i].Victim, s.Pairs[i].Antagonist); !ok || k != i {
			t.Fatalf("%+v is not found where it stands", s.Pairs[i])
		}
		if s.Pairs[i].Evidence < 0.3 {
			t.Errorf("%+v is kept, and better ones went", s.Pairs[i])
		}
	}
}

// TestPairsOutliveARestart: with their age; what is too old, twice, or no pair is left.
func TestPairsOutliveARestart(t *testing.T) {
	r := &Repeat{Enabled: true, HalfLifeNsec: dayNsec, Doubt: 0.02}
	s := &State{}
	s.addUp(r, 5e9, "web", "grind", 2.4)
	kept := s.KeepPairs(65e9, 1e18)
	if len(kept) != 1 || kept[0].WallNsec != 1e18-60e9 {
		t.Fatalf("%+v", kept)
	}
	again := &State{}
	now, wall := int64(7e9), int64(1e18)-60e9+dayNsec
	if !again.RestorePair(r, &kept[0], now, wall) || again.RestorePair(r, &kept[0], now, wall) || len(again.Pairs) != 1 {
		t.Fatalf("%+v", again.Pairs)
	}
	if got := r.faded(&again.Pairs[0], now); math.Abs(got-r.faded(&s.Pairs[0], 5e9)/2) > 1e-9 {
		t.Errorf("a day later %v is left of %v", got, s.Pairs[0].Evidence)
	}
	for name, k := range map[string]KeptPair{
		"old":     {Pair{Victim: "web", Antagonist: "grind", Evidence: 1, Times: 1}, wall - 10*dayNsec},
		"nobody":  {Pair{Victim: "web", Antagonist: "", Evidence: 1, Times: 1}, wall},
		"nothing": {Pair{Victim: "web", Antagonist: "grind", Evidence: 0, Times: 1}, wall},
		"NaN":     {Pair{Victim: "web", Antagonist: "grind", Evidence: math.NaN(), Times: 1}, wall},
		"Inf":     {Pair{Victim: "web", Antagonist: "grind", Evidence: math.Inf(1), Times: 1}, wall},
		"never":   {Pair{Victim: "web", Antagonist: "grind", Evidence: 1, Times: 0}, wall},
	} {
		if s := (&State{}); s.RestorePair(r, &k, now, wall) {
			t.Errorf("%s is taken up: %+v", name, s.Pairs)
		}
	}
	if s := (&State{}); s.RestorePair(&Repeat{}, &kept[0], now, wall) {
		t.Error("it is taken up with the switch off")
	}
}
