package linux

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// limiter is the part of a cgroup driver that bandwidth needs.
type limiter interface {
	Inode(path string) (uint64, error)
	ReadCPUMax(path string) (cgroup.CPUMax, error)
	ChangeCPUMax(path string, from, to cgroup.CPUMax) error
	OpenCPUMax(path string) (cgroup.CPUMaxReader, error)
	CapAbove(path string) (at string, v cgroup.CPUMax, err error)
	Delegated(path string) (bool, error)
	Descendants(path string) ([]string, error)
}

// bandwidth is the CFS limit of a task: quota, period and burst.
//
// Down: on cgroup v1 the kernel refuses a limit below a child's, so the children go down
// first and come up last. On v2 a child's limit may exceed its parent's and the smaller one
// rules: the knob is the task's limit alone, and what others wrote below is never touched.
//
// Up: a limit below the task's that somebody set (a pod's containers have one each) would
// keep the raise from having any effect, on either version. So limits below are raised with
// it, in proportion and never above the task's own; but for groups that were delegated,
// whose limits are their manager's business. Above the task nobody is raised: a raise that
// an ancestor's limit leaves no room for is refused in one way, although only v1's kernel
// says no and v2's takes the write and does nothing.
//
// Whoever writes often should know that each write hands the group a quota of fresh time
// (kernel/cgroup, cpu_cfs_quota_us.go).
type bandwidth struct {
	cg        limiter
	flat      bool                // v2
	caps      map[string]capAbove // by path of the group above, of this batch
	delegated map[uint64]bool     // by inode
	kept      keeper[cgroup.CPUMaxReader]
}

// capAbove is the least limit from a group upwards.
type capAbove struct {
	at string
	v  cgroup.CPUMax
}

// maxDelegated bounds what is remembered of groups that may be gone.
const maxDelegated = 4096

func (b *bandwidth) begin() {
	clear(b.caps)
	if len(b.delegated) > maxDelegated {
		clear(b.delegated)
	}
}

func (b *bandwidth) keep(path string) { b.kept.keep(path, b.cg.OpenCPUMax) }
func (b *bandwidth) drop(path string) { b.kept.drop(path) }

func (b *bandwidth) inode(path string) (uint64, error) {
	if _, inode, ok := readKept(&b.kept, path, cgroup.CPUMaxReader.Read); ok {
		return inode, nil
	}
	return b.cg.Inode(path)
}

func (b *bandwidth) held(path string) (model.Setting, uint64, bool) {
	v, inode, ok := readKept(&b.kept, path, cgroup.CPUMaxReader.Read)
	return model.Bandwidth(model.CPUMax(v)), inode, ok
}

func (b *bandwidth) groups() ([]string, error) {
	if b.flat {
		return nil, nil
	}
	return b.cg.Descendants("/")
}

func (b *bandwidth) read(path string) (model.Setting, error) {
	v, _, ok := readKept(&b.kept, path, cgroup.CPUMaxReader.Read)
	var err error
	if !ok {
		v, err = b.cg.ReadCPUMax(path)
	}
	return model.Bandwidth(model.CPUMax(v)), err
}

// write lowers a burst with the quota where the kernel refuses the quota beside it: a burst that another
// program wrote while ours was greater, which could not stand without it.
func (b *bandwidth) write(path string, from, to model.Setting) error {
	err := b.cg.ChangeCPUMax(path, cgroup.CPUMax(from.CPUMax), cgroup.CPUMax(to.CPUMax))
	if from.BurstUsec <= to.QuotaUsec || !to.NoRoom() || !errors.Is(err, unix.EINVAL) {
		return err
	}
	now, readErr := b.cg.ReadCPUMax(path) // some of it may be written
	if readErr != nil || now.QuotaUsec == to.QuotaUsec {
		return err // the quota stands: it was not the burst that was in its way
	}
	to.BurstUsec = to.QuotaUsec
	if err = b.cg.ChangeCPUMax(path, now, cgroup.CPUMax(to.CPUMax)); err != nil {
		// It was not the burst either. One of ours that was lowered for nothing may be what was found: nobody would know it for ours.
		if low, readErr := b.cg.ReadCPUMax(path); readErr == nil && low != now {
			_ = b.cg.ChangeCPUMax(path, low, now)
		}
	}
	return err
}

// onlyBurst says of what failed, as a setting was put back, that it was a burst without room. Where a greater one stands beside the same quota there is room.
func onlyBurst(err error, from, to model.Setting) bool {
	var ce *cgroup.CPUMaxError
	if from.QuotaUsec == to.QuotaUsec && from.PeriodUsec == to.PeriodUsec && from.BurstUsec > to.BurstUsec {
		return false
	}
	return to.NoRoom() && errors.Is(err, unix.EINVAL) && errors.As(err, &ce) && ce.OfBurst()
}

// want brings a hold down to value, or to what was found when that is lower; a set value
// stands as it is.
func (b *bandwidth) want(path string, c *model.Change, found model.Setting) (model.Setting, string, error) {
	want := model.Bandwidth(c.Value.CPUMax)
	if c.Kind == model.Hold {
		return tighter(found, want), "", nil
	}
	v := cgroup.CPUMax(want.CPUMax)
	if v.QuotaUsec < 0 || !v.Exceeds(cgroup.CPUMax(found.CPUMax)) {
		return want, "", nil
	}
	above, err := b.capAbove(path)
	if err == nil && v.Exceeds(above.v) {
		err = fmt.Errorf("no room for %s: cgroup %s above it has %s", v, above.at, above.v)
	}
	return want, "", err
}

// capAbove returns the least limit above a group; siblings in one batch share it.
func (b *bandwidth) capAbove(path string) (capAbove, error) {
	up := path[:strings.LastIndexByte(path, '/')]
	if c, ok := b.caps[up]; ok {
		return c, nil
	}
	at, v, err := b.cg.CapAbove(path)
	if err != nil {
		return capAbove{}, err
	}
	if b.caps == nil {
		b.caps = map[string]capAbove{}
	}
	b.caps[up] = capAbove{at, v}
	return b.caps[up], nil
}

// tighter returns the lower of what was found and what is wanted (caps settle at
// min(caps, base)). A burst is only kept with the found limit: a cap has none.
func tighter(found, want model.Setting) model.Setting {
	if found.Ratio() <= want.Ratio() {
		return found
	}
	return want
}

func (b *bandwidth) below(own *journal.Limit, limits []journal.Limit) ([]journal.Limit, error) {
	raises := raise(own.Found.CPUMax, own.Intended.CPUMax)
	if b.flat && !raises && !slices.ContainsFunc(limits, func(l journal.Limit) bool { return l.Path != own.Path }) {
		return nil, nil
	}
	paths, err := cgroup.Listed(b.cg.Descendants(own.Path))
	if err != nil {
		return nil, err
	}
	var plan []journal.Limit
	foreign := "" // everything below it is its manager's
	for _, p := range paths {
		ino, err := b.cg.Inode(p)
		if err != nil {
			continue // gone meanwhile: nothing to change
		}
		l := limitAt(limits, p, ino)
		if raises && !below(foreign, p) && b.isDelegated(p, ino) {
			foreign = p
		}
		theirs := p == foreign || below(foreign, p)
		if theirs && l == nil {
			continue
		}
		cur, err := b.read(p)
		if err != nil {
			continue
		}
		first := cur
		if l != nil {
			if !l.Ours(cur) {
				return nil, fmt.Errorf("%s: %w", p, errForeign)
			}
			first = l.Found
		}
		to := first
		if !theirs {
			to = model.Bandwidth(b.child(first.CPUMax, own.Found.CPUMax, own.Intended.CPUMax))
		}
		if cur != to {
			plan = append(plan, journal.Limit{Task: own.Task, Path: p, Inode: ino, Found: first, Before: cur, Intended: to})
		}
	}
	return plan, nil
}

// below says whether a group lies below another; "" has none below.
func below(up, path string) bool { return up != "" && strings.HasPrefix(path, up+"/") }

// isDelegated asks once a group. Where it cannot be told the group was not: who sets a
// limit for a pod's containers is the same that sets the pod's.
func (b *bandwidth) isDelegated(path string, inode uint64) bool {
	yes, known := b.delegated[inode]
	if known {
		return yes
	}
	yes, err := b.cg.Delegated(path)
	if err == nil {
		if b.delegated == nil {
			b.delegated = map[uint64]bool{}
		}
		b.delegated[inode] = yes
	}
	return yes
}

// raise says whether a task is to have more than was found, of quota or of burst.
func raise(found, want model.CPUMax) bool {
	return want.Ratio() > found.Ratio() || want.Ratio() == found.Ratio() && want.BurstUsec > found.BurstUsec
}

// child returns what the limit of a group below must be: no limit stays none.
func (b *bandwidth) child(child, found, want model.CPUMax) model.CPUMax {
	switch {
	case child.QuotaUsec < 0:
		return child
	case raise(found, want):
		return raised(child, found, want)
	case !b.flat && child.Ratio() > want.Ratio():
		return want
	}
	return child
}

// raised returns a limit below a task in proportion to the task's: its quota by the factor
// that the task's grew by, but not above the task's; and a burst, where the task's burst
// was raised, that is to its quota as the task's is. Where the task may now do as it likes,
// it still gets what the factor would be of nothing: its own.
func raised(child, found, want model.CPUMax) model.CPUMax {
	to := child
	if want.QuotaUsec < 0 || found.QuotaUsec <= 0 {
		return to
	}
	// In whole numbers: a limit that comes out a microsecond short is none that people expect.
	most := scale(want.QuotaUsec, child.PeriodUsec, want.PeriodUsec)
	grown := scale(child.QuotaUsec, want.QuotaUsec*found.PeriodUsec, want.PeriodUsec*found.QuotaUsec)
	to.QuotaUsec = max(child.QuotaUsec, min(most, grown))
	if want.BurstUsec > found.BurstUsec {
		to.BurstUsec = max(child.BurstUsec, scale(to.QuotaUsec, want.BurstUsec, want.QuotaUsec))
	}
	return to
}

// scale returns v × num / den, cut to a whole number. None is negative, and den is not 0.
func scale(v, num, den int64) int64 {
	hi, lo := bits.Mul64(uint64(v), uint64(num))
	if hi >= uint64(den) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	return int64(min(q, math.MaxInt64))
}

// order puts the writes that lower first, deepest first, and then those that raise,
// shallowest first.
func (b *bandwidth) order(plan []journal.Limit) []step {
	steps := make([]step, len(plan))
	for i := range plan {
		steps[i] = step{i, plan[i].Intended, true}
	}
	slices.SortStableFunc(steps, func(x, y step) int {
		p, q := &plan[x.limit], &plan[y.limit]
		lp, lq := lowers(p), lowers(q)
		switch dp, dq := depth(p.Path), depth(q.Path); {
		case lp && !lq:
			return -1
		case lq && !lp:
			return 1
		case lp:
			return dq - dp
		default:
			return dp - dq
		}
	})
	return steps
}

func lowers(l *journal.Limit) bool {
	return cmp.Or(cmp.Compare(l.Intended.Ratio(), l.Before.Ratio()), cmp.Compare(l.Intended.BurstUsec, l.Before.BurstUsec)) <= 0
}

func depth(path string) int { return strings.Count(path, "/") }

func (b *bandwidth) ours(l *journal.Limit, now model.Setting) bool { return l.Ours(now) }

func (b *bandwidth) took(l *journal.Limit, now model.Setting) bool {
	want := l.Intended
	if want.NoRoom() {
		want.BurstUsec = now.BurstUsec
	}
	return now == want
}

// others goes by files: on v1 quota, period and burst have one each, on v2 the burst has. A file
// that says what we wrote was written by nobody since, as far as anybody can tell.
func (b *bandwidth) others(l *journal.Limit, now model.Setting) model.Setting {
	want := now
	quota, period, burst := false, false, false
	for _, ours := range l.Left() {
		q, p := now.QuotaUsec == ours.QuotaUsec, now.PeriodUsec == ours.PeriodUsec
		if b.flat {
			q, p = q && p, q && p
		}
		quota, period, burst = quota || q, period || p, burst || now.BurstUsec == ours.BurstUsec
	}
	if quota {
		want.QuotaUsec = l.Found.QuotaUsec
	}
	if period {
		want.PeriodUsec = l.Found.PeriodUsec
	}
	if burst {
		want.BurstUsec = l.Found.BurstUsec
	}
	return want
}

// met implements knob: a limit is never taken over by a group that comes.
func (b *bandwidth) met([]journal.Limit) ([]journal.Limit, map[string]error) { return nil, nil }

func (b *bandwidth) nearest(plan []journal.Limit) []string { return make([]string, len(plan)) }

func (b *bandwidth) asFound(l *journal.Limit, now model.Setting) bool { return now == l.Found }

func (b *bandwidth) onTheWayBack(l *journal.Limit, now model.Setting) bool {
	return l.OnTheWayBack(now)
}
