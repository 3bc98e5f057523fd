package spec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// gappy is what a node sends of a job: the first signal has all windows, the second lacks one in ten, and those with stopped threads, the third comes from node 3 on and from half-time on, the
// fourth is measured on three nodes only. keep, where it is not negative, is the only signal that is sent.
func gappy(rng *rand.Rand, node, windows, keep int, late bool) *wire.Batch {
	b := &wire.Batch{Node: fmt.Sprint("n", node), Platform: "cpu", Tasks: []wire.Task{{Path: "/web", Job: "web"}, {Path: "/web2", Job: "web"}}}
	smp := &b.Samples
	for k, src := range []model.Source{model.SourceCPI, model.SourceSlowdown, model.SourceIO, model.SourceMemory} {
		w := wire.Signal{Source: src, Definition: "d"}
		for i := range 2 * windows {
			if k == 0 {
				smp.Task, smp.CPU, smp.WallMsec, smp.Flags = append(smp.Task, uint32(i%2)), append(smp.CPU, rng.Float32()), append(smp.WallMsec, start/1e6), append(smp.Flags, wire.Usable) //nolint:gosec // 0 or 1
				if rng.IntN(8) == 0 {
					smp.Flags[i] |= wire.Stopped
				}
			}
			v := 1 + float64(k) + 0.1*rng.ExpFloat64()
			if k == 1 && rng.IntN(10) == 0 || k == 2 && (node < 3 || !late) || k == 3 && node > 2 {
				v = math.NaN()
			}
			w.Values = append(w.Values, float32(v))
		}
		if keep < 0 || keep == k {
			smp.Signals = append(smp.Signals, w)
		}
	}
	return b
}

// A job's signals share which nodes and tasks spoke, and each is learned all the same as if it had come alone, whatever the others have that it has not; also after what is known was kept and
// read, or moved to another learner, half-way.
func TestSignalsThatLackWindowsAreLearnedAlike(t *testing.T) {
	for _, nodes := range []int{8, 100} {
		for _, move := range []string{"", "kept", "taken"} {
			p := Defaults()
			p.MinSamplesPerTask, p.JumpSigmas = 60, 1e9
			all, alone := New(), make([]*State, 4)
			for k := range alone {
				alone[k] = New()
			}
			for period := range 6 {
				for part := range 2 {
					for node := range nodes {
						for k := -1; k < len(alone); k++ {
							s := all
							if k >= 0 {
								s = alone[k]
							}
							rng := rand.New(rand.NewPCG(uint64(node), uint64(2*period+part))) //nolint:gosec // few
							s.Add(&p, gappy(rng, node, 20+node%3, k, period > 2))
						}
					}
					if part == 0 && period == 3 {
						all = moved(t, &p, all, move)
					}
				}
				at := start + int64(period)*p.PeriodNsec
				sheets, _ := all.Calculate(&p, at)
				for k, s := range alone {
					want, _ := s.Calculate(&p, at)
					if k == 2 && period == 3 || period < 2 { // what comes late, or has not samples enough yet, waits for the job's next turn
						continue
					}
					to := 2e-6
					if k == 2 { // of which a period's samples have aged by five minutes, or have not
						to = 3e-4
					}
					compareSignal(t, fmt.Sprintf("%d nodes, %q, signal %d, period %d", nodes, move, k, period), sheets, want, to)
				}
			}
			if n := len(all.Jobs[web].Signals); n != 4 || specified(all) != 4 {
				t.Errorf("%d nodes: %d signals, %d with a spec", nodes, n, specified(all))
			}
		}
	}
}

func specified(s *State) (n int) {
	for k := range s.Jobs[web].Signals {
		if inForce(s.Jobs[web], k) != nil {
			n++
		}
	}
	return n
}

// moved hands a learner on.
func moved(t *testing.T, p *Params, s *State, how string) *State {
	t.Helper()
	heir := s
	switch how {
	case "kept":
		heir = s.Keep().Recall(KeptVersion)
		for k, j := range s.Jobs {
			heir.Recall(j.Keep(k), KeptVersion)
		}
	case "taken":
		heir = New()
		heir.Nodes["another"] = 0
		if n, err := heir.Take(p, s, func(Key) bool { return true }); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	return heir
}

// compareSignal looks for what is published of a signal alone in the sheet of all.
func compareSignal(t *testing.T, what string, sheets, want []wire.SpecSheet, to float64) {
	t.Helper()
	for _, sh := range want {
		w := &sh.Specs[0]
		found := false
		for i := range sheets[0].Specs {
			if sp := &sheets[0].Specs[i]; sp.Source == w.Source {
				near := func(a, b, to float64) bool { return math.Abs(a-b) <= to*math.Abs(b) }
				if found = true; !near(float64(sp.NumSamples), float64(w.NumSamples), to) || !near(sp.Mean, w.Mean, to) || !near(sp.StdDev, w.StdDev, to) || !near(sp.UsageMean, w.UsageMean, 0.03) || sp.LeftOut != w.LeftOut {
					t.Fatalf("%s: %+v\nwant %+v", what, sp, w)
				}
			}
		}
		if !found {
			t.Fatalf("%s: it is not published: %+v", what, sheets)
		}
	}
}

// second adds a signal to a batch that has it in its first windows only.
func second(b *wire.Batch, had int) *wire.Batch {
	w := wire.Signal{Source: model.SourceSlowdown, Definition: "d"}
	for i := range b.Samples.Len() {
		v := float32(2)
		if i >= had {
			v = float32(math.NaN())
		}
		w.Values = append(w.Values, v)
	}
	b.Samples.Signals = append(b.Samples.Signals, w)
	return b
}

// A signal has its own tasks and samples that it needs, among the windows of its job: one that too few tasks have is not published, nor one that each task lacks too often.
func TestSharedTasksAreCountedBySignal(t *testing.T) {
	for _, c := range []struct {
		tasks, samples int
		spec           bool
	}{{4, 300, false}, {5, 99, false}, {5, 100, true}, {20, 99, false}} {
		p, s := Defaults(), New()
		for node := range 20 {
			had := 0
			if node < c.tasks {
				had = c.samples
			}
			s.Add(&p, second(someTasks(node, 1, 300, func() float64 { return 1 }), had))
		}
		s.Calculate(&p, start)
		j := s.Jobs[web]
		if j.Tasks(0) != 20 || inForce(j, 0) == nil || j.Tasks(1) != c.tasks || (inForce(j, 1) != nil) != c.spec {
			t.Errorf("%+v: %d and %d tasks: %+v", c, j.Tasks(0), j.Tasks(1), inForce(j, 1))
		}
	}
}

// Of hundreds of tasks those few are counted that have a signal which the others have not, whether they come first or last and from the beginning or late; four are too few all the same.
func TestFewTasksWithASignalAreFound(t *testing.T) {
	for _, tasks := range []int{4, 8} {
		for _, first := range []int{0, 150 - tasks} {
			for _, from := range []int64{0, 10} {
				p, s := Defaults(), New()
				for period := range int64(40) {
					for node := range 150 {
						had := 0
						if node >= first && node < first+tasks && period >= from {
							had = 10
						}
						s.Add(&p, second(someTasks(node, 1, 10, func() float64 { return 1 }), had))
					}
					s.Calculate(&p, start+period*p.PeriodNsec)
				}
				j := s.Jobs[web]
				if n := j.Tasks(1); (inForce(j, 1) != nil) != (tasks > 4) || n < min(tasks, 5) && tasks > 4 || inForce(j, 0) == nil {
					t.Errorf("%d tasks from %d, period %d: %d are counted", tasks, first, from, n)
				}
			}
		}
	}
}

// Counts that aged and are rounded by lot are right in the long run: of millions of values, old and new, quantiles are within Accuracy, and their sum is what it would be without rounding.
func TestLotsAreFair(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	var s Sketch
	sum, early := 0.0, 0.0
	for round := range 3000 {
		w := 0.99963
		s.Age(w)
		sum, early = sum*w, early*w
		for range 1000 {
			v := 1 + 0.1*rng.NormFloat64()
			if round < 1000 {
				v += 2
				early++
			}
			s.Add(v, 1)
			sum++
		}
	}
	below := 0.0
	s.each(func(at int32, n float64) {
		if valueOf(at) < 2 {
			below += n
		}
	})
	if math.Abs(s.Count()/sum-1) > 1e-3 || math.Abs(below/(sum-early)-1) > 2e-3 {
		t.Errorf("%g values, %g of them low; want %g, %g", s.Count(), below, sum, sum-early)
	}
	for q, want := range map[float64]float64{0.5 * (1 - early/sum): 1, 1 - 0.5*early/sum: 3} {
		if got := s.Quantile(q); math.Abs(got/want-1) > 1.5*Accuracy {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
}
