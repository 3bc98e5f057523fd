package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// drawnValues are of a distribution that is drawn as well: narrow, skewed, of two humps, huge, tiny or 0.
func drawnValues(rng *rand.Rand, n int) []float64 {
	kind, scale := rng.IntN(5), math.Exp(20*rng.Float64()-8)
	out := make([]float64, n)
	for i := range out {
		switch kind {
		case 0:
			out[i] = scale * (1 + 0.1*rng.NormFloat64())
		case 1:
			out[i] = scale * rng.ExpFloat64()
		case 2:
			out[i] = scale * (1 + 9*float64(rng.IntN(2)) + 0.1*rng.Float64())
		case 3:
			out[i] = scale * math.Exp(3*rng.NormFloat64())
		}
		out[i] = max(0, out[i])
	}
	return out
}

func sketchOf(values []float64, times float32) *Sketch {
	s := &Sketch{}
	for _, v := range values {
		s.Add(v, times)
	}
	return s
}

// weighted returns the value below which a share q of all weights is.
func weighted(values map[float64]float64, q float64) float64 {
	keys, all := make([]float64, 0, len(values)), 0.0
	for v, w := range values {
		keys, all = append(keys, v), all+w
	}
	slices.Sort(keys)
	seen := 0.0
	for _, v := range keys {
		if seen += values[v]; seen >= q*all {
			return v
		}
	}
	return keys[len(keys)-1]
}

// The quantiles of sketches that were merged are those of one that had all their values, each as old as it is, and within Accuracy of the values' own, whatever
// the distributions are, how many there are of each, and in whatever order and grouping they are merged.
func TestMergedSketchesAreOneOfAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(16, 3))
	for round := range 200 {
		weights := []float64{1, 1, 1}
		if round%2 == 1 {
			weights = []float64{1, rng.Float64(), 0.9}
		}
		var parts [3][]float64
		all := map[float64]float64{}
		one := &Sketch{}
		for i := range parts {
			parts[i] = drawnValues(rng, rng.IntN(300))
			for _, v := range parts[i] {
				all[v] += weights[i]
				one.Add(v, float32(weights[i]))
			}
		}
		if len(all) == 0 {
			continue
		}
		collapsed := 0.0 // below it the lowest bin counts all
		if top := slices.Max(slices.Collect(maps.Keys(all))); top*math.Pow(gamma, -maxBins+2*room) > least {
			collapsed = top * math.Pow(gamma, -maxBins+2*room)
		}
		merge := func(order ...int) *Sketch {
			s := &Sketch{}
			for _, i := range order {
				s.Merge(sketchOf(parts[i], 1), weights[i])
			}
			return s
		}
		nested := sketchOf(parts[1], 1) // a + (b + c)
		nested.Age(weights[1])
		nested.Merge(sketchOf(parts[2], 1), weights[2])
		whole := sketchOf(parts[0], 1)
		whole.Merge(nested, 1)
		for name, s := range map[string]*Sketch{"in order": merge(0, 1, 2), "in reverse": merge(2, 1, 0), "grouped": whole} {
			if math.Abs(s.Count()-one.Count()) > 1e-3*one.Count() || len(s.N) > len(one.N)+2*room {
				t.Fatalf("round %d, %s: %g values in %d bins, of %g in %d", round, name, s.Count(), len(s.N), one.Count(), len(one.N))
			}
			for _, q := range []float64{0.013, 0.251, 0.503, 0.907, 0.991} {
				got := s.Quantile(q)
				// Weights are summed in another order and to 24 bits: the value may be one of those around the rank.
				low, high := weighted(all, q-1e-4), weighted(all, q+1e-4)
				if low < collapsed {
					continue
				}
				if got < low*(1-Accuracy)-least || got > high*(1+Accuracy)+least {
					t.Fatalf("round %d, %s: quantile %g is %g, want %g to %g", round, name, q, got, low, high)
				}
			}
		}
	}
}

// someWindows sends windows of a job from nodes, the first of which has a number.
func someWindows(s *State, p *Params, first, nodes, windows int, value func() float64) {
	for n := range nodes {
		b := &wire.Batch{Node: fmt.Sprint("n", first+n), Platform: "cpu", Tasks: []wire.Task{{Path: "/web", Job: "web"}}}
		b.Samples.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: "d"}}
		for range windows {
			b.Samples.Task, b.Samples.CPU = append(b.Samples.Task, 0), append(b.Samples.CPU, 0.5)
			b.Samples.Flags, b.Samples.WallMsec = append(b.Samples.Flags, wire.Usable), append(b.Samples.WallMsec, start/1e6)
			b.Samples.Signals[0].Values = append(b.Samples.Signals[0].Values, float32(value()))
		}
		s.Add(p, b)
	}
}

// A job goes with all that was learned of it: distribution, means, tasks that were counted, what came since the last calculation, what is held back or pinned. The heir, whose nodes
// have other numbers, publishes the next sheet when the one before would have, and the same.
func TestAJobMovesWithAllThatIsKnown(t *testing.T) {
	p := Defaults()
	p.Fit = true
	build := func() *State {
		rng, s := rand.New(rand.NewPCG(4, 9)), New()
		someWindows(s, &p, 0, 8, 2000, func() float64 { return 1.5 + 0.1*rng.ExpFloat64() })
		s.Calculate(&p, start)
		someWindows(s, &p, 0, 8, 50, func() float64 { return 1.5 + 0.1*rng.ExpFloat64() })
		return s
	}
	old, twin := build(), build()
	heir := New()
	someWindows(heir, &p, 20, 3, 10, func() float64 { return 9 }) // its nodes come first
	heir.Forget(func(Key) bool { return true })
	part := old.Part(func(k Key) bool { return k == web })
	if len(part.Nodes) != 8 || len(part.Jobs) != 1 {
		t.Fatalf("%d nodes of %d jobs go along", len(part.Nodes), len(part.Jobs))
	}
	if n, err := heir.Take(&p, part, func(k Key) bool { return k == web }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var sheets [2][]wire.SpecSheet
	for i, s := range []*State{twin, heir} {
		rng := rand.New(rand.NewPCG(4, 10))
		someWindows(s, &p, 4, 8, 50, func() float64 { return 1.5 + 0.1*rng.ExpFloat64() })
		sheets[i], _ = s.Calculate(&p, start+p.PeriodNsec)
	}
	if a, b := asJSON(t, sheets[0]), asJSON(t, sheets[1]); len(sheets[1]) != 1 || sheets[1][0].Revision != 2 || sheets[1][0].Specs[0].Tail == 0 || a != b {
		t.Errorf("%s\nwant %s", b, a)
	}
	for _, q := range []float64{0.1, 0.5, 0.99} {
		if a, b := twin.Jobs[web].Signals[0].Sketch.Quantile(q), heir.Jobs[web].Signals[0].Sketch.Quantile(q); a != b {
			t.Errorf("quantile %g: %g, want %g", q, b, a)
		}
	}
	nameless := build()
	clear(nameless.Nodes)
	if _, err := New().Take(&p, nameless, func(Key) bool { return true }); err == nil {
		t.Error("samples of a node without a name are taken")
	}
	if n, err := New().Take(&p, build(), func(Key) bool { return false }); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Two learners with other samples of one job, one of which calculated a day before the other, become one: count, mean, deviation and quantiles are those of all samples, the
// older ones weighing less; tasks and nodes of both count, and the sheet that is in force is the later one's.
func TestLearnersOfOneJobMerge(t *testing.T) {
	const day = 24 * int64(3600e9)
	rng, p := rand.New(rand.NewPCG(4, 11)), Defaults()
	p.MinTasks = 3
	older, later := New(), New()
	someWindows(older, &p, 0, 3, 3000, func() float64 { return 2 + 0.1*rng.NormFloat64() })
	older.Calculate(&p, start)
	someWindows(later, &p, 2, 3, 3000, func() float64 { return 1 + 0.1*rng.NormFloat64() })
	later.Calculate(&p, start+day/2)
	someWindows(later, &p, 2, 3, 20, func() float64 { return 1 })
	later.Jobs[web].Revision, later.Jobs[web].Pinned = 9, true
	if n, err := older.Take(&p, later, func(Key) bool { return true }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	j := older.Jobs[web]
	s, w := &j.Signals[0], math.Sqrt(0.9) // half a day
	if j.Revision != 9 || !j.Pinned || j.Only != 0 || inForce(j, 0).Mean > 1.1 || len(j.Tallies) != 5 || len(j.Since) != 3 || j.at(0) != start+day/2 {
		t.Errorf("%+v", j)
	}
	mean := (2*9000*w + 9000) / (9000*w + 9000)
	if math.Abs(s.History.N-9000*(1+w)) > 1 || math.Abs(s.History.Mean-mean) > 0.01 || math.Abs(s.Sketch.Count()-9000*(1+w)-60) > 1 {
		t.Errorf("%+v, %g in the sketch; want %g of mean %g", s.History, s.Sketch.Count(), 9000*(1+w), mean)
	}
	if low, high := s.Sketch.Quantile(0.2), s.Sketch.Quantile(0.8); math.Abs(low-0.98) > 0.05 || math.Abs(high-2.02) > 0.05 {
		t.Errorf("quantiles %g and %g", low, high)
	}
	if sum := j.Since[0].N + j.Since[1].N + j.Since[2].N; sum != 60 {
		t.Errorf("%d samples since the last calculation", sum)
	}
	both := New()
	someWindows(both, &p, 0, 2, 10, func() float64 { return 1 })
	more := New()
	someWindows(more, &p, 1, 2, 10, func() float64 { return 3 })
	if _, err := both.Take(&p, more, func(Key) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if f := both.Jobs[web].moments(&both.Jobs[web].Signals[0], 1); f.N != 20 || math.Abs(f.Mean-2) > 1e-9 || math.Abs(f.M2-20) > 1e-3 {
		t.Errorf("a node that spoke to both: %+v", f)
	}
}

// Of a job with more nodes than are told apart the groups of nodes go along as they are, to who has none of it, few nodes of it, or groups of his own: nothing is
// lost or counted twice.
func TestGroupsOfNodesMove(t *testing.T) {
	p := Defaults()
	for _, mine := range []int{0, 5, 50} {
		rng := rand.New(rand.NewPCG(4, uint64(mine)))
		value := func() float64 { return 2 + 0.01*rng.NormFloat64() }
		heir, old := New(), New()
		someWindows(heir, &p, 1000, mine, 30, value)
		someWindows(old, &p, 0, 40, 30, value)
		if n, err := heir.Take(&p, old.Part(func(Key) bool { return true }), func(Key) bool { return true }); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		someWindows(heir, &p, 20, 40, 30, value)
		s := heir.Jobs[web]
		all, _, leftOut := s.fair(&s.Signals[0])
		if want := float64(30 * (80 + mine)); !s.Grouped || len(s.Since) != groups || math.Abs(all.N-want) > 0.2*want || leftOut > 0 || math.Abs(all.Mean-2) > 0.01 {
			t.Errorf("with %d nodes of its own: %+v, want about %g samples; %d left out", mine, all, want, leftOut)
		}
		var n uint32
		for _, f := range s.Since {
			n += f.N
		}
		if n != uint32(30*(80+mine)) {
			t.Errorf("with %d nodes of its own: %d samples", mine, n)
		}
	}
}
