package localspec

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

var inf = math.Inf(1)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// twoPass is the plain arithmetic: weighted mean, then weighted squares.
func twoPass(v, w []float64) (n, mean, m2 float64) {
	for i := range v {
		n += w[i]
		mean += v[i] * w[i]
	}
	mean /= n
	for i := range v {
		m2 += w[i] * (v[i] - mean) * (v[i] - mean)
	}
	return n, mean, m2
}

func TestMomentsAgainstTwoPass(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	for run := range 500 {
		a, b := 1+rng.IntN(40), rng.IntN(40)
		weight := rng.Float64()
		var recent, history Moments
		var v, w []float64
		for i := range a + b {
			x := 1e3*rng.Float64() + 1
			v = append(v, x)
			if i < a {
				recent.add(x, 2*x)
				w = append(w, 1)
			} else {
				history.add(x, 2*x)
				w = append(w, weight)
			}
		}
		recent.merge(history, weight)
		n, mean, m2 := twoPass(v, w)
		if !near(recent.N, n) || !near(recent.Mean, mean) || !near(recent.M2, m2) || !near(recent.UsageMean, 2*mean) {
			t.Fatalf("seed %d run %d: %+v, want %v %v %v", seed, run, recent, n, mean, m2)
		}
	}
}

func TestMergeOfNothing(t *testing.T) {
	m := Moments{N: 2, Mean: 3, M2: 1, UsageMean: 1}
	was := m
	m.merge(Moments{}, 0.9)
	m.merge(Moments{N: 5, Mean: 9}, 0)
	if m != was {
		t.Errorf("%+v", m)
	}
	var empty Moments
	empty.merge(Moments{N: 10, Mean: 2, M2: 4, UsageMean: 1}, 0.5)
	if empty != (Moments{N: 5, Mean: 2, M2: 2, UsageMean: 1}) {
		t.Errorf("%+v", empty)
	}
}

func feed(s *State, num model.TaskNum, n int, v, limit float64) {
	for range n {
		s.Add(Params{}, &model.Task{Num: num, Job: "web"}, model.SourceCPI, v, 1, limit)
	}
}

// Section 3.1: "by multiplying the CPI value from the previous day by about 0.9 before
// averaging it with the most recent day's data".
func TestSection31_AgeWeighting(t *testing.T) {
	p := Params{RecalculateNsec: 100, AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 100}
	var s State
	feed(&s, 1, 100, 1, inf)
	if got := s.Recalculate(p, 0); len(got) != 1 || got[0].Mean != 1 || got[0].StdDev != 0 || got[0].NumSamples != 100 {
		t.Fatalf("first: %+v", got)
	}
	feed(&s, 1, 100, 2, inf)
	got := s.Recalculate(p, 100)
	if len(got) != 1 || !near(got[0].Mean, (2*100+1*90)/190.) || got[0].NumSamples != 190 {
		t.Fatalf("second: %+v", got[0])
	}
	// Two days ago weighs 0.81.
	feed(&s, 1, 100, 4, inf)
	got = s.Recalculate(p, 200)
	want := (4*100 + 2*90 + 1*81) / 271.
	if !near(got[0].Mean, want) || got[0].NumSamples != 271 {
		t.Errorf("third: %+v, want mean %v of 271", got[0], want)
	}
}

// Section 3.1: "We do not perform CPI management for applications with fewer than 5 tasks
// or fewer than 100 CPI samples per task."
func TestSection31_RobustEnough(t *testing.T) {
	p := Params{RecalculateNsec: 100, AgeWeight: 0.9, MinTasks: 5, MinSamplesPerTask: 100}
	var s State
	for num := range model.TaskNum(4) {
		feed(&s, num, 1000, 1, inf)
	}
	feed(&s, 9, 99, 1, inf)
	if got := s.Recalculate(p, 0); got != nil {
		t.Fatalf("four tasks and one with 99 samples: %+v", got[0])
	}
	if s.Lookup("web", model.SourceCPI) != nil {
		t.Fatal("a spec that was not published")
	}
	feed(&s, 9, 1, 1, inf)
	got := s.Recalculate(p, 1)
	if len(got) != 1 || got[0].Tasks != 5 || s.Lookup("web", model.SourceCPI) != got[0] {
		t.Fatalf("%+v", got)
	}
	if s.Lookup("web", model.SourceSlowdown) != nil || s.Lookup("mail", model.SourceCPI) != nil {
		t.Error("specs of different sources or jobs are mixed up")
	}
}

func TestRecalculatedInItsTime(t *testing.T) {
	p := Params{RecalculateNsec: 100, AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 1}
	var s State
	feed(&s, 1, 1, 1, inf)
	s.Recalculate(p, 1000)
	feed(&s, 1, 1, 9, inf)
	if got := s.Recalculate(p, 1099); got != nil {
		t.Fatalf("too early: %+v", got[0])
	}
	if got := s.Recalculate(p, 1100); len(got) != 1 {
		t.Fatal("not when it was due")
	}
	if got := s.Recalculate(p, 1200); got != nil {
		t.Errorf("without new samples: %+v", got[0])
	}
}

// An antagonist that never sleeps moves the spec slowly.
func TestWinsorised(t *testing.T) {
	p := Params{RecalculateNsec: 100, AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 100}
	var s State
	feed(&s, 1, 100, 1, inf)
	s.Recalculate(p, 0)
	feed(&s, 1, 100, 50, 1.5)
	if got := s.Recalculate(p, 100); got[0].Mean > 1.5 {
		t.Errorf("mean %v: a sample entered above the threshold of 1.5", got[0].Mean)
	}
}

func TestOrderedAndMarshals(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	var s State
	p := Params{RecalculateNsec: 1, AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 1}
	odd := []float64{0, 1, 5e-324, 1.8e19, 1e30}
	for i := range 2000 {
		task := model.Task{Num: model.TaskNum(rng.IntN(20)), Job: string(rune('a' + rng.IntN(6)))}
		s.Add(Params{}, &task, model.Source(rng.IntN(2)), odd[rng.IntN(len(odd))], odd[rng.IntN(len(odd))], inf)
		for _, sp := range s.Recalculate(p, int64(i)) {
			if math.IsNaN(sp.StdDev) || sp.StdDev < 0 || math.IsInf(sp.StdDev, 0) || math.IsNaN(sp.Mean) {
				t.Fatalf("%+v", sp)
			}
		}
		for k := 1; k < len(s.Entries); k++ {
			if compareKeys(&s.Entries[k-1].Key, &s.Entries[k].Key) >= 0 {
				t.Fatal("keys are out of order")
			}
		}
	}
	if _, err := json.Marshal(&s); err != nil {
		t.Error(err)
	}
}

func TestNothingDueDoesNotAllocate(t *testing.T) {
	p := Params{RecalculateNsec: 1e18, AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 1}
	var s State
	task := &model.Task{Num: 1, Job: "web"}
	s.Add(Params{}, task, model.SourceCPI, 1, 1, inf)
	s.Recalculate(p, 0)
	s.Add(Params{}, task, model.SourceCPI, 1, 1, inf)
	if n := testing.AllocsPerRun(100, func() { s.Add(Params{}, task, model.SourceCPI, 1, 1, inf); s.Recalculate(p, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a job runs between two waits is learned as the mean of its windows, as long as its signal is.
func TestTurn(t *testing.T) {
	p := Params{AgeWeight: 0.5, MinTasks: 1, MinSamplesPerTask: 4, RecalculateNsec: 10}
	s, task := State{}, &model.Task{Num: 1, Job: "web"}
	s.Turn("web", model.SourceWait, 7) // nobody heard of it yet
	for window, runs := range [][]float64{{1, 2, 3, 2}, {5, 5, 5, 5}} {
		for _, msec := range runs {
			s.Add(p, task, model.SourceWait, 0.3, 1, math.Inf(1))
			s.Turn("web", model.SourceWait, msec)
		}
		s.Recalculate(p, int64(window+1)*10)
		if got, want := s.Lookup("web", model.SourceWait).RunMean, []float64{2, 4}[window]; math.Abs(got-want) > 1e-9 {
			t.Errorf("after %d windows it runs %v ms between two waits, want %v", 4*(window+1), got, want)
		}
	}
	robust := p
	robust.RobustFirst = true
	first := State{}
	for i := range 20 {
		first.Add(robust, task, model.SourceWait, 0.3+float64(i%3)/100, 1, math.Inf(1))
		first.Turn("web", model.SourceWait, 2)
	}
	if first.Recalculate(robust, 1); first.Lookup("web", model.SourceWait).RunMean != 2 {
		t.Error("a first spec from few windows does not have it")
	}
}
