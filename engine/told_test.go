package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cache"
)

func TestToldSpecs(t *testing.T) {
	p := singleNode(t)
	e := engine.New(p)
	web := model.Spec{Job: "web", Platform: p.Platform, Source: model.SourceCPI, NumSamples: 1000, Mean: 2, StdDev: 0.1}
	other := web
	other.Job, other.Platform = "mail", "another CPU"
	none := web
	none.Job, none.NumSamples = "dns", 0
	core := web
	core.Job, core.Definition = "old", "core cycles / instructions"
	out := e.Step(&engine.Input{Seq: 1, MonoNsec: 5e9, Specs: []model.Spec{web, other, none, core}})
	web.MonoNsec, web.Definition = 5e9, "reference cycles / instructions"
	if got := e.State.Specs.Lookup("web", model.SourceCPI); got == nil || *got != web {
		t.Errorf("%+v", got)
	}
	if e.State.Specs.Lookup("mail", model.SourceCPI) != nil || e.State.Specs.Lookup("dns", model.SourceCPI) != nil {
		t.Error("specs were taken that say nothing here")
	}
	if e.State.Specs.Lookup("old", model.SourceCPI) != nil || len(out.Decisions) != 3 || !strings.Contains(out.Decisions[0].Reason, "another CPU") || !strings.Contains(out.Decisions[1].Reason, "no distribution") || !strings.Contains(out.Decisions[2].Reason, "core cycles") {
		t.Errorf("%+v", out.Decisions)
	}
	// What is learned here is weighed against all samples of the fleet.
	e.State.Specs.Add(e.Params.Spec, &model.Task{Num: 1, Job: "web"}, model.SourceCPI, 4, 1, 9)
	local := p.Spec
	local.MinSamplesPerTask, local.RecalculateNsec, local.AgeWeight = 1, 1, 1
	got := e.State.Specs.Recalculate(local, 9e9)
	if len(got) != 1 || got[0].NumSamples != 1001 || got[0].Mean < 2.001 || got[0].Mean > 2.003 {
		t.Errorf("%+v", got)
	}
}

// What a fleet says of who hurts whom is told once, in words and facts, and goes into a checkpoint; a profile without the switch, as cpi2, hears nothing.
func TestToldPriors(t *testing.T) {
	p := singleNode(t)
	say := func(e *engine.Engine, seq uint64) *engine.Output {
		return e.Step(&engine.Input{Seq: seq, MonoNsec: int64(seq) * second, Priors: []model.Priors{{Job: "web", Pairs: []model.Prior{
			{Antagonist: "grind", Incidents: 14, Nodes: 6, Degradation: 1.3, Low: 1.2, High: 1.4, Confidence: 0.87},
			{Antagonist: "idle", Incidents: 14, Nodes: 6, Degradation: 1.3, Low: 1.2, High: 1.4, Confidence: 0.2},
			{Antagonist: "lies", Incidents: -1, Nodes: 6, Degradation: 1.3, Low: 1.2, High: 1.4, Confidence: 1},
		}}}})
	}
	without := engine.New(p)
	if out := say(without, 1); len(out.Decisions) != 0 || len(without.State.Hardcap.Pairs) != 0 {
		t.Errorf("%+v", out.Decisions)
	}
	p.Hardcap.Repeat.Enabled = true
	e := engine.New(p)
	out := say(e, 1)
	if len(out.Decisions) != 1 || out.Decisions[0].Path != "web" || out.Decisions[0].Reason != "grind may hurt web: the fleet saw this pair 14 times on 6 nodes: prior 1.9 of 3.9 asked for" {
		t.Fatalf("%+v", out.Decisions)
	}
	if v, ok := out.Decisions[0].Fact(model.FactPrior); !ok || v < 1.89 || v > 1.91 {
		t.Errorf("prior %v", v)
	}
	if out := say(e, 2); len(out.Decisions) != 0 || len(e.State.Hardcap.Pairs) != 1 {
		t.Errorf("the same again: %+v, %+v", out.Decisions, e.State.Hardcap.Pairs)
	}
	if kept := e.Keep(3*second, 1e18); len(kept.Pairs) != 0 {
		t.Errorf("it is kept over a restart: %+v", kept.Pairs)
	}
}

func TestToldParamsAndLatencies(t *testing.T) {
	p := singleNode(t)
	e := engine.New(p)
	n := p
	n.Mode, n.Platform, n.HistoryWindows, n.Outlier.Sigmas = model.ModeOff, "another", 3, 7
	e.Step(&engine.Input{Seq: 1, MonoNsec: 1e9, Params: &n})
	if e.Params.Mode != model.ModeOff || e.Params.Outlier.Sigmas != 7 {
		t.Errorf("not taken over: %+v", e.Params)
	}
	if e.Params.Platform != p.Platform || e.Params.HistoryWindows != p.HistoryWindows {
		t.Errorf("what cannot change did: %+v", e.Params)
	}
	for i, l := range []model.Latency{{Job: "web", P99: model.Known(1)}, {Job: "dns", Samples: 3}, {Job: "web", P99: model.Known(2)}} {
		e.Step(&engine.Input{Seq: uint64(i) + 2, MonoNsec: 2e9 + int64(i), SLO: []model.Latency{l}})
	}
	if s := e.State.SLO; len(s) != 2 || s[0].Job != "dns" || s[1].P99 != model.Known(2) {
		t.Errorf("%+v", s)
	}
}

// What follows from a parameter is so as soon as another one is told, on a node where nothing else changes.
func TestToldParamsReachPolicies(t *testing.T) {
	p := enginetest.Params()
	p.CPU.CPUSetMode, p.CPU.DemoteMode, p.CPU.CacheMode = model.ModeEnforce, model.ModeEnforce, model.ModeEnforce
	p.CPU.Demote.UpTo = model.Critical.String()
	p.CPU.Cache = cache.Defaults()
	p.CPU.Cache.PatienceNsec = 0
	machine := enginetest.Flat(20)
	machine.Classes = &model.Classes{Caches: []int32{0}, Ways: 11, Least: 1}
	be := enginetest.NewTask(2, model.BE)
	be.Importance = model.Critical
	n := enginetest.New(p, machine, enginetest.NewTask(1, model.LC), be)
	run := func() {
		for range 5 {
			n.Pulse = &model.Pulse{MonoNsec: n.NowNsec + enginetest.Sec}
			n.Beat(enginetest.Sec)
		}
	}
	weight := func() model.Setting { return n.Task(2).Knobs[model.CPUWeight].Value }
	ways := func() (amount int64) {
		for i := range n.Engine.State.Ledger.Knobs {
			if k := &n.Engine.State.Ledger.Knobs[i]; k.Kind == model.CacheWays {
				amount = k.Written.Amount
			}
		}
		return amount
	}
	run()
	had := n.Engine.State.CPU.CPUSet.FloorCores
	if weight() != model.Weight(model.WeightIdle) || ways() != int64(p.CPU.Cache.Ways) {
		t.Fatalf("weight %v, %d ways before", weight(), ways())
	}
	p.CPU.Demote.UpTo = model.BestEffort.String()
	p.CPU.Cache.Ways++
	p.CPU.CPUSet.FloorShare *= 3
	n.Change(p)
	run()
	if weight() != model.Weight(model.WeightDefault) {
		t.Errorf("weight %v: a task that may not be demoted any more is", weight())
	}
	if ways() != int64(p.CPU.Cache.Ways) {
		t.Errorf("%d ways are in force; told were %d", ways(), p.CPU.Cache.Ways)
	}
	if now := n.Engine.State.CPU.CPUSet.FloorCores; now <= had {
		t.Errorf("the floor is %d cores as before", now)
	}
}

// An operator's action is carried out once, and one more is refused as long as it is on its way: its result would pass for that of both.
func TestOneActionAtATime(t *testing.T) {
	n := enginetest.New(enginetest.Params(), enginetest.Flat(2), enginetest.NewTask(1, model.LC), enginetest.NewTask(2, model.BE))
	var done []model.Setting
	n.Task(2).Knobs[model.MemoryReclaim].Write = func(v model.Setting) string { done = append(done, v); return "" }
	say := func(bytes int64) string {
		n.Tell(model.Command{Kind: model.CommandReclaim, Task: 2, Bytes: bytes})
		n.NowNsec += enginetest.Sec
		return n.Step().Decisions[0].Reason
	}
	n.Beat(enginetest.Sec)
	n.Tell(model.Command{Kind: model.CommandReclaim, Task: 2, Bytes: 1 << 20})
	if why := say(2 << 20); strings.Contains(why, "not done") || !strings.Contains(n.Said[len(n.Said)-1].Reason, "is asked for: it is not done") {
		t.Errorf("two at once: %+v", n.Said)
	}
	if why := say(3 << 20); !strings.Contains(why, "is on its way: it is not done") || n.Engine.State.Ledger.Busy(2, model.MemoryReclaim) == "" {
		t.Errorf("while one is on its way: %s", why)
	}
	n.Land()
	n.Beat(enginetest.Sec)
	if why := say(4 << 20); strings.Contains(why, "not done") {
		t.Errorf("when it was carried out: %s", why)
	}
	n.Land()
	n.Beat(enginetest.Sec)
	if want := []model.Setting{model.Reclaim(1 << 20), model.Reclaim(4 << 20)}; !slices.Equal(done, want) {
		t.Errorf("done %v, expected %v", done, want)
	}
}

// The kill switch ends pages on their way, but not where a record is replayed from before there was such a thing.
func TestKillSwitchEndsActions(t *testing.T) {
	for _, ends := range []bool{true, false} {
		p := enginetest.Params()
		p.EndRuns = ends
		n := enginetest.New(p, enginetest.Flat(8), enginetest.NewTask(1, model.BE))
		n.Step()
		n.Tell(model.Command{Kind: model.CommandMovePages, Task: 1, By: "root"})
		if out := n.Step(); len(out.Changes) != 1 || out.Changes[0].Kind != model.Run {
			t.Fatalf("%+v", out.Changes)
		}
		n.Kill = true
		told := 0
		for range 3 {
			n.NowNsec += enginetest.Sec
			for _, c := range n.Step().Changes {
				told++
				if c.Kind != model.Stop || c.Target != model.OfTask(1) || c.Value.Knob != model.MemoryPages {
					t.Errorf("%+v", c)
				}
			}
		}
		if want := map[bool]int{true: 1}[ends]; told != want {
			t.Errorf("ends %t: told %d times", ends, told)
		}
	}
}
