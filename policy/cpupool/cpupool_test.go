package cpupool_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/cpupool"
)

// One period of section 4.1, case by case. The pool has 10 CPUs, the task an original quota
// of 2 CPUs.
func TestPeriod(t *testing.T) {
	t.Parallel()
	const original = 2 * period
	for _, tc := range []struct {
		name      string
		quota     int64   // in force before; 0: the original
		use       float64 // CPUs, of this task
		u         float64 // of the pool
		throttled uint64
		change    func(*cpupool.Params)
		cpus      int
		want      int64
		kind      model.DecisionKind
	}{
		{"all is well", 0, 0.5, 0.30, 0, nil, 10, original, model.DecideNothing},
		{"throttled: a step more", 0, 0.5, 0.30, 1, nil, 10, 250_000, model.DecideRaise},
		{"throttled again: one more", 250_000, 0.5, 0.30, 50, nil, 10, 300_000, model.DecideRaise},
		{"U at 45 % is not above it", 0, 0.5, 0.45, 1, nil, 10, 250_000, model.DecideRaise},
		{"U above 45 %: no raise", 0, 0.5, 0.46, 5, nil, 10, original, model.DecideLeftAlone},
		{"U above 45 %: half", 600_000, 0.5, 0.46, 0, nil, 10, 300_000, model.DecideLower},
		{"U above 45 %, throttled too: half", 600_000, 0.5, 0.46, 9, nil, 10, 300_000, model.DecideLower},
		{"half would be below the original", 250_000, 0.5, 0.46, 0, nil, 10, original, model.DecideLower},
		{"at the original, by default not below", 0, 0.5, 0.80, 0, nil, 10, original, model.DecideNothing},
		{"at the original, below it by choice", 0, 0.5, 0.80, 0, below, 10, 100_000, model.DecideLower},
		{"at the floor", 100_000, 0.5, 0.80, 0, below, 10, 100_000, model.DecideNothing},
		{"below the original, and U is well: back", 100_000, 0.5, 0.30, 0, below, 10, 150_000, model.DecideRaise},
		{"below the original, which is not allowed any more", 100_000, 0.5, 0.80, 0, nil, 10, original, model.DecideRaise},
		{"the same, and throttled too", 100_000, 0.5, 0.80, 9, nil, 10, original, model.DecideRaise},
		{"the same, and U is not known", 100_000, 0.5, 0, 0, nil, 0, original, model.DecideRaise},
		{"average above the original: half", 600_000, 2.1, 0.30, 9, nil, 10, 300_000, model.DecideLower},
		{"average at the original: not above it", 600_000, 2.0, 0.30, 0, nil, 10, 600_000, model.DecideNothing},
		{"throttled all the time: not bursty", 0, 1.95, 0.30, 50, nil, 10, original, model.DecideLeftAlone},
		{"the same, by the letter of Alibaba", 0, 1.95, 0.30, 50, func(p *cpupool.Params) { p.BurstyBelow = 1 }, 10, 250_000, model.DecideRaise},
		{"raised as far as MaxFactor allows", 775_000, 0.5, 0.30, 1, nil, 10, 800_000, model.DecideRaise},
		{"and no further", 800_000, 0.5, 0.30, 1, nil, 10, 800_000, model.DecideLeftAlone},
		{"a quota above the pool's CPUs is useless", 275_000, 0.5, 0.30, 1, nil, 3, 300_000, model.DecideRaise},
		{"a pool smaller than the original", 0, 0.1, 0.30, 1, nil, 1, original, model.DecideLeftAlone},
		{"the pool is not known", 0, 0.5, 0.30, 1, nil, 0, original, model.DecideLeftAlone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := cpupool.Defaults()
			if tc.change != nil {
				tc.change(&p)
			}
			s := newService(1, original, nil)
			h := newServer(p, tc.cpus, s)
			h.step(true)
			if tc.quota != 0 {
				h.s.Tasks[0].WantUsec, h.s.Tasks[0].QuietNsec = tc.quota, h.NowNsec
				h.List(1) // so that the policy wishes anew
				h.step(false)
			}
			h.NowNsec += 5e9
			s.used, s.periods, s.limited = tc.use*5e6, 50, tc.throttled
			h.other = tc.u*float64(tc.cpus)*5e6 - s.used
			h.step(true)
			if got := s.quota(); got != tc.want {
				t.Errorf("quota %d us, want %d", got, tc.want)
			}
			kind, others := model.DecideNothing, len(h.Said)
			if others > 0 {
				kind, others = h.Said[0].Kind, others-h.Count(model.DecideRelease) // the ledger's
			}
			if kind != tc.kind || others > 1 {
				h.Dump(t)
				t.Errorf("%d decisions, the first %q, want %q", len(h.Said), kind, tc.kind)
			}
			if want := tc.want != original; (h.s.Tasks[0].WantUsec != 0) != want || (h.claim(s) != nil) != want {
				t.Errorf("wants %d us with claim %+v", h.s.Tasks[0].WantUsec, h.claim(s))
			}
		})
	}
}

func below(p *cpupool.Params) { p.BelowOriginal = true }

// What is not known raises nothing; U alone may lower.
func TestCountersMissing(t *testing.T) {
	t.Parallel()
	bad := func(set func(*model.Counter)) func(*model.Pulse) {
		return func(p *model.Pulse) {
			if p.Tasks != nil && p.Tasks[0].Throttled.Value > 0 {
				set(&p.Tasks[0].Usage)
			}
		}
	}
	for name, spoil := range map[string]func(*model.Pulse){
		"usage unavailable":     bad(func(c *model.Counter) { *c = model.Counter{} }),
		"usage backwards":       bad(func(c *model.Counter) { c.Value = 0 }),
		"usage absent":          bad(func(c *model.Counter) { c.Outcome = model.Absent }),
		"throttled unavailable": func(p *model.Pulse) { p.Tasks[0].Throttled = model.Counter{} },
		"node unavailable":      func(p *model.Pulse) { p.NodeUsage = model.Counter{} },
		"the task is missing":   func(p *model.Pulse) { p.Tasks = p.Tasks[:0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(1, 2*period, nil)
			h := newServer(cpupool.Defaults(), 10, s)
			s.used = 1e6 // so that it can go back
			h.step(true)
			h.spoil = spoil
			h.NowNsec += 5e9
			s.used, s.periods, s.limited = 3e6, 50, 9
			h.step(true)
			if h.Claims() != 0 || h.Count(model.DecideRaise) != 0 {
				h.Dump(t)
				t.Errorf("%d claims", h.Claims())
			}
		})
	}
}

// U is of everybody who may run on the pool's CPUs: of LC alone only where a partition keeps the
// others away. Where that changed meanwhile nobody knows.
func TestWhoCounts(t *testing.T) {
	t.Parallel()
	h := newServer(cpupool.Defaults(), 10, newService(1, 2*period, nil))
	h.step(true)
	for _, tc := range []struct {
		name         string
		before, then bool // shared
		spoil        func(*model.Pulse)
		want         string
	}{
		{"the machine is everybody's", true, true, nil, "90 %"},
		{"a partition", false, false, nil, "20 %"},
		{"a partition came", true, false, nil, "unavailable"},
		{"a partition went", false, true, nil, "unavailable"},
		{"the machine cannot be read", true, true, func(p *model.Pulse) { p.NodeUsage = model.Counter{} }, "unavailable"},
		{"nor need it be in a partition", false, false, func(p *model.Pulse) { p.NodeUsage = model.Counter{} }, "20 %"},
		{"LC cannot be read", false, false, func(p *model.Pulse) { p.LCUsage = model.Counter{} }, "unavailable"},
		{"nor need it be where all count", true, true, func(p *model.Pulse) { p.LCUsage = model.Counter{} }, "90 %"},
	} {
		var s cpupool.State
		for i, shared := range []bool{tc.before, tc.then} {
			v := h.View(model.ModeEnforce)
			v.PoolShared, v.Changed = shared, true
			v.Pulse = &model.Pulse{MonoNsec: 1e9 + int64(i)*5e9, LCUsage: model.Read(uint64(i) * 10e9), NodeUsage: model.Read(uint64(i) * 45e9), Tasks: []model.TaskPulse{{Num: 1}}}
			if tc.spoil != nil {
				tc.spoil(v.Pulse)
			}
			s.Step(h.p, v, &policy.Wishes{})
		}
		got := s.Utilisation.Outcome.String()
		if s.Utilisation.Outcome == model.OK {
			got = fmt.Sprintf("%.0f %%", s.Utilisation.V*100)
		}
		if got != tc.want {
			t.Errorf("%s: U is %s, want %s", tc.name, got, tc.want)
		}
	}
}

// pool plays 20 bursty services, about Alibaba's number, on as many CPUs as their quotas
// come to.
func pool(p cpupool.Params, seed uint64, mean, often float64) *server {
	rng := rand.New(rand.NewPCG(seed, 1))
	var list []*service
	for i := range 20 {
		u := max(0.05, mean*(1+0.25*rng.NormFloat64()))
		list = append(list, newService(i+1, 2*period, bursts(rng, u*2*period, 5*period, often)))
	}
	return newServer(p, 40, list...)
}

// Properties that hold at all times, whatever the load.
func TestProperties(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		p := cpupool.Defaults()
		p.BelowOriginal = seed%3 == 2
		p.GiveBackNsec = 30e9
		h := pool(p, seed, 0.1+0.6*rng.Float64(), 0.1*rng.Float64())
		fail := func(text string, s *service) {
			t.Fatalf("%s: task %d has %d us, found %d us (replay: go test -run TestProperties, seed %d, at %d s)",
				text, s.Num, s.quota(), s.found(), seed, h.NowNsec/1e9)
		}
		for range 200 {
			before := make([]int64, len(h.services))
			for i, s := range h.services {
				before[i] = s.quota()
			}
			h.run(50, 10)
			u := h.s.Utilisation
			for i, s := range h.services {
				q := s.quota()
				switch {
				case q < s.found() && !p.BelowOriginal:
					fail("below the original", s)
				case float64(q) < p.FloorFactor*float64(s.found()):
					fail("below the floor", s)
				case float64(q) > p.MaxFactor*float64(s.found()):
					fail("above the bound", s)
				case q > before[i] && q-before[i] > int64(p.Increase*float64(s.found())):
					fail("a step too large", s)
				case q > before[i] && u.V > p.UtilisationHigh:
					fail("raised while the pool is busy", s)
				case u.V > p.UtilisationHigh && q > max(s.found(), before[i]/2) && !p.BelowOriginal:
					fail("not halved while the pool is busy", s)
				case h.claim(s) == nil && q != s.found():
					fail("a quota without a claim", s)
				}
			}
		}
	}
}

// When the pool gets busy, all raises are gone after log2(MaxFactor) periods.
func TestBusyPoolTakesAllBack(t *testing.T) {
	t.Parallel()
	p := cpupool.Defaults()
	h := pool(p, 1, 0.1, 0.08)
	h.run(5000, 10)
	raised := 0
	for _, s := range h.services {
		if s.quota() > s.found() {
			raised++
		}
	}
	if raised < 10 {
		t.Fatalf("only %d tasks were raised", raised)
	}
	for _, s := range h.services {
		s.demand = even(1.1 * period)
	}
	for n := range int(math.Ceil(math.Log2(p.MaxFactor))) + 1 { // the period under way is not counted
		h.run(50, 10)
		t.Logf("period %d: U %.2f", n, h.s.Utilisation.V)
	}
	for _, s := range h.services {
		if s.quota() != s.found() || h.claim(s) != nil {
			t.Errorf("task %d has %d us", s.Num, s.quota())
		}
	}
}

// Bursty services stop being throttled, and under an even load quotas settle: no write any
// more but AIMD's saw-tooth.
func TestConvergence(t *testing.T) {
	t.Parallel()
	h := pool(cpupool.Defaults(), 4, 0.15, 0.03)
	limited := func() (n uint64) {
		for _, s := range h.services {
			n += s.limited
		}
		return n
	}
	h.run(3000, 10)
	first := limited()
	off := pool(cpupool.Defaults(), 4, 0.15, 0.03)
	off.mode(model.ModeObserve)
	off.run(6000, 10)
	before, writes := limited(), h.Writes
	h.run(3000, 10)
	rest := limited() - before
	without := uint64(0)
	for _, s := range off.services {
		without += s.limited
	}
	t.Logf("periods throttled of 60000 each: without %d in two halves; with %d in the first, %d in the second; %d writes, then %d; U %.3f",
		without, first, rest, writes, h.Writes-writes, h.s.Utilisation.V)
	if rest*20 > without/2 {
		t.Errorf("%d periods throttled in the second half, %d without the policy in both", rest, without)
	}
	if more := h.Writes - writes; more > len(h.services) {
		t.Errorf("%d writes in 5 minutes of an even load", more)
	}
}

// A task that uses its whole limit does not make the quota swing, and is told once.
func TestSaturated(t *testing.T) {
	t.Parallel()
	s := newService(1, 2*period, even(5*period))
	h := newServer(cpupool.Defaults(), 40, s)
	h.run(10_000, 10)
	if h.Writes != 0 || len(h.Said) != 1 || !strings.Contains(h.Said[0].Reason, "not bursty") {
		h.Dump(t)
		t.Errorf("%d writes, %d decisions", h.Writes, len(h.Said))
	}
}

// What is not needed is given back step by step, and later each time that it was too early.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	p := cpupool.Defaults()
	p.GiveBackNsec = 20e9
	demand := 3.0 * period
	n := 0
	s := newService(1, 2*period, func() float64 {
		if n++; n%40 == 0 {
			return demand
		}
		return 10_000
	})
	h := newServer(p, 40, s)
	h.run(20_000, 10)
	lowers := h.Count(model.DecideLower)
	if s.quota() < 275_000 || lowers < 3 || lowers > 2000/(20*4) {
		h.Dump(t)
		t.Errorf("quota %d us after %d steps back", s.quota(), lowers)
	}
	if h.s.Tasks[0].Waits != 3 {
		t.Errorf("waits %d", h.s.Tasks[0].Waits)
	}
	demand = 10_000
	h.run(20_000, 10)
	if s.quota() != s.found() || h.claim(s) != nil || h.s.Tasks[0].Waits != 0 {
		t.Errorf("quota %d us, claim %+v, waits %d", s.quota(), h.claim(s), h.s.Tasks[0].Waits)
	}
}

// The kernel, or a limit above the task, refuses: told once, not raised further meanwhile, tried
// again by the ledger, rarer and rarer, and had when the kernel takes it.
func TestRefused(t *testing.T) {
	t.Parallel()
	s, tries, refuse := spiky(1), 0, true
	s.knob().Write = func(v model.Setting) string {
		if refuse && v.QuotaUsec > 2*period {
			tries++
			return "invalid argument"
		}
		return ""
	}
	h := newServer(cpupool.Defaults(), 40, s)
	h.run(36_000, 10) // an hour
	if n := h.Count(model.DecideRaise); n != 1 || h.Count(model.DecideRefused) != 1 || tries < 10 || tries > 25 {
		h.Dump(t)
		t.Errorf("raised %d times, told %d times, %d tries in an hour", n, h.Count(model.DecideRefused), tries)
	}
	if h.claim(s) == nil || s.knob().Ours || s.quota() != 2*period {
		t.Errorf("claim %+v, quota %d us", h.claim(s), s.quota())
	}
	refuse = false
	h.run(30_000, 10)
	if s.quota() == s.found() {
		h.Dump(t)
		t.Errorf("not raised after the kernel takes it: %d us", s.quota())
	}
}

// Tasks that an operator freed and knobs that a stranger wrote are left alone, told once.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*server){
		"exempt": func(h *server) { h.Tell(model.Command{Kind: model.CommandUncap, Task: 1}) },
		"void": func(h *server) {
			h.Stranger(1, model.Bandwidth(model.CPUMax{QuotaUsec: 2.5 * period, PeriodUsec: period}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spiky(1)
			h := newServer(cpupool.Defaults(), 40, s)
			h.run(1000, 10)
			if h.claim(s) == nil {
				t.Fatal("not raised")
			}
			h.Said = nil
			set(h)
			h.run(2500, 10) // an operator's word holds for five minutes
			if h.claim(s) != nil || h.Count(model.DecideRaise) != 0 || h.Count(model.DecideLeftAlone) != 1 || len(h.Said) != 2 {
				h.Dump(t)
				t.Errorf("claim %+v, %d decisions", h.claim(s), len(h.Said))
			}
		})
	}
}

// Members without a quota count in U; exclusive and BE tasks are none of the policy's.
func TestMembers(t *testing.T) {
	t.Parallel()
	free := newService(1, -1, even(20*period))
	own, be := newService(2, 2*period, even(5*period)), newService(3, 2*period, even(5*period))
	own.Exclusive, be.Class = true, model.BE
	s := spiky(4)
	h := newServer(cpupool.Defaults(), 40, free, own, be, s)
	h.run(3000, 10)
	if u := h.s.Utilisation; u.Outcome != model.OK || u.V < 0.5 {
		t.Errorf("U %+v", u)
	}
	if len(h.s.Tasks) != 2 || h.Claims() != 0 || len(h.Said) != 1 || h.Said[0].Task != 4 {
		h.Dump(t)
		t.Errorf("%d tasks, %d claims, %d decisions", len(h.s.Tasks), h.Claims(), len(h.Said))
	}
}

// A limit that somebody changes while it is not ours is the new original, also where a raise of
// the old one is still wished for.
func TestLimitChanges(t *testing.T) {
	t.Parallel()
	s := spiky(1)
	s.Refuse(model.CPUBandwidth, "invalid argument")
	h := newServer(cpupool.Defaults(), 40, s)
	h.run(1000, 10)
	if h.claim(s) == nil {
		t.Fatal("not raised")
	}
	h.Stranger(1, model.Bandwidth(model.CPUMax{QuotaUsec: 4 * period, PeriodUsec: period}))
	h.step(false)
	if h.claim(s) != nil || h.s.Tasks[0].OriginalUsec != 4*period || h.Count(model.DecideLower) != 1 {
		h.Dump(t)
		t.Errorf("claim %+v, original %d us", h.claim(s), h.s.Tasks[0].OriginalUsec)
	}
	s.knob().Write = nil
	h.run(3000, 10)
	if s.found() != 4*period || s.quota() <= 4*period {
		h.Dump(t)
		t.Errorf("quota %d us, found %d us", s.quota(), s.found())
	}
}

// Observe: told once, nothing claimed, nothing inferred.
func TestObserve(t *testing.T) {
	t.Parallel()
	s := spiky(1)
	h := newServer(cpupool.Defaults(), 40, s)
	h.mode(model.ModeObserve)
	h.run(3000, 10)
	if h.Claims() != 0 || h.Writes != 0 || len(h.Said) != 1 || h.Said[0].Kind != model.DecideRaise || h.s.Tasks[0].WantUsec != 0 {
		h.Dump(t)
		t.Errorf("%d claims, %d decisions", h.Claims(), len(h.Said))
	}
	// And back: all that was claimed is dropped.
	h.mode(model.ModeEnforce)
	h.run(500, 10)
	if h.claim(s) == nil {
		t.Fatal("not raised")
	}
	h.mode(model.ModeObserve)
	h.run(10, 10)
	if h.claim(s) != nil {
		t.Errorf("claim %+v", h.claim(s))
	}
}

// A surge between two periods: by choice quotas come down at once.
func TestEarly(t *testing.T) {
	t.Parallel()
	for _, early := range []float64{0, 0.8} {
		p := cpupool.Defaults()
		p.EarlyUtilisation = early
		s := spiky(1)
		h := newServer(p, 10, s)
		h.run(1000, 1)
		h.run(10, 1)
		before := s.quota()
		h.other += 10 * 1e6 // all CPUs, for the second that follows
		for range 10 {
			h.other += 10 * period
			h.NowNsec += period * 1000
			h.step(h.Engine.NeedsDetail(h.NowNsec))
		}
		if lowered := s.quota() < before; before <= s.found() || lowered != (early > 0) {
			h.Dump(t)
			t.Errorf("early_utilisation %g: %d -> %d us", early, before, s.quota())
		}
	}
}

// Late and missing pulses stretch a period, and no claim outlives its time.
func TestLatePulses(t *testing.T) {
	t.Parallel()
	s := spiky(1)
	h := newServer(cpupool.Defaults(), 40, s)
	h.run(1000, 170)
	if u := h.s.Utilisation; u.Outcome != model.OK || u.V > 0.1 {
		t.Errorf("U %+v", u)
	}
	if h.claim(s) == nil || h.claim(s).ExpiresNsec-h.s.LastNsec != h.p.HoldNsec {
		t.Errorf("claim %+v", h.claim(s))
	}
	h.NowNsec += h.p.HoldNsec
	h.Pulse = nil
	h.Beat(0)
	if s.quota() != s.found() {
		t.Errorf("quota %d us after the claim was over", s.quota())
	}
}

// A replay from a checkpoint decides the same.
func TestReplay(t *testing.T) {
	t.Parallel()
	p := cpupool.Defaults()
	p.EarlyUtilisation, p.GiveBackNsec = 0.5, 40e9
	h := pool(p, 9, 0.2, 0.04)
	h.Shadow(t, 13)
	if h.run(3900, 1); len(h.Said) < 10 {
		t.Errorf("%d decisions", len(h.Said))
	}
}
