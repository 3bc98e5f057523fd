package spec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// twoSizes sends windows of a job whose small tasks have another CPI than its large ones, from nodes that have one of each.
func twoSizes(s *State, p *Params, rng *rand.Rand, nodes, windows int, small, large float64) {
	for n := range nodes {
		b := &wire.Batch{Node: fmt.Sprint("n", n), Platform: "cpu", Tasks: []wire.Task{{Path: "/s", Job: "web", Size: "small"}, {Path: "/l", Job: "web", Size: "large"}}}
		b.Samples.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: "d"}}
		for i := range 2 * windows {
			at := uint32(i % 2) //nolint:gosec // 0 or 1
			b.Samples.Task, b.Samples.CPU = append(b.Samples.Task, at), append(b.Samples.CPU, 0.5)
			b.Samples.Flags, b.Samples.WallMsec = append(b.Samples.Flags, wire.Usable), append(b.Samples.WallMsec, start/1e6)
			b.Samples.Signals[0].Values = append(b.Samples.Signals[0].Values, float32([]float64{small, large}[at]*(1+0.05*rng.NormFloat64())))
		}
		s.Add(p, b)
	}
}

func specOf(t *testing.T, s *State, size string) *Figures {
	t.Helper()
	j := s.Jobs[Key{"web", "cpu", size}]
	if j == nil || len(j.Signals) != 1 || inForce(j, 0) == nil {
		t.Fatalf("size %q: no spec: %+v", size, j)
	}
	return inForce(j, 0)
}

// A job whose tasks run at two sizes has two normals. Of all together the spec is a blend: a small task that is slowed by a half lies below its threshold, and
// so does not show. With sizes each has the spec that is right for it, and the job has the blend still, for who tells no size.
func TestSizesHaveTheirOwnNormal(t *testing.T) {
	const small, large = 1.0, 2.0
	hurt := 1.5 * small
	for _, sizes := range []int{0, 2} {
		rng, p, s := rand.New(rand.NewPCG(6, 6)), Defaults(), New()
		p.Sizes = sizes
		twoSizes(s, &p, rng, 8, 500, small, large)
		sheets, held := s.Calculate(&p, start)
		if len(sheets) != 1+sizes || len(s.Jobs) != 1+sizes || len(held) > 0 || sheets[0].Size != "" || sheets[0].Version != 1 {
			t.Fatalf("%d sizes: %+v %+v", sizes, sheets, held)
		}
		all := specOf(t, s, "")
		if math.Abs(all.Mean-1.5) > 0.02 || all.NumSamples != 8000 || p.Threshold(all) < 2 || p.Threshold(all) < hurt {
			t.Errorf("%d sizes: of all together %+v, threshold %g", sizes, all, p.Threshold(all))
		}
		if sizes == 0 {
			continue
		}
		for i, x := range []struct {
			size string
			mean float64
		}{{"large", large}, {"small", small}} {
			sp := specOf(t, s, x.size)
			if sh := sheets[1+i]; sh.Size != x.size || sh.Version != 2 || sh.Specs[0].Size != x.size || sp.NumSamples != 4000 || math.Abs(sp.Mean-x.mean) > 0.01*x.mean || math.Abs(float64(sp.StdDev)-0.05*x.mean) > 0.01*x.mean {
				t.Errorf("%+v", sh)
			}
		}
		if limit := p.Threshold(specOf(t, s, "small")); limit > hurt || limit < 1.08 {
			t.Errorf("a small task that is slowed by a half is no outlier: %g", limit)
		}
	}
}

// A job has so many sizes at most, those that came first, also after it was kept and read; the samples of all others count for the job. One that nobody speaks
// of any more makes room.
func TestSizesAreBounded(t *testing.T) {
	rng, p, s := rand.New(rand.NewPCG(6, 7)), Defaults(), New()
	p.Sizes = 1
	twoSizes(s, &p, rng, 2, 10, 1, 2)
	again := &State{Nodes: s.Nodes, Jobs: s.Jobs} // as it is read
	twoSizes(again, &p, rng, 2, 10, 1, 2)
	if len(s.Jobs) != 2 || s.Jobs[Key{"web", "cpu", "small"}] == nil || s.Jobs[web].Signals[0].Sketch.Count() != 80 || s.Passed+again.Passed > 0 {
		t.Fatalf("%+v", s.Jobs)
	}
	for day := range int64(3) {
		again.Calculate(&p, start+day*25*3600e9)
	}
	if len(again.Jobs) != 0 {
		t.Fatalf("not forgotten: %+v", again.Jobs)
	}
	large := &wire.Batch{Node: "n", Platform: "cpu", Tasks: []wire.Task{{Path: "/l", Job: "web", Size: "large"}}, Samples: wire.Samples{
		Task: []uint32{0}, CPU: []float32{1}, Flags: []uint32{wire.Usable}, WallMsec: []int64{1}, Signals: []wire.Signal{{Source: model.SourceCPI, Values: []float32{2}}},
	}}
	if again.Add(&p, large); again.Jobs[Key{"web", "cpu", "large"}] == nil {
		t.Error("no room for another one")
	}
	p.Sizes = 0
	if s := New(); true {
		if s.Add(&p, large); len(s.Jobs) != 1 {
			t.Errorf("sizes that nobody asked for: %+v", s.Jobs)
		}
	}
}

// Operators' acts are of one size, and a sheet of one is no sheet of another.
func TestOperatorsMeanASize(t *testing.T) {
	rng, p, s := rand.New(rand.NewPCG(6, 8)), Defaults(), New()
	p.Sizes = 2
	twoSizes(s, &p, rng, 8, 500, 1, 2)
	sheets, _ := s.Calculate(&p, start)
	small := Key{"web", "cpu", "small"}
	if _, err := s.Pin(small, sheets[0], start); err == nil {
		t.Error("the sheet of all is taken for that of a size")
	}
	if sh, err := s.Pin(small, sheets[2], start); err != nil || !sh.Pinned || sh.Size != "small" || s.Jobs[web].Pinned {
		t.Errorf("%+v %v", sh, err)
	}
	twoSizes(s, &p, rng, 8, 2000, 1, 1)
	_, held := s.Calculate(&p, start+p.PeriodNsec)
	if len(held) != 1 || held[0].Spec.Size != "large" { // the blend is too broad for a jump
		t.Fatalf("%+v", held)
	}
	if sh, ok := s.Accept(Key{"web", "cpu", "large"}, start); !ok || sh.Size != "large" || s.Jobs[Key{"web", "cpu", "large"}].Held(0) != nil {
		t.Errorf("%+v", sh)
	}
	if heir := New(); !heir.Adopt(sheets[2]) || heir.Jobs[small] == nil || heir.Jobs[web] != nil {
		t.Errorf("%+v", heir.Jobs)
	}
	if !s.Unpin(small) || s.Unpin(small) {
		t.Error("unpinned twice, or not")
	}
}
