package localspec

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// aloneParams are as the profile single-node has them.
func aloneParams() Params {
	p := fewParams
	p.Alone = true
	return p
}

// beside feeds twenty windows of a job that rests at 1, with so much waiting for each neighbour in each.
func beside(s *State, p Params, waited func(window int) map[string]float64) *model.Spec {
	task := &model.Task{Num: 1, Job: "web"}
	for i := range 20 {
		total, top, most := 0.0, "", 0.0
		for path, v := range waited(i) {
			total += v
			if v > most && path != "outside" {
				top, most = path, v
			}
		}
		s.Add(p, task, model.SourceSlowdown, 1+total, 1, inf)
		if top != "" {
			s.Charge(p, task, model.SourceSlowdown, Beside{Path: top, Share: most / total})
		}
	}
	s.Recalculate(p, 0)
	return s.Lookup("web", model.SourceSlowdown)
}

// TestAlone: what one neighbour had most of is taken out, and no more than that; what others share, or nobody may
// be held for, stays in.
func TestAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	around := func(v float64) float64 { return v * (0.9 + 0.2*rng.Float64()) }
	for name, c := range map[string]struct {
		waited  func(i int) map[string]float64
		without string
		mean    float64
	}{
		"a steady hog": {func(int) map[string]float64 { return map[string]float64{"/hog": around(1), "/b": around(0.1)} }, "/hog", 1.1},
		"a hog in two of three": {func(i int) map[string]float64 {
			if i%3 == 0 {
				return map[string]float64{"/b": around(0.1)}
			}
			return map[string]float64{"/hog": around(1), "/b": around(0.1)}
		}, "/hog", 1.1},
		"two alike":           {func(int) map[string]float64 { return map[string]float64{"/a": around(0.5), "/b": around(0.5)} }, "", 2},
		"mostly from outside": {func(int) map[string]float64 { return map[string]float64{"/a": around(0.4), "outside": around(0.8)} }, "", 2.2},
		"nobody can tell":     {func(int) map[string]float64 { return map[string]float64{"outside": around(1)} }, "", 2},
		"nobody at all":       {func(int) map[string]float64 { return nil }, "", 1},
	} {
		var s State
		sp := beside(&s, aloneParams(), c.waited)
		if sp == nil || sp.Without != c.without || math.Abs(sp.Mean-c.mean) > 0.06 || (s.Entries[0].Measured != nil) != (c.without != "") {
			t.Errorf("%s: %+v", name, sp)
		}
		var off State
		if sp := beside(&off, fewParams, c.waited); sp.Without != "" || off.Entries[0].Measured != nil || off.Entries[0].Beside != nil {
			t.Errorf("%s, off: %+v", name, sp)
		}
	}
}

// TestDoubt: the measured spec takes the place of the one without a neighbour, once, and also after a restart.
func TestDoubt(t *testing.T) {
	p, s := aloneParams(), State{Platform: "cpu"}
	hog := func(i int) map[string]float64 { return map[string]float64{"/hog": 1 + 0.01*float64(i%5)} }
	if sp := beside(&s, p, hog); sp.Without != "/hog" {
		t.Fatalf("%+v", sp)
	}
	b, err := json.Marshal(s.Keep(0, 1e18))
	if err != nil {
		t.Fatal(err)
	}
	var kept []Kept
	if err := json.Unmarshal(b, &kept); err != nil {
		t.Fatal(err)
	}
	back := State{Platform: "cpu"}
	if sp := back.Restore(&kept[0], 0, 1e18); sp == nil || sp.Without != "/hog" {
		t.Fatalf("%+v", sp)
	}
	for _, s := range []*State{&s, &back} {
		sp := s.Doubt("web", model.SourceSlowdown, 7)
		if sp == nil || sp.Without != "" || math.Abs(sp.Mean-2.02) > 0.02 || sp.MonoNsec != 7 || s.Lookup("web", model.SourceSlowdown) != sp {
			t.Errorf("%+v", sp)
		}
		if again := s.Doubt("web", model.SourceSlowdown, 8); again != nil {
			t.Errorf("taken back twice: %+v", again)
		}
		if none := s.Doubt("mail", model.SourceSlowdown, 8); none != nil {
			t.Errorf("of a job that nobody knows: %+v", none)
		}
	}
}
