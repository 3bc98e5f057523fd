package resctrl

// Removing groups. rmdir moves a control group's tasks to the root group, and a monitoring
// group's to its control group, and frees the numbers.
//
// A thread that is being started at that moment slips through: it has its parent's numbers
// already and is not yet in the list that the kernel walks. It then carries the numbers of
// a group that is gone, and so do the threads that it starts: they are still under its
// limits, and later in whichever group is given the numbers next. Seen on 6.1 (reading
// cpu_resctrl_groups of such a thread is ENOENT) and on 6.12 (threads of one group turned
// up in the next).
//
// So a group is emptied first, and removed when it has been found empty after a quiet time;
// a start in flight has shown itself by then. The quiet time is long for a machine, because
// a task under a small CPU quota may be stopped for a period in the middle of a start.
// Afterwards the processes that were in the group are looked at once more.

import (
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// Outcome is what became of a group that was to be removed.
type Outcome string

// The outcomes.
const (
	Removed  Outcome = "removed"
	WasGone  Outcome = "was gone"  // nothing is at its place
	MadeAnew Outcome = "made anew" // another group is at its place; it was left
	Refused  Outcome = "refused"
)

// Removal is one group's removal.
type Removal struct {
	Identity
	Outcome Outcome
	// Strangers are others' monitoring groups below a control group of ours: they go
	// with it, or are the reason for the refusal.
	Strangers []Name
}

// Remove removes a group of ours. Its tasks and CPUs fall to the root group, those of a
// monitoring group to its control group; our monitoring groups below it go with it. Where
// others have monitoring groups below it, it is refused with ErrForeign unless force is
// set: what must be given back is given back. A group that is gone, or was made anew, is
// no error: Remove is idempotent.
//
// The tasks are free of the group's limits at once. A group that had any is removed after
// Options.Quiet, some times that where tasks keep appearing; the lock is not held meanwhile.
func (d *Driver) Remove(id Identity, force bool) (Removal, error) {
	done, err := d.RemoveAll([]Identity{id}, force)
	return done[0], err
}

// RemoveAll removes groups as Remove does, in their order, and waits for all of them together: how long that takes does not depend
// on how many there are. What cannot be removed does not keep the others; the errors are joined.
func (d *Driver) RemoveAll(ids []Identity, force bool) ([]Removal, error) {
	left := make([]*remover, len(ids))
	for i, id := range ids {
		left[i] = &remover{d: d, force: force, Removal: Removal{Identity: id, Outcome: Refused}}
	}
	all := slices.Clone(left)
	var errs []error
	for look := 1; len(left) > 0; look++ {
		if look > 1 {
			d.opt.Clock.Sleep(d.opt.Quiet)
		}
		left = slices.DeleteFunc(left, func(r *remover) bool {
			var again bool
			err := d.locked(toChange, func() (err error) {
				again, err = r.look(look == maxPasses)
				return err
			})
			errs = append(errs, err)
			return err != nil || !again
		})
	}
	done := make([]Removal, len(all))
	for i, r := range all {
		done[i] = r.Removal
	}
	return done, errors.Join(errs...)
}

// remover is one removal.
type remover struct {
	d     *Driver
	force bool
	tids  []int32 // threads that were found in the group, over all looks
	Removal
}

// look empties the group, and removes it if it was empty already, or last is set. again
// means that it had to be emptied.
func (r *remover) look(last bool) (again bool, err error) {
	maker, ok := r.d.fs.(hostfs.DirMaker)
	if !ok {
		return false, fmt.Errorf("remove resctrl group %s: %w: this file access removes no directories", r.Name, ErrUnsupported)
	}
	if !r.d.ours(r.Name) {
		return false, fmt.Errorf("remove resctrl group %s: %w: the name does not begin with %q", r.Name, ErrForeign, r.d.opt.Prefix)
	}
	path := r.d.path(r.Name)
	inode, err := r.d.fs.Inode(path)
	switch {
	case gone(err):
		r.Outcome = WasGone
		return false, nil
	case err != nil:
		return false, fmt.Errorf("remove resctrl group %s: %w", r.Name, err)
	case inode != r.Inode:
		r.Outcome = MadeAnew
		return false, nil
	}
	freed, err := r.below()
	if err != nil {
		return false, err
	}
	moved, err := r.drain()
	if err != nil || moved && !last {
		return err == nil, err
	}
	err = r.d.change(appends, "rmdir", path, "", func() error { return maker.Rmdir(path) })
	switch {
	case errors.Is(err, ErrVanished):
		r.Outcome = WasGone
		return false, nil
	case err != nil:
		return false, err
	}
	r.d.noteFreed(r.d.opt.Clock.Now(), freed)
	r.Outcome = Removed
	return false, r.adopt()
}

// below finds others' monitoring groups below a control group, and returns how many RMIDs
// go with the group.
func (r *remover) below() (freed int, err error) {
	r.Strangers = nil
	if r.Name.IsMon() {
		return 1, nil
	}
	below, err := r.d.appendMonGroups(nil, r.Name)
	if err != nil {
		return 0, err
	}
	for _, b := range below {
		if !r.d.ours(b) {
			r.Strangers = append(r.Strangers, b)
		}
	}
	if len(r.Strangers) > 0 && !r.force {
		return 0, fmt.Errorf("remove resctrl group %s: %w: others monitor in it: %v", r.Name, ErrForeign, r.Strangers)
	}
	return 1 + len(below), nil
}

// inherits returns the group that a group's threads fall to.
func inherits(n Name) Name {
	if n.IsMon() {
		return n.Parent()
	}
	return Name{}
}

// drain moves the group's threads to where they would fall, and says whether there were
// any. What cannot be moved is left to rmdir, which can.
func (r *remover) drain() (bool, error) {
	tids, err := r.d.Tasks(r.Name, nil)
	if errors.Is(err, ErrVanished) {
		return false, nil // rmdir will say so
	}
	if err != nil {
		return false, fmt.Errorf("remove resctrl group %s: %w", r.Name, err)
	}
	r.tids = append(r.tids, tids...)
	m := mover{d: r.d}
	for _, tid := range tids {
		_ = m.write(inherits(r.Name), tid)
	}
	return len(tids) > 0, nil
}

// adopt looks at the processes of the threads that were in the group, and moves those of
// their threads that still have its numbers. A thread that has the numbers of the right
// group is not changed by being moved there.
func (r *remover) adopt() error {
	to := inherits(r.Name)
	m := mover{d: r.d}
	seen := make(map[int32]bool, len(r.tids))
	var buf []byte
	for _, of := range r.tids {
		if seen[of] {
			continue
		}
		threads, err := r.d.threads(of, nil)
		if err != nil {
			return fmt.Errorf("after removing %s: %w", r.Name, err)
		}
		for _, tid := range threads {
			seen[tid] = true
			var at Name
			at, buf, err = r.d.groupOf(tid, buf)
			if errors.Is(err, errOrphan) || err == nil && at == to {
				err = m.write(to, tid)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("after removing %s: %w", r.Name, err)
			}
		}
	}
	return nil
}

// RemoveLeftovers removes every group of ours but those in keep, and the control groups
// of those: what a run that died, or whose ledger is lost, left behind. It is for when
// somebody asks for it; a run that restarts with its ledger knows its groups. Groups of
// ours below others' control groups are found too. What cannot be removed does not keep
// the others; the errors are joined.
func (d *Driver) RemoveLeftovers(keep []Identity) ([]Removal, error) {
	var ids []Identity
	err := d.locked(toRead, func() (err error) {
		ids, err = d.identities()
		return err
	})
	if err != nil {
		return nil, err
	}
	kept := make(map[Identity]bool, len(keep))
	holds := make(map[Name]bool) // control groups with a kept monitoring group below
	for _, id := range keep {
		kept[id] = true
		if id.Name.IsMon() {
			holds[id.Name.Parent()] = true
		}
	}
	var done []Removal
	var errs []error
	// Monitoring groups come after their control group in the list: from its end, each is
	// counted for itself.
	for _, id := range slices.Backward(ids) {
		if !d.ours(id.Name) || kept[id] || !id.Name.IsMon() && holds[id.Name] {
			continue
		}
		r, err := d.Remove(id, true)
		errs = append(errs, err)
		done = append(done, r)
	}
	return done, errors.Join(errs...)
}
