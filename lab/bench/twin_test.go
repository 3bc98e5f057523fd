package bench

import (
	"strings"
	"testing"
)

// A small server is played and told of.
func TestSimulateOne(t *testing.T) {
	got, err := simulateOne(4, 4, 10)
	if err != nil {
		t.Fatal(err)
	}
	if got.Cores != 4 || got.Tasks != 4 || !(got.TimesLife > 1) || !(got.PhysicsMsec > 0 && got.PhysicsMsec <= got.Msec.P90) {
		t.Errorf("%+v", got)
	}
	var b strings.Builder
	table := (&Result{Twins: []Twin{*got}}).twinTable()
	if err := table.WriteText(&b); err != nil || !strings.Contains(b.String(), "times life") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
