package linux

import (
	"testing"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// Levels are offered in the machine's own unit; no limit is what the root group has where the kernel does not say.
func TestLevelsAreOfferedInTheirUnit(t *testing.T) {
	root := func(level uint64) (s resctrl.Schemata) {
		s.Set(resctrl.MB, 0, level)
		s.Set(resctrl.MB, 1, level)
		return s
	}
	for name, tt := range map[string]struct {
		b                 resctrl.Bandwidth
		root              uint64
		least, most, step int
		bytes             float64
	}{
		"Intel":    {resctrl.Bandwidth{Unit: resctrl.Percent, Min: 10, Max: 100, Gran: 10}, 100, 10, 100, 10, 0},
		"AMD":      {resctrl.Bandwidth{Unit: resctrl.EighthGBps, Gran: 1}, 2048, 1, 2048, 1, 125e6},
		"mba_MBps": {resctrl.Bandwidth{Unit: resctrl.MiBps, Min: 10, Gran: 10}, 4294967295, 1, 4294967295, 1, 1 << 20},
	} {
		tt.b.Resource = resctrl.MB
		have := &model.Classes{}
		offerLevels(have, &tt.b, root(tt.root))
		if have.LeastLevel != tt.least || have.MostLevel != tt.most || have.LevelStep != tt.step || have.LevelBytes() != tt.bytes {
			t.Errorf("%s: %+v, %v bytes", name, have, have.LevelBytes())
		}
	}
}
