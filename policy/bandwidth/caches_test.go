package bandwidth_test

import (
	"slices"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/bandwidth"
)

// caches is the policy on a machine whose memories several caches are near. What BE moves at each of them is the test's, as far as its level lets it.
type caches struct {
	p      bandwidth.Params
	s      bandwidth.State
	v      policy.View
	w      policy.Wishes
	be     []float64 // GB/s
	levels []int
}

func newCaches(machine *model.Topology) *caches {
	c := &caches{p: bandwidth.Defaults()}
	c.p.Peak = 100
	c.v = policy.View{Mode: model.ModeEnforce, Topology: machine, Changed: true}
	c.v.Tasks = []policy.TaskView{{Task: model.Task{Num: 1, Class: model.BE}}}
	c.v.Tasks[0].Knobs[model.ServiceClass].Ours = true
	n := len(machine.Classes.Memory)
	c.be, c.levels = make([]float64, n), slices.Repeat([]int{machine.Classes.MostLevel}, n)
	return c
}

// window plays a window of ten seconds, in which memory is slow wherever it is busy, and does what is wished.
func (c *caches) window() {
	from, classes := c.v.NowNsec, c.v.Topology.Classes
	c.v.NowNsec += 10e9
	o := &model.Observation{}
	for i, d := range classes.Memory {
		gb := c.be[i] * float64(c.levels[i]) / 100
		if unit := classes.LevelBytes(); unit > 0 {
			gb = min(c.be[i], float64(c.levels[i])*unit/1e9)
		}
		rate := model.Known(gb * 1e9)
		o.Memory = append(o.Memory, model.MemoryObservation{Domain: d, FromNsec: from, ToNsec: c.v.NowNsec, Total: rate, Local: rate, BE: rate, Node: rate, Latency: model.Known(250)})
	}
	c.v.Window = policy.Window{Closed: true, StartNsec: from, LengthNsec: 10e9, Observation: o}
	c.w.Reset()
	c.s.Step(&c.p, &c.v, &c.w)
	if c.v.Changed = false; c.w.AsBefore {
		return
	}
	c.levels, c.v.Classes = slices.Repeat([]int{classes.MostLevel}, len(c.levels)), nil
	for i := range c.w.Claims {
		if k := &c.w.Claims[i]; k.Scope == model.ScopeCLOS {
			c.levels[slices.Index(classes.Memory, k.Domain)] = int(k.Cap)
			c.v.Classes = append(c.v.Classes, policy.ClassView{Target: k.Target, Kind: k.Value.Knob, KnobView: policy.KnobView{Ours: true, Now: model.Level(int64(k.Cap))}})
		}
	}
	c.v.Changed = true
}

func (c *caches) windows(n int) {
	for range n {
		c.window()
	}
}

// U is that of the memory, to which each of the eight caches gives an eighth: below the threshold each, and far above it together. All of them have the limit, and those of
// the other socket, or of the other nodes of this one, have none.
func TestMemoryOfManyCaches(t *testing.T) {
	for name, c := range map[string]struct {
		machine       *model.Topology
		busy          int // the first caches, on which BE moves so much
		be            float64
		memories      int
		limited, free []int
	}{
		"EPYC, one socket":                 {enginetest.Divided(1, 1, 8, 16), 8, 12, 1, []int{0, 7}, nil},
		"EPYC, two sockets":                {enginetest.Divided(2, 1, 8, 16), 8, 12, 2, []int{0, 7}, []int{8, 15}},
		"EPYC, NPS4":                       {enginetest.Divided(2, 4, 8, 16), 2, 48, 8, []int{0, 1}, []int{2, 3, 15}},
		"SNC2":                             {enginetest.Divided(2, 2, 1, 4), 1, 90, 2, []int{0}, []int{1}},
		"four sockets":                     {enginetest.Divided(4, 1, 1, 2), 1, 90, 4, []int{0}, []int{1, 2, 3}},
		"EPYC, and nothing is busy enough": {enginetest.Divided(1, 1, 8, 16), 8, 2, 1, nil, []int{0, 7}},
	} {
		w := newCaches(c.machine)
		for i := range c.busy {
			w.be[i] = c.be
		}
		w.windows(12)
		for _, i := range c.limited {
			if w.levels[i] >= 100 || w.levels[i] != w.levels[c.limited[0]] {
				t.Errorf("%s: levels %v, expected a limit at %d", name, w.levels, i)
			}
		}
		for _, i := range c.free {
			if w.levels[i] != 100 {
				t.Errorf("%s: levels %v, expected none at %d", name, w.levels, i)
			}
		}
		if len(w.s.Domains) != c.memories || w.s.Domains[0].Utilisation.Outcome != model.OK {
			t.Errorf("%s: %+v", name, w.s.Domains)
		}
	}
}

// Levels that are bytes of one cache add up: together they let BE have its part of the memory, and not eight times that.
func TestBytesOfManyCaches(t *testing.T) {
	machine := enginetest.Divided(1, 1, 8, 16)
	have := machine.Classes
	have.LeastLevel, have.MostLevel, have.LevelStep, have.LevelUnit = 1, 2048, 1, model.LevelEighth
	w := newCaches(machine)
	for i := range w.be {
		w.be[i] = 12
	}
	lowest := 2048
	for range 12 {
		w.window()
		lowest = min(lowest, w.levels[0])
	}
	if sum := 8 * float64(lowest) * 125e6; sum > 30e9 || sum < 5e9 || slices.Max(w.levels) != slices.Min(w.levels) {
		t.Errorf("levels %v, the lowest was %d: %.3g GB/s of 100, expected the 20 %% of the threshold and about", w.levels, lowest, sum/1e9)
	}
}

// A cache whose CPUs go offline leaves its memory as it was, with what is learned of it; one that comes back is limited as the others are.
func TestCacheGoesOffline(t *testing.T) {
	all := enginetest.Divided(1, 1, 8, 16)
	w := newCaches(all)
	for i := range w.be {
		w.be[i] = 12
	}
	w.windows(12)
	before := w.s.Domains[0]
	now := *all
	now.CPUs = all.CPUs[:14]
	now.Classes = all.Classes.Online(now.Online())
	w.v.Topology, w.v.Changed, w.levels = &now, true, w.levels[:7]
	w.window()
	if d := w.s.Domains; len(d) != 1 || d[0].SeenNsec != before.SeenNsec || slices.Max(w.levels) >= 100 {
		t.Errorf("without it: %+v, levels %v", d, w.levels)
	}
	w.v.Topology, w.v.Changed, w.levels = all, true, append(w.levels, 100)
	w.windows(3)
	if slices.Max(w.levels) >= 100 || slices.Max(w.levels) != slices.Min(w.levels) {
		t.Errorf("with it again: levels %v", w.levels)
	}
}
