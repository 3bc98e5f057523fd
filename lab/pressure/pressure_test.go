package pressure

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/labtest"
	"github.com/commensal-io/commensal/model"
)

// A short run is the same twice, and somebody is killed in it where nothing is done.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	r := labtest.Twice(t, func() (*Result, error) { return Run(context.Background(), Options{Seed: 3, Quick: true}) })
	if none := &r.Arms[Nothing]; none.Services.Value() == 0 || none.Killed == 0 || none.Work.Mean <= 0 {
		t.Errorf("nothing happens where nothing is done: %+v", none)
	}
	if ours := &r.Arms[Policy]; ours.Services.Value() >= r.Arms[Nothing].Services.Value() {
		t.Errorf("no better than nothing: %+v", ours)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "memory.max by") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// Rounds differ, and each has services, batch work and somebody who begins late.
func TestDraw(t *testing.T) {
	swaps := 0
	for i := range uint64(50) {
		var r Round
		c, list := draw(rand.New(rand.NewPCG(1, i)), &r)
		services, late := 0, 0
		for k := range list {
			services += one(list[k].class == model.LC)
			late += one(list[k].atNsec > 0)
		}
		if services < 1 || services > 2 || late < 1 || late > 3 || len(list) < services+late+2 || c.MemBytes < 8*gib || c.MemBytes > 64*gib {
			t.Errorf("round %d: %d services of %d tasks, %d late, %v bytes", i, services, len(list), late, c.MemBytes)
		}
		swaps += one(r.Swap)
	}
	if swaps < 10 || swaps > 40 {
		t.Errorf("%d of 50 with swap", swaps)
	}
}

// The goals can be missed, each by itself.
func TestGoals(t *testing.T) {
	for i, c := range []struct {
		ours, ending int // rounds of 1000 in which a service is killed
		work         float64
	}{{1, 0, 1}, {0, 1, 1}, {0, 0, 0.7}, {0, 0, 1}} {
		r := &Result{}
		for k := range 1000 {
			o := Round{}
			for arm := range NumArms {
				o.Arms[arm].Work = 1
			}
			o.Arms[Policy].Work = c.work
			o.Arms[Policy].Services, o.Arms[Ending].Services = one(k < c.ours), one(k < c.ending)
			r.Rounds = append(r.Rounds, o)
		}
		r.sum()
		for k := range r.Goals {
			if r.Goals[k].Met == (k == i) {
				t.Errorf("goal %d with %+v: %+v", k, c, r.Goals[k])
			}
		}
	}
}
