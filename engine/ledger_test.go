package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// host is what stands behind a ledger in these tests.
type host struct {
	ours    map[knobKey]bool
	pending map[knobKey]model.Change
}

type knobKey struct {
	task model.TaskNum
	kind model.KnobKind
}

func (h *host) gone(task model.TaskNum) {
	for kind := range model.NumKnobs {
		delete(h.pending, knobKey{task, kind})
		h.ours[knobKey{task, kind}] = false
	}
}

// place draws some CPUs, at least one.
func place(rng *rand.Rand) model.CPUSet {
	var s model.CPUSet
	s.Add(rng.IntN(8))
	for range rng.IntN(4) {
		s.Add(rng.IntN(8))
	}
	return s
}

// One random life of a ledger.
func TestLedgerProperties(t *testing.T) {
	for seed := range uint64(200) {
		ledgerLife(t, seed)
	}
}

func ledgerLife(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	const tasks = 6
	var l Ledger
	h := host{map[knobKey]bool{}, map[knobKey]model.Change{}}
	var seq uint64
	now := int64(1e12)
	lim := Limits{MaxHeldTasks: 1 + rng.IntN(4), MaxBETaken: rng.Float64()}
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d at %d s: %s\n%+v", seed, (now-1e12)/1e9, fmt.Sprintf(format, args...), l)
	}
	arbitrate := func() {
		seen := map[knobKey]bool{}
		last := seq
		for _, c := range l.Arbitrate(now, 250e6, nil) {
			if c.Seq <= last {
				fail("change %d after %d", c.Seq, last)
			}
			seq = max(seq, c.Seq)
			key := knobKey{c.Task(), c.Value.Knob}
			if seen[key] {
				fail("two changes of %v in one tick", key)
			}
			seen[key] = true
			if _, ok := h.pending[key]; ok {
				fail("a second change of %v in flight", key)
			}
			if c.Kind == model.Disown {
				h.ours[key] = false
				continue
			}
			if c.Kind == model.Set && c.Value.Knob == model.CPUBandwidth && c.Value.BurstUsec > c.Value.QuotaUsec {
				fail("a burst that the kernel refuses: %+v", c)
			}
			h.pending[key] = c
		}
	}
	answer := func(c model.Change, kind model.ResultKind) {
		key := knobKey{c.Task(), c.Value.Knob}
		delete(h.pending, key)
		if kind == model.Applied {
			h.ours[key] = c.Kind != model.Release && c.Kind != model.Run
		}
		if kind == model.Vanished || kind == model.Foreign {
			h.ours[key] = false
		}
		found, _ := l.Bases.get(c.Target, c.Value.Knob)
		l.Learn(&model.Result{Seq: c.Seq, Target: c.Target, Kind: kind, Found: found, Now: c.Value, MonoNsec: now, Error: "no"}, now)
	}
	drop := func(task model.TaskNum, kind model.KnobKind, which func(c *model.Claim) bool) {
		if k := l.knob(model.OfTask(task), kind); k != nil {
			l.drop(k, which)
		}
	}
	for range 400 {
		now += 1e9
		task := model.TaskNum(rng.IntN(tasks))
		for _, c := range h.pending {
			if rng.IntN(2) == 0 {
				answer(c, model.ResultKind(max(0, rng.IntN(9)-5)))
				break
			}
		}
		quota := 100_000 * int64(1+rng.IntN(4))
		l.Bases.put(model.OfTask(task), model.Bandwidth(model.CPUMax{QuotaUsec: quota, PeriodUsec: 100_000}))
		switch rng.IntN(15) {
		case 0, 1, 2:
			l.Claim(model.Claim{Target: model.OfTask(task), Cap: rng.Float64(), Owner: model.OwnerPolicy, Incident: fmt.Sprint(rng.IntN(5)), MadeNsec: now, ExpiresNsec: now + int64(rng.IntN(20))*1e9, UsageAtClaim: 4 * rng.Float64()}, lim, 4*rng.Float64())
		case 3:
			l.Claim(model.Claim{Target: model.OfTask(task), Cap: rng.Float64(), Owner: model.OwnerOperator, MadeNsec: now, ExpiresNsec: now + int64(rng.IntN(20))*1e9}, lim, 1)
		case 4:
			incident := fmt.Sprint(rng.IntN(5))
			drop(task, model.CPUBandwidth, func(c *model.Claim) bool { return c.Incident == incident })
		case 5:
			l.Free(task, now+int64(rng.IntN(10))*1e9)
		case 6:
			if kind, _ := l.Compare(&model.KnobReading{Target: model.OfTask(task), Value: model.Bandwidth(model.CPUMax{QuotaUsec: 77}), Outcome: model.OK}, now); kind == model.DecideForeign {
				if l.Held(task) {
					fail("claims on task %d outlive a stranger's write", task)
				}
			}
		case 7:
			if rng.IntN(10) == 0 {
				l.Gone(model.OfTask(task), now)
				h.gone(task)
			}
		case 8, 9:
			l.Claim(model.Claim{Target: model.OfTask(task), Kind: model.ClaimPlace, Value: model.Place(place(rng)), Policy: model.PolicyCPUSet, Owner: model.OwnerPolicy, MadeNsec: now, ExpiresNsec: now + int64(rng.IntN(20))*1e9}, lim, 1)
		case 10, 11:
			policy := []string{model.PolicyCPUPool, model.PolicyBurst}[rng.IntN(2)]
			l.Claim(model.Claim{Target: model.OfTask(task), Kind: model.ClaimRaise, Policy: policy, Owner: model.OwnerPolicy, MadeNsec: now, ExpiresNsec: now + int64(rng.IntN(20))*1e9, Value: model.Bandwidth(model.CPUMax{QuotaUsec: 50_000 * int64(rng.IntN(20)), BurstUsec: rng.Int64N(100_000)})}, lim, 1)
		case 12:
			drop(task, model.CPUPlace, func(c *model.Claim) bool { return c.Policy == model.PolicyCPUSet })
		case 13:
			l.DropPolicy(model.PolicyCPUPool)
		case 14:
			l.Claim(model.Claim{Target: model.OfTask(task), Kind: model.ClaimRun, Value: model.Reclaim(1 + rng.Int64N(1<<30)), Owner: model.OwnerPolicy, MadeNsec: now, ExpiresNsec: now + 30e9}, lim, 1)
		}
		l.Expire(now)
		for i := range l.Knobs {
			for _, c := range l.Knobs[i].Claims {
				if now >= c.ExpiresNsec {
					fail("claim %d is past its time", c.ID)
				}
			}
			if a, b := &l.Knobs[max(0, i-1)], &l.Knobs[i]; i > 0 && (b.Before(a.Target) || b.Target == a.Target && b.Kind <= a.Kind) {
				fail("knobs are not in order")
			}
		}
		if len(l.Failures) > maxFailures {
			fail("%d failures are remembered", len(l.Failures))
		}
		arbitrate()
	}
	// Everybody lets go, the host takes everything: nothing of ours remains.
	l.DropAll()
	for range 700 {
		now += 1e9
		for _, c := range h.pending {
			answer(c, model.Applied)
		}
		l.Expire(now)
		arbitrate()
	}
	for key, ours := range h.ours {
		if ours {
			fail("%v is still ours", key)
		}
	}
	for i := range l.Knobs {
		if k := &l.Knobs[i]; k.State != KnobVoid || k.Ours {
			fail("knob %+v remains", k)
		}
	}
}

// Under constant refusal an operator's cap and a release are tried less and less often.
func TestRefusalBacksOff(t *testing.T) {
	for _, kind := range []model.ChangeKind{model.Hold, model.Release} {
		var l Ledger
		l.Claim(model.Claim{Target: model.OfTask(1), Cap: 0.1, Owner: model.OwnerOperator, ExpiresNsec: math.MaxInt64}, Limits{}, 0)
		told, tries := 0, 0
		for s := range int64(3600) {
			now := s * 1e9
			for _, c := range l.Arbitrate(now, 250e6, nil) {
				r := model.Result{Seq: c.Seq, Target: model.OfTask(1), Kind: model.Refused, Error: "no", MonoNsec: now}
				if kind == model.Release && c.Kind == model.Hold {
					r.Kind = model.Applied
					l.DropAll()
				} else {
					tries++
				}
				if what, _ := l.Learn(&r, now); what == model.DecideRefused {
					told++
				}
			}
		}
		// 1, 2, 4 ... 256 s, then every 300 s.
		if tries < 15 || tries > 25 || told != 1 {
			t.Errorf("%s: tried %d times in an hour, told %d times", kind, tries, told)
		}
	}
}

// A tighter cap that is refused is not taken for granted: it is asked for again.
func TestRefusedTighterCapIsAskedForAgain(t *testing.T) {
	var l Ledger
	claim := func(c float64) {
		l.Claim(model.Claim{Target: model.OfTask(1), Cap: c, Owner: model.OwnerOperator, ExpiresNsec: math.MaxInt64}, Limits{}, 0)
	}
	step := func(now int64, kind model.ResultKind) (n int) {
		for _, c := range l.Arbitrate(now, 250e6, nil) {
			l.Learn(&model.Result{Seq: c.Seq, Target: model.OfTask(1), Kind: kind, Now: c.Value, MonoNsec: now, Error: "no"}, now)
			n++
		}
		return n
	}
	claim(0.5)
	step(0, model.Applied)
	claim(0.1)
	if step(1e9, model.Refused) != 1 || step(1.5e9, model.Applied) != 0 {
		t.Fatal("not asked once, then backed off")
	}
	if step(3e9, model.Applied) != 1 || l.Knobs[0].Written != model.Bandwidth(model.CapFor(0.1, 250e6)) {
		t.Errorf("not asked again: %+v", l.Knobs[0])
	}
}

// A task whose class is over and whose next one is refused leaves the first, once that, too, can be, and is put into the
// next when it can be.
func TestRefusedClassIsLeft(t *testing.T) {
	var l Ledger
	now := int64(1e12)
	claim := func(id uint64, class model.TaskNum) model.Claim {
		return model.Claim{ID: id, Target: model.OfTask(1), Kind: model.ClaimPlace, Policy: "p", Value: model.InClass(class), ExpiresNsec: now + 600e9}
	}
	turn := func(answer model.ResultKind) (c model.Change) {
		t.Helper()
		changes := l.Arbitrate(now, 250e6, nil)
		if len(changes) > 1 {
			t.Fatalf("%+v", changes)
		}
		if len(changes) == 1 {
			c = changes[0]
			l.Learn(&model.Result{Seq: c.Seq, Target: c.Target, Kind: answer, MonoNsec: now, Found: model.InClass(0), Now: c.Value}, now)
		}
		return c
	}
	knob := func() *Knob { return l.knob(model.OfTask(1), model.ServiceClass) }
	l.Knobs = []Knob{{Target: model.OfTask(1), Kind: model.ServiceClass, Claims: []model.Claim{claim(1, 7)}}}
	if c := turn(model.Applied); c.Kind != model.Set || c.Value.Amount != 7 {
		t.Fatalf("%+v", c)
	}
	knob().Claims = []model.Claim{claim(2, 1)}
	if c := turn(model.Refused); c.Kind != model.Set || c.Value.Amount != 1 {
		t.Fatalf("%+v; expected that it moves", c)
	}
	if c := turn(model.Refused); c.Kind != model.Release {
		t.Fatalf("%+v; expected that it leaves at once", c)
	}
	now += 0.5e9
	if c := turn(model.Applied); c.Seq != 0 {
		t.Fatalf("%+v; expected a pause after what was refused", c)
	}
	now += 1e9
	if c := turn(model.Applied); c.Kind != model.Release {
		t.Fatalf("%+v; expected that it tries to leave again, not to move", c)
	}
	if c := turn(model.Applied); c.Kind != model.Set || c.Value.Amount != 1 || !knob().Ours {
		t.Fatalf("%+v; expected that it is put into the next", c)
	}
}

// A cap that was refused often keeps neither a release nor an operator's next word waiting.
func TestRefusedCapDelaysNothingElse(t *testing.T) {
	for _, next := range []string{"expiry", "uncap", "cap"} {
		var l Ledger
		ask := func(c float64) {
			l.Free(1, 0)
			l.Claim(model.Claim{Target: model.OfTask(1), Cap: c, Owner: model.OwnerOperator, ExpiresNsec: 100e9}, Limits{}, 0)
		}
		step := func(now int64, kind model.ResultKind) []model.Change {
			l.Expire(now)
			cs := l.Arbitrate(now, 250e6, nil)
			for _, c := range cs {
				l.Learn(&model.Result{Seq: c.Seq, Target: model.OfTask(1), Kind: kind, Now: c.Value, MonoNsec: now, Error: "no"}, now)
			}
			return cs
		}
		ask(0.01)
		step(0, model.Applied)
		ask(64)
		for now := int64(1e9); now < 99e9; now += 1e9 {
			step(now, model.Refused)
		}
		if k := l.Knobs[0]; k.RetryAt < 110e9 || !k.Ours {
			t.Fatalf("the knob does not back off: %+v", k)
		}
		want := model.Release
		switch next {
		case "uncap":
			l.Free(1, 200e9)
		case "cap":
			ask(0.5)
			want = model.Hold
		}
		now := int64(99.5e9)
		if next == "expiry" {
			now = 100e9
		}
		if cs := step(now, model.Applied); len(cs) != 1 || cs[0].Kind != want {
			t.Errorf("%s: %+v; expected a %s at once", next, cs, want)
		}
	}
}

func TestLimits(t *testing.T) {
	claim := func(l *Ledger, task model.TaskNum, used float64, lim Limits) string {
		return l.Claim(model.Claim{Target: model.OfTask(task), Cap: 0.1, Owner: model.OwnerPolicy, Incident: "i", UsageAtClaim: used, ExpiresNsec: math.MaxInt64}, lim, 4)
	}
	var l Ledger
	lim := Limits{MaxHeldTasks: 2, MaxBETaken: 1}
	if claim(&l, 1, 4, Limits{}) != "" {
		t.Error("the first may always be held")
	}
	if claim(&l, 2, 1, lim) != "" || claim(&l, 3, 1, lim) == "" {
		t.Error("max_held_tasks")
	}
	if h := l.Hold("", &model.Claim{Target: model.OfTask(3), Incident: "i"}); h.Why == "" {
		t.Errorf("a claim over the limit is not told to its policy: %+v", h)
	}
	l = Ledger{}
	claim(&l, 1, 2.1, lim)
	// 2 are taken of 4 left and those 2; 1 more makes a half.
	if why := claim(&l, 2, 1.2, Limits{MaxHeldTasks: 9, MaxBETaken: 0.5}); why == "" {
		t.Error("max_be_cpu_taken")
	}
	if why := claim(&l, 2, 1.05, Limits{MaxHeldTasks: 9, MaxBETaken: 0.5}); why != "" {
		t.Error(why)
	}
}
