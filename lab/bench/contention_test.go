package bench

import (
	"strings"
	"testing"
)

// The policies have something to decide while they are measured, and nothing is decided without them.
func TestContentionIsPlayed(t *testing.T) {
	c := &Contention{LC: services, BE: services, Asking: 2, Silent: 0.5}
	if err := c.simulate(&Options{Quick: true}); err != nil {
		t.Fatal(err)
	}
	for i := range c.Arms {
		if a := &c.Arms[i]; (a.Changes == 0) != (i == 0) || !(a.Msec.Median > 0 && a.Worst >= a.Msec.P90) {
			t.Errorf("%+v", a)
		}
	}
	r := &Result{Contention: c}
	r.Goals = goals(r)
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "2.00 % of a core") || len(r.Goals) != 2 || r.Goals[0].Measured < 1.5 {
		t.Errorf("%v\n%s", err, b.String())
	}
}
