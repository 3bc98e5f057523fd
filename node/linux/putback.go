package linux

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// restore puts limits back where they are still ours, and forgets them. A limit that the
// kernel refuses to put back stays in the journal.
func (k *Knobs) restore(limits []journal.Limit) []node.Restoration {
	if len(limits) == 0 {
		return nil
	}
	k.begin()
	var jobs []*job
	for kind := range model.OfCgroups {
		of := slices.DeleteFunc(slices.Clone(limits), func(l journal.Limit) bool { return l.Found.Knob != kind })
		if len(of) > 0 {
			j := &job{kind: kind}
			k.prepareBack(j, of)
			jobs = append(jobs, j)
		}
	}
	k.carryOut(jobs)
	var out []node.Restoration
	for _, j := range jobs {
		out = append(out, j.items...)
	}
	return out
}

// prepareBack plans to put limits of one kind back, and settles those of which nothing is
// to be written.
func (k *Knobs) prepareBack(j *job, limits []journal.Limit) {
	j.back = true
	d := k.kinds[j.kind]
	limits = slices.Clone(limits)
	lost := k.relocate(j.kind, limits) // before those below are looked for
	more, blind := d.met(limits)
	limits, j.blind = append(limits, more...), blind
	for i := range limits {
		l := &limits[i]
		it := node.Restoration{Path: l.Path, Found: l.Found}
		now, err := k.read(j.kind, l.Path, l.Inode)
		if why := lost[l.Key()]; why != nil && errors.Is(err, cgroup.ErrVanished) {
			err = why
		}
		it.Now = now
		switch {
		case errors.Is(err, cgroup.ErrVanished):
			it.Kind = node.LeftGone
		case hasNoLimit(err):
			// Somebody took the controller from the group (v2), and the kernel forgot the
			// setting with it: one that comes back has none.
			it.Kind, it.Error = node.LeftGone, err.Error()
		case err != nil:
			it.Kind, it.Error = node.NotRestored, err.Error()
		case now == l.Found || !d.ours(l, now) && d.asFound(l, now):
			it.Kind = node.AsFound
			if j.change != nil && !d.ours(l, now) {
				// We had written something else: a stranger's word, which stands as any of his.
				it.Kind = node.LeftForeign
			}
		case d.ours(l, now) || j.change == nil && d.onTheWayBack(l, now): // by one that was ended meanwhile
			// From here on the limit is on its way from now to what was found.
			j.plan = append(j.plan, journal.Limit{Task: l.Task, Path: l.Path, Inode: l.Inode, Found: l.Found, Before: now, Intended: l.Found})
			continue
		default:
			it.Kind = node.LeftForeign
			if his := d.others(l, now); his != now {
				// From here on it is as if he had written it all.
				j.plan = append(j.plan, journal.Limit{Task: l.Task, Path: l.Path, Inode: l.Inode, Found: his, Before: now, Intended: his})
				j.foreign = append(j.foreign, l.Path)
				continue
			}
		}
		j.settled(it, l)
	}
	j.short = d.nearest(j.plan)
	kept := j.plan[:0]
	for i := range j.plan {
		l := &j.plan[i]
		if l.Intended == l.Before {
			// It is as near to what was found as it can be.
			j.settled(node.Restoration{Path: l.Path, Found: l.Found, Now: l.Before, Kind: node.AsFound, Error: j.short[i]}, l)
			continue
		}
		j.short[len(kept)] = j.short[i]
		kept = append(kept, *l)
	}
	j.plan = kept
	k.ready(j)
}

// relocate gives limits whose groups have other paths now those paths. It returns of which it
// cannot be said whether they are gone.
func (k *Knobs) relocate(kind model.KnobKind, limits []journal.Limit) (lost map[journal.Key]error) {
	d := k.kinds[kind]
	for i := range limits {
		l := &limits[i]
		d.drop(l.Path) // an open file would not tell of a group that has another path now
		inode, err := d.inode(l.Path)
		if err == nil && inode == l.Inode {
			continue
		}
		if err == nil || errors.Is(err, cgroup.ErrVanished) {
			err = k.follow(kind, l)
		}
		if err != nil {
			if lost == nil {
				lost = map[journal.Key]error{}
			}
			lost[l.Key()] = err
		}
	}
	return lost
}

// settled notes what became of a limit, and that it is done unless it is to be tried again.
func (j *job) settled(it node.Restoration, l *journal.Limit) {
	j.items = append(j.items, it)
	if it.Kind != node.NotRestored {
		j.notes = append(j.notes, journal.Note{Key: l.Key()})
	}
}

// settle says what became of the limits that were to be written.
func (j *job) settle() {
	for i := range j.plan {
		l, err := &j.plan[i], j.errs[i]
		it := node.Restoration{Path: l.Path, Found: l.Found, Now: j.at[i], Kind: node.Restored}
		if slices.Contains(j.foreign, l.Path) {
			it.Kind = node.LeftForeign // but for what was ours of it
		}
		switch {
		case err == nil:
			it.Error = j.short[i]
		case errors.Is(err, cgroup.ErrVanished):
			it.Kind = node.LeftGone
		case errors.Is(err, errForeign):
			it.Kind = node.LeftForeign // somebody wrote it in the same moment
		default:
			it.Kind, it.Error = node.NotRestored, err.Error()
		}
		j.settled(it, l)
	}
}

// keepBelow keeps, of a place, the groups below one that could not be put back: that their list is
// as it was found is forgotten only with it. Else one that has the same list by itself would be
// taken, at the next try, for one that was copied from ours (met). And a list is not done with
// while it cannot be told which groups below it copied ours, nor where it stays greater than it was
// found for the sake of one below that is ours, and that can only not be put back now, or smaller for one
// above it.
func (k *Knobs) keepBelow(j *job) {
	if j.kind != model.CPUPlace {
		return
	}
	for i := range j.items {
		it := &j.items[i]
		if it.Kind != node.Restored && it.Kind != node.AsFound {
			continue
		}
		if why := j.blind[it.Path]; why != nil {
			it.Kind, it.Error = node.NotRestored, fmt.Sprintf("groups in it could not be looked at: %v", why)
		} else if it.Error != "" && (j.waitsBelow(it.Path) || k.waitsAbove(j, it.Path)) {
			it.Kind = node.NotRestored
		}
	}
	j.notes = slices.DeleteFunc(j.notes, func(n journal.Note) bool {
		return n.ReadBack == nil && slices.ContainsFunc(j.items, func(it node.Restoration) bool {
			return it.Kind == node.NotRestored && (it.Path == n.Path || below(it.Path, n.Path))
		})
	})
	// An end in the midst of noting them forgets those above first.
	slices.SortStableFunc(j.notes, func(a, b journal.Note) int { return cmp.Compare(depth(a.Path), depth(b.Path)) })
}

// waitsBelow reports whether something below a group could not be put back.
func (j *job) waitsBelow(path string) bool {
	return slices.ContainsFunc(j.items, func(it node.Restoration) bool { return it.Kind == node.NotRestored && below(path, it.Path) })
}

// waitsAbove reports whether a group above is ours, is held by nobody, and is not put back yet: of a task that
// was renamed it may have been found under its new name later than what lies below.
func (k *Knobs) waitsAbove(j *job, path string) bool {
	for up := parentOf(path); up != "/"; up = parentOf(up) {
		inode, err := k.kinds[j.kind].inode(up)
		if err != nil {
			return true // it cannot be told
		}
		at := k.j.At(inode, j.kind)
		if at != nil && !k.holds(at) && !slices.ContainsFunc(j.notes, func(n journal.Note) bool { return n.Key == at.Key() && n.ReadBack == nil }) {
			return true
		}
	}
	return false
}

// released turns a restore into the result of a release.
func (k *Knobs) released(j *job) {
	j.res.Kind = model.Applied
	for i := range j.items {
		it := &j.items[i]
		if it.Path == j.task.Path {
			j.res.Now = it.Now
		}
		switch it.Kind {
		case node.NotRestored:
			j.res.Kind, j.res.Error = model.Refused, it.Path+": "+it.Error
		case node.LeftForeign:
			if j.res.Kind == model.Applied {
				j.res.Kind = model.Foreign
			}
			if it.Error != "" && j.res.Kind == model.Foreign {
				j.res.Error = it.Path + ": " + it.Error
			}
		case node.LeftGone:
			if it.Path == j.task.Path && j.res.Kind == model.Applied && !k.lives(j.task) {
				j.res.Kind = model.Vanished
			}
		}
	}
	key := heldKey{j.task.Path, j.kind}
	if j.res.Kind == model.Refused {
		// What a stranger wrote is forgotten, and is to be left to him also by what comes before the next try.
		if slices.ContainsFunc(j.items, func(it node.Restoration) bool { return it.Kind == node.LeftForeign && it.Path == key.task }) {
			k.refused[key] = true
		}
		return
	}
	if k.refused[key] && j.res.Kind == model.Applied {
		j.res.Kind = model.Foreign // as an earlier try had found
	}
	k.letGo(key.task, key.knob)
}
