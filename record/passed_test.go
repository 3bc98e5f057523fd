package record

import (
	"reflect"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// Pulses that were passed over are in the record with the one that was not.
func TestPassedPulsesReadBack(t *testing.T) {
	want := model.Pulse{MonoNsec: 2_000_000_000, LCUsage: model.Read(900), Passed: []model.Passed{{MonoNsec: 1_900_000_001, LCUsage: 700}, {MonoNsec: 1_950_000_002, LCUsage: 900}}}
	b, err := (&coder{}).encode(nil, &engine.Input{Seq: 1, Pulse: &want}, false)
	if err != nil {
		t.Fatal(err)
	}
	var in engine.Input
	var got model.Pulse
	if _, err := (&coder{pulsed: 3}).decode(b, &in, &model.Snapshot{}, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}
