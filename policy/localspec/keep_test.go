package localspec

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/commensal-io/commensal/model"
)

// TestKeepAndRestore: what is taken up again is the same spec, of the same age, from which
// learning goes on as it would have.
func TestKeepAndRestore(t *testing.T) {
	p := Params{RecalculateNsec: int64(24 * time.Hour), AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 4}
	task := &model.Task{Num: 1, Job: "web"}
	feed := func(s *State, from int) {
		for i := range 8 {
			s.Add(p, task, model.SourceSlowdown, 1+float64((from+i)%5)/10, 0.5, math.Inf(1))
		}
	}
	a := &State{Platform: "cpu"}
	feed(a, 0)
	hour := int64(time.Hour)
	if len(a.Recalculate(p, hour)) != 1 {
		t.Fatal("no spec")
	}
	wall := int64(1_700_000_000e9)
	kept := a.Keep(3*hour, wall)
	if len(kept) != 1 || kept[0].WallNsec != wall-2*hour || kept[0].Spec.MonoNsec != 0 {
		t.Fatalf("%+v", kept)
	}
	b, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	kept = nil
	if err := json.Unmarshal(b, &kept); err != nil {
		t.Fatal(err)
	}

	// Another boot: the monotonic clock begins at 0, an hour has passed.
	r := &State{Platform: "cpu"}
	sp := r.Restore(&kept[0], 0, wall+hour)
	if sp == nil || sp.MonoNsec != -3*hour || r.Lookup("web", model.SourceSlowdown) != sp {
		t.Fatalf("%+v", sp)
	}
	if r.Restore(&kept[0], 0, wall+hour) != nil {
		t.Error("taken up twice")
	}
	feed(a, 3)
	feed(r, 3)
	then := p.RecalculateNsec
	was, is := a.Recalculate(p, hour+then), r.Recalculate(p, -3*hour+then)
	if len(was) != 1 || len(is) != 1 || was[0].Mean != is[0].Mean || was[0].StdDev != is[0].StdDev || was[0].NumSamples != is[0].NumSamples {
		t.Errorf("went on as %+v, expected %+v", is, was)
	}
	if other := (&State{Platform: "other"}); other.Restore(&kept[0], 0, wall) != nil {
		t.Error("of another CPU type")
	}
	if late := (&State{Platform: "cpu"}); late.Restore(&kept[0], 0, wall+int64(maxKept)) != nil || len(late.Entries) != 0 {
		t.Error("too old")
	}
	if back := (&State{Platform: "cpu"}); back.Restore(&kept[0], 7, wall-10*hour).MonoNsec != 7 {
		t.Error("a wall clock that was set back makes a spec of the future")
	}
}
