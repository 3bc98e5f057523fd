package balm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A service's pages lie on the other socket's memory: who draws from that gives way, and not who runs beside the service. It is said once, with the share.
func TestPagesAreNotLocal(t *testing.T) {
	for name, c := range map[string]struct {
		bytes   []uint64
		domains []int32
		far     float64
	}{
		"local":             {[]uint64{98, 2}, []int32{0}, 0},
		"all on the other":  {[]uint64{0, 100}, []int32{1}, 1},
		"a part":            {[]uint64{70, 30}, []int32{0, 1}, 0.3},
		"nobody tells that": {nil, []int32{0}, 0},
	} {
		w := newPagesWorld(true)
		w.other = 2 // in trouble whatever others do
		if c.bytes != nil {
			w.homes = []model.PageHomes{{Num: service, Bytes: c.bytes}}
		}
		w.seconds(6)
		first := model.TaskNum(3)
		if c.domains[0] == 1 {
			first = 4
		}
		if s := w.state(); !slices.Equal(s.Domains, c.domains) || len(s.Rungs) == 0 || s.Rungs[0].Tasks[0] != first {
			t.Errorf("%s: memories %v, %+v", name, s.Domains, s.Rungs)
		}
		note := w.state().Note(model.ModeEnforce)
		if said := w.Count(model.DecideBasis); (said == 1) != (c.far > 0) || strings.Contains(note, "of its pages lie on other") != (c.far > 0) {
			t.Errorf("%s: said %d times, %q", name, said, note)
		}
	}
}

// A service that may run on both sockets is in trouble at the memory that its pages lie on, which is said.
func TestThreadsOnSeveralSockets(t *testing.T) {
	w := newPagesWorld(true)
	both := cpu(0)
	both.Add(1)
	w.Tasks[0].Knobs[model.CPUPlace].Value.CPUs = both
	w.List(service)
	w.other, w.homes = 2, []model.PageHomes{{Num: service, Bytes: []uint64{95, 5}}}
	w.seconds(6)
	if s := w.state(); !slices.Equal(s.Domains, []int32{0}) || w.Count(model.DecideBasis) != 1 || s.Premises != "it may run on 2 sockets" {
		t.Errorf("memories %v, said %d times, %q", s.Domains, w.Count(model.DecideBasis), s.Premises)
	}
}

// A service that fills its memory by itself: no pages move, and that is what is said, with figures. Where others draw as much as it does, pages do move.
func TestTheServiceFillsItsMemory(t *testing.T) {
	for _, alone := range []bool{true, false} {
		w := newPagesWorld(true)
		w.counted, w.own = true, 75
		w.asks = map[model.TaskNum]float64{2: 2, 3: 3, 4: 1}
		if !alone {
			w.own = 30
			w.asks[2], w.asks[3], w.other = 8, 8, 2
			w.params().Retries = 1000
		}
		w.seconds(60)
		c, moved := w.state().CannotFix, w.Count(model.DecidePages)
		if alone && (moved > 0 || c == nil || !c.Alone.Alone() || !strings.Contains(w.state().Note(model.ModeEnforce), "fill their memory by themselves")) || !alone && moved == 0 {
			t.Errorf("alone: %v: %d moves, %+v, %q", alone, moved, c, w.state().Note(model.ModeEnforce))
		}
		if alone {
			w.expect(t, "given back", "100 100 100")
		}
	}
}
