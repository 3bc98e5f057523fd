package engine_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// cpuStorm is a storm in which pulses come too, on a machine with two sockets of four
// cores with two threads each, whose CPUs go offline and come back.
type cpuStorm struct {
	*storm
	dice     *rand.Rand // of its own, so that the storm stays what it is
	offline  int
	pulse    model.Pulse
	settings map[model.TaskNum]model.CPUMax
}

func newCPUStorm(seed uint64) *cpuStorm {
	return &cpuStorm{storm: newStorm(seed), dice: rand.New(rand.NewPCG(seed, 4)), settings: map[model.TaskNum]model.CPUMax{}}
}

func (w *cpuStorm) topology() *model.Topology {
	t := &model.Topology{Possible: model.FullSet(16)}
	for i := range 16 - w.offline {
		t.CPUs = append(t.CPUs, model.CPU{ID: i, Core: i % 8, Socket: i % 8 / 4, LLC: i % 8 / 4})
	}
	return t
}

func (w *cpuStorm) input() *engine.Input {
	in := w.storm.input()
	if s := in.Snapshot; s != nil {
		if w.seq < 3 || w.dice.IntN(80) == 0 {
			w.offline = w.dice.IntN(12) * w.dice.IntN(2)
			s.Topology = w.topology()
		}
		for i := range s.Added {
			n := s.Added[i].Num
			s.Added[i].Exclusive = s.Added[i].Class == model.LC && w.dice.IntN(4) == 0
			w.settings[n] = model.CPUMax{QuotaUsec: []int64{-1, 100_000, 250_000}[w.dice.IntN(3)], PeriodUsec: 100_000}
			s.Settings = append(s.Settings, model.KnobReading{Target: model.OfTask(n), Value: model.Place(model.FullSet(16)), Outcome: model.OK})
			if s.Added[i].Class == model.LC {
				s.Settings = append(s.Settings, model.KnobReading{Target: model.OfTask(n), Value: model.Bandwidth(w.settings[n]), Outcome: model.OK})
			}
		}
	}
	if w.dice.IntN(10) > 0 {
		in.Pulse = w.beat()
	}
	return in
}

// beat is a pulse in which the load of LC swings.
func (w *cpuStorm) beat() *model.Pulse {
	load := []float64{0.5, 2, 6, 11}[w.seq/25%4]
	p := &model.Pulse{MonoNsec: w.mono, LCUsage: w.counter(w.pulse.LCUsage, load*1e9)}
	if w.dice.IntN(3) > 0 {
		for i := range w.tasks {
			if t := &w.tasks[i]; w.cls[t.Num] == model.LC {
				p.Tasks = append(p.Tasks, model.TaskPulse{Num: t.Num, Usage: t.C[model.CountUsage], Periods: model.Read(w.seq * 10), Throttled: model.Read(w.seq * uint64(w.dice.IntN(2)))})
			}
		}
	}
	w.pulse = *p
	return p
}

func cpuParams(t *testing.T) engine.Params {
	p := singleNode(t)
	p.CPU.CPUSetMode, p.CPU.CPUPoolMode, p.CPU.BurstMode = model.ModeEnforce, model.ModeEnforce, model.ModeEnforce
	return p
}

// In any world places are never empty, LC and BE never claim one core, quotas of LC are not
// lowered, BE's are not raised, and the kill switch ends it all.
func TestStormOfTheCPU(t *testing.T) {
	places, raises := 0, 0
	for seed := range uint64(12) {
		w, e := newCPUStorm(seed), engine.New(cpuParams(t))
		for range 600 {
			in := w.input()
			out := e.Step(in)
			if _, err := json.Marshal(e.State); err != nil {
				t.Fatalf("seed %d tick %d: %v", seed, in.Seq, err)
			}
			cores := map[int]model.Class{}
			for _, k := range e.State.Ledger.Knobs {
				for _, c := range k.Claims {
					w.check(t, seed, &c, cores)
				}
				if in.KillSwitch && len(k.Claims) > 0 {
					t.Fatalf("seed %d tick %d: claims under the kill switch", seed, in.Seq)
				}
			}
			for _, c := range out.Changes {
				if c.Kind == model.Set && c.Value.Knob == model.CPUPlace {
					places++
				} else if c.Kind == model.Set {
					raises++
				}
			}
			w.due = append(w.due, out.Changes...)
		}
	}
	if places < 300 || raises < 40 { // the storm turns protection off for all, now and then
		t.Fatalf("%d places, %d raises: the storms test nothing", places, raises)
	}
}

func (w *cpuStorm) check(t *testing.T, seed uint64, c *model.Claim, cores map[int]model.Class) {
	t.Helper()
	class := w.cls[c.Task()]
	switch {
	case w.mono >= c.ExpiresNsec:
		t.Fatalf("seed %d at %d: claim %d is past its time", seed, w.seq, c.ID)
	case c.Kind == model.ClaimPlace && (c.Value.CPUs.Empty() || class == model.System):
		t.Fatalf("seed %d at %d: %s task %d is to be on CPUs %q", seed, w.seq, class, c.Task(), c.Value.CPUs)
	case c.Kind == model.ClaimPlace:
		for _, cpu := range c.Value.CPUs.Members() {
			if other, ok := cores[cpu%8]; ok && other != class {
				t.Fatalf("seed %d at %d: %s and %s share core %d", seed, w.seq, class, other, cpu%8)
			}
			cores[cpu%8] = class
		}
	case c.Kind == model.ClaimRaise && (class != model.LC || c.Value.QuotaUsec != 0 && c.Value.QuotaUsec < w.settings[c.Task()].QuotaUsec):
		t.Fatalf("seed %d at %d: %s task %d with %+v: %+v", seed, w.seq, class, c.Task(), w.settings[c.Task()], c)
	case c.Kind == model.ClaimCap && c.Owner == model.OwnerPolicy && class != model.BE:
		t.Fatalf("seed %d at %d: a policy caps %s task %d", seed, w.seq, class, c.Task())
	}
}

// Protection that is off for all jobs ends what every policy holds, and lets none hold again
// until it is on.
func TestProtectOffDisarmsEveryPolicy(t *testing.T) {
	const off, on, ticks = 200, 300, 400
	claims := func(e *engine.Engine) (n int) {
		for _, k := range e.State.Ledger.Knobs {
			for _, c := range k.Claims {
				if c.Owner == model.OwnerPolicy {
					n++
				}
			}
		}
		return n
	}
	before, after := 0, 0
	for seed := range uint64(4) {
		w, e := newCPUStorm(seed), engine.New(cpuParams(t))
		for i := range ticks {
			in := w.input()
			in.Commands = nil // the storm's own
			switch i {
			case off:
				in.Commands = []model.Command{{Kind: model.CommandProtectOff, By: "test"}}
			case on:
				in.Commands = []model.Command{{Kind: model.CommandProtectOn, By: "test"}}
			}
			w.due = append(w.due, e.Step(in).Changes...)
			switch n := claims(e); {
			case i < off:
				before += n
			case i < on && n > 0:
				t.Fatalf("seed %d tick %d: %d claims of policies while protection is off", seed, i, n)
			case i >= on:
				after += n
			}
		}
	}
	if before == 0 || after == 0 {
		t.Fatalf("%d claims before, %d after: the storm tests nothing", before, after)
	}
}

// A checkpoint at any tick leads to the same future and the same memory, to the nanosecond at which a claim ends, with the policies of the CPU too.
func TestResumeOfTheCPU(t *testing.T) {
	for seed := range uint64(6) {
		p := cpuParams(t)
		w, e := newCPUStorm(seed), engine.New(p)
		var twin *engine.Engine
		for i := range 400 {
			in := w.input()
			if i == 3 || w.dice.IntN(30) == 0 {
				twin = enginetest.Resumed(t, e)
			}
			out := e.Step(in)
			w.due = append(w.due, out.Changes...)
			if twin == nil {
				continue
			}
			want, err := json.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := json.Marshal(twin.Step(in)); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("seed %d tick %d: %v\n%s\n%s", seed, i, err, want, got)
			}
			if want, got := remembered(t, e), remembered(t, twin); !bytes.Equal(got, want) {
				t.Fatalf("seed %d tick %d:\n%s\n%s", seed, i, want, got)
			}
		}
	}
}

// remembered is the state of an engine, where an empty list is none.
func remembered(t *testing.T, e *engine.Engine) []byte {
	t.Helper()
	b, err := json.Marshal(e.State)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b, []byte(":[]"), []byte(":null"))
}

// A BE task into which a service is put is let go in the same step, in kernel and ledger, and
// nobody can hold it as long as the service is in it: no operator either, whatever he frees.
func TestShieldedTaskIsNeverHeld(t *testing.T) {
	n := enginetest.New(enginetest.Params(), enginetest.Flat(4), enginetest.NewTask(1, model.BE))
	k := &n.Task(1).Knobs[model.CPUBandwidth]
	found := k.Value
	hold := func(want bool) {
		t.Helper()
		n.Tell(model.Command{Kind: model.CommandCap, Task: 1, Cap: 0.1, DurationNsec: 600 * enginetest.Sec})
		n.Beat(enginetest.Sec)
		if n.Beat(enginetest.Sec); k.Ours != want || n.Engine.State.Ledger.Held(1) != want {
			t.Fatalf("held in the kernel: %v, in the ledger: %v; expected %v", k.Ours, n.Engine.State.Ledger.Held(1), want)
		}
	}
	hold(true)
	n.Snapshot().Shields = []model.Shield{{Task: 1, Why: "/t1/web, which is not to be held back, lies inside"}}
	out := n.Beat(enginetest.Sec)
	if k.Ours || k.Value != found || len(out.Changes) != 1 || out.Changes[0].Kind != model.Release {
		t.Fatalf("%+v; the knob says %s", out.Changes, k.Value)
	}
	hold(false)
	n.Tell(model.Command{Kind: model.CommandUncap, Task: 1})
	n.Beat(1000 * enginetest.Sec)
	hold(false)
	if last := n.Said[len(n.Said)-1]; !strings.Contains(last.Reason, "/t1/web") {
		t.Errorf("the operator is told %+v", last)
	}
	n.Snapshot().Shields = []model.Shield{{Task: 1}}
	hold(true)
}
