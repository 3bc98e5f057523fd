package balm_test

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// Two caches of one socket have one memory (AMD): who draws from it beside the other cache gives way too, in both, and no pages move, since there is no other memory. On another
// socket nobody does.
func TestOneMemoryOfTwoCaches(t *testing.T) {
	for _, shared := range []bool{true, false} {
		w := newPagesWorld(true)
		if w.asks = map[model.TaskNum]float64{2: 5, 3: 6, 4: 60}; shared {
			w.Topology.CPUs[1].Node, w.Topology.CPUs[1].Socket = 0, 0
			w.shared, w.remote = true, 1
		} else {
			w.other = 2 // in trouble for another reason
			w.params().Retries = 1000
		}
		w.seconds(20)
		s := w.state()
		if (w.level(4) < 100) != shared || len(s.Rungs) == 0 || (s.Rungs[0].Tasks[0] == 4) != shared {
			t.Errorf("one memory: %v: levels %s, %+v", shared, w.levels(), s.Rungs)
		}
		if shared && (len(s.Domains) == 1 || w.Count(model.DecidePages) > 0) {
			t.Errorf("memories %v, %d moves", s.Domains, w.Count(model.DecidePages))
		}
	}
}

// On a machine of four sockets, and on one whose sockets are divided into four nodes (NPS4), the memory in trouble is the service's alone; pages leave it, and no other.
func TestManyMemories(t *testing.T) {
	for name, c := range map[string]struct {
		machine *model.Topology
		domains []int32
		off     model.CPUSet
	}{
		"four sockets": {enginetest.Divided(4, 1, 1, 1), []int32{0}, cpus.Of(0)},
		"NPS4":         {enginetest.Divided(1, 4, 8, 8), []int32{0, 1}, cpus.Of(0)},
		"SNC2":         {enginetest.Divided(2, 2, 1, 2), []int32{0}, cpus.Of(0, 1)},
	} {
		w := newPagesWorld(true)
		*w.Topology = *c.machine
		w.other = 2 // in trouble whatever others do
		w.params().Retries = 1000
		var asked []model.CPUSet
		for _, task := range w.Tasks {
			task.Knobs[model.MemoryPages].Write = func(ask model.Setting) string {
				asked = append(asked, ask.CPUs)
				return ""
			}
		}
		w.seconds(60)
		if s := w.state(); !slices.Equal(s.Domains, c.domains) || len(asked) == 0 || slices.ContainsFunc(asked, func(off model.CPUSet) bool { return off != c.off }) || w.level(3) != 10 {
			t.Errorf("%s: memories %v, pages were asked off %v, levels %s", name, s.Domains, asked, w.levels())
		}
	}
}
