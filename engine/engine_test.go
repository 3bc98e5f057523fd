package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// Table 2 of CPI², as the engine gets it under the profile that bears CPI²'s name.
func TestTable2(t *testing.T) {
	c, ok := config.Defaults(config.ProfileCPI2)
	if !ok {
		t.Fatal("no cpi2 profile")
	}
	p := c.Params("x")
	cpi := p.Hardcap.Antagonist[model.SourceCPI]
	rows := []struct {
		name      string
		got, want any
	}{
		{"Sampling duration", c.Sampling.Duration, 10 * time.Second},
		{"Sampling frequency", c.Sampling.Frequency, time.Minute},
		{"Predicted CPI recalculated", p.Spec.RecalculateNsec, (24 * time.Hour).Nanoseconds()},
		{"Required CPU usage", p.Outlier.RequiredCPUUsage, 0.25},
		{"Outlier threshold 1", p.Outlier.Sigmas, 2.0},
		{"Outlier threshold 2, violations", p.Outlier.Violations, 3},
		{"Outlier threshold 2, window", p.Outlier.WindowNsec, (5 * time.Minute).Nanoseconds()},
		{"Antagonist correlation threshold", cpi.Threshold, 0.35},
		{"Hard-capping quota", p.Hardcap.Quota, 0.1},
		{"Hard-capping duration", p.Hardcap.DurationNsec, (5 * time.Minute).Nanoseconds()},
		{"section 5, best effort", p.Hardcap.QuotaBestEffort, 0.01},
		{"section 5, period", p.CapPeriodNsec, (250 * time.Millisecond).Nanoseconds()},
		{"section 4.2, one analysis a second", p.Hardcap.AnalysisEveryNsec, time.Second.Nanoseconds()},
		{"section 4.2, 10 minutes of minutes", p.HistoryWindows, 10},
		{"section 4.2, the formula as it stands", []float64{cpi.Offset, cpi.Bound, cpi.Margin, cpi.MinSuspectCPU}, []float64{0, 0, 0, 0}},
		{"section 3.1, age weight", p.Spec.AgeWeight, 0.9},
		{"section 3.1, tasks", p.Spec.MinTasks, 5},
		{"section 3.1, samples per task", p.Spec.MinSamplesPerTask, 100},
		{"section 4.1, no rise of its own for CPI", p.Outlier.MinRise[model.SourceCPI], 0.0},
		{"observe before enforce", p.Mode, model.ModeObserve},
	}
	for _, r := range rows {
		if fmt.Sprint(r.got) != fmt.Sprint(r.want) {
			t.Errorf("%s: %v, want %v", r.name, r.got, r.want)
		}
	}
}

// storm is a random but legal world: counters that go back, vanish and jump, tasks that
// come and go, answers late, wrong or never, commands, the kill switch.
type storm struct {
	rng   *rand.Rand
	seq   uint64
	mono  int64
	next  model.TaskNum
	tasks []model.TaskSample
	cls   map[model.TaskNum]model.Class
	due   []model.Change
}

func newStorm(seed uint64) *storm {
	return &storm{rng: rand.New(rand.NewPCG(seed, 3)), mono: 1e12, cls: map[model.TaskNum]model.Class{}}
}

func (w *storm) counter(c model.Counter, by float64) model.Counter {
	switch w.rng.IntN(150) {
	case 0:
		return model.Counter{Outcome: model.Outcome(w.rng.IntN(2) * 2)}
	case 1:
		return model.Read(w.rng.Uint64())
	case 2:
		return model.Read(c.Value)
	case 3:
		return model.Read(math.MaxUint64)
	}
	return model.Read(c.Value + uint64(by))
}

func (w *storm) input() *engine.Input {
	w.seq++
	w.mono += 1e9
	if w.rng.IntN(100) == 0 {
		w.mono += int64(w.rng.IntN(200)-20) * 1e9
	}
	in := &engine.Input{Seq: w.seq, MonoNsec: w.mono, WallNsec: w.mono, KillSwitch: w.seq%90 > 80}
	if w.rng.IntN(20) > 0 {
		in.Snapshot = w.snapshot()
	}
	if w.rng.IntN(3) > 0 {
		l := model.Latency{Job: []string{"j1", "j2", "none"}[w.rng.IntN(3)], Target: []float64{0.005, 0.005, 0, 1e300, -1}[w.rng.IntN(5)], Quantile: 0.99}
		if w.rng.IntN(4) > 0 {
			l.Figure = model.Known([]float64{0.001, 0.02, 0, 1e300}[w.rng.IntN(4)])
		}
		in.SLO = append(in.SLO, l)
	}
	var late []model.Change
	for _, c := range w.due {
		switch {
		case w.rng.IntN(3) == 0:
			late = append(late, c)
		case c.Kind != model.Disown:
			in.Results = append(in.Results, model.Result{Seq: c.Seq, Target: c.Target, Kind: model.ResultKind(max(0, w.rng.IntN(9)-5)), Now: c.Value, MonoNsec: w.mono, Error: "no"})
		}
	}
	w.due = late
	if w.rng.IntN(40) == 0 && w.next > 0 {
		in.Knobs = append(in.Knobs, model.KnobReading{Target: model.OfTask(model.TaskNum(w.rng.IntN(int(w.next)))), Value: model.Bandwidth(model.CPUMax{QuotaUsec: 5, PeriodUsec: 9}), Outcome: model.OK})
	}
	if w.rng.IntN(25) == 0 {
		kinds := []string{model.CommandCap, model.CommandDemote, model.CommandUncap, model.CommandProtectOff, model.CommandProtectOn, "?"}
		caps := []float64{0.2, -1, 0, 1e300, 5e-324}
		in.Commands = append(in.Commands, model.Command{Kind: kinds[w.rng.IntN(len(kinds))], Task: model.TaskNum(w.rng.IntN(12)), Job: []string{"", "j1"}[w.rng.IntN(2)],
			Cap: caps[w.rng.IntN(5)], DurationNsec: w.rng.Int64N(30e9), By: "ann"})
	}
	return in
}

func (w *storm) snapshot() *model.Snapshot {
	s := &model.Snapshot{MonoNsec: w.mono, WallNsec: w.mono, Mark: model.WindowStart | model.WindowEnd}
	if w.rng.IntN(30) == 0 {
		s.Mark = model.WindowMark(w.rng.IntN(4))
	}
	w.tasks = append([]model.TaskSample(nil), w.tasks...)
	if n := len(w.tasks); n > 5 && w.rng.IntN(20) == 0 {
		i := w.rng.IntN(n)
		s.Removed = []model.TaskNum{w.tasks[i].Num}
		w.tasks = append(w.tasks[:i], w.tasks[i+1:]...)
	}
	for len(w.tasks) < 8 {
		w.next++
		task := model.Task{Num: w.next, Path: fmt.Sprintf("/j%d/%d", w.next%4, w.next), Job: fmt.Sprintf("j%d", w.next%4), Class: []model.Class{model.LC, model.BE, model.BE, model.System}[w.next%4],
			Importance: model.Importance(w.rng.IntN(3)), Eligible: w.rng.IntN(8) == 0, CPUs: w.rng.IntN(4)}
		w.cls[task.Num] = task.Class
		s.Added = append(s.Added, task)
		w.tasks = append(w.tasks, model.TaskSample{Num: w.next})
	}
	hot := w.seq%40 > 30
	for i := range w.tasks {
		t := &w.tasks[i]
		used, level := 1e9*(0.5+w.rng.Float64()/10), 1+w.rng.Float64()/20
		if hot {
			level *= 3
		} else if w.cls[t.Num] == model.BE {
			used /= 30
		}
		for k, by := range [...]float64{
			model.CountUsage: used, model.CountRun: used, model.CountDelay: used * (level - 0.9), model.CountThrottled: 0,
			model.CountCycles: used * 2, model.CountRefCycles: used * 2, model.CountInstructions: used * 2 / level, model.CountLLCMisses: used / 1e3,
		} {
			t.C[k] = w.counter(t.C[k], by)
		}
	}
	s.Tasks = w.tasks
	s.Node = model.NodeSample{CPUs: 8, C: [model.NumNodeCounters]model.Counter{model.CountBusy: model.Read(w.seq * 5e9), model.CountSteal: w.counter(model.Read(w.seq*1e7), 0)}}
	return s
}

// The engine stays sound in any world: what it says and remembers can be written, no policy
// claims a task that is not BE, and nothing outlives its time.
func TestStorm(t *testing.T) {
	changes := 0
	for seed := range uint64(12) {
		w, e := newStorm(seed), engine.New(singleNode(t))
		said := 0
		for range 600 {
			in := w.input()
			out := e.Step(in)
			said, changes = said+len(out.Decisions), changes+len(out.Changes)
			for _, v := range []any{out, e.State} {
				if _, err := json.Marshal(v); err != nil {
					t.Fatalf("seed %d tick %d: %v", seed, in.Seq, err)
				}
			}
			held := 0
			for _, k := range e.State.Ledger.Knobs {
				for _, c := range k.Claims {
					if c.Owner == model.OwnerPolicy && w.cls[c.Task()] != model.BE {
						t.Fatalf("seed %d tick %d: a policy claims %s task %d", seed, in.Seq, w.cls[c.Task()], c.Task())
					}
					if w.mono >= c.ExpiresNsec {
						t.Fatalf("seed %d tick %d: claim %d is past its time", seed, in.Seq, c.ID)
					}
					if c.Owner == model.OwnerPolicy {
						held++
					}
				}
			}
			if in.KillSwitch && held > 0 {
				t.Fatalf("seed %d tick %d: held under the kill switch", seed, in.Seq)
			}
			if n := len(e.State.Hardcap.Incidents); n > len(w.tasks) {
				t.Fatalf("seed %d tick %d: %d incidents of %d tasks", seed, in.Seq, n, len(w.tasks))
			}
			w.due = append(w.due, out.Changes...)
		}
		if said < 20 {
			t.Fatalf("seed %d: %d decisions: the storm tests nothing", seed, said)
		}
	}
	if changes < 24 {
		t.Errorf("%d changes: the storm tests nothing", changes)
	}
}

// A checkpoint at any tick leads to the same future.
func TestResumeAtAnyTick(t *testing.T) {
	for seed := range uint64(6) {
		p := singleNode(t)
		w, e := newStorm(seed), engine.New(p)
		var twin *engine.Engine
		for i := range 500 {
			in := w.input()
			if i == 3 || w.rng.IntN(40) == 0 {
				twin = enginetest.Resumed(t, e)
			}
			out := e.Step(in)
			w.due = append(w.due, out.Changes...)
			if twin == nil {
				continue
			}
			got, err := json.Marshal(twin.Step(in))
			if err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("seed %d tick %d:\n%s\n%s", seed, i, want, got)
			}
		}
		if !bytes.Equal(remembered(t, e), remembered(t, twin)) {
			t.Errorf("seed %d: the states differ at the end", seed)
		}
	}
}

func TestResumeRefusesWhatDoesNotFit(t *testing.T) {
	p := singleNode(t)
	breaks := map[string]func(*engine.State){
		"no history": func(s *engine.State) { s.History = nil },
		"other size": func(s *engine.State) { s.History.Cap++ },
		"bad rows":   func(s *engine.State) { s.History.Rows[0].Usage = nil },
		"tracks":     func(s *engine.State) { s.Tracks = append(s.Tracks, engine.Track{}) },
	}
	for name, f := range breaks {
		s := engine.New(p).State
		f(s)
		if _, err := engine.Resume(p, s); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

// crowdInputs is a steady node of n tasks in which nothing happens.
func crowdInputs(n int) (first *engine.Input, next func() *engine.Input) {
	snap := &model.Snapshot{MonoNsec: 1e12, Mark: model.WindowStart | model.WindowEnd, Node: model.NodeSample{CPUs: 64, C: [model.NumNodeCounters]model.Counter{model.Read(0), model.Read(0)}}}
	for i := range n {
		num := model.TaskNum(i + 1)
		class := model.BE
		if i%3 == 0 {
			class = model.LC
		}
		snap.Added = append(snap.Added, model.Task{Num: num, Path: fmt.Sprintf("/j%d/%d", i%20, i), Job: fmt.Sprintf("j%d", i%20), Class: class})
		s := model.TaskSample{Num: num}
		for k := range s.C {
			s.C[k] = model.Read(0)
		}
		snap.Tasks = append(snap.Tasks, s)
	}
	in := &engine.Input{MonoNsec: snap.MonoNsec, Snapshot: snap}
	return in, func() *engine.Input {
		in.Seq++
		snap.Added = nil
		snap.MonoNsec += 1e9
		in.MonoNsec = snap.MonoNsec
		snap.Node.C[model.CountBusy].Value += 30e9
		for i := range snap.Tasks {
			c := &snap.Tasks[i].C
			c[model.CountUsage].Value += 2e8
			c[model.CountRun].Value += 2e8
			c[model.CountDelay].Value += 2e7
			c[model.CountCycles].Value += 4e8
			c[model.CountRefCycles].Value += 4e8
			c[model.CountInstructions].Value += 3e8 + in.Seq%4*1e6
		}
		return in
	}
}

func TestSteadyStepDoesNotAllocate(t *testing.T) {
	first, next := crowdInputs(150)
	e := engine.New(singleNode(t))
	e.Step(first)
	for range 200 { // specs are learnt, every buffer has grown
		e.Step(next())
	}
	if n := testing.AllocsPerRun(200, func() { e.Step(next()) }); n != 0 {
		t.Errorf("%v allocations a tick", n)
	}
}

func BenchmarkStep(b *testing.B) {
	c, _ := config.Defaults(config.ProfileSingleNode)
	first, next := crowdInputs(150)
	e := engine.New(c.Params("x"))
	e.Step(first)
	b.ReportAllocs()
	for b.Loop() {
		e.Step(next())
	}
}
