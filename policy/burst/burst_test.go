package burst_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/burst"
)

func idle(int64, *group) float64 { return 0 }

// The three kinds of kernel: Alibaba's own, mainline since 5.14, and older ones.
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
				groups = append(groups, newGroup(i+1, 200_000, 100_000))
			}
			h := newHost(burst.Defaults(), tc.bound, groups...)
			h.run(8_000, every(50), every(5), idle)
			if !h.s.Bound.Known || h.s.Bound.K != tc.want {
				t.Fatalf("bound %+v, want %g", h.s.Bound, tc.want)
			}
			if n := h.Count(model.DecideBound); n != 1 {
				t.Errorf("%d decisions of the bound, want 1", n)
			}
			for _, g := range h.groups {
				if want := int64(tc.want * 200_000); g.now().BurstUsec != want {
					t.Errorf("task %d: burst %d us, want %d", g.Num, g.now().BurstUsec, want)
				}
				if g.now().QuotaUsec != 200_000 {
					t.Errorf("task %d: quota %d us is not as found", g.Num, g.now().QuotaUsec)
				}
			}
			h.Dump(t)
		})
	}
}

// One odd task must not cost all others their bursts.
func TestBoundOddTask(t *testing.T) {
	t.Parallel()
	h := newHost(burst.Defaults(), 1, newGroup(1, 100_000, 100_000), newGroup(2, 100_000, 100_000), newGroup(3, 100_000, 100_000))
	odd := h.groups[0]
	odd.odd = true
	h.run(12_000, every(50), every(3), idle)
	if h.s.Bound.K != 1 {
		h.Dump(t)
		t.Fatalf("bound %+v, want 1", h.s.Bound)
	}
	if h.groups[1].now().BurstUsec != 100_000 || h.groups[2].now().BurstUsec != 100_000 || odd.now().BurstUsec != 0 {
		t.Errorf("bursts %d, %d, %d", odd.now().BurstUsec, h.groups[1].now().BurstUsec, h.groups[2].now().BurstUsec)
	}
}

// bursty plays spikes against a kernel and returns the share of periods throttled.
func bursty(t *testing.T, p burst.Params, bound float64, off bool) (float64, *host) {
	t.Helper()
	h := newHost(p, bound, wide(1, 200_000, 100_000))
	g := h.groups[0]
	if off {
		h.mode(model.ModeObserve)
	}
	// 25 % even, and a spike of five quotas every four seconds.
	h.run(120_000, every(50), every(3), spikes(rand.New(rand.NewPCG(3, 3)), 500, 1_000_000, 4000))
	return float64(g.limited) / float64(g.periods), h
}

// What the policy is for: fewer throttled periods, and nearly as few with mainline's bound as
// with Alibaba's kernel.
func TestFewerThrottledPeriods(t *testing.T) {
	t.Parallel()
	none, h := bursty(t, burst.Defaults(), 1, true)
	if h.Claims() != 0 {
		t.Errorf("%d claims in observe mode", h.Claims())
	}
	p := burst.Defaults()
	p.UserSpace = false
	kernel, _ := bursty(t, p, 1, false)
	both, h := bursty(t, burst.Defaults(), 1, false)
	ideal, _ := bursty(t, burst.Defaults(), 10, false)
	t.Logf("periods throttled: without %.2f %%, kernel's k = 1 %.2f %%, and user space %.2f %%, kernel's k = 10 %.2f %%; %d writes of the quota in 120 s",
		none*100, kernel*100, both*100, ideal*100, h.groups[0].written)
	if !(kernel < none && both < kernel/2 && ideal <= both) {
		h.Dump(t)
		t.Errorf("the order is wrong")
	}
}

// Spikes that come back keep a raise standing: what it takes in is a burst although nothing
// is throttled any more.
func TestRaiseStands(t *testing.T) {
	t.Parallel()
	g := wide(1, 200_000, 100_000)
	h := newHost(burst.Defaults(), 1, g)
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
		h.Dump(t)
		t.Errorf("%d writes of the quota, %d of %d periods throttled", g.written, g.limited, g.periods)
	}
}

// A raise is of the quota that it was decided over: over a greater one that a stranger wrote
// meanwhile it asks for nothing.
func TestRaiseIsOverWhatWasFound(t *testing.T) {
	t.Parallel()
	h := newHost(burst.Defaults(), 1, wide(1, 200_000, 100_000))
	h.run(20_000, every(50), every(3), spikes(rand.New(rand.NewPCG(3, 3)), 500, 1_000_000, 4000))
	c := h.claim(h.groups[0])
	if c == nil || c.Value.QuotaUsec <= 200_000 {
		h.Dump(t)
		t.Fatalf("claim %+v", c)
	}
	his := model.Bandwidth(model.CPUMax{QuotaUsec: 1_200_000, PeriodUsec: 100_000})
	if to, _ := model.CPUBandwidth.Spec().Raise(his, []model.Claim{*c}); to.QuotaUsec != his.QuotaUsec {
		t.Errorf("%+v over %+v makes %+v", *c, his, to)
	}
}

// Writes are bounded: per task by the rest between raises, for all by the budget.
func TestWritesBounded(t *testing.T) {
	t.Parallel()
	p := burst.Defaults()
	p.MaxWritesPerSec, p.QuietNsec = 10, 100e6
	var groups []*group
	for i := range 40 {
		groups = append(groups, wide(i+1, 200_000, 100_000))
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
			t.Errorf("task %d: %d writes in %d s, want at most %d", g.Num, g.written, seconds, most)
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
	h := newHost(burst.Defaults(), 1, newGroup(1, 200_000, 100_000))
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
	h := newHost(burst.Defaults(), 1, newGroup(1, 200_000, 100_000), newGroup(2, 50_000, 100_000))
	h.run(60_000, every(50), every(3), func(int64, *group) float64 { return 200 })
	for _, g := range h.groups {
		if g.written != 0 || g.now().BurstUsec != g.found.QuotaUsec {
			t.Errorf("task %d: %d writes, burst %d", g.Num, g.written, g.now().BurstUsec)
		}
	}
	if h.detail > 20 {
		t.Errorf("%d of %d pulses had detail", h.detail, h.pulses)
	}
	if n := h.Count(model.DecideRaise); n != 2 {
		t.Errorf("%d decisions, want one a task", n)
	}
}

// A raise comes down when nobody watches it: no detail, and no pulse at all.
func TestRaiseEndsUnwatched(t *testing.T) {
	t.Parallel()
	start := func() *host {
		g := wide(1, 200_000, 100_000)
		h := newHost(burst.Defaults(), 1, g)
		rng := rand.New(rand.NewPCG(3, 3))
		ask := spikes(rng, 500, 1_000_000, 3000)
		for range 300 {
			h.run(100, every(50), every(3), ask)
			if g.now().QuotaUsec > g.found.QuotaUsec {
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
			h.Beat(0)
		}
		if h.s.Raised != 0 || h.groups[0].now().QuotaUsec != 200_000 {
			t.Errorf("raised %d, quota %d us", h.s.Raised, h.groups[0].now().QuotaUsec)
		}
	})
	t.Run("no pulse", func(t *testing.T) {
		t.Parallel()
		h := start()
		h.ms += 1100
		h.look(false)
		h.Pulse = nil // the loop goes on, and the claim is over
		h.Beat(0)
		if q := h.groups[0].now().QuotaUsec; q != 200_000 {
			t.Errorf("quota %d us", q)
		}
	})
}

// Tasks that an operator freed and knobs that a stranger wrote are left alone, told once, and
// given back.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*host){
		"exempt": func(h *host) { h.Tell(model.Command{Kind: model.CommandUncap, Task: 1}) },
		"void": func(h *host) {
			h.Stranger(1, model.Bandwidth(model.CPUMax{QuotaUsec: 150_000, PeriodUsec: 100_000}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(burst.Defaults(), 1, newGroup(1, 200_000, 100_000), newGroup(2, 200_000, 100_000))
			h.run(10_000, every(50), every(3), idle)
			if h.claim(h.groups[0]) == nil {
				t.Fatal("no burst")
			}
			set(h)
			h.Said = nil
			for range 600 {
				h.run(100, every(50), every(3), idle)
				if h.claim(h.groups[0]) != nil {
					t.Fatalf("claim %+v", h.claim(h.groups[0]))
				}
			}
			if h.claim(h.groups[1]) == nil || h.Count(model.DecideLeftAlone) != 1 || len(h.Said) != 2 {
				h.Dump(t)
				t.Errorf("%d explanations, %d decisions", h.Count(model.DecideLeftAlone), len(h.Said))
			}
		})
	}
}

// What the kernel takes of most it may refuse to one: told once, and tried again by the ledger,
// rarer and rarer.
func TestRefusedTask(t *testing.T) {
	t.Parallel()
	h := newHost(burst.Defaults(), 1, newGroup(1, 100_000, 100_000), newGroup(2, 100_000, 100_000))
	odd, tries := h.groups[1], 0
	odd.odd = true
	odd.knob().Write = func(v model.Setting) string {
		tries++
		return odd.write(v)
	}
	h.run(3_600_000, every(250), every(3), idle)
	if h.Count(model.DecideRefused) != 2 || tries < 10 || tries > 25 { // the other one is of the search for the bound
		h.Dump(t)
		t.Errorf("told %d times, %d tries in an hour", h.Count(model.DecideRefused), tries)
	}
	if h.groups[0].now().BurstUsec != 100_000 || odd.now() != odd.found {
		t.Errorf("the other task's burst is %d us, the odd one's %d us", h.groups[0].now().BurstUsec, odd.now().BurstUsec)
	}
}

// A raise that the kernel refuses is lowered, and that task rests; its burst stays.
func TestRefusedRaise(t *testing.T) {
	t.Parallel()
	h := newHost(burst.Defaults(), 1, wide(1, 200_000, 100_000))
	g, tries := h.groups[0], 0
	g.knob().Write = func(v model.Setting) string {
		if v.QuotaUsec > 200_000 {
			tries++
			return "invalid argument"
		}
		return g.write(v)
	}
	const seconds = 300
	h.run(seconds*1000, every(50), every(3), spikes(rand.New(rand.NewPCG(3, 3)), 500, 1_000_000, 4000))
	if most := seconds*1e9/int(h.p.RetryNsec) + 1; tries < 2 || tries > most {
		h.Dump(t)
		t.Errorf("%d tries in %d s, want at most %d", tries, seconds, most)
	}
	if g.now() != (model.CPUMax{QuotaUsec: 200_000, PeriodUsec: 100_000, BurstUsec: 200_000}) || h.s.Raised != 0 {
		h.Dump(t)
		t.Errorf("in force %+v, %d raised", g.now(), h.s.Raised)
	}
	if up, down := h.Count(model.DecideRaise)-1, h.Count(model.DecideLower); up != down || up < 2 { // the first one was the burst
		h.Dump(t)
		t.Errorf("%d raises, %d lowered", up, down)
	}
}

// Tasks without a quota, of other classes and exclusive ones are none of its business.
func TestNoQuota(t *testing.T) {
	t.Parallel()
	no, be, exclusive := newGroup(1, -1, 100_000), newGroup(2, 100_000, 100_000), newGroup(3, 100_000, 100_000)
	be.Class, exclusive.Exclusive = model.BE, true
	h := newHost(burst.Defaults(), 10, no, be, exclusive)
	h.run(20_000, every(50), every(3), idle)
	if h.Claims() != 0 || len(h.Said) != 0 || len(h.s.Tasks) != 0 {
		t.Errorf("%d claims, %d decisions, %d tasks", h.Claims(), len(h.Said), len(h.s.Tasks))
	}
}

// A burst that somebody gave already is no reason for a claim, and never made smaller.
func TestFoundBurst(t *testing.T) {
	t.Parallel()
	g := newGroup(1, 200_000, 100_000)
	g.found.BurstUsec = 200_000
	g.knob().Value.BurstUsec = 200_000
	h := newHost(burst.Defaults(), 1, g, newGroup(2, 200_000, 100_000))
	h.run(20_000, every(50), every(3), idle)
	if h.claim(g) != nil || g.now().BurstUsec != 200_000 {
		t.Errorf("claim %+v, burst %d us", h.claim(g), g.now().BurstUsec)
	}
}

// A limit that somebody changes is left to him; once an operator says so it is the new original.
func TestLimitChanges(t *testing.T) {
	t.Parallel()
	h := newHost(burst.Defaults(), 1, newGroup(1, 200_000, 100_000))
	h.run(10_000, every(50), every(3), idle)
	g := h.groups[0]
	h.Engine.Params.Hardcap.DurationNsec = 1e9
	h.Stranger(1, model.Bandwidth(model.CPUMax{QuotaUsec: 300_000, PeriodUsec: 100_000}))
	h.run(1_000, every(50), every(3), idle)
	h.Tell(model.Command{Kind: model.CommandUncap, Task: 1})
	h.run(10_000, every(50), every(3), idle)
	if g.now().BurstUsec != 300_000 || g.now().QuotaUsec != 300_000 {
		h.Dump(t)
		t.Errorf("%+v", g.now())
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
			h := newHost(burst.Defaults(), 1, newGroup(1, 200_000, 100_000))
			h.run(15_000, every(50), every(3), func(int64, *group) float64 { return 400 })
			if h.s.Tasks[0].Level <= 0 {
				t.Fatalf("level %g", h.s.Tasks[0].Level)
			}
			h.ms += 50
			h.look(true)
			spoil(&h.pulse.Tasks[0])
			h.Beat(0)
			if h.s.Tasks[0].Level > 0 {
				t.Errorf("level %g", h.s.Tasks[0].Level)
			}
		})
	}
}

// Observe: decisions, no claims, no bound.
func TestObserve(t *testing.T) {
	t.Parallel()
	_, h := bursty(t, burst.Defaults(), 1, true)
	if h.Claims() != 0 || h.s.Bound.Known || h.Count(model.DecideRaise) != 1 || len(h.Said) != 1 {
		h.Dump(t)
		t.Errorf("%d claims, bound %+v, %d decisions", h.Claims(), h.s.Bound, len(h.Said))
	}
	if !strings.Contains(h.Said[0].Reason, "would") {
		t.Errorf("reason %q", h.Said[0].Reason)
	}
}

// When enforcement ends, everything is given back.
func TestModeChange(t *testing.T) {
	t.Parallel()
	h := newHost(burst.Defaults(), 1, newGroup(1, 200_000, 100_000))
	h.run(10_000, every(50), every(3), idle)
	h.mode(model.ModeObserve)
	h.run(200, every(50), every(3), idle)
	if g := h.groups[0]; h.claim(g) != nil || g.now() != g.found {
		t.Errorf("claim %+v, %+v", h.claim(g), g.now())
	}
	if !h.s.Bound.Known {
		t.Error("the kernel's bound was forgotten")
	}
}

// A replay from a checkpoint decides the same.
func TestReplay(t *testing.T) {
	t.Parallel()
	h := newHost(burst.Defaults(), 1, wide(1, 200_000, 100_000), wide(2, 100_000, 50_000))
	h.Shadow(t, 14)
	rng := rand.New(rand.NewPCG(5, 5))
	h.run(60_000, every(50), every(3), spikes(rng, 400, 900_000, 3000), spikes(rng, 300, 500_000, 2000))
	if len(h.Said) < 4 {
		t.Errorf("%d decisions", len(h.Said))
	}
}
