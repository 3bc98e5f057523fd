package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// A hold lasts until the knob that it is on is released, whatever becomes of the task's
// other knobs.
func TestHoldsByKnob(t *testing.T) {
	r := &reader{t: &Trace{Tasks: map[model.TaskNum]model.Task{}}, asked: map[uint64]model.Change{}, seen: map[string]int{}}
	limit, place := model.Bandwidth(model.CPUMax{QuotaUsec: 25_000, PeriodUsec: 250_000}), model.Place(model.FullSet(2))
	tick := func(at int64, done []uint64, changes ...model.Change) {
		t := &record.Tick{}
		t.Input.MonoNsec = at
		for _, seq := range done {
			t.Input.Results = append(t.Input.Results, model.Result{Seq: seq, Target: model.OfTask(7), Kind: model.Applied, MonoNsec: at})
		}
		t.Output.Changes = changes
		r.visit(t)
	}
	tick(1, nil, model.Change{Seq: 1, Target: model.OfTask(7), Kind: model.Set, Value: place}, model.Change{Seq: 2, Target: model.OfTask(7), Kind: model.Hold, Value: limit})
	tick(2, []uint64{1, 2}, model.Change{Seq: 3, Target: model.OfTask(7), Kind: model.Release, Value: model.Ask(model.CPUPlace)})
	tick(3, []uint64{3}, model.Change{Seq: 4, Target: model.OfTask(7), Kind: model.Release, Value: model.Ask(model.CPUBandwidth)})
	tick(4, []uint64{4})
	want := []Hold{{Task: 7, Knob: model.CPUBandwidth, FromNsec: 2, ToNsec: 4}}
	if d := cmp.Diff(want, r.t.Holds); d != "" {
		t.Errorf("holds (-want +got):\n%s", d)
	}
}
