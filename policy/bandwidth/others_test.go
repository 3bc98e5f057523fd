package bandwidth_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/balm"
)

// While policy balm looks what came of less bandwidth for the services of one memory, the level of that memory stays as it is, and no window tells what limits are good for;
// the other memory is divided as ever. What balm merely goes on holding is in nobody's way.
func TestBalmTries(t *testing.T) {
	for _, tried := range []bool{true, false} {
		w := newWorld(model.ModeEnforce, skylake())
		w.Engine.Params.CPU.BalmMode, w.Engine.Params.CPU.Balm = model.ModeEnforce, balm.Defaults()
		w.After = func(*engine.Input, *engine.Output) {
			w.Engine.State.CPU.Balm = balm.State{Most: 100, Healing: tried, Rungs: []balm.Rung{{Class: model.ClassOf(2), Tasks: []model.TaskNum{2}, Level: 10, Domains: []int32{0}}}}
		}
		w.windows(1)
		w.be = [2]float64{200, 200}
		w.windows(8)
		if (w.level(0) == 100) != tried || w.level(1) == 100 {
			t.Errorf("tried %v: levels %d and %d", tried, w.level(0), w.level(1))
		}
		if s := &w.Engine.State.CPU.Bandwidth; tried && s.Tight.Windows+s.Loose.Windows > 0 {
			t.Errorf("%d and %d windows are compared", s.Tight.Windows, s.Loose.Windows)
		}
		w.After = nil
		w.Engine.Params.CPU.BalmMode = model.ModeOff
		if w.windows(8); w.level(0) == 100 {
			t.Error("it does not go on")
		}
	}
}
