package record

import (
	"fmt"
	"math/rand/v2"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/outlier"
)

// quick are parameters under which something happens within a few dozen ticks.
func quick() engine.Params {
	return engine.Params{
		Platform: "cpu", Mode: model.ModeEnforce, Sources: [model.NumSources]bool{true, true}, HistoryWindows: 20, CapPeriodNsec: 250e6,
		Outlier: outlier.Params{RequiredCPUUsage: 0.02, Sigmas: 2, Violations: 2, WindowNsec: 10e9},
		Spec:    localspec.Params{RecalculateNsec: 30e9, AgeWeight: 0.9, MinTasks: 1, MinSamplesPerTask: 5},
		Hardcap: hardcap.Params{Quota: 0.1, QuotaBestEffort: 0.01, DurationNsec: 8e9, RecoveredWindows: 2, VerifyWindows: 3, SearchWindows: 2, MaxRounds: 2, RetryAfterNsec: 5e9, AnalysisEveryNsec: 1e9,
			Antagonist: [model.NumSources]antagonist.Params{{Threshold: 0.05}, {Threshold: 0.05, Offset: 1, Bound: 2}},
			Repeat:     hardcap.Repeat{Enabled: true, HalfLifeNsec: 60e9, Doubt: 0.02, Prior: 0.5}},
		Limits: engine.Limits{MaxHeldTasks: 4, MaxBETaken: 1},
	}
}

// world makes random inputs, and answers changes at random.
type world struct {
	rng   *rand.Rand
	seq   uint64
	mono  int64
	next  model.TaskNum
	tasks []model.TaskSample
	node  model.NodeSample
	pulse model.Pulse
	res   []model.Result
}

func newWorld(seed uint64) *world { return &world{rng: rand.New(rand.NewPCG(seed, 1)), mono: 1e12} }

func (w *world) counter(c model.Counter, by float64) model.Counter {
	switch w.rng.IntN(60) {
	case 0: // a value without a reading must do no harm
		return model.Counter{Value: w.rng.Uint64(), Outcome: model.Outcome(w.rng.IntN(2) * 2)}
	case 1:
		return model.Read(c.Value / 2)
	}
	if c.Outcome != model.OK {
		c.Value = 0
	}
	return model.Read(c.Value + uint64(by))
}

func (w *world) snapshot() *model.Snapshot {
	s := &model.Snapshot{MonoNsec: w.mono, WallNsec: w.mono + 5e17, Mark: model.WindowStart | model.WindowEnd}
	if w.rng.IntN(20) == 0 {
		s.Mark = model.WindowMark(w.rng.IntN(4))
	}
	if n := len(w.tasks); n > 4 && w.rng.IntN(15) == 0 {
		i := w.rng.IntN(n)
		s.Removed = append(s.Removed, w.tasks[i].Num)
		w.tasks = append(w.tasks[:i:i], w.tasks[i+1:]...)
	}
	for len(w.tasks) < 6 || w.rng.IntN(25) == 0 {
		w.next++
		s.Added = append(s.Added, model.Task{Num: w.next, Path: fmt.Sprintf("/j%d/%d", w.next%3, w.next), Job: fmt.Sprintf("j%d", w.next%3),
			Class: model.Class(w.next % 3), Importance: model.Importance(w.rng.IntN(3)), Eligible: w.rng.IntN(9) == 0, CPUs: w.rng.IntN(4)})
		w.tasks = append(w.tasks, model.TaskSample{Num: w.next})
	}
	if w.seq%17 == 0 {
		s.Shields = []model.Shield{{Task: w.tasks[0].Num, Why: []string{"", "something lies inside"}[w.seq%2]}}
	}
	hot := w.mono/1e9%12 < 5
	w.tasks = append([]model.TaskSample(nil), w.tasks...)
	for i := range w.tasks {
		t := &w.tasks[i]
		used, cpi := 1e9*(0.5+w.rng.Float64()/10), 1+w.rng.Float64()/20
		if hot {
			cpi *= 3
		} else if model.Class(t.Num%3) == model.BE {
			used /= 20
		}
		for k, by := range [...]float64{
			model.CountUsage: used, model.CountRun: used, model.CountDelay: used * cpi / 3, model.CountThrottled: 0,
			model.CountCycles: used * 2, model.CountInstructions: used * 2 / cpi, model.CountRefCycles: used, model.CountLLCMisses: used / 1e3,
		} {
			t.C[k] = w.counter(t.C[k], by)
		}
	}
	w.node.CPUs = 8
	w.node.C[model.CountBusy], w.node.C[model.CountSteal] = w.counter(w.node.C[model.CountBusy], 5e9), w.counter(w.node.C[model.CountSteal], 1e7)
	for i := range w.tasks {
		for domain := range int32(2 * (w.seq % 3)) {
			d := model.DomainSample{Num: w.tasks[i].Num, Domain: domain, SinceNsec: w.mono / 8e9, MonoNsec: w.mono - 1e9}
			d.C[model.CountOccupancy], d.C[model.CountMovedTotal].Outcome = model.Read(w.seq<<10), w.tasks[i].C[model.CountLLCMisses].Outcome
			if missed := w.tasks[i].C[model.CountLLCMisses]; missed.Outcome == model.OK {
				d.C[model.CountMovedTotal] = missed
			}
			s.Domains = append(s.Domains, d)
		}
	}
	s.Node, s.Tasks = w.node, w.tasks
	return s
}

// beat is a pulse, with the tasks of the last snapshot every other time.
func (w *world) beat() *model.Pulse {
	w.pulse.MonoNsec = w.mono
	w.pulse.LCUsage = w.counter(w.pulse.LCUsage, 2e9)
	w.counter(model.Counter{}, 0) // the draws stay those of when BE was read
	w.pulse.NodeUsage = w.node.C[model.CountBusy]
	p := w.pulse
	p.Tasks = nil
	if w.rng.IntN(2) == 0 {
		for i := range w.tasks {
			t := &w.tasks[i]
			p.Tasks = append(p.Tasks, model.TaskPulse{Num: t.Num, Usage: t.C[model.CountUsage], Throttled: t.C[model.CountThrottled], Periods: w.counter(t.C[model.CountThrottled], 9)})
		}
	}
	return &p
}

func (w *world) input() *engine.Input {
	w.seq++
	w.mono += 1e9
	in := &engine.Input{Seq: w.seq, MonoNsec: w.mono, WallNsec: w.mono + 5e17, Results: w.res, KillSwitch: w.rng.IntN(40) == 0}
	w.res = nil
	if w.rng.IntN(10) > 0 {
		in.Snapshot = w.snapshot()
	}
	if w.rng.IntN(3) > 0 {
		in.Pulse = w.beat()
	}
	if w.rng.IntN(30) == 0 {
		kinds := []string{model.CommandCap, model.CommandUncap, model.CommandProtectOff, model.CommandProtectOn, "dance"}
		in.Commands = append(in.Commands, model.Command{Kind: kinds[w.rng.IntN(len(kinds))], Task: w.next, Job: "j1", Cap: 0.2, DurationNsec: 4e9, By: "ann"})
	}
	switch w.rng.IntN(60) {
	case 0:
		p := quick()
		p.Outlier.Sigmas, p.HistoryWindows = 1+2*w.rng.Float64(), 5
		in.Params = &p
	case 1:
		in.Specs = []model.Spec{{Job: "j1", Platform: []string{"cpu", "other"}[w.rng.IntN(2)], Source: model.Source(w.rng.IntN(2)), NumSamples: 9, Mean: 1, StdDev: w.rng.Float64()}}
	case 3:
		in.Priors = []model.Priors{{Job: "j1", Pairs: []model.Prior{{Antagonist: "j2", Incidents: 9, Nodes: 4, Degradation: 2, Low: 1.5, High: 2.5, Confidence: []float64{0.6, 0.9, -1}[w.seq%3]}}}}
	case 2:
		in.SLO = []model.Latency{{
			Job: fmt.Sprintf("j%d", w.rng.IntN(3)), P99: model.Known(w.rng.Float64()), Samples: 100,
			Target: 0.5, Quantile: 0.99, Figure: []model.Value{model.Known(w.rng.Float64()), model.Missing(model.Unavailable)}[w.rng.IntN(2)], State: "grey",
		}}
	}
	return in
}

func (w *world) answer(out *engine.Output) {
	for _, c := range out.Changes {
		if c.Kind != model.Disown && w.rng.IntN(8) > 0 {
			w.res = append(w.res, model.Result{Seq: c.Seq, Target: c.Target, Kind: model.ResultKind(max(0, w.rng.IntN(8)-4)), Now: c.Value, MonoNsec: w.mono, Error: "no"})
		}
	}
}
