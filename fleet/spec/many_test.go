package spec

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// plain learns one signal with nothing saved: an accumulator of doubles for each node, and a count for each task, without days.
type plain struct {
	nodes   map[string]*Moments
	tasks   map[string]int
	history Moments
	spec    model.Spec
	at      int64
}

func (l *plain) add(p *Params, b *wire.Batch) {
	for i, v := range b.Samples.Signals[0].Values {
		m := l.nodes[b.Node]
		if m == nil {
			m = &Moments{}
			l.nodes[b.Node] = m
		}
		x := float64(v)
		if l.at != 0 {
			x = min(x, p.Threshold(figuresOf(&l.spec)))
		}
		m.add(x, float64(b.Samples.CPU[i]))
		l.tasks[b.Node+b.Tasks[b.Samples.Task[i]].Path]++
	}
}

func (l *plain) calculate(p *Params, wallNsec int64) {
	var counts, means, off []float64
	for _, m := range l.nodes {
		counts, means = append(counts, m.N), append(means, m.Mean)
	}
	typical, centre := median(counts), median(means)
	for _, m := range means {
		off = append(off, math.Abs(m-centre))
	}
	far := max(farSigmas*medianSigma*median(off), farShare*centre)
	var all Moments
	leftOut := 0.0
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		switch m := l.nodes[name]; {
		case len(means) >= judgedFrom && math.Abs(m.Mean-centre) > far:
			leftOut += m.N
		case len(means) >= 3:
			all.merge(*m, min(1, heaviest*typical/m.N))
		default:
			all.merge(*m, 1)
		}
	}
	if l.at != 0 {
		all.merge(l.history, math.Pow(p.AgeWeight, float64(wallNsec-l.at)/(24*3600e9)))
	}
	enough := 0
	for _, n := range l.tasks {
		if n >= p.MinSamplesPerTask {
			enough++
		}
	}
	l.history, l.at = all, wallNsec
	l.spec = model.Spec{NumSamples: int64(math.Round(all.N)), Mean: all.Mean, StdDev: all.stddev(), UsageMean: all.Usage, Tasks: enough, LeftOut: int64(leftOut)}
	clear(l.nodes)
}

// someTasks is what a node sends of a job, each of its tasks some windows.
func someTasks(node, tasks, windows int, value func() float64) *wire.Batch {
	b := &wire.Batch{Node: fmt.Sprintf("n%d", node), Platform: "cpu", Samples: wire.Samples{Signals: []wire.Signal{{Source: model.SourceCPI, Definition: "d"}}}}
	for i := range tasks {
		b.Tasks = append(b.Tasks, wire.Task{Path: fmt.Sprint("/kubepods/web-", i), Job: "web"})
	}
	smp := &b.Samples
	for i := range tasks * windows {
		smp.Task, smp.CPU, smp.WallMsec, smp.Flags = append(smp.Task, uint32(i%tasks)), append(smp.CPU, 0.5+float32(i%7)/10), append(smp.WallMsec, start/1e6), append(smp.Flags, wire.Usable) //nolint:gosec // few
		smp.Signals[0].Values = append(smp.Signals[0].Values, float32(value()))
	}
	return b
}

// What saves memory changes nothing of a spec beyond rounding, as long as nodes are at most as many as are told apart, whatever they send; and with hundreds that are
// alike. Of tasks more than 32 the number is an estimate.
func TestSavedMemoryChangesNoSpec(t *testing.T) {
	for _, c := range []struct {
		nodes, tasks int // tasks of a node
		odd          float64
	}{{1, 6, 0}, {4, 2, 0}, {10, 1, 0}, {32, 1, 0}, {12, 1, 3}, {32, 1, 1.3}, {300, 1, 0}, {1000, 1, 0}, {60, 5, 0}} {
		for seed := range uint64(5) {
			rng, p := rand.New(rand.NewPCG(seed, 21)), Defaults()
			p.JumpSigmas, p.MinSamplesPerTask = 1e9, 60
			s, want := New(), plain{nodes: map[string]*Moments{}, tasks: map[string]int{}}
			for node, number := range rng.Perm(1024)[:c.nodes] { // so that groups have more nodes and fewer
				s.Nodes[fmt.Sprint("n", node)] = uint32(number) //nolint:gosec // few
			}
			at := start
			for period := range 6 {
				for node := range c.nodes {
					mean, windows := 1.8, 60
					if node%10 == 9 && c.odd > 0 { // broken, talkative, or both
						mean, windows = 1.8*c.odd, 60*(1+rng.IntN(9))
					}
					for range 1 + period%2 { // in several batches
						b := someTasks(node, c.tasks, windows, func() float64 { return mean + 0.1*rng.ExpFloat64() })
						s.Add(&p, b)
						want.add(&p, b)
					}
				}
				at += p.PeriodNsec
				if sheets, _ := s.Calculate(&p, at); len(sheets) == 0 {
					t.Fatalf("%+v: no spec in period %d", c, period)
				}
				want.calculate(&p, at)
				got := s.Jobs[web].Signals[0].spec(web, cpi(t, s))
				near := func(a, b float64) bool { return math.Abs(a-b) <= 2e-6*math.Abs(b) }
				if got.NumSamples != want.spec.NumSamples || !near(got.Mean, want.spec.Mean) || !near(got.StdDev, want.spec.StdDev) || !near(got.UsageMean, want.spec.UsageMean) || got.LeftOut != want.spec.LeftOut {
					t.Fatalf("%+v, seed %d, period %d:\n%+v, want\n%+v", c, seed, period, got, want.spec)
				}
				if few := c.nodes*c.tasks <= leastSlots; few && got.Tasks != want.spec.Tasks || !few && math.Abs(float64(got.Tasks)/float64(want.spec.Tasks)-1) > 0.8 {
					t.Errorf("%+v, seed %d: %d tasks, want %d", c, seed, got.Tasks, want.spec.Tasks)
				}
				if n := s.Jobs[web].Signals[0].Nodes; c.odd == 0 && int(n) != c.nodes {
					t.Errorf("%+v: of %d nodes", c, n)
				}
			}
		}
	}
}

// How many tasks have enough is told without bias in the long run, however many they are.
func TestTasksAreEstimated(t *testing.T) {
	for _, n := range []int{20, 32, 100, 300, 1000} {
		sum, rounds := 0.0, 20
		for round := range rounds {
			s, p := Job{}, Defaults()
			for k := range int64(80) { // it takes a while
				s.look(&p, start+k*p.PeriodNsec)
				for i := range n {
					s.tally(&p, taskHash(fmt.Sprint("node-", i), fmt.Sprint("/web/", round)), 20, nil)
				}
			}
			if len(s.Tallies) > p.slots() || cap(s.Tallies) > p.slots()*9/8+1 {
				t.Fatalf("%d tasks are counted one by one", len(s.Tallies))
			}
			_, about := s.haveEnough(&p, anySignal)
			sum += float64(about)
		}
		if off := math.Abs(sum/float64(rounds*n) - 1); off > 0.1 || n <= leastSlots && off > 0 {
			t.Errorf("%d tasks: %.1f on average", n, sum/float64(rounds))
		}
	}
}

// A node that invents tasks keeps no others from being counted, nor does a job's many short tasks keep its few long ones.
func TestInventedAndShortTasksHideNone(t *testing.T) {
	p := Defaults()
	var s Job
	own := func(n uint32) (sum int) {
		for node := range 10 {
			h := taskHash(fmt.Sprint("n", node), "/web")
			s.tally(&p, h, n, nil)
			if i, ok := s.find(h); ok && s.Tallies[i].samples() >= p.MinSamplesPerTask {
				sum++
			}
		}
		return sum
	}
	at := start
	for minute := range int64(250) {
		for i := range 500 {
			s.tally(&p, taskHash("liar", fmt.Sprint(minute, i)), 1, nil)
		}
		own(1)
		at += 60e9
		s.look(&p, at)
	}
	if n := own(1); n != 10 || s.Level != 0 {
		t.Errorf("beside invented tasks %d have enough, one in 2^%d counts", n, s.Level)
	}
	s = Job{}
	for minute := range int64(600) {
		for i := range 30 { // of as many nodes, twenty minutes each
			s.tally(&p, taskHash(fmt.Sprint("short-", i), fmt.Sprint(minute/20)), 1, nil)
		}
		own(1)
		at += 60e9
		s.look(&p, at)
	}
	if n, _ := s.haveEnough(&p, anySignal); n != 10 {
		t.Errorf("beside short tasks %d have enough, one in 2^%d counts", n, s.Level)
	}
}

// Of hundreds of nodes, too, none decides, whatever it says and however often.
func TestOneNodeOfManyDecidesNothing(t *testing.T) {
	for name, lie := range map[string]float64{"far off": 50, "within bounds": 2.05, "low": 0.5} {
		rng, p, s := rand.New(rand.NewPCG(2, 2)), Defaults(), New()
		for range 20 {
			fleet(s, &p, 300, 10, func(int) float64 { return 1.8 + 0.16*rng.NormFloat64() })
			s.Add(&p, func() *wire.Batch {
				b := someTasks(0, 50, 200, func() float64 { return lie })
				b.Node = "liar"
				return b
			}())
		}
		s.Calculate(&p, start)
		if sp := cpi(t, s); math.Abs(sp.Mean-1.8) > 0.03 || sp.StdDev > 0.2 || sp.Tasks < 5 {
			t.Errorf("%s: %+v", name, sp)
		}
	}
}

// Fifteen broken nodes, each in another of the 32 groups, decide nothing either.
func TestFifteenBrokenNodesOfManyDecideNothing(t *testing.T) {
	rng, p, s := rand.New(rand.NewPCG(2, 3)), Defaults(), New()
	for range 10 {
		fleet(s, &p, 300, 20, func(node int) float64 {
			if node < 15 {
				return 50 + 40*rng.NormFloat64()
			}
			return 1.8 + 0.16*rng.NormFloat64()
		})
	}
	s.Calculate(&p, start)
	if sp := cpi(t, s); math.Abs(sp.Mean-1.8) > 0.01 || math.Abs(float64(sp.StdDev)-0.16) > 0.01 || sp.LeftOut < 15*200 {
		t.Errorf("%+v", sp)
	}
}

// A signal's memory has bounds that do not depend on tasks and nodes, nor, beyond maxBins, on values; and the bounds are small.
func TestMemoryIsBounded(t *testing.T) {
	rng, p, s := rand.New(rand.NewPCG(6, 6)), Defaults(), New()
	bytes := func() int {
		j := s.Jobs[web]
		sig := &j.Signals[0]
		return int(unsafe.Sizeof(*j)+unsafe.Sizeof(*sig)) + cap(j.Since)*int(unsafe.Sizeof(Who{})) + cap(j.Tallies)*int(unsafe.Sizeof(Tally{})) + cap(j.Parts)*int(unsafe.Sizeof(Part{})) + cap(sig.Sketch.N)*2
	}
	for range 3 {
		fleet(s, &p, 1500, 40, func(int) float64 { return 1 + 0.1*rng.NormFloat64() })
	}
	if n := bytes(); n > 1600 {
		t.Errorf("%d bytes", n)
	}
	s.Calculate(&p, start)
	if n := bytes(); n > 800 {
		t.Errorf("%d bytes after a calculation", n)
	}
	s.Jobs[web].setSpec(0, nil) // nothing is held at a threshold
	fleet(s, &p, 30, 1000, func(int) float64 { return math.Pow(10, 18*rng.Float64()-9) })
	if n := bytes(); n > 1600+maxBins*4 {
		t.Errorf("%d bytes of values that differ by 18 powers of ten", n)
	}
}

// A sketch that spans too much has its high quantiles all the same, and zeros stay zeros.
func TestTheLowestBinsCollapse(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var s Sketch
	var all []float64
	for range 50_000 {
		v := math.Pow(10, 8*rng.Float64()-5)
		if rng.IntN(10) == 0 {
			v = 0
		}
		s.Add(v, 1)
		all = append(all, v)
	}
	slices.Sort(all)
	if s.Count() != 50_000 || len(s.N) > maxBins || s.Quantile(0.05) != 0 {
		t.Errorf("%v values, %d bins, %v", s.Count(), len(s.N), s.Quantile(0.05))
	}
	for _, q := range []float64{0.6, 0.9, 0.99, 1} {
		if want := all[int(q*49_999)]; math.Abs(s.Quantile(q)/want-1) > 1.5*Accuracy {
			t.Errorf("quantile %g is %g, want %g", q, s.Quantile(q), want)
		}
	}
	for range 200 {
		s.Age(0.9)
	}
	if s.Count() != 0 || len(s.N) != 0 {
		t.Errorf("after long %v, %d bins", s.Count(), len(s.N))
	}
}
