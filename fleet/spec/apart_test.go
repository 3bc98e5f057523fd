package spec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// sixSignals is what a node sends of some jobs, a task of each: all signals, each of which lacks one value in twenty.
func sixSignals(rng *rand.Rand, node, jobs, windows int) *wire.Batch {
	b := &wire.Batch{Node: fmt.Sprint("n", node), Platform: "cpu"}
	smp := &b.Samples
	for job := range jobs {
		b.Tasks = append(b.Tasks, wire.Task{Path: fmt.Sprint("/pod", node), Job: fmt.Sprint("job-", job)})
		for range windows {
			smp.Task, smp.CPU, smp.WallMsec, smp.Flags = append(smp.Task, uint32(job)), append(smp.CPU, 1), append(smp.WallMsec, start/1e6), append(smp.Flags, wire.Usable) //nolint:gosec // few
		}
	}
	for _, src := range model.Sources() {
		if src.Row().Targeted {
			continue
		}
		w := wire.Signal{Source: src, Definition: src.Definition(false)}
		for range smp.Len() {
			v := 1 + 0.1*rng.NormFloat64()
			if rng.IntN(20) == 0 {
				v = math.NaN()
			}
			w.Values = append(w.Values, float32(v))
		}
		smp.Signals = append(smp.Signals, w)
	}
	return b
}

// A job of more nodes than are told apart takes at most 4 KiB with all signals, also where each lacks some windows: before a calculation, after it, and before the next one.
func TestAJobTakesFourKiB(t *testing.T) {
	const jobs, nodes = 400, 100
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // far below
	}
	before := heap()
	s, p, rng := New(), Defaults(), rand.New(rand.NewPCG(4, 4))
	p.MinTasks, p.MinSamplesPerTask = 4, 5
	look := func(when string) {
		if each := (heap() - before) / jobs; each > 4096 {
			t.Errorf("%s: %d bytes a job", when, each)
		}
	}
	for _, when := range []string{"before the first calculation", "before the next"} {
		for node := range nodes {
			s.Add(&p, sixSignals(rng, node, jobs, 9))
		}
		look(when)
		if when == "before the first calculation" {
			if sheets, _ := s.Calculate(&p, start); len(sheets) != jobs || len(sheets[0].Specs) != 6 || s.Jobs[Key{"job-1", "cpu", ""}].Apart != nil {
				t.Fatalf("%d sheets: %+v", len(sheets), s.Jobs[Key{"job-1", "cpu", ""}])
			}
			look("after it")
		}
	}
	runtime.KeepAlive(s)
}

// What is in force stays when more is learned and not published, whether it is what was learned last or not, and also after it was kept and read.
func TestWhatIsInForceStays(t *testing.T) {
	p := Defaults()
	value := 1.8
	build := func(rng *rand.Rand, s *State) {
		fleet(s, &p, 10, 200, func(int) float64 { return value + 0.1*rng.NormFloat64() })
	}
	for _, how := range []string{"pinned", "held back", "too few", "left out"} {
		s, rng := New(), rand.New(rand.NewPCG(1, 2))
		value = 1.8
		build(rng, s)
		sheets, _ := s.Calculate(&p, start)
		j := s.Jobs[web]
		was := *cpi(t, s)
		if j.Apart != nil || j.Signals[0].Tasks != 10 || was.Tasks != 10 || sheets[0].Specs[0].Mean != was.Mean {
			t.Fatalf("%s: %+v", how, j)
		}
		q := p
		switch how {
		case "pinned":
			j.Pinned = true
		case "held back":
			value = 0.9
		case "too few":
			q.MinSamplesPerTask = 1e4
			j.signal(model.SourceIO, "another") // of which there is nothing
		case "left out": // the spec of a calculation that left a node out says so, and is kept apart
			fleet(s, &p, 1, 300, func(int) float64 { return 1.8 })
			b := someTasks(11, 1, 200, func() float64 { return 90 })
			b.Node = "broken"
			s.Jobs[web].setSpec(0, nil)
			s.Add(&p, b)
		}
		build(rng, s)
		s.Calculate(&q, start+p.PeriodNsec)
		if how == "left out" {
			if f := inForce(j, 0); f == nil || f.LeftOut == 0 || j.Apart == nil {
				t.Errorf("%s: %+v", how, f)
			}
		} else if f := inForce(j, 0); f == nil || *f != was {
			t.Errorf("%s: %+v, was %+v", how, f, was)
		}
		heir := s.Keep().Recall(KeptVersion)
		heir.Recall(j.Keep(web), KeptVersion)
		if diff := cmp.Diff(j.Keep(web), heir.Jobs[web].Keep(web), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: kept and read: %s", how, diff)
		}
		if (j.Held(0) != nil) != (how == "held back") {
			t.Errorf("%s: %+v", how, j.Held(0))
		}
	}
}

// A signal of which nothing came for a while ages by that while when something comes again, and not by the time since its job's last calculation.
func TestASignalThatWasAwayAges(t *testing.T) {
	p, s := Defaults(), New()
	send := func(second bool) {
		for node := range 6 {
			b := someTasks(node, 1, 200, func() float64 { return 1 })
			if second {
				w := wire.Signal{Source: model.SourceIO, Definition: "d", Values: b.Samples.Signals[0].Values}
				b.Samples.Signals = append(b.Samples.Signals, w)
			}
			s.Add(&p, b)
		}
	}
	send(true)
	s.Calculate(&p, start)
	for day := range int64(4) {
		send(day == 3)
		s.Calculate(&p, start+(day+1)*24*3600e9)
		if j := s.Jobs[web]; (j.at(1) == start) != (day < 3) || (j.Apart != nil) != (day < 3) {
			t.Fatalf("day %d: %+v", day, j)
		}
	}
	if n, want := s.Jobs[web].Signals[1].History.N, 1200*(1+math.Pow(0.9, 4)); math.Abs(n-want) > 1e-6 {
		t.Errorf("%g samples, want %g", n, want)
	}
}
