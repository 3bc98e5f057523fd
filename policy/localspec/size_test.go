package localspec

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A task is judged by the fleet's spec of its size, and by its job's while there is none; so it is after a restart. One of which the fleet has not spoken for a
// week is forgotten, and nothing that is learned here is of a size.
func TestATaskHasTheSpecOfItsSize(t *testing.T) {
	const day = 24 * int64(3600e9)
	p, s := fewParams, State{Platform: "cpu"}
	large := &model.Task{Num: 1, Job: "web", Size: "large"}
	src := model.SourceSlowdown
	mean := func(s *State, task *model.Task) float64 {
		if sp := s.Of(task, src); sp != nil {
			return sp.Mean
		}
		return 0
	}
	hear(&s, p, 1, 0)
	if own := mean(&s, large); own < 0.9 || own > 1.1 {
		t.Fatalf("before there is any sheet: %g", own)
	}
	teach(t, &s, p, &sheetSpec, 1)
	if got := mean(&s, large); got != 2 {
		t.Errorf("while its size has no sheet: %g", got)
	}
	sized := sheetSpec
	sized.Size, sized.Mean = "large", 7
	teach(t, &s, p, &sized, 2)
	if mean(&s, large) != 7 || mean(&s, &model.Task{Job: "web", Size: "small"}) != 2 || mean(&s, &model.Task{Job: "web"}) != 2 || mean(&s, &model.Task{Job: "mail", Size: "large"}) != 0 || s.Lookup("web", src).Mean != 2 {
		t.Errorf("%+v", s.Entries)
	}
	again := State{Platform: "cpu"}
	for _, k := range s.Keep(3, 1e18) {
		again.Restore(&k, 4, 1e18)
	}
	if mean(&again, large) != 7 || again.Lookup("web", src).Mean != 2 {
		t.Errorf("after a restart: %+v", again.Entries)
	}
	for i := range 100 {
		s.Add(p, large, src, 4+0.01*float64(i%5), 1, 9)
	}
	if s.Recalculate(p, day); mean(&s, large) != 7 {
		t.Errorf("what was sampled here took the place of the fleet's: %g", mean(&s, large))
	}
	teach(t, &s, p, &sheetSpec, 6*day)
	if s.Recalculate(p, 8*day); mean(&s, large) != 2 || len(s.Entries) != 1 {
		t.Errorf("a week later: %+v", s.Entries)
	}
	sized.Sheet = 0
	if err := s.Teach(p, &sized, 8*day); err == nil {
		t.Error("a size of no sheet is taken: nothing would ever take its place")
	}
}
