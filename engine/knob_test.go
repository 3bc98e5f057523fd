package engine

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// turn is one tick of a ledger whose host answers everything with one kind.
func turn(l *Ledger, now int64, kind model.ResultKind) []model.Change {
	changes := l.Arbitrate(now, 250e6, nil)
	for _, c := range changes {
		found, _ := l.Bases.get(c.Target, c.Value.Knob)
		l.Learn(&model.Result{Seq: c.Seq, Target: c.Target, Kind: kind, Found: found, Now: c.Value, MonoNsec: now, Error: "no"}, now)
	}
	return changes
}

func cpus(list string) model.CPUSet {
	s, err := model.ParseCPUSet(list)
	if err != nil {
		panic(err)
	}
	return s
}

func raise(task model.TaskNum, name string, quota, burst, until int64) model.Claim {
	return model.Claim{
		Target: model.OfTask(task), Kind: model.ClaimRaise, Policy: name, Owner: model.OwnerPolicy, ExpiresNsec: until,
		Value: model.Bandwidth(model.CPUMax{QuotaUsec: quota, BurstUsec: burst}),
	}
}

// Raises of two policies settle at the greatest of each, over what was found, and a cap on
// the same task goes before.
func TestRaisesSettleAtTheGreatest(t *testing.T) {
	var l Ledger
	l.Bases.put(model.OfTask(1), model.Bandwidth(model.CPUMax{QuotaUsec: 200_000, PeriodUsec: 100_000}))
	l.Claim(raise(1, model.PolicyCPUPool, 300_000, 0, 9e18), Limits{}, 0)
	l.Claim(raise(1, model.PolicyBurst, 0, 200_000, 9e18), Limits{}, 0)
	got := turn(&l, 1, model.Applied)
	want := model.Bandwidth(model.CPUMax{QuotaUsec: 300_000, PeriodUsec: 100_000, BurstUsec: 200_000})
	if len(got) != 1 || got[0].Kind != model.Set || got[0].Value != want {
		t.Fatalf("%+v, want a set of %v", got, want)
	}
	l.DropPolicy(model.PolicyCPUPool)
	want.QuotaUsec = 200_000
	if got := turn(&l, 2, model.Applied); len(got) != 1 || got[0].Value != want {
		t.Fatalf("without the pool: %+v, want %v", got, want)
	}
	l.Claim(model.Claim{Target: model.OfTask(1), Cap: 0.1, Owner: model.OwnerOperator, ExpiresNsec: 9e18}, Limits{}, 0)
	if got := turn(&l, 3, model.Applied); len(got) != 1 || got[0].Kind != model.Hold || got[0].Value.QuotaUsec != 25_000 {
		t.Fatalf("with a cap: %+v", got)
	}
	l.DropAll()
	if got := turn(&l, 4, model.Applied); len(got) != 1 || got[0].Kind != model.Release {
		t.Fatalf("at the end: %+v", got)
	}
}

// A task's own class goes before that of many, whoever asked first, and what is left stands when one ends.
func TestOwnClassGoesBefore(t *testing.T) {
	place := func(name string, class model.TaskNum) model.Claim {
		return model.Claim{Target: model.OfTask(1), Kind: model.ClaimPlace, Policy: name, Owner: model.OwnerPolicy, ExpiresNsec: 9e18, Value: model.InClass(class)}
	}
	both := []model.Claim{place(model.PolicyCache, model.ClassBE), place(model.PolicyBandwidth, model.ClassOf(1))}
	for first := range both {
		var l Ledger
		l.Claim(both[first], Limits{}, 0)
		turn(&l, 1, model.Applied)
		l.Claim(both[1-first], Limits{}, 0)
		turn(&l, 2, model.Applied)
		if k := l.knob(model.OfTask(1), model.ServiceClass); k.Written != model.InClass(model.ClassOf(1)) {
			t.Errorf("%d first: in %s", first, k.Written)
		}
		l.DropPolicy(model.PolicyBandwidth)
		if got := turn(&l, 3, model.Applied); len(got) != 1 || got[0].Kind != model.Set || got[0].Value != model.InClass(model.ClassBE) {
			t.Errorf("%d first, the own class ends: %+v", first, got)
		}
	}
}

// The last line of defence: whatever a policy asks for, no service gets into a class of BE, nor BE into that of services,
// nor anybody else into either.
func TestNobodyIsInTheOthersClass(t *testing.T) {
	e := New(Defaults())
	for num, class := range []model.Class{model.LC, model.BE, model.System} {
		e.State.Tasks.Add(model.Task{Num: model.TaskNum(num + 1), Path: "/" + class.String(), Class: class})
	}
	for class, allowed := range map[model.TaskNum]model.TaskNum{model.ClassBE: 2, model.ClassOf(2): 2, model.ClassLC: 1, model.ClassOfPart(0): 1, model.ClassOfPart(model.MaxParts - 1): 1} {
		for task := model.TaskNum(1); task <= 3; task++ {
			why := e.notHis(&model.Claim{Target: model.OfTask(task), Kind: model.ClaimPlace, Value: model.InClass(class)})
			if (why == "") != (task == allowed) {
				t.Errorf("class %s for task %d: %q", model.ClassName(class), task, why)
			}
		}
	}
}

// What is not known cannot be raised, and a task without a quota needs none.
func TestNothingIsRaisedOverNothing(t *testing.T) {
	var l Ledger
	l.Claim(raise(1, model.PolicyCPUPool, 300_000, 0, 9e18), Limits{}, 0)
	if got := turn(&l, 1, model.Applied); len(got) != 0 {
		t.Errorf("unknown: %+v", got)
	}
	l.Bases.put(model.OfTask(1), model.Bandwidth(model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}))
	if got := turn(&l, 2, model.Applied); len(got) != 0 {
		t.Errorf("no quota: %+v", got)
	}
	l.Expire(9.1e18)
	if turn(&l, 3, model.Applied); len(l.Knobs) != 0 {
		t.Errorf("not forgotten: %+v", l.Knobs)
	}
}

// Whoever loses CPUs loses them before somebody else gets them.
func TestPlacesShrinkFirst(t *testing.T) {
	var l Ledger
	put := func(task model.TaskNum, list string) {
		l.Claim(model.Claim{Target: model.OfTask(task), Kind: model.ClaimPlace, Value: model.Place(cpus(list)), Policy: model.PolicyCPUSet, Owner: model.OwnerPolicy, ExpiresNsec: 9e18}, Limits{}, 0)
	}
	for task := model.TaskNum(1); task <= 4; task++ {
		l.Bases.put(model.OfTask(task), model.Place(cpus("0-7")))
	}
	put(1, "0-3")
	put(2, "4-7")
	turn(&l, 1, model.Applied)
	put(1, "0-5")
	put(2, "6-7")
	got := turn(&l, 2, model.Applied)
	if len(got) != 2 || got[0].Task() != 2 || got[1].Task() != 1 {
		t.Errorf("%+v, want task 2 before task 1", got)
	}
	if v := l.Knobs[0].Written; v != model.Place(cpus("0-5")) {
		t.Errorf("written %v", v)
	}
}

// A place that the kernel refused is tried again with back-off; another wish soon.
func TestRefusedPlaceIsTriedAgain(t *testing.T) {
	var l Ledger
	put := func(list string, now int64) {
		l.Claim(model.Claim{Target: model.OfTask(1), Kind: model.ClaimPlace, Value: model.Place(cpus(list)), Policy: model.PolicyCPUSet, Owner: model.OwnerPolicy, MadeNsec: now, ExpiresNsec: 9e18}, Limits{}, 0)
	}
	l.Bases.put(model.OfTask(1), model.Place(cpus("0-7")))
	put("0-3", 0)
	asked := 0
	for now := int64(0); now < 60e9; now += 50e6 {
		asked += len(turn(&l, now, model.Refused))
	}
	if asked < 4 || asked > 7 {
		t.Errorf("asked %d times in a minute", asked)
	}
	var v policy.TaskView
	if l.view(&model.Task{Num: 1}, &v); !v.Knobs[model.CPUPlace].Refused || v.Knobs[model.CPUPlace].Why != "no" || v.Knobs[model.CPUPlace].Now != v.Knobs[model.CPUPlace].Found {
		t.Errorf("seen as %+v", v.Knobs[model.CPUPlace])
	}
	put("0-2", 60e9)
	if len(turn(&l, 61e9, model.Applied)) != 1 {
		t.Error("another wish waits")
	}
}

// A stranger's cpuset is left, seen by the policies, and claims on it are void; the same
// task's bandwidth is not.
func TestStrangersPlace(t *testing.T) {
	var l Ledger
	l.Bases.put(model.OfTask(1), model.Place(cpus("0-7")))
	l.Claim(model.Claim{Target: model.OfTask(1), Kind: model.ClaimPlace, Value: model.Place(cpus("0-3")), Policy: model.PolicyCPUSet, Owner: model.OwnerPolicy, ExpiresNsec: 9e18}, Limits{}, 0)
	l.Claim(model.Claim{Target: model.OfTask(1), Cap: 0.5, Owner: model.OwnerPolicy, Incident: "i", ExpiresNsec: 9e18}, Limits{MaxHeldTasks: 1}, 0)
	turn(&l, 1, model.Applied)
	kind, why := l.Compare(&model.KnobReading{Target: model.OfTask(1), Value: model.Place(cpus("2")), Outcome: model.OK}, 2)
	if foreign := kind == model.DecideForeign; !foreign || !strings.Contains(why, "found CPUs 2 where we had written CPUs 0-3") {
		t.Errorf("%v %q", foreign, why)
	}
	if got := turn(&l, 3, model.Applied); len(got) != 1 || got[0].Kind != model.Disown || got[0].Value.Knob != model.CPUPlace {
		t.Errorf("%+v, want a disown of the place", got)
	}
	if !l.Held(1) {
		t.Error("the cap is gone too")
	}
	var v policy.TaskView
	if l.view(&model.Task{Num: 1}, &v); !v.Knobs[model.CPUPlace].Void || v.Knobs[model.CPUPlace].Now.CPUs != cpus("2") || !v.Knobs[model.CPUBandwidth].Ours {
		t.Errorf("seen as %+v", v)
	}
	if why := l.Claim(model.Claim{Target: model.OfTask(1), Kind: model.ClaimPlace, Value: model.Place(cpus("0")), Owner: model.OwnerPolicy}, Limits{}, 0); why == "" {
		t.Error("a void knob takes claims")
	}
	l.Free(1, 0)
	if why := l.Claim(model.Claim{Target: model.OfTask(1), Kind: model.ClaimPlace, Value: model.Place(cpus("0")), Owner: model.OwnerPolicy, ExpiresNsec: 9e18}, Limits{}, 0); why != "" {
		t.Errorf("freed, but %s", why)
	}
}

// What a release had to change of a stranger's setting is told with it.
func TestStrangersSettingAtARelease(t *testing.T) {
	var l Ledger
	l.Bases.put(model.OfTask(1), model.Bandwidth(model.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000}))
	l.Claim(raise(1, model.PolicyBurst, 0, 40_000, 9e18), Limits{}, 0)
	turn(&l, 1, model.Applied)
	l.DropAll()
	asked := l.Arbitrate(2, 250e6, nil)
	if len(asked) != 1 || asked[0].Kind != model.Release {
		t.Fatalf("asked for %+v", asked)
	}
	r := model.Result{Seq: asked[0].Seq, Target: asked[0].Target, Kind: model.Foreign, Now: model.Bandwidth(model.CPUMax{QuotaUsec: 5, PeriodUsec: 9}), Error: "lower"}
	if kind, why := l.Learn(&r, 3); kind != model.DecideForeign || !strings.HasSuffix(why, "; lower") {
		t.Errorf("told %v %q", kind, why)
	}
}

// What somebody wrote since the knob was listed is not overwritten: the host says stale, and
// the wish is put over what stands there now.
func TestStaleBaseIsReadAgain(t *testing.T) {
	var l Ledger
	of := model.OfTask(1)
	listed := model.Bandwidth(model.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000})
	now := model.Bandwidth(model.CPUMax{QuotaUsec: 120_000, PeriodUsec: 100_000})
	l.Bases.put(of, listed)
	l.Claim(raise(1, model.PolicyBurst, 0, 40_000, 9e18), Limits{}, 0)
	asked := l.Arbitrate(1, 250e6, nil)
	if len(asked) != 1 || asked[0].Base == nil || *asked[0].Base != listed {
		t.Fatalf("asked for %+v", asked)
	}
	l.Learn(&model.Result{Seq: asked[0].Seq, Target: of, Kind: model.Stale, Found: now, Now: now}, 2)
	again := l.Arbitrate(2, 250e6, nil)
	if len(again) != 1 || again[0].Value.QuotaUsec != 120_000 || again[0].Value.BurstUsec != 40_000 || *again[0].Base != now {
		t.Errorf("after that %+v", again)
	}
}

// A quota that was decided over another limit is not put over the one that stands there now:
func TestQuotaOverAnother(t *testing.T) {
	for _, now := range []model.CPUMax{{QuotaUsec: 50_000, PeriodUsec: 100_000}, {QuotaUsec: 60_000, PeriodUsec: 250_000}} {
		var l Ledger
		of, listed := model.OfTask(1), model.Bandwidth(model.CPUMax{QuotaUsec: 30_000, PeriodUsec: 250_000})
		l.Bases.put(of, listed)
		c := raise(1, model.PolicyCPUPool, 42_307, 0, 9e18)
		c.Over = listed
		l.Claim(c, Limits{}, 0)
		if asked := l.Arbitrate(1, 250e6, nil); len(asked) != 1 || asked[0].Value.QuotaUsec != 42_307 {
			t.Fatalf("asked for %+v", asked)
		}
		l.Learn(&model.Result{Seq: 1, Target: of, Kind: model.Stale, Found: model.Bandwidth(now), Now: model.Bandwidth(now)}, 2)
		for _, c := range l.Arbitrate(2, 250e6, nil) {
			if c.Value != model.Bandwidth(now) {
				t.Errorf("over %v asked for %v", now, c.Value)
			}
		}
	}
}

// A knob that vanished takes nothing else of its task with it: the rest is in force, can be given back, and goes when
// the task itself is told as gone.
func TestOneKnobVanishes(t *testing.T) {
	of := model.OfTask(1)
	begin := func() *Ledger {
		l := &Ledger{}
		l.Bases.put(of, model.Bandwidth(model.CPUMax{QuotaUsec: 200_000, PeriodUsec: 100_000}))
		l.Claim(model.Claim{Target: of, Cap: 0.01, Owner: model.OwnerOperator, ExpiresNsec: 9e18}, Limits{}, 0)
		l.Claim(model.Claim{Target: of, Cap: 1 << 30, Value: model.HighMemory(1 << 30), Owner: model.OwnerPolicy, Policy: model.PolicyMemory, Incident: "i", ExpiresNsec: 9e18}, Limits{MaxHeldTasks: 1}, 0)
		turn(l, 1, model.Applied)
		l.shield(model.Shield{Task: 2, Why: "a service is in it"}, 1)
		l.Exemptions = append(l.Exemptions, Exemption{Task: 1, UntilNsec: 9e18})
		return l
	}
	rest := func(l *Ledger) {
		t.Helper()
		if k := l.knob(of, model.CPUBandwidth); k == nil || !k.Ours || l.Exempt(1) == "" {
			t.Fatalf("the cap is forgotten: %+v", l.Knobs)
		}
		l.DropAll()
		if got := turn(l, 9, model.Applied); len(got) != 1 || got[0].Kind != model.Release || got[0].Value.Knob != model.CPUBandwidth {
			t.Errorf("the cap is not given back: %+v", got)
		}
		l.Gone(of, 10)
		if l.Exempt(1) != "" || l.Exempt(2) == "" || len(l.of(of)) > 0 || len(l.Bases) > 0 {
			t.Errorf("the task is not forgotten: %+v", l)
		}
	}
	high := &model.Claim{Target: of, Value: model.HighMemory(1 << 30), Incident: "i"}
	for _, ended := range []bool{true, false} { // the hold, or its claim was made anew meanwhile
		l := begin()
		if k := l.knob(of, model.MemoryHigh); ended {
			k.Claims = nil
		} else {
			k.Wanted = model.HighMemory(2 << 30)
		}
		turn(l, 2, model.Vanished)
		if h := l.Hold(model.PolicyMemory, high); l.knob(of, model.MemoryHigh) != nil || !ended && h.State != policy.HoldGone {
			t.Errorf("%v: the knob that vanished: %+v", ended, h)
		}
		rest(l)
	}
	// Its task is there: what is not in the kernel any more is not in force, and a hold failed.
	l := begin()
	kind, why := l.Compare(&model.KnobReading{Target: of, Value: model.Ask(model.MemoryHigh), Outcome: model.Absent}, 2)
	if h := l.Hold(model.PolicyMemory, high); kind != model.DecideRefused || !strings.Contains(why, "not there any more") || h.State != policy.HoldFailed {
		t.Errorf("%s %q, %+v", kind, why, h)
	}
	if got := turn(l, 3, model.Applied); len(got) != 1 || got[0].Kind != model.Disown || got[0].Value.Knob != model.MemoryHigh {
		t.Errorf("%+v, want a disown", got)
	}
	rest(l)
}

// An action that takes long is ended once when who asked for it does not any more, and then never again; not when its claim is over, which an operator's
// is before it is done, and no action that is over soon.
func TestActionsEnd(t *testing.T) {
	of := model.OfTask(1)
	for name, c := range map[string]struct {
		value model.Setting
		then  func(l *Ledger)
		ended bool
	}{
		"nothing happens":        {model.Pages(500, 0), func(*Ledger) {}, false},
		"its policy is off":      {model.Pages(500, 0), func(l *Ledger) { l.DropPolicy(model.PolicyRemedy) }, true},
		"another policy is":      {model.Pages(500, 0), func(l *Ledger) { l.DropPolicy(model.PolicyBalm) }, false},
		"kill switch":            {model.Pages(500, 0), (*Ledger).DropAll, true},
		"kill switch after that": {model.Pages(500, 0), func(l *Ledger) { l.Expire(9e18); l.DropAll() }, true},
		"an operator frees it":   {model.Pages(500, 0), func(l *Ledger) { l.Free(1, 0) }, true},
		"a service is in it":     {model.Pages(500, 0), func(l *Ledger) { l.shield(model.Shield{Task: 1, Why: "a service is in it"}, 2) }, true},
		"its claim is over":      {model.Pages(500, 0), func(l *Ledger) { l.Expire(9e18) }, false},
		"kill switch for memory": {model.Reclaim(1 << 40), (*Ledger).DropAll, true},
		"kill switch for an end": {model.End(0), (*Ledger).DropAll, false},
	} {
		l := &Ledger{}
		l.Claim(model.Claim{Target: of, Kind: model.ClaimRun, Value: c.value, Owner: model.OwnerPolicy, Policy: model.PolicyRemedy, ExpiresNsec: 60e9}, Limits{}, 0)
		run := l.Arbitrate(1, 0, nil)
		if len(run) != 1 || run[0].Kind != model.Run {
			t.Fatalf("%s: %+v", name, run)
		}
		for n := range 3 {
			c.then(l)
			got := l.endRuns(nil)
			if want := c.ended && n == 0; len(got) > 1 || (len(got) == 1) != want || want && (got[0].Kind != model.Stop || got[0].Target != of || got[0].Value.Knob != c.value.Knob || got[0].Seq == run[0].Seq) {
				t.Errorf("%s, %d: %+v", name, n, got)
			}
			if more := l.Arbitrate(2, 0, nil); len(more) > 0 {
				t.Errorf("%s: %+v while it is on its way", name, more)
			}
		}
		kind, why := l.Learn(&model.Result{Seq: run[0].Seq, Target: of, Now: c.value, Error: "it was ended"}, 3)
		if k := l.knob(of, c.value.Knob); kind != model.DecideRan || !strings.Contains(why, "it was ended") || k.Unwanted || k.Ending || k.State != KnobIdle {
			t.Errorf("%s: %s %q, %+v", name, kind, why, k)
		}
	}
}
