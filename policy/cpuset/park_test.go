package cpuset

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Two cores, and an operator who says that BE's floor is none: LC gets both when it needs
// them, BE waits with next to nothing, and has its core back when LC is quiet.
func TestParking(t *testing.T) {
	r := newRig(t, shape{1, 1, 2, 1}.topology(), pair()...)
	r.p.FloorCores, r.p.FloorShare, r.p.Wait = 0, 0, 0.3
	r.run(30*sec, 0.2)
	if _, be := r.cores(); be != 1 || len(r.caps) != 0 {
		t.Fatalf("quiet: BE has %d cores, caps %v", be, r.caps)
	}
	r.step(50*msec, 1.8)
	if lc, be := r.cores(); lc != 2 || be != 0 || len(r.caps) != 1 || r.claims[1].CPUs != cpus(t, "0-1") || r.claims[2].CPUs != cpus(t, "1") {
		t.Fatalf("the first pulse: LC %d cores, BE %d, places %v, caps %v", lc, be, r.claims, r.caps)
	}
	r.run(120*sec, 1.8)
	if _, ok := r.caps[2]; !ok {
		t.Fatal("the cap ran out")
	}
	if r.caps[2].Cap != 0.01 {
		t.Errorf("parked at %g CPUs", r.caps[2].Cap)
	}
	r.run(30*sec, 0.2)
	if _, be := r.cores(); be != 1 || len(r.caps) != 0 {
		t.Errorf("quiet again: BE has %d cores, caps %v", be, r.caps)
	}
	// Without a shared LC task there is nobody to park BE for.
	r = newRig(t, shape{1, 1, 4, 1}.topology(), exclusive(1, 1, 0), task(2, model.BE))
	r.p.FloorCores, r.p.FloorShare = 0, 0
	r.pulse.LCUsage = model.Counter{Outcome: model.Unavailable}
	r.run(30*sec, 0)
	if _, be := r.cores(); be != 3 || len(r.caps) != 0 {
		t.Errorf("beside an exclusive task: BE has %d cores of 3, caps %v", be, r.caps)
	}
}
