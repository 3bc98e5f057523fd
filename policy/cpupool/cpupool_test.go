package cpupool

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

func (h *server) dump(t *testing.T) {
	t.Helper()
	for _, d := range h.said {
		t.Logf("%s task %d value %.2f score %.3f: %s", d.Kind, d.Task, d.Value, d.Score, d.Reason)
	}
}

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
		change    func(*Params)
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
		{"average above the original: half", 600_000, 2.1, 0.30, 9, nil, 10, 300_000, model.DecideLower},
		{"average at the original: not above it", 600_000, 2.0, 0.30, 0, nil, 10, 600_000, model.DecideNothing},
		{"throttled all the time: not bursty", 0, 1.95, 0.30, 50, nil, 10, original, model.DecideLeftAlone},
		{"the same, by the letter of the seed", 0, 1.95, 0.30, 50, func(p *Params) { p.BurstyBelow = 1 }, 10, 250_000, model.DecideRaise},
		{"raised as far as MaxFactor allows", 775_000, 0.5, 0.30, 1, nil, 10, 800_000, model.DecideRaise},
		{"and no further", 800_000, 0.5, 0.30, 1, nil, 10, 800_000, model.DecideLeftAlone},
		{"a quota above the pool's CPUs is useless", 275_000, 0.5, 0.30, 1, nil, 3, 300_000, model.DecideRaise},
		{"a pool smaller than the original", 0, 0.1, 0.30, 1, nil, 1, original, model.DecideLeftAlone},
		{"the pool is not known", 0, 0.5, 0.30, 1, nil, 0, original, model.DecideLeftAlone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := Defaults()
			if tc.change != nil {
				tc.change(&p)
			}
			s := newService(1, original, nil)
			h := newServer(p, tc.cpus, s)
			h.step(true)
			if tc.quota != 0 {
				h.s.Tasks[0].WantUsec = tc.quota
				h.s.Tasks[0].QuietNsec = h.now
			}
			h.now += 5e9
			s.used, s.periods, s.limited = tc.use*5e6, 50, tc.throttled
			h.other = tc.u*float64(tc.cpus)*5e6 - s.used
			h.step(true)
			if got := h.s.Tasks[0].quota(); got != tc.want {
				t.Errorf("quota %d us, want %d", got, tc.want)
			}
			kind := model.DecideNothing
			if len(h.said) > 0 {
				kind = h.said[0].Kind
			}
			if kind != tc.kind || len(h.said) > 1 {
				h.dump(t)
				t.Errorf("%d decisions, the first %q, want %q", len(h.said), kind, tc.kind)
			}
			if (h.s.Tasks[0].WantUsec != 0) != (len(h.w.Claims) == 1) {
				t.Errorf("wants %d us with %d claims", h.s.Tasks[0].WantUsec, len(h.w.Claims))
			}
			if tc.want != s.quota() {
				t.Errorf("in force %d us, want %d", s.quota(), tc.want)
			}
		})
	}
}

func below(p *Params) { p.BelowOriginal = true }

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
		"LC usage unavailable":  func(p *model.Pulse) { p.LCUsage = model.Counter{} },
		"the task is missing":   func(p *model.Pulse) { p.Tasks = p.Tasks[:0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(1, 2*period, nil)
			h := newServer(Defaults(), 10, s)
			s.used = 1e6 // so that it can go back
			h.step(true)
			h.spoil = spoil
			h.now += 5e9
			s.used, s.periods, s.limited = 3e6, 50, 9
			h.step(true)
			if h.claims != 0 || h.count(model.DecideRaise) != 0 {
				h.dump(t)
				t.Errorf("%d claims", h.claims)
			}
		})
	}
}

// pool plays 20 bursty services, about the seed's number, on as many CPUs as their quotas
// come to.
func pool(p Params, seed uint64, mean, often float64) *server {
	rng := rand.New(rand.NewPCG(seed, 1))
	var list []*service
	for i := range 20 {
		u := max(0.05, mean*(1+0.25*rng.NormFloat64()))
		list = append(list, newService(model.TaskNum(i+1), 2*period, bursts(rng, u*2*period, 5*period, often)))
	}
	return newServer(p, 40, list...)
}

// Properties that hold at all times, whatever the load.
func TestProperties(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		p := Defaults()
		p.BelowOriginal = seed%3 == 2
		p.GiveBackNsec = 30e9
		h := pool(p, seed, 0.1+0.6*rng.Float64(), 0.1*rng.Float64())
		fail := func(text string, s *service) {
			t.Fatalf("%s: task %d has %d us, found %d us (replay: go test -run TestProperties, seed %d, at %d s)",
				text, s.view.Task.Num, s.quota(), s.found(), seed, h.now/1e9)
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
				case s.claim == nil && q != s.found():
					fail("a quota without a claim", s)
				}
			}
		}
	}
}

// When the pool gets busy, all raises are gone after log2(MaxFactor) periods.
func TestBusyPoolTakesAllBack(t *testing.T) {
	t.Parallel()
	p := Defaults()
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
		if s.quota() != s.found() || s.claim != nil {
			t.Errorf("task %d has %d us", s.view.Task.Num, s.quota())
		}
	}
}

// Bursty services stop being throttled, and under an even load quotas settle: no write any
// more but AIMD's saw-tooth.
func TestConvergence(t *testing.T) {
	t.Parallel()
	h := pool(Defaults(), 4, 0.15, 0.03)
	limited := func() (n uint64) {
		for _, s := range h.services {
			n += s.limited
		}
		return n
	}
	h.run(3000, 10)
	first := limited()
	off := pool(Defaults(), 4, 0.15, 0.03)
	off.v.Mode = model.ModeObserve
	off.run(6000, 10)
	before, writes := limited(), h.writes
	h.run(3000, 10)
	rest := limited() - before
	without := uint64(0)
	for _, s := range off.services {
		without += s.limited
	}
	t.Logf("periods throttled of 60000 each: without %d in two halves; with %d in the first, %d in the second; %d writes, then %d; U %.3f",
		without, first, rest, writes, h.writes-writes, h.s.Utilisation.V)
	if rest*20 > without/2 {
		t.Errorf("%d periods throttled in the second half, %d without the policy in both", rest, without)
	}
	if more := h.writes - writes; more > len(h.services) {
		t.Errorf("%d writes in 5 minutes of an even load", more)
	}
}

// A task that uses its whole limit does not make the quota swing, and is told once.
func TestSaturated(t *testing.T) {
	t.Parallel()
	s := newService(1, 2*period, even(5*period))
	h := newServer(Defaults(), 40, s)
	h.run(10_000, 10)
	if h.writes != 0 || len(h.said) != 1 || !strings.Contains(h.said[0].Reason, "not bursty") {
		h.dump(t)
		t.Errorf("%d writes, %d decisions", h.writes, len(h.said))
	}
}

// What is not needed is given back step by step, and later each time that it was too early.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	p := Defaults()
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
	lowers := h.count(model.DecideLower)
	if s.quota() < 275_000 || lowers < 3 || lowers > 2000/(20*4) {
		h.dump(t)
		t.Errorf("quota %d us after %d steps back", s.quota(), lowers)
	}
	if h.s.Tasks[0].Waits != maxWaits {
		t.Errorf("waits %d", h.s.Tasks[0].Waits)
	}
	demand = 10_000
	h.run(20_000, 10)
	if s.quota() != s.found() || s.claim != nil || h.s.Tasks[0].Waits != 0 {
		t.Errorf("quota %d us, claim %+v, waits %d", s.quota(), s.claim, h.s.Tasks[0].Waits)
	}
}

// The kernel, or a limit above the task, refuses: told, left in peace, tried again, rarer.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := newService(1, 2*period, bursts(rand.New(rand.NewPCG(1, 1)), 20_000, 5*period, 0.1))
	h := newServer(Defaults(), 40, s)
	h.refuse = 2 * period
	h.run(36_000, 10) // an hour
	if n := h.count(model.DecideRaise); n < 4 || n > 9 {
		t.Errorf("%d tries in an hour", n)
	}
	if s.claim != nil || s.quota() != s.found() {
		t.Errorf("claim %+v", s.claim)
	}
	h.refuse = 0
	h.run(30_000, 10)
	if s.quota() == s.found() || h.s.Tasks[0].Refusals != 0 {
		h.dump(t)
		t.Errorf("not raised after the kernel takes it: %d us, %d refusals", s.quota(), h.s.Tasks[0].Refusals)
	}
}

// Exempt and void knobs are left alone, told once.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*service){
		"exempt": func(s *service) { s.view.Exempt = true },
		"void":   func(s *service) { s.knob().Void = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(1, 2*period, bursts(rand.New(rand.NewPCG(1, 1)), 20_000, 5*period, 0.1))
			h := newServer(Defaults(), 40, s)
			h.run(1000, 10)
			if s.claim == nil {
				t.Fatal("not raised")
			}
			h.said, h.claims = nil, 0
			set(s)
			h.run(3000, 10)
			if s.claim != nil || h.claims != 0 || len(h.said) != 1 {
				h.dump(t)
				t.Errorf("claim %+v, %d claims, %d decisions", s.claim, h.claims, len(h.said))
			}
		})
	}
}

// Members without a quota count in U; exclusive and BE tasks are none of the policy's.
func TestMembers(t *testing.T) {
	t.Parallel()
	free := newService(1, -1, even(20*period))
	own, be := newService(2, 2*period, even(5*period)), newService(3, 2*period, even(5*period))
	own.view.Task.Exclusive, be.view.Task.Class = true, model.BE
	s := newService(4, 2*period, bursts(rand.New(rand.NewPCG(1, 1)), 20_000, 5*period, 0.1))
	h := newServer(Defaults(), 40, free, own, be, s)
	h.run(3000, 10)
	if u := h.s.Utilisation; u.Outcome != model.OK || u.V < 0.5 {
		t.Errorf("U %+v", u)
	}
	if len(h.s.Tasks) != 2 || h.claims != 0 || len(h.said) != 1 || h.said[0].Task != 4 {
		h.dump(t)
		t.Errorf("%d tasks, %d claims, %d decisions", len(h.s.Tasks), h.claims, len(h.said))
	}
}

// A limit that somebody changes is the new original.
func TestLimitChanges(t *testing.T) {
	t.Parallel()
	s := newService(1, 2*period, bursts(rand.New(rand.NewPCG(1, 1)), 20_000, 5*period, 0.1))
	h := newServer(Defaults(), 40, s)
	h.run(1000, 10)
	s.knob().Found.QuotaUsec, s.knob().Now.QuotaUsec = 4*period, 4*period
	h.run(60, 10)
	for _, d := range h.said[len(h.said)-1:] {
		if d.Kind == model.DecideLower {
			return
		}
	}
	h.run(3000, 10)
	if q := s.quota(); q < 4*period || s.claim != nil && s.claim.QuotaUsec <= 4*period {
		h.dump(t)
		t.Errorf("quota %d us", q)
	}
}

// Observe: told once, nothing claimed, nothing inferred.
func TestObserve(t *testing.T) {
	t.Parallel()
	s := newService(1, 2*period, bursts(rand.New(rand.NewPCG(1, 1)), 20_000, 5*period, 0.1))
	h := newServer(Defaults(), 40, s)
	h.v.Mode = model.ModeObserve
	h.run(3000, 10)
	if h.claims != 0 || h.writes != 0 || len(h.said) != 1 || h.said[0].Kind != model.DecideRaise || h.s.Tasks[0].WantUsec != 0 {
		h.dump(t)
		t.Errorf("%d claims, %d decisions", h.claims, len(h.said))
	}
	// And back: all that was claimed is dropped.
	h.v.Mode = model.ModeEnforce
	h.run(500, 10)
	if s.claim == nil {
		t.Fatal("not raised")
	}
	h.v.Mode = model.ModeObserve
	h.run(10, 10)
	if s.claim != nil {
		t.Errorf("claim %+v", s.claim)
	}
}

// A surge between two periods: by choice quotas come down at once.
func TestEarly(t *testing.T) {
	t.Parallel()
	for _, early := range []float64{0, 0.8} {
		p := Defaults()
		p.EarlyUtilisation = early
		s := newService(1, 2*period, bursts(rand.New(rand.NewPCG(1, 1)), 20_000, 5*period, 0.1))
		h := newServer(p, 10, s)
		h.run(1000, 1)
		h.run(10, 1)
		before := s.quota()
		h.other += 10 * 1e6 // all CPUs, for the second that follows
		for range 10 {
			h.other += 10 * period
			h.now += period * 1000
			h.step(false)
		}
		if lowered := s.quota() < before; before <= s.found() || lowered != (early > 0) {
			h.dump(t)
			t.Errorf("early_utilisation %g: %d -> %d us", early, before, s.quota())
		}
	}
}

// Late and missing pulses stretch a period, and no claim outlives its time.
func TestLatePulses(t *testing.T) {
	t.Parallel()
	s := newService(1, 2*period, bursts(rand.New(rand.NewPCG(1, 1)), 20_000, 5*period, 0.1))
	h := newServer(Defaults(), 40, s)
	h.run(1000, 170)
	if u := h.s.Utilisation; u.Outcome != model.OK || u.V > 0.1 {
		t.Errorf("U %+v", u)
	}
	if s.claim == nil || s.claim.ExpiresNsec-h.s.LastNsec != h.p.HoldNsec {
		t.Errorf("claim %+v", s.claim)
	}
	h.now += h.p.HoldNsec
	h.w.Reset()
	h.settle()
	if s.quota() != s.found() {
		t.Errorf("quota %d us after the claim was over", s.quota())
	}
}

// A replay from a checkpoint decides the same.
func TestReplay(t *testing.T) {
	t.Parallel()
	play := func(cut bool) ([]model.Decision, int, string) {
		p := Defaults()
		p.EarlyUtilisation, p.GiveBackNsec = 0.5, 40e9
		h := pool(p, 9, 0.2, 0.04)
		for range 300 {
			h.run(13, 1)
			if cut {
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
		return h.said, h.claims, string(text)
	}
	said, claims, state := play(false)
	again, claimsAgain, stateAgain := play(true)
	if len(said) < 10 || !reflect.DeepEqual(said, again) || claims != claimsAgain || state != stateAgain {
		t.Errorf("%d and %d decisions, %d and %d claims, states\n%s\n%s", len(said), len(again), claims, claimsAgain, state, stateAgain)
	}
}
