package cpuset_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/cpuset"
)

func narrowed(t *testing.T, task *enginetest.Task, list string) *enginetest.Task {
	return task.CPUs(cpuset.CPUs(t, list))
}

func TestPlacing(t *testing.T) {
	topo := cpuset.Machine(1, 1, 4, 1) // BE begins with CPU 3
	third := func(class model.Class) *enginetest.Task { return task(3, class) }
	refused := func() *enginetest.Task { return third(model.BE).Refuse(model.CPUPlace, "invalid argument") }
	unknown := third(model.BE)
	unknown.Knobs[model.CPUPlace].Unreadable = true
	stranger := func(list string) func(*rig) {
		return func(r *rig) { r.Stranger(3, model.Place(cpuset.CPUs(t, list))) }
	}
	free := func(r *rig) { r.Tell(model.Command{Kind: model.CommandUncap, Task: 3}) }
	service := func(r *rig) {
		r.Snapshot().Shields = []model.Shield{{Task: 3, Why: "/t3/web, which is not to be held back, lies inside"}}
	}
	for _, c := range []struct {
		name   string
		topo   *model.Topology
		tasks  []*enginetest.Task
		then   func(*rig) // happens when all is placed
		status cpuset.Status
		lc, be string // claims of tasks 1 and 2; "-": none
		third  string // claim of task 3
		said   string
	}{
		{"both", topo, pair(), nil, cpuset.Divided, "0-2", "3", "-", "the machine is divided"},
		{"no BE", topo, pair()[:1], nil, cpuset.NoBE, "-", "-", "-", "no BE task is here"},
		{"no LC", topo, pair()[1:], nil, cpuset.NoLC, "-", "-", "-", "no LC task is here"},
		{"one core", cpuset.Machine(1, 1, 1, 2), pair(), nil, cpuset.TooFew, "-", "-", "-", "cannot be divided"},
		{"a system task", topo, append(pair(), third(model.System)), nil, cpuset.Divided, "0-2", "3", "-", "divided"},
		{"LC found narrow", topo, []*enginetest.Task{narrowed(t, task(1, model.LC), "2-3"), task(2, model.BE)}, nil, cpuset.Divided, "2-3", "1", "-", "divided"},
		{"LC found everywhere, wide", topo, []*enginetest.Task{narrowed(t, task(1, model.LC), "0-63"), task(2, model.BE)}, nil, cpuset.Divided, "0-2", "3", "-", "divided"},
		{"LC found on all of three", cpuset.Machine(1, 1, 3, 1), []*enginetest.Task{narrowed(t, task(1, model.LC), "0-1"), narrowed(t, third(model.LC), "2"), task(2, model.BE)}, nil, cpuset.Divided, "0-1", "2", "-", "may run on CPUs 2 only"},
		{"two cores, of which BE keeps one", cpuset.Machine(1, 1, 2, 1), pair(), nil, cpuset.TooFew, "-", "-", "-", "a border that can move"},
		{"LC that a stranger pinned", topo, append(pair(), third(model.LC)), stranger("3"), cpuset.Divided, "0-1,3", "2", "-", "its load counts"},
		{"BE found where LC is", topo, append(pair(), narrowed(t, third(model.BE), "0-1")), nil, cpuset.Divided, "0-2", "3", "-", "may run on CPUs 0-1 only"},
		{"BE that a stranger places", topo, append(pair(), third(model.BE)), stranger("0-3"), cpuset.Divided, "0-2", "3", "-", "another program sets its CPUs; it is left where it is, and may run on LC's cores"},
		{"BE that an operator freed", topo, append(pair(), third(model.BE)), free, cpuset.Divided, "0-2", "3", "-", "an operator freed it"},
		{"BE that a service came into", topo, append(pair(), third(model.BE)), service, cpuset.Divided, "0-2", "3", "-", "lies inside; it is left where it is"},
		{"no BE but one with a service in it", topo, []*enginetest.Task{task(1, model.LC), third(model.BE)}, service, cpuset.Unconfinable, "-", "-", "-", "LC is not confined either"},
		{"BE that the kernel refuses", topo, append(pair(), refused()), nil, cpuset.Divided, "0-2", "3", "3", "the kernel refused its CPUs: invalid argument"},
		{"no BE but a stranger's", topo, []*enginetest.Task{task(1, model.LC), third(model.BE)}, stranger("0-3"), cpuset.Unconfinable, "-", "-", "-", "LC is not confined either"},
		{"no BE but a refused one", topo, []*enginetest.Task{task(1, model.LC), refused()}, nil, cpuset.Unconfinable, "-", "-", "3", "LC is not confined either"},
		{"no BE but an unknown one", topo, []*enginetest.Task{task(1, model.LC), unknown}, nil, cpuset.Unconfinable, "-", "-", "-", "LC is not confined either"},
		{"LC that a stranger places", topo, append(pair(), third(model.LC)), stranger("0-3"), cpuset.Divided, "0-2", "3", "-", "its load counts"},
		{"only LC that a stranger places", topo, []*enginetest.Task{task(2, model.BE), third(model.LC)}, stranger("0-3"), cpuset.Divided, "-", "3", "-", "its load counts"},
		{"only exclusive LC", topo, []*enginetest.Task{exclusive(1, 1, 0), task(2, model.BE)}, nil, cpuset.Divided, "0", "3", "-", "cores of its own"},
		{"exclusive beside shared, no BE", topo, []*enginetest.Task{exclusive(1, 1, 0), third(model.LC)}, nil, cpuset.NoBE, "0", "-", "1-3", "exclusive tasks keep their cores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.topo, c.tasks...)
			r.run(150*msec, 0.5)
			if c.then != nil {
				c.then(r)
				r.run(150*msec, 0.5)
			}
			if r.s.Status != c.status {
				t.Errorf("status %q, expected %q", r.s.Status, c.status)
			}
			for num, want := range map[model.TaskNum]string{1: c.lc, 2: c.be, 3: c.third} {
				if got := r.place(num); got != want {
					t.Errorf("task %d is placed on %s, expected %s", num, got, want)
				}
				if task := r.Task(num); task != nil && want == "-" && task.Knobs[model.CPUPlace].Ours {
					t.Errorf("task %d is let go, and still on CPUs of ours", num)
				}
			}
			if !slices.ContainsFunc(r.Said, func(d model.Decision) bool { return strings.Contains(d.Reason, c.said) }) {
				t.Errorf("nobody said %q: %+v", c.said, r.Said)
			}
			r.run(30*sec, 0.5)
			r.step(700*sec, 0.5) // what stands is not news, however long it stood
			n := len(r.Said)
			for range 20 {
				r.List(r.Tasks[0].Num)
				r.step(50*msec, 0.5)
			}
			if len(r.Said) > n && c.name != "no BE but an unknown one" { // that is said at the second look
				t.Errorf("said again: %+v", r.Said[n:])
			}
		})
	}
}

// Whoever loses a core is written first, so that it is free when it changes hands.
func TestOrderOfChanges(t *testing.T) {
	r := quiet(t, cpuset.Machine(1, 1, 8, 1), 0.5)
	order := func(what string, out *engine.Output, first, second model.TaskNum) {
		t.Helper()
		if len(out.Changes) != 2 || out.Changes[0].Task() != first || out.Changes[1].Task() != second {
			t.Errorf("%s: %+v", what, out.Changes)
		}
	}
	order("BE shrinks", r.step(50*msec, 6), 2, 1)
	for range 10_000 {
		_, be := r.cores()
		out := r.step(50*msec, 0.5)
		if _, now := r.cores(); now > be {
			order("BE grows", out, 1, 2)
			return
		}
	}
	t.Error("BE never grew")
}

// The core that was given last is taken first, and no core moves that need not.
func TestFewestMoves(t *testing.T) {
	r := newRig(t, cpuset.Machine(2, 1, 16, 2), pair()...)
	var had []model.CPUSet // by BE's size
	for range 60 * 20 {
		before := r.s.BECPUs
		r.step(50*msec, 4)
		if now := r.s.BECPUs; now != before {
			moved := now.Without(before)
			if !before.Within(now) {
				t.Fatalf("BE went from %s to %s, which are %d more", before, now, moved.Len())
			}
			had = append(had, now)
		}
	}
	r.step(50*msec, 13)
	found := false
	for _, set := range had {
		found = found || set == r.s.BECPUs
	}
	if !found {
		t.Errorf("BE has %s after a rise, which it never had before", r.s.BECPUs)
	}
}

// Nothing is claimed in observe mode, all of it when enforcing begins, and nothing is kept
// when it ends but what was learnt of the load.
func TestModes(t *testing.T) {
	r := newRig(t, cpuset.Machine(1, 1, 8, 2), pair()...)
	r.mode(model.ModeObserve)
	r.run(30*sec, 1)
	if r.Claims() != 0 || r.Writes != 0 || r.Count(model.DecideResize) < 2 {
		t.Fatalf("%d claims, %d writes, %d resizes said while observing", r.Claims(), r.Writes, r.Count(model.DecideResize))
	}
	r.mode(model.ModeEnforce)
	r.step(50*msec, 1)
	if r.Claims() != 2 {
		t.Fatalf("%d claims when enforcing begins", r.Claims())
	}
	_, be := r.cores()
	r.mode(model.ModeObserve)
	r.run(90*sec, 1)
	if _, now := r.cores(); now < be || r.Claims() != 0 || r.Task(1).Knobs[model.CPUPlace].Ours {
		t.Errorf("BE went from %d to %d cores with the mode, %d claims", be, now, r.Claims())
	}
	r.mode(model.ModeEnforce)
	r.step(50*msec, 1)
	if r.Claims() != 2 {
		t.Errorf("%d claims when enforcing begins again", r.Claims())
	}
}

// A task that an operator freed is placed again when the operator's time is over.
func TestFreedAndBack(t *testing.T) {
	r := newRig(t, cpuset.Machine(1, 1, 8, 2), pair()...)
	r.run(sec, 1)
	r.Tell(model.Command{Kind: model.CommandUncap, Task: 1})
	r.run(200*msec, 1)
	if k := &r.Task(1).Knobs[model.CPUPlace]; r.place(1) != "-" || k.Ours || !k.Value.CPUs.Empty() {
		t.Fatalf("freed, and placed on %s: %+v", r.place(1), k)
	}
	r.run(r.Engine.Params.Hardcap.DurationNsec, 1)
	if r.place(1) == "-" || !r.Task(1).Knobs[model.CPUPlace].Ours {
		t.Error("the claim was not made again")
	}
}

// CPUs go offline and come back: no set ever has one that is not there (rig.check), LC keeps
// what its load needs, and the pair goes on until one core is left.
func TestHotplug(t *testing.T) {
	full := cpuset.Machine(1, 1, 8, 2)
	r := newRig(t, full, pair()...)
	r.run(40*sec, 2)
	if _, be := r.cores(); be < 3 {
		t.Fatalf("BE has %d cores", be)
	}
	plug := func(topo *model.Topology) {
		t.Helper()
		r.Plug(topo)
		r.step(50*msec, 2)
	}
	plug(cpuset.Without(full, 0, 8, 1, 9)) // two whole cores, of LC
	if lc, _ := r.cores(); lc < r.s.Least(r.p, 2) {
		t.Errorf("LC has %d cores and needs %d", lc, r.s.Least(r.p, 2))
	}
	plug(cpuset.Without(full, 7, 6)) // one CPU each of two of BE's cores
	if !r.s.BECPUs.Has(15) || r.s.BECPUs.Has(7) {
		t.Errorf("BE has %s", r.s.BECPUs)
	}
	plug(cpuset.Without(full, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15))
	if r.s.Status != cpuset.TooFew || r.Claims() != 0 {
		t.Fatalf("one core: %q, %d claims", r.s.Status, r.Claims())
	}
	if r.Count(model.DecideLimit) != 1 {
		t.Errorf("%d limits said", r.Count(model.DecideLimit))
	}
	plug(full)
	if _, be := r.cores(); r.s.Status != cpuset.Divided || be != r.s.FloorCores || r.Claims() != 2 {
		t.Errorf("all back: %q, BE %d cores, %d claims", r.s.Status, be, r.Claims())
	}
}

// Claims are renewed in good time, and seldom; nothing is written for it.
func TestRenewal(t *testing.T) {
	r := quiet(t, cpuset.Machine(1, 1, 8, 2), 1)
	renewed, until, writes := 0, int64(0), r.Writes
	for range 600 * 20 {
		r.step(50*msec, 1)
		c := r.Claim(model.PolicyCPUSet, 2, model.CPUPlace)
		if c == nil || c.ExpiresNsec <= r.NowNsec {
			t.Fatal("the claim ran out")
		}
		if c.ExpiresNsec != until {
			renewed, until = renewed+1, c.ExpiresNsec
		}
	}
	if renewed < 10 || renewed > 45 || r.Writes != writes {
		t.Errorf("a claim of a minute was renewed %d times in ten minutes, %d writes", renewed, r.Writes-writes)
	}
}

// many is 150 tasks on 128 CPUs, settled, and what the policy sees of them.
func many(t testing.TB) (*rig, *policy.View) {
	var tasks []*enginetest.Task
	for n := range 150 {
		switch {
		case n < 4:
			tasks = append(tasks, exclusive(n+1, 2, 0))
		case n < 60:
			tasks = append(tasks, task(n+1, model.LC))
		default:
			tasks = append(tasks, task(n+1, model.BE))
		}
	}
	r := newRig(t, cpuset.Machine(2, 4, 8, 2), tasks...)
	r.run(120*sec, 10)
	v := r.View(model.ModeEnforce)
	v.Changed = true
	r.s.Step(r.p, v, &policy.Wishes{})
	v.Changed = false
	return r, v
}

// alone is a step of the policy alone, 50 ms later, in which LC used so many CPUs.
func (r *rig) alone(v *policy.View, w *policy.Wishes, cpus float64) {
	v.NowNsec += 50 * msec
	r.pulse.MonoNsec = v.NowNsec
	r.pulse.LCUsage.Value += uint64(cpus * 50e6)
	w.Reset()
	r.s.Step(r.p, v, w)
}

func TestSteadyPulseAllocatesNothing(t *testing.T) {
	r, v := many(t)
	var w policy.Wishes
	got := testing.AllocsPerRun(100, func() {
		if r.alone(v, &w, 10); !w.AsBefore || len(w.Claims)+len(w.Decisions)+len(w.Notes)+len(w.Ends) > 0 {
			t.Errorf("not steady: %+v", w)
		}
	})
	if got != 0 {
		t.Errorf("%g allocations in a pulse", got)
	}
}

func BenchmarkSteadyPulse(b *testing.B) {
	r, v := many(b)
	var w policy.Wishes
	b.ReportAllocs()
	for b.Loop() {
		r.alone(v, &w, 10)
	}
}

// BenchmarkResize moves the border, with a claim for each shared task.
func BenchmarkResize(b *testing.B) {
	r, v := many(b)
	var w policy.Wishes
	start, claims := *r.s, 0
	placed := slices.Clone(start.Placed)
	b.ReportAllocs()
	for b.Loop() {
		*r.s = start
		copy(r.s.Placed, placed)
		r.s.Load.Prev, r.s.Load.PrevNsec = r.pulse.LCUsage, v.NowNsec
		r.alone(v, &w, 70)
		claims += len(w.Claims)
	}
	b.ReportMetric(float64(claims)/float64(b.N), "claims/op")
}

// BenchmarkLook is a step in which something changed, as after every write.
func BenchmarkLook(b *testing.B) {
	r, v := many(b)
	var w policy.Wishes
	v.Changed = true
	b.ReportAllocs()
	for b.Loop() {
		w.Reset()
		r.s.Step(r.p, v, &w)
	}
}
