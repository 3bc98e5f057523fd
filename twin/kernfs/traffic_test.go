package kernfs_test

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// windows plays windows of a second and returns what the readings at the last two edges but one say, which the last
// snapshots bear, and what the machine moved between them.
func (c *classed) windows() (list []model.MemoryObservation, moved float64) {
	c.t.Helper()
	var prev model.Snapshot
	var obs model.Observation
	var at [3]float64
	for i := range at {
		c.k.Advance(1e9)
		for rmid := range 8 {
			for socket := range 2 {
				total, _ := c.k.Machine().RMIDTraffic(rmid, socket)
				at[i] += total
			}
		}
		prev = model.Snapshot{MonoNsec: c.snap.MonoNsec, Memory: c.snap.Memory}
		must(c.t, c.h.Observe(model.WindowEnd|model.WindowStart, &c.snap))
		c.do()
	}
	model.Observe(&prev, &c.snap, &obs)
	return obs.Memory, at[1] - at[0]
}

// What mon_data says of all groups together is what the machine moves; of BE it is known while there is its class.
// What a group has no number for is no zero, and comes back.
func TestTrafficOfDomains(t *testing.T) {
	c := openClassed(t)
	near := func(what string, got []model.MemoryObservation, want float64) {
		t.Helper()
		total, node := 0.0, 0.0
		for i := range got {
			total, node = total+got[i].Total.V, node+got[i].Node.V
		}
		if len(got) != 2 || math.Abs(total-want) > 1e6 || math.Abs(node-want) > 1e6 {
			t.Errorf("%s: %+v, want %.4g bytes a second in all", what, got, want)
		}
	}
	got, moved := c.windows()
	near("all", got, moved)
	if len(got) != 2 || got[0].BE.Outcome == model.OK || got[0].Latency.Outcome != model.OK || got[0].Latency.V < 60 {
		t.Fatalf("%+v", got)
	}
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Set, c.task("/b-registers"), inBE)), 2)
	c.windows()
	got, moved = c.windows()
	near("all, in two groups", got, moved)
	if be := got[0].BE.V + got[1].BE.V; got[0].BE.Outcome != model.OK || be < 0.1*moved || be > moved {
		t.Errorf("BE moves %.3g of %.3g bytes a second, %s", be, moved, got[0].BE.Outcome)
	}
	c.k.SetMonitorAnswer(1, "Unavailable")
	if got, _ = c.windows(); len(got) != 2 || got[0].Total.Outcome == model.OK || got[0].BE.Outcome == model.OK || got[0].Total.V != 0 {
		t.Errorf("nobody counts BE: %+v", got)
	}
	c.k.SetMonitorAnswer(1, "")
	c.windows()
	got, moved = c.windows()
	near("all, counted again", got, moved)

	must(t, c.k.UnmountResctrl())
	if got, _ = c.windows(); len(got) != 0 {
		t.Errorf("without resctrl: %+v", got)
	}
	must(t, c.k.MountResctrl(resctrl.MountOptions{}))
	c.windows()
	got, moved = c.windows()
	near("all, mounted again", got, moved)
}
