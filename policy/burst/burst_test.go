package burst

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// said counts decisions of a kind.
func (h *host) count(kind model.DecisionKind) int {
	n := 0
	for _, d := range h.said {
		if d.Kind == kind {
			n++
		}
	}
	return n
}

func (h *host) dump(t *testing.T) {
	t.Helper()
	for _, d := range h.said {
		t.Logf("%s task %d value %.2f score %.2f: %s", d.Kind, d.Task, d.Value, d.Score, d.Reason)
	}
}

func idle(int64, *group) float64 { return 0 }

// The three kinds of kernel: the seed's own, mainline since 5.14, and older ones.
func TestBound(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		bound float64
		tasks int
		want  float64
	}{
		{"takes ten times the quota", 10, 3, 10},
		{"mainline", 1, 3, 1},
		{"mainline, one task", 1, 1, 1},
		{"none", 0, 3, 0},
		{"none, one task", 0, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var groups []*group
			for i := range tc.tasks {
				groups = append(groups, newGroup(model.TaskNum(i+1), 200_000, 100_000))
			}
			h := newHost(Defaults(), tc.bound, groups...)
			h.run(8_000, every(50), every(5), idle)
			if !h.s.Bound.Known || h.s.Bound.K != tc.want {
				t.Fatalf("bound %+v, want %g", h.s.Bound, tc.want)
			}
			if n := h.count(model.DecideBound); n != 1 {
				t.Errorf("%d decisions of the bound, want 1", n)
			}
			for _, g := range h.groups {
				if want := int64(tc.want * 200_000); g.now.BurstUsec != want {
					t.Errorf("task %d: burst %d us, want %d", g.task.Num, g.now.BurstUsec, want)
				}
				if g.now.QuotaUsec != 200_000 {
					t.Errorf("task %d: quota %d us is not as found", g.task.Num, g.now.QuotaUsec)
				}
			}
			h.dump(t)
		})
	}
}

// One odd task must not cost all others their bursts.
func TestBoundOddTask(t *testing.T) {
	t.Parallel()
	h := newHost(Defaults(), 1, newGroup(1, 100_000, 100_000), newGroup(2, 100_000, 100_000), newGroup(3, 100_000, 100_000))
	odd := h.groups[0]
	odd.odd = true
	h.run(12_000, every(50), every(3), idle)
	if h.s.Bound.K != 1 {
		h.dump(t)
		t.Fatalf("bound %+v, want 1", h.s.Bound)
	}
	if h.groups[1].now.BurstUsec != 100_000 || h.groups[2].now.BurstUsec != 100_000 || odd.now.BurstUsec != 0 {
		t.Errorf("bursts %d, %d, %d", odd.now.BurstUsec, h.groups[1].now.BurstUsec, h.groups[2].now.BurstUsec)
	}
}

// bursty plays spikes against a kernel and returns the share of periods throttled.
func bursty(t *testing.T, p Params, bound float64, off bool) (float64, *host) {
	t.Helper()
	g := newGroup(1, 200_000, 100_000)
	g.width = 16
	h := newHost(p, bound, g)
	if off {
		h.v.Mode = model.ModeObserve
	}
	// 25 % even, and a spike of five quotas every four seconds.
	h.run(120_000, every(50), every(3), spikes(rand.New(rand.NewPCG(3, 3)), 500, 1_000_000, 4000))
	return float64(g.limited) / float64(g.periods), h
}

// What the policy is for: fewer throttled periods, and nearly as few with mainline's bound as
// with the seed's kernel.
func TestFewerThrottledPeriods(t *testing.T) {
	t.Parallel()
	none, h := bursty(t, Defaults(), 1, true)
	if h.claims != 0 {
		t.Errorf("%d claims in observe mode", h.claims)
	}
	p := Defaults()
	p.UserSpace = false
	kernel, _ := bursty(t, p, 1, false)
	both, h := bursty(t, Defaults(), 1, false)
	ideal, _ := bursty(t, Defaults(), 10, false)
	t.Logf("periods throttled: without %.2f %%, kernel's k = 1 %.2f %%, and user space %.2f %%, kernel's k = 10 %.2f %%; %d writes of the quota in 120 s",
		none*100, kernel*100, both*100, ideal*100, h.groups[0].written)
	if !(kernel < none && both < kernel/2 && ideal <= both) {
		h.dump(t)
		t.Errorf("the order is wrong")
	}
}

// Spikes that come back keep a raise standing: what it takes in is a burst although nothing
// is throttled any more.
func TestRaiseStands(t *testing.T) {
	t.Parallel()
	g := newGroup(1, 200_000, 100_000)
	g.width = 16
	h := newHost(Defaults(), 1, g)
	h.run(600_000, every(50), every(3), func(ms int64, g *group) float64 {
		g.backlog += 100
		if ms%4000 < 40 {
			g.backlog += 500_000 / 40
		}
		ask := min(g.backlog, g.width*1000)
		g.backlog -= min(ask, g.runtime)
		return ask
	})
	if g.written != 1 || g.limited > 20 {
		h.dump(t)
		t.Errorf("%d writes of the quota, %d of %d periods throttled", g.written, g.limited, g.periods)
	}
}

// Writes are bounded: per task by the rest between raises, for all by the budget.
func TestWritesBounded(t *testing.T) {
	t.Parallel()
	p := Defaults()
	p.MaxWritesPerSec, p.QuietNsec = 10, 100e6
	var groups []*group
	for i := range 40 {
		g := newGroup(model.TaskNum(i+1), 200_000, 100_000)
		g.width = 16
		groups = append(groups, g)
	}
	h := newHost(p, 1, groups...)
	rng := rand.New(rand.NewPCG(1, 1))
	var asks []work
	for range groups {
		asks = append(asks, spikes(rng, 300, 800_000, 900))
	}
	const seconds = 60
	h.run(seconds*1000, every(50), every(3), asks...)
	total, raised := 0, 0
	for _, g := range groups {
		total += g.written
		if g.written > 0 {
			raised++
		}
		if most := 2 * (seconds*1e9/(int(p.RestNsec)+50e6) + 1); g.written > most {
			t.Errorf("task %d: %d writes in %d s, want at most %d", g.task.Num, g.written, seconds, most)
		}
	}
	if most := int(p.MaxWritesPerSec) * (seconds + 1); total > most {
		t.Errorf("%d writes, want at most %d", total, most)
	}
	if raised < len(groups)*3/4 {
		t.Errorf("only %d of %d tasks had a turn", raised, len(groups))
	}
	t.Logf("%d writes of %d tasks in %d s", total, raised, seconds)
}

// A task that uses all of its quota all the time has no savings: it is never raised, and
// does not cost a reading at every pulse.
func TestSaturatedTask(t *testing.T) {
	t.Parallel()
	h := newHost(Defaults(), 1, newGroup(1, 200_000, 100_000))
	h.run(60_000, every(50), every(3), func(int64, *group) float64 { return 8000 })
	if g := h.groups[0]; g.written != 0 {
		t.Errorf("%d writes of its quota", g.written)
	}
	if h.detail > 60 {
		t.Errorf("%d of %d pulses had detail", h.detail, h.pulses)
	}
}

// Nothing bursts: one burst for each task, no write after that, few readings.
func TestQuiet(t *testing.T) {
	t.Parallel()
	h := newHost(Defaults(), 1, newGroup(1, 200_000, 100_000), newGroup(2, 50_000, 100_000))
	h.run(60_000, every(50), every(3), func(int64, *group) float64 { return 200 })
	for _, g := range h.groups {
		if g.written != 0 || g.now.BurstUsec != g.found.QuotaUsec {
			t.Errorf("task %d: %d writes, burst %d", g.task.Num, g.written, g.now.BurstUsec)
		}
	}
	if h.detail > 20 {
		t.Errorf("%d of %d pulses had detail", h.detail, h.pulses)
	}
	if n := h.count(model.DecideRaise); n != 2 {
		t.Errorf("%d decisions, want one a task", n)
	}
}

// A raise comes down when nobody watches it: no detail, and no pulse at all.
func TestRaiseEndsUnwatched(t *testing.T) {
	t.Parallel()
	start := func() *host {
		g := newGroup(1, 200_000, 100_000)
		g.width = 16
		h := newHost(Defaults(), 1, g)
		rng := rand.New(rand.NewPCG(3, 3))
		ask := spikes(rng, 500, 1_000_000, 3000)
		for range 300 {
			h.run(100, every(50), every(3), ask)
			if g.now.QuotaUsec > g.found.QuotaUsec {
				return h
			}
		}
		t.Fatal("it was never raised")
		return nil
	}
	t.Run("no detail", func(t *testing.T) {
		t.Parallel()
		h := start()
		for range 4 {
			h.ms += 50
			h.look(false)
			h.w.Reset()
			h.s.Step(&h.p, &h.v, &h.w)
			for i := range h.w.Claims {
				h.groups[0].claim = &h.w.Claims[i]
			}
			h.land()
		}
		if h.s.Raised != 0 || h.groups[0].now.QuotaUsec != 200_000 {
			t.Errorf("raised %d, quota %d us", h.s.Raised, h.groups[0].now.QuotaUsec)
		}
	})
	t.Run("no pulse", func(t *testing.T) {
		t.Parallel()
		h := start()
		h.ms += 1100
		h.land() // the claim is over
		if q := h.groups[0].now.QuotaUsec; q != 200_000 {
			t.Errorf("quota %d us", q)
		}
	})
}

// Knobs that are not ours to touch are left alone, told once, and given back.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*model.TaskView){
		"exempt": func(v *model.TaskView) { v.Exempt = true },
		"void":   func(v *model.TaskView) { v.Knobs[model.CPUBandwidth].Void = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(Defaults(), 1, newGroup(1, 200_000, 100_000), newGroup(2, 200_000, 100_000))
			h.run(10_000, every(50), every(3), idle)
			h.said = nil
			claims := 0
			for range 1200 {
				h.ms += 50
				h.look(h.s.Detail(&h.p, h.ms*1e6))
				set(&h.v.Tasks[0])
				h.v.Changed = true
				h.w.Reset()
				h.s.Step(&h.p, &h.v, &h.w)
				h.said = append(h.said, h.w.Decisions...)
				for _, c := range h.w.Claims {
					if c.Task == 1 {
						claims++
					}
				}
			}
			if claims != 0 || h.count(model.DecideLeftAlone) != 1 {
				h.dump(t)
				t.Errorf("%d claims, %d explanations", claims, h.count(model.DecideLeftAlone))
			}
		})
	}
}

// What the kernel takes of most it may refuse to one: told, left in peace, tried again, rarer.
func TestRefusedTask(t *testing.T) {
	t.Parallel()
	h := newHost(Defaults(), 1, newGroup(1, 100_000, 100_000), newGroup(2, 100_000, 100_000))
	h.groups[1].odd = true
	h.run(3_600_000, every(250), every(3), idle)
	if n := h.count(model.DecideLeftAlone); n < 4 || n > 9 {
		h.dump(t)
		t.Errorf("told %d times in an hour", n)
	}
	if h.groups[0].now.BurstUsec != 100_000 {
		t.Errorf("the other task's burst is %d us", h.groups[0].now.BurstUsec)
	}
}

// Tasks without a quota, of other classes and exclusive ones are none of its business.
func TestNoQuota(t *testing.T) {
	t.Parallel()
	no, be, exclusive := newGroup(1, -1, 100_000), newGroup(2, 100_000, 100_000), newGroup(3, 100_000, 100_000)
	be.task.Class, exclusive.task.Exclusive = model.BE, true
	h := newHost(Defaults(), 10, no, be, exclusive)
	h.run(20_000, every(50), every(3), idle)
	if h.claims != 0 || len(h.said) != 0 || len(h.s.Tasks) != 0 {
		t.Errorf("%d claims, %d decisions, %d tasks", h.claims, len(h.said), len(h.s.Tasks))
	}
}

// A burst that somebody gave already is no reason for a claim, and never made smaller.
func TestFoundBurst(t *testing.T) {
	t.Parallel()
	g := newGroup(1, 200_000, 100_000)
	g.found.BurstUsec, g.now.BurstUsec = 200_000, 200_000
	h := newHost(Defaults(), 1, g, newGroup(2, 200_000, 100_000))
	h.run(20_000, every(50), every(3), idle)
	if g.claim != nil || g.now.BurstUsec != 200_000 {
		t.Errorf("claim %+v, burst %d us", g.claim, g.now.BurstUsec)
	}
}

// A limit that somebody changes is the new original.
func TestLimitChanges(t *testing.T) {
	t.Parallel()
	h := newHost(Defaults(), 1, newGroup(1, 200_000, 100_000))
	h.run(10_000, every(50), every(3), idle)
	g := h.groups[0]
	g.claim = nil
	g.found.QuotaUsec, g.now = 300_000, model.CPUMax{QuotaUsec: 300_000, PeriodUsec: 100_000}
	h.run(10_000, every(50), every(3), idle)
	if g.now.BurstUsec != 300_000 || g.now.QuotaUsec != 300_000 {
		t.Errorf("%+v", g.now)
	}
}

// Counters that are absent or go back are no evidence of savings.
func TestCountersMissing(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*model.TaskPulse){
		"unavailable": func(tp *model.TaskPulse) { tp.Usage = model.Counter{} },
		"backwards":   func(tp *model.TaskPulse) { tp.Usage.Value /= 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(Defaults(), 1, newGroup(1, 200_000, 100_000))
			h.run(15_000, every(50), every(3), func(int64, *group) float64 { return 400 })
			if h.s.Tasks[0].Level <= 0 {
				t.Fatalf("level %g", h.s.Tasks[0].Level)
			}
			h.ms += 50
			h.look(true)
			spoil(&h.pulse.Tasks[0])
			h.w.Reset()
			h.s.Step(&h.p, &h.v, &h.w)
			if h.s.Tasks[0].Level > 0 {
				t.Errorf("level %g", h.s.Tasks[0].Level)
			}
		})
	}
}

// Observe: decisions, no claims, no bound.
func TestObserve(t *testing.T) {
	t.Parallel()
	_, h := bursty(t, Defaults(), 1, true)
	if h.claims != 0 || h.s.Bound.Known || h.count(model.DecideRaise) != 1 || len(h.said) != 1 {
		h.dump(t)
		t.Errorf("%d claims, bound %+v, %d decisions", h.claims, h.s.Bound, len(h.said))
	}
	if !strings.Contains(h.said[0].Reason, "would") {
		t.Errorf("reason %q", h.said[0].Reason)
	}
}

// When enforcement ends, everything is given back.
func TestModeChange(t *testing.T) {
	t.Parallel()
	h := newHost(Defaults(), 1, newGroup(1, 200_000, 100_000))
	h.run(10_000, every(50), every(3), idle)
	h.v.Mode = model.ModeObserve
	h.run(200, every(50), every(3), idle)
	if g := h.groups[0]; g.claim != nil || g.now != g.found {
		t.Errorf("claim %+v, %+v", g.claim, g.now)
	}
	if !h.s.Bound.Known {
		t.Error("the kernel's bound was forgotten")
	}
}

// A replay from a checkpoint decides the same.
func TestReplay(t *testing.T) {
	t.Parallel()
	play := func(cut int64) ([]model.Decision, int, []byte) {
		g, o := newGroup(1, 200_000, 100_000), newGroup(2, 100_000, 50_000)
		g.width, o.width = 16, 16
		h := newHost(Defaults(), 1, g, o)
		rng := rand.New(rand.NewPCG(5, 5))
		asks := []work{spikes(rng, 400, 900_000, 3000), spikes(rng, 300, 500_000, 2000)}
		for range 600 {
			h.run(100, every(50), every(3), asks...)
			if cut > 0 && h.ms%cut == 0 {
				text, err := json.Marshal(&h.s)
				if err != nil {
					t.Fatal(err)
				}
				h.s = State{}
				if err := json.Unmarshal(text, &h.s); err != nil {
					t.Fatal(err)
				}
			}
		}
		text, err := json.Marshal(&h.s)
		if err != nil {
			t.Fatal(err)
		}
		return h.said, h.claims, text
	}
	said, claims, state := play(0)
	again, claimsAgain, stateAgain := play(700)
	if len(said) < 4 || !reflect.DeepEqual(said, again) || claims != claimsAgain || string(state) != string(stateAgain) {
		t.Errorf("%d and %d decisions, %d and %d claims, states\n%s\n%s", len(said), len(again), claims, claimsAgain, state, stateAgain)
	}
}
