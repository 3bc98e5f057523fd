package cgroup

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
	"golang.org/x/sys/unix"
)

// modelGroup is the kernel's check of the three bandwidth files, rewritten from
// kernel/sched/core.c: a write is refused unless the whole tree is legal after it. The
// kernel test runs it beside the kernel.
type modelGroup struct {
	limit    CPUMax
	parent   *modelGroup // nil for a group directly below the root
	children []*modelGroup
}

func newModel(parent *modelGroup) *modelGroup {
	g := &modelGroup{limit: CPUMax{QuotaUsec: -1, PeriodUsec: 100000}, parent: parent}
	if parent != nil {
		parent.children = append(parent.children, g)
	}
	return g
}

func (g *modelGroup) write(s step) error {
	next := g.limit
	switch s.file {
	case quotaFile:
		next.QuotaUsec = s.value
	case periodFile:
		next.PeriodUsec = s.value
	case burstFile:
		next.BurstUsec = s.value
	default:
		return fmt.Errorf("no file %q", s.file)
	}
	if !g.legal(next) {
		return fmt.Errorf("%s = %d from %s: %w", s.file, s.value, g.limit, unix.EINVAL)
	}
	g.limit = next
	return nil
}

// legal says whether the tree is legal with g's limit replaced by next.
func (g *modelGroup) legal(next CPUMax) bool {
	if next.PeriodUsec < 1000 || next.PeriodUsec > 1000000 || next.BurstUsec < 0 {
		return false
	}
	if next.QuotaUsec >= 0 && (next.QuotaUsec < 1000 || next.BurstUsec > next.QuotaUsec) {
		return false
	}
	old := g.limit
	g.limit = next
	defer func() { g.limit = old }()
	top := g
	for top.parent != nil {
		top = top.parent
	}
	return top.consistent(noRatio)
}

func (g *modelGroup) consistent(inherited uint64) bool {
	r := kernelRatio(g.limit.QuotaUsec, g.limit.PeriodUsec)
	if r == noRatio {
		r = inherited
	} else if r > inherited {
		return false
	}
	for _, c := range g.children {
		if !c.consistent(r) {
			return false
		}
	}
	return true
}

func (g *modelGroup) room() ratioRoom {
	room := ratioRoom{ceil: noRatio}
	for up := g.parent; up != nil; up = up.parent {
		room.ceil = min(room.ceil, kernelRatio(up.limit.QuotaUsec, up.limit.PeriodUsec))
	}
	var down func(*modelGroup)
	down = func(x *modelGroup) {
		for _, c := range x.children {
			if r := kernelRatio(c.limit.QuotaUsec, c.limit.PeriodUsec); r != noRatio {
				room.floor = max(room.floor, r)
			}
			down(c)
		}
	}
	down(g)
	return room
}

// apply runs the plan on the model and checks what planCPUMax promises on the way.
func (g *modelGroup) apply(to CPUMax) error {
	from := g.limit
	steps := planCPUMax(from, to, g.room())
	if len(steps) > 4 {
		return fmt.Errorf("%d steps", len(steps))
	}
	for _, s := range steps {
		if err := g.write(s); err != nil {
			return fmt.Errorf("%s -> %s, plan %v: %w", from, to, steps, err)
		}
		lifted := len(steps) > 1 && g.limit.QuotaUsec < 0 && from.QuotaUsec >= 0 && to.QuotaUsec >= 0
		if !IsIntermediate(from, to, g.limit) && !lifted {
			return fmt.Errorf("%s -> %s passes through %s", from, to, g.limit)
		}
	}
	if g.limit != to {
		return fmt.Errorf("%s -> %s ends at %s", from, to, g.limit)
	}
	return nil
}

// randomLimit favours values on the edges and ratios that repeat, so that parents and
// children are often exactly equal.
func randomLimit(rng *rand.Rand) CPUMax {
	periods := []int64{1000, 5000, 10000, 20000, 50000, 100000, 1000000}
	m := CPUMax{QuotaUsec: -1, PeriodUsec: periods[rng.IntN(len(periods))]}
	if rng.IntN(10) == 0 {
		m.PeriodUsec = 1000 + rng.Int64N(999001)
	}
	if rng.IntN(4) > 0 {
		ratios := []float64{0.01, 0.1, 0.5, 1, 1.5, 2}
		m.QuotaUsec = max(1000, int64(ratios[rng.IntN(len(ratios))]*float64(m.PeriodUsec)))
		if rng.IntN(10) == 0 {
			m.QuotaUsec += rng.Int64N(3)
		}
	}
	switch {
	case rng.IntN(2) == 0:
	case m.QuotaUsec < 0:
		m.BurstUsec = rng.Int64N(200000)
	default:
		m.BurstUsec = []int64{m.QuotaUsec, m.QuotaUsec / 2, rng.Int64N(m.QuotaUsec + 1)}[rng.IntN(3)]
	}
	return m
}

// chain returns a model tree: a, a/b, a/b/c and a/d.
func chain() []*modelGroup {
	a := newModel(nil)
	b := newModel(a)
	return []*modelGroup{a, b, newModel(b), newModel(a)}
}

// planRounds keeps pure arithmetic short where every instruction is emulated.
func planRounds() int {
	if rigtest.Inside() {
		return 20000
	}
	return 200000
}

// TestPlanIsTakenByTheModel walks trees through random legal limits: every step of every
// plan must be legal.
func TestPlanIsTakenByTheModel(t *testing.T) {
	const seed = 20240117
	rng := rand.New(rand.NewPCG(seed, 1))
	groups := chain()
	taken := 0
	lifts := 0
	rounds := planRounds()
	for i := range rounds {
		g, to := groups[rng.IntN(len(groups))], randomLimit(rng)
		if !g.legal(to) {
			continue
		}
		taken++
		from := g.limit
		if steps := planRatio(from, to, g.room()); len(steps) == 3 {
			lifts++
		}
		if err := g.apply(to); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, i, err)
		}
	}
	if taken < rounds/20 || lifts == 0 {
		t.Errorf("%d changes with %d lifts: the walk did not get around", taken, lifts)
	}
}

// TestPlanKeepsTheRatioInBounds: without a descendant in the way, no state on the way is
// looser than both ends; and while quota and period move apart, none is tighter either.
func TestPlanKeepsTheRatioInBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range planRounds() / 2 {
		g := newModel(nil)
		from, to := randomLimit(rng), randomLimit(rng)
		g.limit = from
		high := max(kernelRatio(from.QuotaUsec, from.PeriodUsec), kernelRatio(to.QuotaUsec, to.PeriodUsec))
		low := min(kernelRatio(from.QuotaUsec, from.PeriodUsec), kernelRatio(to.QuotaUsec, to.PeriodUsec))
		sameWay := (to.QuotaUsec > from.QuotaUsec) == (to.PeriodUsec > from.PeriodUsec) && from.QuotaUsec >= 0 && to.QuotaUsec >= 0
		for _, s := range planCPUMax(from, to, ratioRoom{ceil: noRatio}) {
			if err := g.write(s); err != nil {
				t.Fatalf("%s -> %s: %v", from, to, err)
			}
			r := kernelRatio(g.limit.QuotaUsec, g.limit.PeriodUsec)
			if r > high || (r < low && !sameWay) {
				t.Fatalf("%s -> %s passes through %s", from, to, g.limit)
			}
		}
	}
}

func TestPlan(t *testing.T) {
	free := ratioRoom{ceil: noRatio}
	tight := ratioRoom{floor: kernelRatio(100000, 100000), ceil: kernelRatio(100000, 100000)}
	for _, c := range []struct {
		name     string
		from, to CPUMax
		room     ratioRoom
		want     []step
	}{
		{"nothing", CPUMax{-1, 100000, 0}, CPUMax{-1, 100000, 0}, free, nil},
		{"cap", CPUMax{-1, 100000, 0}, CPUMax{1000, 100000, 0}, free, []step{{quotaFile, 1000}}},
		{"cap and period", CPUMax{-1, 100000, 0}, CPUMax{1000, 10000, 0}, free, []step{{periodFile, 10000}, {quotaFile, 1000}}},
		{"uncap", CPUMax{1000, 10000, 1000}, CPUMax{-1, 100000, 0}, free, []step{{burstFile, 0}, {quotaFile, -1}, {periodFile, 100000}}},
		{"uncap to a burst", CPUMax{1000, 10000, 0}, CPUMax{-1, 10000, 5000}, free, []step{{quotaFile, -1}, {burstFile, 5000}}},
		{"burst above the new quota", CPUMax{-1, 100000, 90000}, CPUMax{20000, 100000, 20000}, free, []step{{burstFile, 20000}, {quotaFile, 20000}}},
		{"apart", CPUMax{10000, 100000, 0}, CPUMax{20000, 50000, 0}, free, []step{{quotaFile, 20000}, {periodFile, 50000}}},
		{"both up: dip", CPUMax{10000, 10000, 0}, CPUMax{30000, 20000, 0}, free, []step{{periodFile, 20000}, {quotaFile, 30000}}},
		{"both up, child in the way", CPUMax{10000, 10000, 0}, CPUMax{30000, 20000, 0}, ratioRoom{floor: kernelRatio(1, 1), ceil: noRatio}, []step{{quotaFile, 30000}, {periodFile, 20000}}},
		{"both up, both in the way", CPUMax{10000, 10000, 0}, CPUMax{20000, 20000, 0}, tight, []step{{quotaFile, -1}, {periodFile, 20000}, {quotaFile, 20000}}},
	} {
		if got := planCPUMax(c.from, c.to, c.room); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// fuzzLimit maps any numbers to a limit that some group could have, so that the fuzzer
// spends its time on plans and not on what validate refuses.
func fuzzLimit(quota, period, burst uint32) CPUMax {
	m := CPUMax{QuotaUsec: -1, PeriodUsec: 1000 + int64(period)%999001, BurstUsec: int64(burst)}
	if quota%8 != 0 {
		m.QuotaUsec = 1000 + int64(quota)%4000000
		m.BurstUsec %= m.QuotaUsec + 1
	}
	return m
}

func FuzzPlanCPUMax(f *testing.F) {
	f.Add(uint32(0), uint32(99000), uint32(0), uint32(1), uint32(99000), uint32(0), uint32(0), uint32(0), uint32(0), uint32(0))
	f.Add(uint32(9001), uint32(9000), uint32(5), uint32(19001), uint32(19000), uint32(3), uint32(99001), uint32(99000), uint32(9001), uint32(9000))
	f.Add(uint32(19001), uint32(99000), uint32(20000), uint32(1), uint32(0), uint32(1), uint32(0), uint32(0), uint32(1), uint32(999000))
	f.Fuzz(func(t *testing.T, q1, p1, b1, q2, p2, b2, parentQ, parentP, childQ, childP uint32) {
		parent := newModel(nil)
		g := newModel(parent)
		child := newModel(g)
		from, to := fuzzLimit(q1, p1, b1), fuzzLimit(q2, p2, b2)
		if err := errors.Join(from.validate(), to.validate()); err != nil {
			t.Fatal(err)
		}
		// What the tree does not take stays without a limit.
		g.limit = from
		add := func(x *modelGroup, m CPUMax) {
			old := x.limit
			if x.legal(m) {
				x.limit = m
			}
			if !g.legal(to) {
				x.limit = old
			}
		}
		add(parent, fuzzLimit(parentQ, parentP, 0))
		add(child, fuzzLimit(childQ, childP, 0))
		if err := g.apply(to); err != nil {
			t.Error(err)
		}
	})
}

func TestCPUMaxRatio(t *testing.T) {
	if r := (CPUMax{QuotaUsec: 20000, PeriodUsec: 100000}).Ratio(); r != 0.2 {
		t.Errorf("Ratio = %v", r)
	}
	if r := (CPUMax{QuotaUsec: -1, PeriodUsec: 100000}).Ratio(); !math.IsInf(r, 1) {
		t.Errorf("Ratio = %v, want +Inf", r)
	}
}

func TestIsIntermediate(t *testing.T) {
	found, intended := CPUMax{-1, 100000, 0}, CPUMax{5000, 50000, 1000}
	for m, want := range map[CPUMax]bool{
		found: true, intended: true,
		{-1, 50000, 0}:      true,
		{5000, 50000, 0}:    true,
		{5000, 100000, 0}:   true,
		{4000, 50000, 0}:    false,
		{5000, 50000, 500}:  false,
		{5000, 25000, 1000}: false,
	} {
		if got := IsIntermediate(found, intended, m); got != want {
			t.Errorf("IsIntermediate(%s) = %v", m, got)
		}
	}
}

func TestValidate(t *testing.T) {
	for m, ok := range map[CPUMax]bool{
		{-1, 100000, 0}: true, {1000, 1000, 1000}: true, {-1, 1000000, 5000000}: true,
		{999, 100000, 0}: false, {0, 100000, 0}: false, {-2, 100000, 0}: false,
		{1000, 999, 0}: false, {1000, 1000001, 0}: false, {20000, 100000, 20001}: true, {20000, 100000, -1}: false,
		{math.MaxInt64, 100000, 0}: false, {-1, 100000, math.MaxInt64}: false, {maxQuota, 100000, maxQuota}: false,
	} {
		if err := m.validate(); (err == nil) != ok || (err != nil && !errors.Is(err, unix.EINVAL)) {
			t.Errorf("validate(%+v) = %v", m, err)
		}
	}
}
