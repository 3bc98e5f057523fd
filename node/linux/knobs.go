package linux

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// bandwidth is the part of a cgroup driver that a knob needs.
type bandwidth interface {
	Inode(path string) (uint64, error)
	ReadCPUMax(path string) (cgroup.CPUMax, error)
	WriteCPUMax(path string, v cgroup.CPUMax) error
	Descendants(path string) ([]string, error)
}

// Knobs writes CPU bandwidth limits with the journal before each write.
//
// On cgroup v1 one knob is a task's limit together with those of its descendants: the
// kernel refuses a limit below a child's, so the children go down first and come up last.
// On v2 a child's limit may exceed its parent's and the smaller one rules: a knob is the
// task's limit alone, and what others wrote below it, delegated groups among them, is
// never touched.
type Knobs struct {
	cg   bandwidth
	j    *journal.Journal
	flat bool // v2

	// held has, by path, the tasks whose hold the caller was told of and has not ended, and
	// the limit that he was told.
	held     map[string]model.CPUMax
	leftover leftover
}

func newKnobs(cg cgroup.Driver, j *journal.Journal) *Knobs {
	return &Knobs{cg: cg, j: j, flat: cg.Layout() == cgroup.LayoutV2, held: map[string]model.CPUMax{}}
}

// errForeign: the value in the kernel is neither what we found nor what we wrote.
var errForeign = errors.New("another program wrote this limit")

// hold brings a task's limit down to value, or to what was found when that is lower.
func (k *Knobs) hold(t *model.Task, value model.CPUMax) model.Result {
	res := model.Result{Task: t.Num}
	limits := k.limits(t)
	now, err := k.read(t.Path, t.Inode)
	if err != nil {
		return k.failed(t, res, err)
	}
	res.Found, res.Now = now, now
	held := len(limits) > 0
	if own := limitAt(limits, t.Path, t.Inode); own != nil {
		res.Found = own.Found
		if !own.Ours(now) {
			return k.foreign(t, res)
		}
	}
	want := tighter(res.Found, value)
	plan, err := k.plan(t, limits, now, res.Found, want)
	if err != nil {
		return k.failed(t, res, err)
	}
	if len(plan) == 0 {
		res.Kind, k.held[t.Path] = model.Applied, res.Now
		return res
	}
	if err := k.write(plan); err != nil {
		if !held {
			// Nothing of ours may remain of a hold that was refused.
			k.restore(k.j.Of(t.Path))
		}
		return k.failed(t, res, err)
	}
	if res.Now, err = k.read(t.Path, t.Inode); err != nil {
		return k.failed(t, res, err)
	}
	res.Kind, k.held[t.Path] = model.Applied, res.Now
	return res
}

// limits returns what the journal holds of a task's knob. What it could not yet forget of
// a cgroup that had the task's path before is tried again, and is none of it.
func (k *Knobs) limits(t *model.Task) []journal.Limit {
	all := k.j.Of(t.Path)
	stale := func(l journal.Limit) bool { return l.Path == t.Path && l.Inode != t.Inode }
	i := slices.IndexFunc(all, stale)
	if i < 0 {
		return all
	}
	k.restore(all[i : i+1])
	return slices.DeleteFunc(all, stale)
}

func (k *Knobs) isHeld(task string) bool {
	_, ok := k.held[task]
	return ok
}

// tighter returns the lower of what was found and what is wanted (caps settle at
// min(caps, base)). A burst is only kept with the found limit: a cap has none.
func tighter(found, want model.CPUMax) model.CPUMax {
	if found.Ratio() <= want.Ratio() {
		return found
	}
	return want
}

// plan lists the writes of a hold, in their order: children before the parent on the way
// down, the parent before its children on the way up.
func (k *Knobs) plan(t *model.Task, limits []journal.Limit, now, found, want model.CPUMax) ([]journal.Limit, error) {
	var plan []journal.Limit
	if now != want {
		plan = append(plan, journal.Limit{Task: t.Path, Path: t.Path, Inode: t.Inode, Found: found, Before: now, Intended: want})
	}
	if k.flat {
		return plan, nil
	}
	below, err := k.cg.Descendants(t.Path)
	if err != nil {
		return nil, err
	}
	for _, p := range below {
		ino, err := k.cg.Inode(p)
		if err != nil {
			continue // gone meanwhile: nothing to lower
		}
		cur, err := k.read(p, ino)
		if err != nil {
			continue
		}
		first := cur
		if l := limitAt(limits, p, ino); l != nil {
			if !l.Ours(cur) {
				return nil, fmt.Errorf("%s: %w", p, errForeign)
			}
			first = l.Found
		}
		if to := childLimit(first, want); cur != to {
			plan = append(plan, journal.Limit{Task: t.Path, Path: p, Inode: ino, Found: first, Before: cur, Intended: to})
		}
	}
	slices.SortStableFunc(plan, byOrder)
	return plan, nil
}

// childLimit returns what a descendant's limit must be under a parent's: what it was
// where that fits, the parent's own otherwise. No limit is no limit.
func childLimit(found, parent model.CPUMax) model.CPUMax {
	if math.IsInf(found.Ratio(), 1) || found.Ratio() <= parent.Ratio() {
		return found
	}
	return parent
}

// byOrder puts the writes that lower first, deepest first, and then those that raise,
// shallowest first.
func byOrder(a, b journal.Limit) int {
	la, lb := lowers(a), lowers(b)
	da, db := strings.Count(a.Path, "/"), strings.Count(b.Path, "/")
	switch {
	case la && !lb:
		return -1
	case lb && !la:
		return 1
	case la:
		return db - da
	}
	return da - db
}

func lowers(l journal.Limit) bool { return l.Intended.Ratio() <= l.Before.Ratio() }

// write journals the whole plan, then carries it out.
func (k *Knobs) write(plan []journal.Limit) error {
	if err := k.j.Intent(plan); err != nil {
		return err
	}
	for i := range plan {
		l := &plan[i]
		if err := k.cg.WriteCPUMax(l.Path, cgroup.CPUMax(l.Intended)); err != nil {
			if errors.Is(err, cgroup.ErrVanished) && l.Path != l.Task {
				continue // a child that went away needs no limit
			}
			return err
		}
		now, err := k.read(l.Path, l.Inode)
		if err != nil {
			return err
		}
		// The kernel keeps these three numbers as they are written (to the microsecond), so
		// another value is another writer's. Taken for ours it would later be overwritten.
		if now != l.Intended {
			k.unmix(l, now)
			return fmt.Errorf("%s reads back otherwise than it was written: %w", l.Path, errForeign)
		}
		if err := k.j.Wrote(l.Path, l.Inode, now); err != nil {
			return err
		}
	}
	return nil
}

// unmix takes back our part of a limit that another program wrote in the midst of our
// writes, which are several: his quota may now stand with our period, or our quota with
// his. What is his stays, and the rest becomes as it was found. Where that fails the whole
// is put back as if it were ours.
func (k *Knobs) unmix(l *journal.Limit, now model.CPUMax) {
	want := now
	for _, part := range []struct{ want, ours, found *int64 }{
		{&want.QuotaUsec, &l.Intended.QuotaUsec, &l.Found.QuotaUsec},
		{&want.PeriodUsec, &l.Intended.PeriodUsec, &l.Found.PeriodUsec},
		{&want.BurstUsec, &l.Intended.BurstUsec, &l.Found.BurstUsec},
	} {
		if *part.want == *part.ours {
			*part.want = *part.found
		}
	}
	if want == now {
		return
	}
	mixed := journal.Limit{Task: l.Task, Path: l.Path, Inode: l.Inode, Found: l.Found, Before: now, Intended: want}
	if k.j.Intent([]journal.Limit{mixed}) != nil || k.cg.WriteCPUMax(l.Path, cgroup.CPUMax(want)) != nil {
		return // and restore finds it in the journal
	}
	_ = k.j.Done(l.Path, l.Inode) // not written down: the next restore looks at it again
}

// read reads a limit of the very cgroup that is meant, not of a new one at its path.
func (k *Knobs) read(path string, inode uint64) (model.CPUMax, error) {
	ino, err := k.cg.Inode(path)
	if err != nil {
		return model.CPUMax{}, err
	}
	if ino != inode {
		return model.CPUMax{}, fmt.Errorf("%s was made anew: %w", path, cgroup.ErrVanished)
	}
	v, err := k.cg.ReadCPUMax(path)
	return model.CPUMax(v), err
}

// release puts a task's limits back.
func (k *Knobs) release(t *model.Task) model.Result {
	res := model.Result{Task: t.Num, Kind: model.Applied}
	limits := k.limits(t)
	if own := limitAt(limits, t.Path, t.Inode); own != nil {
		res.Found = own.Found
	}
	for _, it := range k.restore(limits) {
		if it.Path == t.Path {
			res.Now = it.Now
		}
		switch it.Kind {
		case node.NotRestored:
			res.Kind, res.Error = model.Refused, it.Path+": "+it.Error
		case node.LeftForeign:
			if res.Kind == model.Applied {
				res.Kind = model.Foreign
			}
		case node.LeftGone:
			if it.Path == t.Path && res.Kind == model.Applied {
				res.Kind = model.Vanished
			}
		}
	}
	if res.Kind != model.Refused {
		delete(k.held, t.Path)
	}
	return res
}

// disown forgets a task's knob where a stranger wrote it: its own limit is left as it
// is, and what we lowered below it is put back where it is still ours.
func (k *Knobs) disown(path string) {
	delete(k.held, path)
	k.restore(k.j.Of(path))
}

// restore puts limits back where they are still ours, and forgets them. A limit that the
// kernel refuses to put back stays in the journal.
func (k *Knobs) restore(limits []journal.Limit) []node.Restoration {
	var out []node.Restoration
	var todo []journal.Limit
	for _, l := range limits {
		it := node.Restoration{Path: l.Path, Found: l.Found}
		now, err := k.read(l.Path, l.Inode)
		it.Now = now
		switch {
		case errors.Is(err, cgroup.ErrVanished):
			it.Kind = node.LeftGone
		case hasNoLimit(err):
			// Somebody took the cpu controller from the group (v2), and the kernel forgot
			// the limit with it: one that comes back has none.
			it.Kind, it.Error = node.LeftGone, err.Error()
		case err != nil:
			it.Kind, it.Error = node.NotRestored, err.Error()
		case now == l.Found:
			it.Kind = node.AsFound
		case !l.Ours(now):
			it.Kind = node.LeftForeign
		default:
			// From here on the limit is on its way from now to what was found.
			todo = append(todo, journal.Limit{Task: l.Task, Path: l.Path, Inode: l.Inode, Found: l.Found, Before: now, Intended: l.Found})
			continue
		}
		out = append(out, k.settle(it, l))
	}
	slices.SortStableFunc(todo, byOrder)
	if len(todo) > 0 {
		if err := k.j.Intent(todo); err != nil {
			for _, l := range todo {
				out = append(out, node.Restoration{Path: l.Path, Found: l.Found, Now: l.Before, Kind: node.NotRestored, Error: err.Error()})
			}
			return out
		}
	}
	for _, l := range todo {
		out = append(out, k.settle(k.putBack(l), l))
	}
	return out
}

// putBack writes one limit back and reads it.
func (k *Knobs) putBack(l journal.Limit) node.Restoration {
	it := node.Restoration{Path: l.Path, Found: l.Found, Kind: node.Restored}
	err := k.cg.WriteCPUMax(l.Path, cgroup.CPUMax(l.Found))
	if err == nil {
		it.Now, err = k.read(l.Path, l.Inode)
	}
	switch {
	case errors.Is(err, cgroup.ErrVanished):
		it.Kind = node.LeftGone
	case err != nil:
		it.Kind, it.Error = node.NotRestored, err.Error()
	case it.Now == l.Found:
	case it.Now == l.Before:
		it.Kind, it.Error = node.NotRestored, "the write was taken and changed nothing"
	default:
		it.Kind = node.LeftForeign // somebody wrote it in the same moment
	}
	return it
}

// settle forgets a limit in the journal unless it must be tried again.
func (k *Knobs) settle(it node.Restoration, l journal.Limit) node.Restoration {
	if it.Kind == node.NotRestored {
		return it
	}
	if err := k.j.Done(l.Path, l.Inode); err != nil {
		it.Kind, it.Error = node.NotRestored, err.Error()
	}
	return it
}

// foreign forgets the knob and says what stands there.
func (k *Knobs) foreign(t *model.Task, res model.Result) model.Result {
	k.disown(t.Path)
	res.Kind = model.Foreign
	return res
}

// failed turns an error into a result.
func (k *Knobs) failed(t *model.Task, res model.Result, err error) model.Result {
	switch {
	case errors.Is(err, cgroup.ErrVanished):
		res.Kind = model.Vanished
		k.disown(t.Path)
	case errors.Is(err, errForeign):
		return k.foreign(t, res)
	default:
		res.Kind = model.Refused
	}
	res.Error = err.Error()
	return res
}

// limitAt finds the limit of the very cgroup that is meant: what the journal could not
// yet forget of one that is gone is not that of a new one at its path.
func limitAt(limits []journal.Limit, path string, inode uint64) *journal.Limit {
	for i := range limits {
		if limits[i].Path == path && limits[i].Inode == inode {
			return &limits[i]
		}
	}
	return nil
}
