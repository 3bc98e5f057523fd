package cpuset

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

func narrowed(t *testing.T, v model.TaskView, list string) model.TaskView {
	v.Knobs[model.CPUPlace].Found.CPUs = cpus(t, list)
	return v
}

func TestPlacing(t *testing.T) {
	void, exempt, refused, unknown := task(3, model.BE), task(3, model.BE), task(3, model.BE), task(3, model.BE)
	void.Knobs[model.CPUPlace].Void = true
	exempt.Exempt = true
	refused.Knobs[model.CPUPlace].Refused, refused.Knobs[model.CPUPlace].Why = true, "invalid argument"
	unknown.Knobs[model.CPUPlace].Known = false
	voidLC := task(3, model.LC)
	voidLC.Knobs[model.CPUPlace].Void = true
	topo := shape{1, 1, 4, 1}.topology() // BE begins with CPU 3
	for _, c := range []struct {
		name   string
		topo   *model.Topology
		tasks  []model.TaskView
		status Status
		lc, be string // claims of tasks 1 and 2; "-": none
		third  string // claim of task 3
		said   string
	}{
		{"both", topo, pair(), Divided, "0-2", "3", "-", "the machine is divided"},
		{"no BE", topo, pair()[:1], NoBE, "-", "-", "-", "no BE task is here"},
		{"no LC", topo, pair()[1:], NoLC, "-", "-", "-", "no LC task is here"},
		{"one core", shape{1, 1, 1, 2}.topology(), pair(), TooFew, "-", "-", "-", "cannot be divided"},
		{"a system task", topo, append(pair(), task(3, model.System)), Divided, "0-2", "3", "-", "divided"},
		{"LC found narrow", topo, []model.TaskView{narrowed(t, task(1, model.LC), "2-3"), task(2, model.BE)}, Divided, "2-3", "1", "-", "divided"},
		{"LC found everywhere, wide", topo, []model.TaskView{narrowed(t, task(1, model.LC), "0-63"), task(2, model.BE)}, Divided, "0-2", "3", "-", "divided"},
		{"LC found on either of two", shape{1, 1, 2, 1}.topology(), []model.TaskView{narrowed(t, task(1, model.LC), "0"), narrowed(t, task(3, model.LC), "1"), task(2, model.BE)}, Divided, "0", "1", "-", "may run on CPUs 1 only"},
		{"LC that a stranger pinned", topo, []model.TaskView{narrowed(t, voidLC, "3"), task(1, model.LC), task(2, model.BE)}, Divided, "0-1,3", "2", "-", "its load counts"},
		{"BE found where LC is", topo, append(pair(), narrowed(t, task(3, model.BE), "0-1")), Divided, "0-2", "3", "-", "may run on CPUs 0-1 only"},
		{"BE that a stranger places", topo, append(pair(), void), Divided, "0-2", "3", "-", "another program sets its CPUs; it is left where it is, and may run on LC's cores"},
		{"BE that an operator freed", topo, append(pair(), exempt), Divided, "0-2", "3", "-", "an operator freed it"},
		{"BE that the kernel refuses", topo, append(pair(), refused), Divided, "0-2", "3", "3", "invalid argument"},
		{"no BE but a stranger's", topo, []model.TaskView{task(1, model.LC), void}, Unconfinable, "-", "-", "-", "LC is not confined either"},
		{"no BE but a refused one", topo, []model.TaskView{task(1, model.LC), refused}, Unconfinable, "-", "-", "3", "LC is not confined either"},
		{"no BE but an unknown one", topo, []model.TaskView{task(1, model.LC), unknown}, Unconfinable, "-", "-", "-", "LC is not confined either"},
		{"LC that a stranger places", topo, append(pair(), voidLC), Divided, "0-2", "3", "-", "its load counts"},
		{"only LC that a stranger places", topo, []model.TaskView{voidLC, task(2, model.BE)}, Divided, "-", "3", "-", "its load counts"},
		{"only exclusive LC", topo, []model.TaskView{exclusive(1, 1, 0), task(2, model.BE)}, Divided, "0", "3", "-", "cores of its own"},
		{"exclusive beside shared, no BE", topo, []model.TaskView{exclusive(1, 1, 0), task(3, model.LC)}, NoBE, "0", "-", "1-3", "exclusive tasks keep their cores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.topo, c.tasks...)
			r.step(50*msec, 0.5)
			if r.s.Status != c.status {
				t.Errorf("status %q, expected %q", r.s.Status, c.status)
			}
			for num, want := range map[model.TaskNum]string{1: c.lc, 2: c.be, 3: c.third} {
				got := "-"
				if claim, ok := r.claims[num]; ok {
					got = claim.CPUs.String()
				}
				if got != want {
					t.Errorf("task %d is placed on %s, expected %s", num, got, want)
				}
			}
			found := false
			for i := range r.said {
				found = found || strings.Contains(r.said[i].Reason, c.said)
			}
			if !found {
				t.Errorf("nobody said %q: %+v", c.said, r.said)
			}
			r.run(30*sec, 0.5)
			n := len(r.said)
			for range 20 {
				r.v.Changed = true
				r.step(50*msec, 0.5)
			}
			if len(r.said) > n && c.name != "no BE but an unknown one" {
				t.Errorf("said again: %+v", r.said[n:])
			}
		})
	}
}

// Whoever loses a core is told first, so that it is free when it changes hands.
func TestOrderOfClaims(t *testing.T) {
	r := quiet(t, shape{1, 1, 8, 1}.topology(), 0.5)
	r.step(50*msec, 6)
	if len(r.w.Claims) != 2 || r.w.Claims[0].Task != 2 || r.w.Claims[1].Task != 1 {
		t.Errorf("BE shrinks: %+v", r.w.Claims)
	}
	for range 10_000 {
		_, be := r.cores()
		r.step(50*msec, 0.5)
		if _, now := r.cores(); now > be {
			if len(r.w.Claims) != 2 || r.w.Claims[0].Task != 1 || r.w.Claims[1].Task != 2 {
				t.Errorf("BE grows: %+v", r.w.Claims)
			}
			return
		}
	}
	t.Error("BE never grew")
}

// The core that was given last is taken first, and no core moves that need not.
func TestFewestMoves(t *testing.T) {
	r := newRig(t, shape{2, 1, 16, 2}.topology(), pair()...)
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
// in mind when it ends.
func TestModes(t *testing.T) {
	r := newRig(t, shape{1, 1, 8, 2}.topology(), pair()...)
	r.v.Mode = model.ModeObserve
	r.run(30*sec, 1)
	if r.counted != 0 || r.heard(model.DecideResize) < 2 {
		t.Fatalf("%d claims, %d resizes said while observing", r.counted, r.heard(model.DecideResize))
	}
	r.v.Mode = model.ModeEnforce
	r.step(50*msec, 1)
	if len(r.claims) != 2 {
		t.Fatalf("%d claims when enforcing begins", len(r.claims))
	}
	_, be := r.cores()
	r.v.Mode = model.ModeObserve
	clear(r.claims)
	r.run(90*sec, 1)
	if _, now := r.cores(); now < be {
		t.Errorf("BE went from %d to %d cores with the mode", be, now)
	}
	r.v.Mode = model.ModeEnforce
	r.step(50*msec, 1)
	if len(r.claims) != 2 {
		t.Errorf("%d claims when enforcing begins again", len(r.claims))
	}
}

// A claim that the engine dropped behind the policy's back is made again.
func TestLostClaim(t *testing.T) {
	r := newRig(t, shape{1, 1, 8, 2}.topology(), pair()...)
	r.run(sec, 1)
	delete(r.claims, 2)
	r.knob(2, model.CPUPlace, func(k *model.KnobView) { k.Ours = false })
	r.step(50*msec, 1)
	if _, ok := r.claims[2]; !ok {
		t.Error("the claim was not made again")
	}
}

// CPUs go offline and come back: no set ever has one that is not there (rig.check), LC keeps
// what its load needs, and the pair goes on until one core is left.
func TestHotplug(t *testing.T) {
	full := shape{1, 1, 8, 2}.topology()
	r := newRig(t, full, pair()...)
	r.run(40*sec, 2)
	if _, be := r.cores(); be < 3 {
		t.Fatalf("BE has %d cores", be)
	}
	plug := func(topo *model.Topology) {
		t.Helper()
		r.v.Topology, r.v.Changed = topo, true
		r.step(50*msec, 2)
	}
	plug(without(full, 0, 8, 1, 9)) // two whole cores, of LC
	if lc, _ := r.cores(); lc < r.s.least(&r.p, 2) {
		t.Errorf("LC has %d cores and needs %d", lc, r.s.least(&r.p, 2))
	}
	plug(without(full, 7, 6)) // one CPU each of two of BE's cores
	if !r.s.BECPUs.Has(15) || r.s.BECPUs.Has(7) {
		t.Errorf("BE has %s", r.s.BECPUs)
	}
	plug(without(full, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15))
	if r.s.Status != TooFew || len(r.claims) != 0 {
		t.Fatalf("one core: %q, claims %v", r.s.Status, r.claims)
	}
	if r.heard(model.DecideLimit) != 1 {
		t.Errorf("%d limits said", r.heard(model.DecideLimit))
	}
	plug(full)
	if _, be := r.cores(); r.s.Status != Divided || be != r.s.FloorCores || len(r.claims) != 2 {
		t.Errorf("all back: %q, BE %d cores, claims %v", r.s.Status, be, r.claims)
	}
}

// Claims are renewed in good time, and seldom.
func TestRenewal(t *testing.T) {
	r := quiet(t, shape{1, 1, 8, 2}.topology(), 1)
	r.counted = 0
	r.run(600*sec, 1)
	if r.counted < 2*10 || r.counted > 2*45 {
		t.Errorf("two claims of a minute were renewed %d times in ten minutes", r.counted)
	}
}

// many is 150 tasks on 128 CPUs, settled.
func many(t testing.TB) *rig {
	var tasks []model.TaskView
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
	r := newRig(t, shape{2, 4, 8, 2}.topology(), tasks...)
	r.run(120*sec, 10)
	r.tick() // takes in what became of the last claims
	return r
}

func TestSteadyPulseAllocatesNothing(t *testing.T) {
	r := many(t)
	used := r.pulse.LCUsage.Value
	got := testing.AllocsPerRun(100, func() {
		r.v.NowNsec += 50 * msec
		r.pulse.MonoNsec = r.v.NowNsec
		used += uint64(10 * 50 * msec)
		r.pulse.LCUsage = model.Read(used)
		r.w.Reset()
		r.s.Step(&r.p, &r.v, &r.w)
		if len(r.w.Decisions)+len(r.w.Drops) > 0 { // a renewal may fall among them
			t.Errorf("not steady: %+v", r.w.Decisions)
		}
	})
	if got != 0 {
		t.Errorf("%g allocations in a pulse", got)
	}
}

func BenchmarkSteadyPulse(b *testing.B) {
	r := many(b)
	r.p.ClaimNsec = 1 << 60
	r.s.RenewNsec = 1 << 60
	used := r.pulse.LCUsage.Value
	b.ReportAllocs()
	for b.Loop() {
		r.v.NowNsec += 50 * msec
		r.pulse.MonoNsec = r.v.NowNsec
		used += uint64(10 * 50 * msec)
		r.pulse.LCUsage = model.Read(used)
		r.w.Reset()
		r.s.Step(&r.p, &r.v, &r.w)
	}
}

// BenchmarkResize moves the border, with a claim for each shared task.
func BenchmarkResize(b *testing.B) {
	r := many(b)
	used, claims := r.pulse.LCUsage.Value, 0
	start := *r.s
	placed := slices.Clone(start.Placed)
	b.ReportAllocs()
	for b.Loop() {
		*r.s = start
		copy(r.s.Placed, placed)
		r.s.Load.Prev, r.s.Load.PrevNsec = r.pulse.LCUsage, r.v.NowNsec
		r.v.NowNsec += 50 * msec
		r.pulse.MonoNsec = r.v.NowNsec
		used += uint64(70 * 50 * msec)
		r.pulse.LCUsage = model.Read(used)
		r.w.Reset()
		r.s.Step(&r.p, &r.v, &r.w)
		claims += len(r.w.Claims)
	}
	b.ReportMetric(float64(claims)/float64(b.N), "claims/op")
}

// BenchmarkLook is a step in which something changed, as after every write.
func BenchmarkLook(b *testing.B) {
	r := many(b)
	b.ReportAllocs()
	for b.Loop() {
		r.v.Changed = true
		r.w.Reset()
		r.s.Step(&r.p, &r.v, &r.w)
	}
}
