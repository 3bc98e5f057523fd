package remedy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/beside"
	"github.com/commensal-io/commensal/policy/cache"
	"github.com/commensal-io/commensal/policy/memory"
)

// onTrial has policy memory look what came of its milder means on a task, until it has not heard of its victim for so many windows.
func (w *world) onTrial(task model.TaskNum, windows int) {
	p := &w.Engine.Params.CPU
	p.MemoryMode, p.Memory = model.ModeEnforce, memory.Defaults()
	p.Memory.SearchWindows = windows
	inc := beside.Incident{Mild: true, Incident: model.Incident{
		ID: "m1", Victim: service, State: model.Verifying, Source: model.SourceMemory, Rounds: []model.Round{{Chosen: &task}},
	}}
	w.Engine.State.CPU.Memory.Incidents = append(w.Engine.State.CPU.Memory.Incidents, inc)
}

// Nothing is taken from a task of which another policy looks what came of a step, nor given back to it: both would judge the same
// windows. Once that is known it goes on.
func TestOnTrialElsewhere(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.seconds(10)
	w.onTrial(2, 20)
	w.harms[2] = harm{ways: 0.5, misses: 100}
	for range 19 {
		if w.play(); w.has(2, model.CacheWays, 11) < 11 {
			t.Fatalf("%s in second %d", w.holds(), w.second)
		}
	}
	w.seconds(15)
	w.expect(t, "when that is known", "2/100/2 11/100/2 11/100/2")
	for range 200 {
		if w.play(); w.state().Trial == nil && len(w.Engine.State.CPU.Memory.Incidents) == 0 {
			break
		}
	}
	w.onTrial(2, 400)
	before := w.holds()
	w.harms[2] = harm{misses: 100}
	w.seconds(390)
	w.expect(t, "nothing is given back", before)
	if before == free {
		t.Error("nothing is held")
	}
	w.seconds(400)
	w.expect(t, "all is", free)
}

// A task with a class for itself has no more memory bandwidth than the class of best-effort work. That goes down and up with it, and is no
// change of this policy's that would disturb what others have on trial with the task.
func TestFollowsTheOthers(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	p := w.Engine.Params
	p.CPU.CacheMode, p.CPU.Cache = model.ModeEnforce, cache.Defaults()
	p.CPU.Cache.Ways, p.CPU.Cache.Level, p.CPU.Cache.PatienceNsec = 11, 50, 0
	w.Change(p)
	w.seconds(10)
	w.harms[2] = harm{ways: 0.5, misses: 100}
	w.seconds(20)
	for _, level := range []int{50, 30, 70} {
		p.CPU.Cache.Level = level
		w.Change(p)
		w.seconds(5)
		if got := w.has(2, model.MemoryBandwidth, 100); got != float64(level) || w.has(2, model.CacheWays, 11) == 11 {
			t.Errorf("level %g where all others have %d: %s", got, level, w.holds())
		}
	}
	by := func(kind model.KnobKind) bool {
		return slices.ContainsFunc(w.Engine.State.Touched, func(o policy.Touch) bool { return o.Task == 2 && o.By == model.PolicyRemedy && o.Knob == kind })
	}
	if by(model.MemoryBandwidth) || !by(model.CacheWays) {
		t.Errorf("%+v", w.Engine.State.Touched)
	}
}

// With nobody left but who is on trial with another policy it waits, and says so; that it cannot be fixed is not known before.
func TestOnlyElsewhere(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.Remove(3)
	w.Remove(4)
	w.harms = map[model.TaskNum]harm{2: {misses: 100}}
	w.seconds(10)
	w.onTrial(2, 20)
	w.harms[2] = harm{ways: 0.5, misses: 100}
	w.seconds(19)
	waits := slices.ContainsFunc(w.Said, func(d model.Decision) bool {
		return d.Task == 2 && strings.HasPrefix(d.Reason, "on trial elsewhere: policy memory looks what came of a step on it")
	})
	if n := w.Count(model.DecideCannotFix); n > 0 || !waits || !w.state().Working() || w.state().StuckNsec > 0 {
		t.Errorf("said %d times; waits: %v; %+v", n, waits, w.state())
	}
	w.seconds(15)
	w.expect(t, "when that is known", "2/100/2")
}

// What somebody else changed of any task is no part of what a step is compared with: its windows begin anew. Memory that is taken back takes no CPU time.
func TestOthersBeginAnew(t *testing.T) {
	for name, c := range map[string]struct {
		command model.Command
		anew    bool
	}{
		"weight": {model.Command{Kind: model.CommandDemote, Task: 3, DurationNsec: 600e9}, true},
		"memory": {model.Command{Kind: model.CommandReclaim, Task: 3, Bytes: 1 << 20}, false},
	} {
		w := newWorld(model.ModeEnforce, xeon(8))
		w.seconds(30)
		before := w.state().Victims[0]
		w.Tell(c.command)
		w.seconds(6)
		if now := w.state().Victims[0]; (now.Figure.N < before.Figure.N && now.CPI.N < before.CPI.N) != c.anew || now.Figure.N == 0 {
			t.Errorf("%s: %+v of figures, %+v before; of CPI %+v, %+v", name, now.Figure, before.Figure, now.CPI, before.CPI)
		}
	}
}

// Between two troubles that follow each other closely it is at work: the hard cap would hold somebody else, and what was seen of either would say nothing.
func TestWorksThroughALull(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.seconds(10)
	if w.state().Working() {
		t.Error("there was no trouble")
	}
	w.harms[2] = harm{ways: 0.5, misses: 100}
	for w.second < 60 && (w.Count(model.DecideKept) == 0 || w.state().Victim != 0) {
		w.play()
	}
	since, quiet := w.state().TroubleNsec, w.Engine.Params.CPU.Remedy.QuietNsec
	for w.NowNsec-since < quiet-2*enginetest.Sec {
		if w.state().Victim != 0 || !w.state().Working() {
			t.Errorf("%g s after the trouble: %+v", float64(w.NowNsec-since)/1e9, w.state())
		}
		w.play()
	}
	w.harms[2] = harm{misses: 100}
	w.seconds(600)
	if w.state().Working() {
		t.Errorf("long after the trouble: %+v", w.state())
	}
}
