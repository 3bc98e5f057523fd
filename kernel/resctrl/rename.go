package resctrl

import (
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// MoveMonGroup moves one of our monitoring groups to another control group, the root
// group or one of ours, with its tasks and its counts (since Linux 6.4; ErrUnsupported
// before). The group keeps its inode and RMID; its tasks get the new control group's ways
// and bandwidth. A group that monitors CPUs cannot be moved.
func (d *Driver) MoveMonGroup(id Identity, to Name) (Identity, error) {
	moved := Identity{Name: Name{Ctrl: to.Ctrl, Mon: id.Name.Mon}, Inode: id.Inode}
	if !id.Name.IsMon() || to.IsMon() {
		return id, fmt.Errorf("move %s to %s: %w", id.Name, to, ErrBadName)
	}
	maker, ok := d.fs.(hostfs.DirMaker)
	if !ok {
		return id, fmt.Errorf("move %s to %s: %w: this file access renames no directories", id.Name, to, ErrUnsupported)
	}
	err := d.locked(toChange, func() error {
		if err := d.verifyOurs(id); err != nil {
			return fmt.Errorf("move monitoring group: %w", err)
		}
		for _, n := range []Name{id.Name.Parent(), to} {
			if !n.IsRoot() && !d.ours(n) {
				return fmt.Errorf("move %s to %s: %w: %s", id.Name, to, ErrForeign, n)
			}
		}
		path := d.path(id.Name)
		return d.change(clears, "rename", path, "", func() error { return maker.Rename(path, d.path(moved.Name)) })
	})
	if err != nil {
		return id, err
	}
	return moved, nil
}
