package engine_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// While BE has more than its floor each pulse may be the one that gives LC its cores back.
// When BE has no more to give, a pulse a second is enough, until it has again.
func TestPulsesSlowDownWhileNothingCanMove(t *testing.T) {
	e, next := placedNode(t, 150)
	// Their periods want pulses with detail, which the host of this test has not.
	e.Params.CPU.CPUPoolMode, e.Params.CPU.BurstMode = model.ModeOff, model.ModeOff
	for _, load := range []struct {
		cpus  uint64 // that LC uses
		rests bool
	}{{4, false}, {62, true}, {2, false}} {
		settle(e, func() *engine.Input {
			in := next()
			in.Pulse.LCUsage.Value += 50e6*load.cpus - 50e6*4
			return in
		}, 600) // half a minute
		p := &e.State.CPU.CPUSet
		if rests := p.BE <= p.FloorCores; rests != load.rests {
			t.Fatalf("LC uses %d CPUs and BE has %d cores of at least %d: the test tests nothing", load.cpus, p.BE, p.FloorCores)
		}
		in := next()
		e.Step(in)
		due := 0
		for after := int64(50e6); after <= 1000e6; after += 50e6 {
			if e.PulseDue(in.MonoNsec + after) {
				due++
			}
		}
		// The last is due, since none is taken here.
		if want := 20; !load.rests && due != want || load.rests && due != 1 {
			t.Errorf("LC uses %d CPUs: %d of %d pulses are due", load.cpus, due, want)
		}
	}
}
