package engine_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// placedNode is an engine on a node of n tasks that are all placed, and its next pulse.
func placedNode(t testing.TB, n int) (e *engine.Engine, next func() *engine.Input) {
	t.Helper()
	c := singleNodeConfig(t)
	p := c.Params("sim-cpu")
	p.CPU.CPUSetMode, p.CPU.CPUPoolMode, p.CPU.BurstMode = model.ModeEnforce, model.ModeEnforce, model.ModeEnforce
	e = engine.New(p)
	first, _ := crowdInputs(n)
	top := &model.Topology{Possible: model.FullSet(64)}
	for i := range 64 {
		top.CPUs = append(top.CPUs, model.CPU{ID: i, Core: i, Socket: i / 32, LLC: i / 32})
	}
	first.Snapshot.Topology = top
	for _, task := range first.Snapshot.Added {
		first.Snapshot.Settings = append(first.Snapshot.Settings, model.KnobReading{Target: model.OfTask(task.Num), Value: model.Place(model.FullSet(64)), Outcome: model.OK})
		if task.Class == model.LC {
			first.Snapshot.Settings = append(first.Snapshot.Settings, model.KnobReading{Target: model.OfTask(task.Num), Value: model.Bandwidth(model.CPUMax{QuotaUsec: 200_000, PeriodUsec: 100_000}), Outcome: model.OK})
		}
	}
	e.Step(first)
	in := &engine.Input{Seq: first.Seq, MonoNsec: first.MonoNsec, Pulse: &model.Pulse{LCUsage: model.Read(0)}}
	return e, func() *engine.Input {
		in.Seq++
		in.MonoNsec += 50e6
		in.Pulse.MonoNsec = in.MonoNsec
		in.Pulse.LCUsage.Value += 50e6 * 4
		return in
	}
}

// A pulse in which nothing happens costs next to nothing, however many tasks are placed.
func TestSteadyPulseDoesNotAllocate(t *testing.T) {
	e, next := placedNode(t, 150)
	settle(e, next, 200)
	if held := len(e.State.Ledger.Knobs); held < 150 {
		t.Fatalf("%d knobs are held: the test tests nothing", held)
	}
	if n := testing.AllocsPerRun(200, func() { e.Step(next()) }); n > 0 {
		t.Errorf("%v allocations a pulse", n)
	}
}

// settle plays pulses, and a host that takes everything.
func settle(e *engine.Engine, next func() *engine.Input, pulses int) {
	var results []model.Result
	for range pulses {
		in := next()
		in.Results = results
		out := e.Step(in)
		results = nil
		for _, c := range out.Changes {
			results = append(results, model.Result{Seq: c.Seq, Target: c.Target, Kind: model.Applied, Found: c.Value, Now: c.Value, MonoNsec: in.MonoNsec})
		}
		in.Results = nil
	}
}

func BenchmarkPulse(b *testing.B) {
	e, next := placedNode(b, 150)
	settle(e, next, 200)
	b.ReportAllocs()
	for b.Loop() {
		e.Step(next())
	}
}
