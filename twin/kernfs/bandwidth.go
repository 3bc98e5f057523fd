package kernfs

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/machine"
)

// The kernel's bounds of a part of a limit, in microseconds.
const (
	minQuotaUsec  = 1000
	maxPeriodUsec = 1_000_000
	defaultPeriod = 100_000
)

// The kernel's bounds of weights.
const (
	defaultShares = 1024
	minShares     = 2
	maxShares     = 262144
	idleShares    = 3
)

// bandwidth is what the cpu controller keeps of a group.
type bandwidth struct {
	max    machine.CPUMax
	shares int64 // on v1's scale
	idle   bool
	bound  []*process // that run out of this group's quota and no other
	past   throttling // before the present processes were bound
	fresh  bool       // written since the machine was told
}

// throttling is what a quota did.
type throttling struct{ periods, throttled, nsec, bursts, burstNsec uint64 }

func noLimit() machine.CPUMax { return machine.CPUMax{QuotaUsec: -1, PeriodUsec: defaultPeriod} }

func newBandwidth() bandwidth { return bandwidth{max: noLimit(), shares: defaultShares} }

// setMax sets a group's limit, or says what is against it.
func (k *Kernel) setMax(g *group, v machine.CPUMax) error {
	if g.up == nil {
		return unix.EINVAL
	}
	if !k.kernel().Takes(v) {
		return unix.EINVAL
	}
	before := g.bandwidth.max
	g.bandwidth.max = v
	if !g.h.v2 && !schedulable(g.h.top, noRatio) {
		g.bandwidth.max = before
		return unix.EINVAL
	}
	// Also a write that changes nothing gives a fresh quota.
	g.bandwidth.fresh = v.QuotaUsec >= 0
	if v != before || g.bandwidth.fresh {
		k.settle()
	}
	return nil
}

// kernel says whose bandwidth control there is.
func (k *Kernel) kernel() machine.Kernel { return k.m.Config().Kernel }

// noRatio is the ratio of a group without a quota.
const noRatio = math.MaxUint64

// ratio is the kernel's to_ratio.
func ratio(v machine.CPUMax) uint64 {
	if v.QuotaUsec < 0 {
		return noRatio
	}
	return uint64(v.QuotaUsec) << 20 / uint64(v.PeriodUsec)
}

// schedulable is v1's rule (tg_cfs_schedulable_down): no quota above that of the nearest
// group above that has one.
func schedulable(g *group, above uint64) bool {
	own := ratio(g.bandwidth.max)
	if own == noRatio {
		own = above
	}
	if own > above {
		return false
	}
	for _, c := range g.kids {
		if !schedulable(c, own) {
			return false
		}
	}
	return true
}

// settle tells the machine what holds of each process now. The machine has one limit and
// one weight a task: a process has its part (parts) of the quotas on its path, and a weight
// that is its part of the weight of the topmost group on its path (flatten).
func (k *Kernel) settle() {
	h := k.with(cgroup.CPU)
	for _, pid := range k.pids {
		p := k.procs[pid]
		if to := tightest(p.in[h.i]); to != p.bound {
			k.unbind(p)
			if to != nil {
				k.fold(to)
				p.bound, p.began = to, k.used(p)
				to.bandwidth.bound = append(to.bandwidth.bound, p)
			}
		}
	}
	h.top.parts(math.Inf(1))
	for _, pid := range k.pids {
		p := k.procs[pid]
		k.settleLimit(p)
		shares, idle := flatten(p, h)
		if shares != p.shares && k.m.SetShares(p.num, shares) == nil {
			p.shares = shares
		}
		if idle != p.idle && k.m.SetIdle(p.num, idle) == nil {
			p.idle = idle
		}
		k.settlePlace(p)
	}
	h.top.each(func(g *group) { g.bandwidth.fresh = false })
	k.settleFreezers()
	k.settleDisks()
}

// settleLimit tells the machine of a process's limit: as a write where somebody wrote it.
func (k *Kernel) settleLimit(p *process) {
	v := p.quota(k.kernel())
	tell := k.m.MoveCPUMax
	if p.bound != nil && p.bound.bandwidth.fresh {
		tell = k.m.SetCPUMax
	} else if v == p.limit {
		return
	}
	if tell(p.num, v) == nil {
		p.limit = v
	}
}

// claim is a process, or a group below, that has a part of a group's quota.
type claim struct {
	p    *process
	g    *group
	most float64 // CPUs that it could use: its threads, or its own quota
	n    float64 // processes
}

// parts divides the CPUs that the groups above leave a group among its processes and those
// below: equal parts for all, and what somebody cannot use for the others. It goes by what
// they could use and not by what they do: of two processes under one quota a busy one does
// not get what an idle one leaves.
func (g *group) parts(cpus float64) {
	list := g.claims()
	slices.SortStableFunc(list, func(a, b claim) int { return cmp.Compare(a.most/a.n, b.most/b.n) })
	left := 0.0
	for i := range list {
		left += list[i].n
	}
	for _, c := range list {
		got := math.Min(c.most, cpus*c.n/left)
		cpus -= got
		left -= c.n
		if c.p != nil {
			c.p.part = got
		} else {
			c.g.parts(got)
		}
	}
}

func (g *group) claims() []claim {
	list := make([]claim, 0, len(g.members)+len(g.kids))
	for i := range g.members {
		p := g.members[i].p
		list = append(list, claim{p: p, most: float64(max(1, p.threads)), n: 1})
	}
	for _, kid := range g.sorted() {
		c := claim{g: kid}
		for _, below := range kid.claims() {
			c.most += below.most
			c.n += below.n
		}
		if c.n > 0 {
			c.most = math.Min(c.most, cpusOf(kid.bandwidth.max))
			list = append(list, c)
		}
	}
	return list
}

// cpusOf is a limit in CPUs.
func cpusOf(v machine.CPUMax) float64 {
	if v.QuotaUsec < 0 {
		return math.Inf(1)
	}
	return float64(v.QuotaUsec) / float64(v.PeriodUsec)
}

// quota returns a process's part of the limit that holds it: all of it where it has that
// alone, else as much less, over a longer period where that would be too little.
func (p *process) quota(kernel machine.Kernel) machine.CPUMax {
	if p.bound == nil {
		return noLimit()
	}
	v := p.bound.bandwidth.max
	if p.part >= math.Min(cpusOf(v), float64(p.threads))*(1-1e-9) {
		return v
	}
	share := p.part / cpusOf(v)
	period := v.PeriodUsec
	for p.part*float64(v.PeriodUsec) < minQuotaUsec && v.PeriodUsec+period <= maxPeriodUsec {
		v.PeriodUsec += period
	}
	v.QuotaUsec = max(int64(p.part*float64(v.PeriodUsec)), minQuotaUsec)
	v.BurstUsec = int64(share * float64(v.BurstUsec))
	if kernel == machine.Mainline {
		v.BurstUsec = min(v.BurstUsec, v.QuotaUsec)
	}
	return v
}

// tightest returns the group whose quota holds those in g most, the topmost of equals;
// nil for none.
func tightest(g *group) *group {
	var found *group
	for ; g != nil; g = g.up {
		if v := g.bandwidth.max; v.QuotaUsec >= 0 && (found == nil || ratio(v) <= ratio(found.bandwidth.max)) {
			found = g
		}
	}
	return found
}

// unbind takes a process from the quota that holds it.
func (k *Kernel) unbind(p *process) {
	if p.bound == nil {
		return
	}
	g := p.bound
	k.fold(g)
	g.bandwidth.bound = slices.DeleteFunc(g.bandwidth.bound, func(o *process) bool { return o == p })
	p.bound = nil
}

// fold takes what a quota has done so far into its past.
func (k *Kernel) fold(g *group) {
	g.bandwidth.past = k.throttled(g)
	for _, p := range g.bandwidth.bound {
		p.began = k.used(p)
	}
}

// throttled returns what a group's quota did. Of several processes under it the one counts
// that it met in most periods, and the times of all.
func (k *Kernel) throttled(g *group) throttling {
	t := throttling{}
	for _, p := range g.bandwidth.bound {
		u := k.used(p).since(p.began)
		t.periods, t.throttled, t.bursts = max(t.periods, u.Periods), max(t.throttled, u.Throttled), max(t.bursts, u.Bursts)
		t.nsec += u.ThrottledNsec
		t.burstNsec += u.BurstNsec
	}
	b := &g.bandwidth.past
	return throttling{b.periods + t.periods, b.throttled + t.throttled, b.nsec + t.nsec, b.bursts + t.bursts, b.burstNsec + t.burstNsec}
}

// flatten returns a process's weight against all others: the weight of the topmost group
// on its path, divided on the way down among all that could run there.
func flatten(p *process, h *hierarchy) (shares int64, idle bool) {
	own, part := int64(defaultShares), 1.0
	for g := p.in[h.i]; g.up != nil; g = g.up {
		all := int64(defaultShares * len(g.members))
		for _, c := range g.kids {
			if c.populated() {
				all += c.weight()
			}
		}
		part *= float64(own) / float64(all)
		own = g.weight()
		idle = idle || g.bandwidth.idle
	}
	return min(max(int64(math.Round(float64(own)*part)), minShares), maxShares), idle
}

func (g *group) weight() int64 {
	if g.bandwidth.idle {
		return idleShares
	}
	return g.bandwidth.shares
}

// setShares sets a group's weight on v1's scale.
func (k *Kernel) setShares(g *group, shares int64) error {
	if g.up == nil || g.bandwidth.idle {
		return unix.EINVAL
	}
	if shares = min(max(shares, minShares), maxShares); shares != g.bandwidth.shares {
		g.bandwidth.shares = shares
		k.settle()
	}
	return nil
}

// setIdle makes a group SCHED_IDLE, or normal again with the default weight.
func (k *Kernel) setIdle(g *group, data []byte) error {
	v, err := integer(data)
	switch {
	case err != nil:
		return err
	case v != 0 && v != 1, g.up == nil:
		return unix.EINVAL
	case g.bandwidth.idle == (v == 1):
		return nil
	}
	g.bandwidth.idle, g.bandwidth.shares = v == 1, defaultShares
	k.settle()
	return nil
}

// integer reads a number as kstrtoll does of a stripped line.
func integer(data []byte) (int64, error) {
	v, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return 0, unix.EINVAL
	}
	return v, nil
}
