package remedy_test

import (
	"testing"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// Who runs beside another cache of the same memory takes of the memory, and not of the service's cache: it has less bandwidth, in all domains, and keeps its ways. Who is on the other socket
// is not beside the service.
func TestOneMemoryOfManyCaches(t *testing.T) {
	machine := enginetest.Divided(2, 1, 8, 8)
	for at, beside := range map[int]bool{5: true, 12: false} {
		w := newWorld(model.ModeEnforce, machine.Classes)
		*w.Topology = *machine
		for num, on := range map[model.TaskNum]int{service: 0, 2: 0, 3: at, 4: 13} {
			w.Task(num).Knobs[model.CPUPlace].Value = model.Setting{Knob: model.CPUPlace, CPUs: cpus.Of(on)}
			w.List(num)
		}
		w.seconds(10)
		w.harms[2], w.harms[3] = harm{misses: 1}, harm{level: 0.8, misses: 100}
		w.seconds(60)
		if (w.has(3, model.MemoryBandwidth, 100) < 100) != beside || w.has(3, model.CacheWays, 11) != 11 || w.has(4, model.MemoryBandwidth, 100) != 100 {
			t.Errorf("on CPU %d: %s", at, w.holds())
		}
		limited := 0
		for _, k := range w.Wide {
			if k.Num == model.ClassOf(3) && k.Value.Knob == model.MemoryBandwidth && k.Value.Amount < 100 {
				limited++
			}
		}
		if beside && limited != 16 {
			t.Errorf("it is limited in %d of 16 domains", limited)
		}
	}
}
