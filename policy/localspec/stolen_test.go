package localspec

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

var stolenParams = func() Params { p := fewParams; p.Stolen = 0.1; return p }()

// learn gives windows of two tasks of a job, of which the hypervisor took a share each, and returns the spec and in which window it came.
func learn(t *testing.T, p Params, share func(window int) float64) (sp *model.Spec, at int) {
	t.Helper()
	var s State
	for w := range 200 {
		stolen, v := share(w), 1.0
		if stolen >= 0.1 {
			v = 5
		}
		for num := range model.TaskNum(2) {
			task := &model.Task{Num: num + 1, Job: "web"}
			if !s.PassOver(p, task, model.SourceWait, stolen, int64(w+1)) {
				s.Add(p, task, model.SourceWait, v, 1, inf)
			}
		}
		if list := s.Recalculate(p, int64(w+1)); len(list) > 0 {
			return list[0], w + 1
		}
	}
	t.Fatal("no spec in 200 windows")
	return nil, 0
}

// Windows in which the hypervisor took much are not learned from, but no more than twice as many as a spec asks for, of however many tasks.
func TestStolenWindowsArePassedOver(t *testing.T) {
	for name, c := range map[string]struct {
		p      Params
		share  func(int) float64
		mean   float64
		at     int
		stolen int64
	}{
		"a spell":                {stolenParams, func(w int) float64 { return 0.3 * float64(min(1, max(0, 12-w))) }, 1, 32, 12},
		"every second window":    {stolenParams, func(w int) float64 { return 0.1 * float64(w%2) }, 1, 39, 19},
		"always":                 {stolenParams, func(int) float64 { return 0.5 }, 5, 60, 40},
		"less than is asked for": {stolenParams, func(int) float64 { return 0.099 }, 1, 20, 0},
		"off":                    {fewParams, func(int) float64 { return 0.5 }, 5, 20, 0},
	} {
		sp, at := learn(t, c.p, c.share)
		if sp.Mean != c.mean || at != c.at || sp.Stolen != c.stolen {
			t.Errorf("%s: mean %g in window %d with %d passed over; want %g, %d, %d", name, sp.Mean, at, sp.Stolen, c.mean, c.at, c.stolen)
		}
	}
}
