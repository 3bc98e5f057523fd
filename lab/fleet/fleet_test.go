package fleet

import (
	"testing"

	"github.com/commensal-io/commensal/lab/report"
)

// A small fleet, without real agents: everything that the verdict asks for happens.
func TestASmallFleet(t *testing.T) {
	r, err := Run(t.Context(), Options{Seed: 1, Nodes: 20, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome() != report.Pass || r.Samples < 1000 || r.Incidents == 0 {
		t.Errorf("%+v", r)
	}
}

// What was written down before fails a run, each by itself.
func TestVerdict(t *testing.T) {
	good := func() *Result { return &Result{Nodes: 200, Antagonists: 20, Held: 20, Capped: true, OffSeconds: 0.1} }
	for name, spoil := range map[string]func(r *Result){
		"a spec":      func(*Result) {},
		"hearing":     func(r *Result) { r.Unheard = 1 },
		"bystanders":  func(r *Result) { r.Wrong = 11 },
		"antagonists": func(r *Result) { r.Held = 9 },
		"command":     func(r *Result) { r.Capped = false },
		"roll-out":    func(r *Result) { r.Rolled = 1 },
		"kill switch": func(r *Result) { r.StillHeld = 1 },
		"too late":    func(r *Result) { r.OffSeconds = 10 },
		"lost":        func(r *Result) { r.Lost = 1 },
	} {
		r := good()
		spoil(r)
		r.verdict()
		if want := map[bool]int{true: 1, false: 2}[name == "a spec"]; len(r.Failed) != want { // no jobs are there in any
			t.Errorf("%s: %v", name, r.Failed)
		}
	}
}
