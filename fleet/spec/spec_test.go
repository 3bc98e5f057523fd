package spec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

const (
	minute = int64(60e9)
	start  = int64(1_790_000_000e9)
)

// fleet sends a minute's samples of a job from some nodes: value says what a node's window is.
func fleet(s *State, p *Params, nodes, windows int, value func(node int) float64) {
	for n := range nodes {
		b := &wire.Batch{Node: fmt.Sprintf("n%d", n), Platform: "cpu", Tasks: []wire.Task{{Path: "/web", Job: "web"}}}
		b.Samples.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: "d"}}
		for range windows {
			b.Samples.Task = append(b.Samples.Task, 0)
			b.Samples.CPU = append(b.Samples.CPU, 0.5)
			b.Samples.WallMsec = append(b.Samples.WallMsec, start/1e6)
			b.Samples.Flags = append(b.Samples.Flags, wire.Usable)
			b.Samples.Signals[0].Values = append(b.Samples.Signals[0].Values, float32(value(n)))
		}
		s.Add(p, b)
	}
}

var web = Key{Job: "web", Platform: "cpu"}

func cpi(t *testing.T, s *State) *Figures {
	t.Helper()
	j := s.Jobs[web]
	if j == nil || len(j.Signals) != 1 || inForce(j, 0) == nil {
		t.Fatalf("no spec: %+v", j)
	}
	return inForce(j, 0)
}

// inForce is the spec of a signal; nil: there is none.
func inForce(j *Job, k int) *Figures {
	f, ok := j.Spec(k)
	if !ok {
		return nil
	}
	return &f
}

// Table 1 of CPI² has a mean, a deviation and a count for a job on a platform; so has what comes of samples that have them.
func TestSpecsAreOfAllNodes(t *testing.T) {
	rng, p, s := rand.New(rand.NewPCG(1, 1)), Defaults(), New()
	normal := func(int) float64 { return 1.8 + 0.16*rng.NormFloat64() }
	fleet(s, &p, 10, 99, normal)
	if sheets, _ := s.Calculate(&p, start); len(sheets) != 0 {
		t.Errorf("published below 100 samples a task: %+v", sheets)
	}
	fleet(s, &p, 4, 1, normal)
	if sheets, _ := s.Calculate(&p, start+p.PeriodNsec); len(sheets) != 0 {
		t.Errorf("published with 4 tasks: %+v", sheets)
	}
	fleet(s, &p, 10, 1000, normal)
	sheets, held := s.Calculate(&p, start+2*p.PeriodNsec)
	if len(sheets) != 1 || len(held) != 0 || sheets[0].Revision != 1 || sheets[0].Nodes != 10 {
		t.Fatalf("%+v %+v", sheets, held)
	}
	sp := cpi(t, s)
	if math.Abs(sp.Mean-1.8) > 0.01 || math.Abs(float64(sp.StdDev)-0.16) > 0.01 || sp.Tasks != 10 || sp.NumSamples != 10*1099+4 || math.Abs(float64(sp.UsageMean)-0.5) > 1e-6 {
		t.Errorf("%+v", sp)
	}
	var none Sketch
	none.Add(0, 3)
	none.Add(1, 1)
	if q := none.Quantile(0.5); q != 0 || none.Quantile(1) == 0 {
		t.Errorf("of zeros the median is %g", q)
	}
	sk := &s.Jobs[web].Signals[0].Sketch
	for q, want := range map[float64]float64{0.5: 1.8, 0.025: 1.8 - 1.96*0.16, 0.975: 1.8 + 1.96*0.16} {
		if got := sk.Quantile(q); math.Abs(got-want) > 0.03*want {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
}

// CPI² section 3.1: no spec of fewer than 5 tasks, nor of tasks with fewer than 100 samples; of exactly so much there is one.
func TestTheLeastThatASpecNeeds(t *testing.T) {
	for _, c := range []struct{ tasks, samples, sheets int }{{4, 5000, 0}, {5, 99, 0}, {5, 100, 1}, {4, 100, 0}, {50, 99, 0}} {
		p, s := Defaults(), New()
		rng := rand.New(rand.NewPCG(5, 5))
		fleet(s, &p, c.tasks, c.samples, func(int) float64 { return 1.8 + 0.16*rng.NormFloat64() })
		if sheets, _ := s.Calculate(&p, start); len(sheets) != c.sheets {
			t.Errorf("%d tasks of %d samples: %+v", c.tasks, c.samples, sheets)
		}
	}
}

// What is NaN is no sample, however much of it comes, and brings no job.
func TestNothingIsLearnedOfNaN(t *testing.T) {
	p, s := Defaults(), New()
	fleet(s, &p, 10, 500, func(int) float64 { return math.NaN() })
	if sheets, _ := s.Calculate(&p, start); len(sheets) != 0 || len(s.Jobs) != 0 {
		t.Errorf("%+v, %d jobs", sheets, len(s.Jobs))
	}
}

// A node that invents jobs fills no learner: beyond some of them its samples are passed over, until others speak of those jobs too, and what nobody
// speaks of any more is forgotten. Jobs that several nodes have are learned of all the while.
func TestOneNodeInventsJobs(t *testing.T) {
	p, s := Defaults(), New()
	invent := func(node string, from, n int) {
		b := &wire.Batch{Node: node, Platform: "cpu"}
		b.Samples.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: "d"}}
		for i := range n {
			b.Tasks = append(b.Tasks, wire.Task{Path: fmt.Sprint("/", i), Job: fmt.Sprint("job-", from+i)})
			b.Samples.Task, b.Samples.CPU, b.Samples.WallMsec, b.Samples.Flags = append(b.Samples.Task, uint32(i)), append(b.Samples.CPU, 1), append(b.Samples.WallMsec, start/1e6), append(b.Samples.Flags, wire.Usable) //nolint:gosec // few
			b.Samples.Signals[0].Values = append(b.Samples.Signals[0].Values, 1)
		}
		s.Add(&p, b)
	}
	invent("liar", 0, 3*maxAlone)
	if len(s.Jobs) != maxAlone || s.Passed != 2*maxAlone {
		t.Errorf("%d jobs, %d samples passed over", len(s.Jobs), s.Passed)
	}
	s.alone = nil // as after a restart
	invent("liar", 5*maxAlone, maxAlone)
	fleet(s, &p, 10, 200, func(int) float64 { return 1.8 })
	if len(s.Jobs) != maxAlone+1 || s.Jobs[web] == nil || s.Jobs[web].Only != 0 {
		t.Errorf("%d jobs; the others': %+v", len(s.Jobs), s.Jobs[web])
	}
	invent("n0", 0, 10) // which are not the liar's alone any more
	invent("liar", 7*maxAlone, maxAlone)
	if len(s.Jobs) != maxAlone+1+10 {
		t.Errorf("%d jobs", len(s.Jobs))
	}
	for day := range int64(4) {
		s.Calculate(&p, start+day*25*60*minute)
	}
	if len(s.Jobs) != 1 || s.Jobs[web] == nil || s.alone[1] != 0 {
		t.Errorf("after days %d jobs are left, of the liar's %d", len(s.Jobs), s.alone[1])
	}
}

// What is a day old weighs 0.9 of what is new.
func TestSpecsAge(t *testing.T) {
	p, s := Defaults(), New()
	p.JumpSigmas = 1e9 // nothing is held back here
	fleet(s, &p, 5, 1000, func(int) float64 { return 1 })
	s.Calculate(&p, start)
	s.Jobs[web].setSpec(0, nil) // nor held at a threshold
	fleet(s, &p, 5, 1000, func(int) float64 { return 2 })
	s.Calculate(&p, start+24*60*minute)
	if got, want := cpi(t, s).Mean, (2+0.9)/1.9; math.Abs(got-want) > 1e-9 {
		t.Errorf("mean %g, want %g", got, want)
	}
}

// One node that lies, however much it says, moves a spec by hardly anything; without the bounds it would be the spec.
func TestOneNodeDecidesNothing(t *testing.T) {
	for name, lie := range map[string]float64{"far off": 50, "within bounds": 2.05, "low": 0.5, "the mean": 1.8} {
		for _, fit := range []bool{false, true} {
			rng, p, s := rand.New(rand.NewPCG(2, 2)), Defaults(), New()
			p.Fit = fit
			honest := func(int) float64 { return 1.8 + 0.16*rng.NormFloat64() }
			fleet(s, &p, 10, 200, honest)
			liar(s, &p, lie)
			s.Calculate(&p, start)
			sp := cpi(t, s)
			if at := p.Threshold(sp); math.Abs(sp.Mean-1.8) > 0.06 || sp.StdDev > 0.2 || at < 1.94 || at > 2.3 {
				t.Errorf("%s, fit %v: %+v, a threshold of %.3g", name, fit, sp, at)
			}
		}
	}
}

// liar is a node that sends a hundred thousand samples of one value.
func liar(s *State, p *Params, value float64) {
	b := &wire.Batch{Node: "liar", Platform: "cpu", Samples: wire.Samples{Signals: []wire.Signal{{Source: model.SourceCPI, Definition: "d"}}}}
	for i := range 50 {
		b.Tasks = append(b.Tasks, wire.Task{Path: fmt.Sprint("/", i), Job: "web"})
	}
	for i := range 100_000 {
		b.Samples.Task = append(b.Samples.Task, uint32(i%50))
		b.Samples.CPU = append(b.Samples.CPU, 1)
		b.Samples.WallMsec = append(b.Samples.WallMsec, start/1e6)
		b.Samples.Flags = append(b.Samples.Flags, wire.Usable)
		b.Samples.Signals[0].Values = append(b.Samples.Signals[0].Values, float32(value))
	}
	s.Add(p, b)
}

// A threshold that comes far nearer to the mean, at the same mean, waits for somebody as a mean does that jumps: each window above it would be an outlier.
func TestThresholdsThatJumpAreHeldBack(t *testing.T) {
	rng, p, s := rand.New(rand.NewPCG(5, 5)), Defaults(), New()
	at := func(sd float64) func(int) float64 { return func(int) float64 { return 2 + sd*rng.NormFloat64() } }
	fleet(s, &p, 10, 200, at(0.1))
	s.Calculate(&p, start)
	fleet(s, &p, 10, 200, at(0.12))
	if sheets, held := s.Calculate(&p, start+p.PeriodNsec); len(sheets) != 1 || len(held) != 0 {
		t.Errorf("a little other noise is held: %+v", held)
	}
	fleet(s, &p, 10, 8000, at(0.001))
	sheets, held := s.Calculate(&p, start+2*p.PeriodNsec)
	if len(sheets) != 0 || len(held) != 1 || !strings.Contains(held[0].Why, "above the mean, and was") {
		t.Errorf("%+v %+v", sheets, held)
	}
}

// Samples in distress do not become what is normal, and those that are no evidence are not looked at.
func TestDistressIsNotLearned(t *testing.T) {
	rng, p, s := rand.New(rand.NewPCG(3, 3)), Defaults(), New()
	normal := func(int) float64 { return 1.8 + 0.16*rng.NormFloat64() }
	fleet(s, &p, 10, 1000, normal)
	s.Calculate(&p, start)
	fleet(s, &p, 10, 1000, func(n int) float64 {
		if rng.IntN(10) == 0 {
			return 9
		}
		return normal(n)
	})
	s.Calculate(&p, start+p.PeriodNsec)
	if sp := cpi(t, s); sp.Mean > 1.83 || sp.StdDev > 0.19 {
		t.Errorf("%+v", sp)
	}
	before := *cpi(t, s)
	b := &wire.Batch{Node: "n1", Platform: "cpu", Tasks: []wire.Task{{Path: "/web", Job: "web"}}}
	b.Samples = wire.Samples{Task: []uint32{0}, CPU: []float32{0}, WallMsec: []int64{0}, Flags: []uint32{0}, Signals: []wire.Signal{{Source: model.SourceCPI, Definition: "d", Values: []float32{9}}}}
	s.Add(&p, b)
	if sheets, _ := s.Calculate(&p, start+2*p.PeriodNsec); len(sheets) != 0 || *cpi(t, s) != before {
		t.Errorf("%+v", sheets)
	}
}

// A spec that jumps is held back and said once; an operator accepts it, or goes back to an older one, which then stays.
func TestJumpsAreHeldBack(t *testing.T) {
	p, s := Defaults(), New()
	rng := rand.New(rand.NewPCG(4, 4))
	at := func(mean float64) func(int) float64 { return func(int) float64 { return mean + 0.1*rng.NormFloat64() } }
	fleet(s, &p, 10, 200, at(2))
	first, _ := s.Calculate(&p, start)
	fleet(s, &p, 10, 2000, at(1))
	sheets, held := s.Calculate(&p, start+p.PeriodNsec)
	if len(sheets) != 0 || len(held) != 1 || !strings.Contains(held[0].Why, "moved from 2") {
		t.Fatalf("%+v %+v", sheets, held)
	}
	fleet(s, &p, 10, 200, at(1))
	if sheets, held = s.Calculate(&p, start+2*p.PeriodNsec); len(sheets) != 0 || len(held) != 0 {
		t.Errorf("said again: %+v %+v", sheets, held)
	}
	sh, ok := s.Accept(web, start)
	if !ok || sh.Revision != 2 || math.Abs(sh.Specs[0].Mean-1.1) > 0.1 {
		t.Fatalf("%+v", sh)
	}
	if _, ok := s.Accept(web, start); ok {
		t.Error("nothing was accepted")
	}
	sh, err := s.Pin(web, first[0], start)
	if err != nil || sh.Revision != 3 || !sh.Pinned || sh.Specs[0].Mean != first[0].Specs[0].Mean || sh.Specs[0].P50 != first[0].Specs[0].P50 || sh.Specs[0].P50 < 1.9 {
		t.Fatalf("%+v %v", sh, err)
	}
	fleet(s, &p, 10, 200, at(2))
	if sheets, _ := s.Calculate(&p, start+4*p.PeriodNsec); len(sheets) != 0 {
		t.Errorf("published although it is pinned: %+v", sheets)
	}
	if !s.Unpin(web) || s.Unpin(web) {
		t.Error("unpin")
	}
	fleet(s, &p, 10, 200, at(2))
	if sheets, _ := s.Calculate(&p, start+6*p.PeriodNsec); len(sheets) != 1 || sheets[0].Revision != 4 {
		t.Errorf("%+v", sheets)
	}
}
