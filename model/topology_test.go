package model

import (
	"math"
	"testing"
)

// Levels that count bytes go by what a memory was seen to move, not by how far they could count.
func TestLevels(t *testing.T) {
	for name, c := range map[string]struct {
		have               Classes
		peak               float64
		lowest, raise, top int
	}{
		"per cent":         {Classes{LeastLevel: 10, MostLevel: 100, LevelStep: 10, LevelUnit: LevelPercent}, 10e9, 10, 10, 100},
		"per cent, by one": {Classes{LeastLevel: 1, MostLevel: 100, LevelUnit: LevelPercent}, 0, 1, 11, 100},
		"AMD":              {Classes{LeastLevel: 1, MostLevel: 2048, LevelStep: 1, LevelUnit: LevelEighth}, 40e9, 32, 32, 320},
		"AMD, more":        {Classes{LeastLevel: 1, MostLevel: 2048, LevelStep: 1, LevelUnit: LevelEighth}, 400e9, 320, 192, 2048},
		"AMD, not known":   {Classes{LeastLevel: 1, MostLevel: 2048, LevelStep: 1, LevelUnit: LevelEighth}, 0, 2048, 1, 2048},
		"MiB/s":            {Classes{LeastLevel: 1, MostLevel: math.MaxUint32, LevelStep: 1, LevelUnit: LevelMiB}, 10e9, 954, 953, 9537},
		"MiB/s, by ten":    {Classes{LeastLevel: 1, MostLevel: math.MaxUint32, LevelStep: 10, LevelUnit: LevelMiB}, 10e9, 960, 950, 9540},
		"MiB/s, idle":      {Classes{LeastLevel: 1, MostLevel: math.MaxUint32, LevelStep: 1, LevelUnit: LevelMiB}, 1e3, 1, 1, 1},
	} {
		lowest, raise, top := c.have.Lowest(c.peak), c.have.Raise(c.peak), c.have.Top(c.peak)
		if lowest != c.lowest || raise != c.raise || top != c.top {
			t.Errorf("%s: from %d by %d to %d", name, lowest, raise, top)
		}
	}
}
