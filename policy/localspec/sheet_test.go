package localspec

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// sheetSpec is a spec of the fleet with a threshold that was fitted, of fewer samples than the node takes in an hour.
var sheetSpec = model.Spec{Job: "web", Platform: "cpu", Source: model.SourceSlowdown, NumSamples: 60, Tasks: 5, Mean: 2, StdDev: 0.1, Sheet: 3, Tail: 2.3}

// hear feeds an hour of windows of one task around a value, and calculates.
func hear(s *State, p Params, v float64, at int64) []*model.Spec {
	for i := range 100 {
		s.Add(p, &model.Task{Num: 1, Job: "web"}, model.SourceSlowdown, v+0.01*float64(i%5), 1, 3)
	}
	return s.Recalculate(p, at)
}

func teach(t *testing.T, s *State, p Params, sp *model.Spec, at int64) {
	t.Helper()
	if err := s.Teach(p, sp, at); err != nil {
		t.Fatal(err)
	}
}

// A spec of the fleet stands, with its revision and threshold, whatever is sampled here: windows far below it, twice as many as it has, and hours later.
// It gives way when the fleet has not spoken of it for a week, and comes back when the fleet does.
func TestAFleetsSpecStands(t *testing.T) {
	const hour, day = int64(3600e9), 24 * int64(3600e9)
	p, s := fewParams, State{Platform: "cpu"}
	told := func(at int64) *model.Spec {
		want := sheetSpec
		want.MonoNsec, want.Definition = at, model.SourceSlowdown.Definition(false)
		return &want
	}
	hear(&s, p, 1, 0)
	teach(t, &s, p, &sheetSpec, hour)
	stands := func(s *State, from, to, told int64, want *model.Spec) {
		t.Helper()
		for at := from; at < to; at += hour {
			if changed := hear(s, p, 1, at); changed != nil {
				t.Fatalf("after %d h: %+v", (at-told)/hour, changed[0])
			}
		}
		if got := s.Lookup("web", model.SourceSlowdown); *got != *want {
			t.Errorf("%+v; expected %+v", got, want)
		}
	}
	stands(&s, hour, 6*day, hour, told(hour))
	teach(t, &s, p, &sheetSpec, 6*day) // the hub still says so
	stands(&s, 6*day, 12*day, 6*day, told(6*day))

	// It is taken up after a restart for as long as it would have stood.
	kept := s.Keep(12*day, 100*day)
	again := State{Platform: "cpu"}
	if sp := again.Restore(&kept[0], 5, 100*day); sp == nil || sp.Sheet != 3 || sp.Tail != 2.3 {
		t.Fatalf("%+v", sp)
	}
	stands(&again, 6, day, 0, told(5-6*day))
	if changed := hear(&again, p, 1, day+6); len(changed) != 1 || changed[0].Sheet != 0 {
		t.Errorf("a week after the fleet spoke last: %+v", changed)
	}

	// Of what gives way the samples since then are weighed against the sheet's.
	teach(t, &s, p, &sheetSpec, 13*day)
	changed := hear(&s, p, 2, 20*day)
	if len(changed) != 1 || changed[0].Sheet != 0 || changed[0].Tail != 0 || changed[0].NumSamples != 100+54 || changed[0].Tasks != 1 {
		t.Fatalf("a week later: %+v", changed)
	}
	teach(t, &s, p, &sheetSpec, 21*day)
	stands(&s, 21*day, 22*day, 21*day, told(21*day))
}

// To doubt a spec of the fleet brings none back that was learned here before.
func TestAFleetsSpecIsNotDoubted(t *testing.T) {
	p, s := aloneParams(), State{Platform: "cpu"}
	if sp := beside(&s, p, func(int) map[string]float64 { return map[string]float64{"/hog": 1} }); sp.Without != "/hog" {
		t.Fatalf("%+v", sp)
	}
	teach(t, &s, p, &sheetSpec, 1)
	if sp := s.Doubt("web", model.SourceSlowdown, 2); sp != nil || s.Lookup("web", model.SourceSlowdown).Mean != 2 {
		t.Errorf("%+v", sp)
	}
}

// A sheet's quantiles are kept beside its spec; absurd ones are of a hub that is broken, whose spec is left aside, and the one before stands.
func TestQuantilesOfASheet(t *testing.T) {
	p, s := fewParams, State{Platform: "cpu"}
	good := sheetSpec
	good.P50, good.P90, good.P99 = 1.9, 2.1, 2.3
	teach(t, &s, p, &good, 1)
	for _, q := range [][3]float64{{-1, 2, 3}, {2, 1, 3}, {1, 3, 2}, {1, 2, 1e15}, {math.NaN(), 2, 3}, {1, 2, math.Inf(1)}} {
		bad := good
		bad.Mean, bad.P50, bad.P90, bad.P99 = 9, q[0], q[1], q[2]
		if err := s.Teach(p, &bad, 2); err == nil || !strings.Contains(err.Error(), "quantiles") {
			t.Errorf("%v: %v", q, err)
		}
	}
	if sp := s.Lookup("web", model.SourceSlowdown); sp.Mean != good.Mean || sp.P50 != 1.9 || sp.P99 != 2.3 {
		t.Errorf("%+v", sp)
	}
	if changed := hear(&s, p, 1, 8*24*3600e9); len(changed) != 1 || changed[0].P99 != 0 { // what is learned here has none
		t.Errorf("%+v", changed)
	}
}

// What no signal has is no distribution: of large numbers the second moment is infinite, and no checkpoint could be written.
func TestMomentsOfASheet(t *testing.T) {
	p, s := fewParams, State{Platform: "cpu"}
	teach(t, &s, p, &sheetSpec, 1)
	for name, spoil := range map[string]func(sp *model.Spec){
		"mean":      func(sp *model.Spec) { sp.Mean = 1e300 },
		"below 0":   func(sp *model.Spec) { sp.Mean = -1 },
		"deviation": func(sp *model.Spec) { sp.StdDev = 1e200 },
		"usage":     func(sp *model.Spec) { sp.UsageMean = 1e300 },
		"run":       func(sp *model.Spec) { sp.RunMean = 1e300 },
		"tail":      func(sp *model.Spec) { sp.Tail = -1 },
	} {
		bad := sheetSpec
		if spoil(&bad); s.Teach(p, &bad, 2) == nil {
			t.Errorf("%s: %+v is taken", name, bad)
		}
	}
	large := sheetSpec
	large.NumSamples, large.Mean, large.StdDev = math.MaxInt64, 9e14, 9e14
	teach(t, &s, p, &large, 3)
	hear(&s, p, 1, 8*24*3600e9)
	if _, err := json.Marshal(&s); err != nil {
		t.Error(err)
	}
}
