package resctrl

import (
	"errors"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// limboPoll is how often a creation that waits for an RMID asks again: the kernel
// releases them once a second.
const limboPoll = limboPeriod / 4

// Made is a group that was just made: what a ledger must know to remove it.
type Made struct {
	Identity
	Schemata Schemata // what the kernel gave a control group; nil for a monitoring group
}

// CreateGroup makes a control group named prefix+name. The kernel gives it all ways that
// nobody holds exclusively, the full bandwidth, and no tasks.
//
// ErrExhausted: the budget or the kernel has none left. ErrLimbo: RMIDs are coming back;
// they are waited for up to wait, without the lock, 0 for not at all. ErrNoRoom: others
// hold all ways. A group of that name that is there already is fs.ErrExist.
func (d *Driver) CreateGroup(name string, wait time.Duration) (Made, error) {
	return d.create(Name{Ctrl: d.opt.Prefix + name}, wait)
}

// CreateMonGroup makes a monitoring group named prefix+name below a control group, which
// may be the root group or somebody else's: monitoring changes nothing for its tasks.
// Errors are as for CreateGroup.
func (d *Driver) CreateMonGroup(parent Name, name string, wait time.Duration) (Made, error) {
	if parent.IsMon() {
		return Made{}, fmt.Errorf("make monitoring group: %w: %s is no control group", ErrBadName, parent)
	}
	return d.create(Name{Ctrl: parent.Ctrl, Mon: d.opt.Prefix + name}, wait)
}

func (d *Driver) create(n Name, wait time.Duration) (Made, error) {
	own := n.Ctrl
	if n.IsMon() {
		own = n.Mon
	}
	if err := checkOwnName(own); err != nil || !d.ours(n) {
		return Made{}, fmt.Errorf("make resctrl group: %w: %q", ErrBadName, clip(own))
	}
	maker, ok := d.fs.(hostfs.DirMaker)
	if !ok {
		return Made{}, fmt.Errorf("make resctrl group %s: %w: this file access makes no directories", n, ErrUnsupported)
	}
	end := d.opt.Clock.Now().Add(wait)
	for {
		var made Made
		err := d.locked(toChange, func() (err error) {
			made, err = d.mkdir(maker, n)
			return err
		})
		left := end.Sub(d.opt.Clock.Now())
		if !errors.Is(err, ErrLimbo) || left <= 0 {
			return made, err
		}
		d.opt.Clock.Sleep(min(limboPoll, left))
	}
}

// mkdir counts, makes the group, and reads what came of it. The caller holds the lock.
func (d *Driver) mkdir(maker hostfs.DirMaker, n Name) (Made, error) {
	path := d.path(n)
	budget, err := d.budget()
	if err != nil {
		return Made{}, err
	}
	if err := budget.allows(n.IsMon(), d.opt); err != nil {
		return Made{}, &Error{Op: "mkdir", Path: path, Kind: err}
	}
	err = d.change(appends, "mkdir", path, "", func() error { return maker.Mkdir(path, 0o755) })
	if limbo := errors.Is(err, ErrLimbo); limbo || err == nil || errors.Is(err, ErrExhausted) {
		d.noteLimbo(d.opt.Clock.Now(), limbo)
	}
	if err != nil {
		return Made{}, err
	}
	made := Made{Identity: Identity{Name: n}}
	made.Inode, err = d.fs.Inode(path)
	if err == nil && !n.IsMon() {
		made.Schemata, err = d.ReadSchemata(n)
	}
	if err != nil {
		// Nobody could put back what nobody knows of.
		return Made{}, errors.Join(fmt.Errorf("make resctrl group %s: %w", n, err), maker.Rmdir(path))
	}
	return made, nil
}
