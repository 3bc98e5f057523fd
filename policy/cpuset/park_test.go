package cpuset_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpuset"
)

// Two cores, and an operator who says that BE's floor is none: LC gets both when it needs
// them, BE waits with next to nothing, and has its core back when LC is quiet.
func TestParking(t *testing.T) {
	r := newRig(t, cpuset.Machine(1, 1, 2, 1), pair()...)
	r.p.FloorCores, r.p.FloorShare, r.p.Wait = 0, 0, 0.3
	r.run(30*sec, 0.2)
	if _, be := r.cores(); be != 1 || len(r.held()) != 0 {
		t.Fatalf("quiet: BE has %d cores, caps %v", be, r.held())
	}
	r.step(50*msec, 1.8)
	if lc, be := r.cores(); lc != 2 || be != 0 || len(r.held()) != 1 || r.place(1) != "0-1" || r.place(2) != "1" {
		t.Fatalf("the first pulse: LC %d cores, BE %d, places %s and %s, caps %v", lc, be, r.place(1), r.place(2), r.held())
	}
	r.run(120*sec, 1.8)
	if q := r.Task(2).Knobs[model.CPUBandwidth].Value; q.Ratio() != 0.01 || r.held()[2] != 0.01 {
		t.Errorf("parked at %g CPUs, claimed %v", q.Ratio(), r.held())
	}
	r.run(30*sec, 0.2)
	if _, be := r.cores(); be != 1 || len(r.held()) != 0 {
		t.Errorf("quiet again: BE has %d cores, caps %v", be, r.held())
	}
	// Without a shared LC task there is nobody to park BE for.
	r = newRig(t, cpuset.Machine(1, 1, 4, 1), exclusive(1, 1, 0), task(2, model.BE))
	r.p.FloorCores, r.p.FloorShare = 0, 0
	r.pulse.LCUsage = model.Counter{Outcome: model.Unavailable}
	r.run(30*sec, 0)
	if _, be := r.cores(); be != 3 || len(r.held()) != 0 {
		t.Errorf("beside an exclusive task: BE has %d cores of 3, caps %v", be, r.held())
	}
}
