package cgroup

// /sys/kernel/cgroup/delegate: the files of a v2 group that are given to whom the group is
// delegated, by changing their owner (since Linux 4.15).
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#delegation
//
//	cgroup.procs
//	cgroup.threads
//	cgroup.subtree_control
//	memory.oom.group
//	memory.reclaim
//
// The rest of the delegated group's own files (its limits) stay with who delegated; in
// groups below, which the delegatee makes, all files are his. A process can be moved by
// him only where he may write cgroup.procs of the target and of the nearest common
// ancestor (else EACCES). With the mount option nsdelegate a cgroup namespace is such a
// border too, for root as well: the namespace's root takes no other write (EPERM), and no
// process crosses the border (ENOENT).

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const delegatePath = "/sys/kernel/cgroup/delegate"

// ReadDelegatable returns the names of the files that a delegatee owns in the delegated
// group itself.
func (d *V2) ReadDelegatable() ([]string, error) {
	data, err := d.fs.ReadFile(delegatePath, nil)
	if err != nil {
		return nil, fmt.Errorf("read delegatable cgroup files: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// The extended attributes with which systemd marks a group that it delegated, also where
// that stays root's (units with Delegate=yes; the second since Linux 5.7).
var delegateMarks = [...]string{"trusted.delegate", "user.delegate"}

// delegated says whether a group's directory was given to somebody else, or bears
// systemd's mark. Where the directory cannot be asked it was not.
func (t tree) delegated(path string) (bool, error) {
	dir, err := t.file(path, "")
	if err != nil {
		return false, err
	}
	at, closeDir, err := t.fs.OpenDir(dir)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closeDir() //nolint:errcheck // nothing was written through it
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Uid != 0 {
		return true, nil
	}
	value := make([]byte, 8)
	for _, mark := range delegateMarks {
		if n, err := unix.Fgetxattr(at, mark, value); err == nil && string(value[:n]) == "1" {
			return true, nil
		}
	}
	return false, nil
}

// Delegated implements Driver: it looks in the hierarchy of the cpu controller.
func (d *V1) Delegated(path string) (bool, error) {
	yes, err := d.cpu.delegated(path)
	if err != nil {
		return false, d.wrap("look who manages", path, err)
	}
	return yes, nil
}

// Delegated implements Driver.
func (d *V2) Delegated(path string) (bool, error) {
	yes, err := d.delegated(path)
	if err != nil {
		return false, d.wrap("look who manages", path, err)
	}
	return yes, nil
}

// MayWrite says whether this process may write a group's file, without writing: nil, or
// an error that matches the errno which the write would meet: EACCES (another owner),
// EROFS (the mount), EPERM (the border of a namespace). Whether the kernel takes the
// value is another question.
func (d *V2) MayWrite(path, name string) error {
	op := "write " + name + " of"
	dir, err := d.file(path, "")
	if err != nil {
		return fmt.Errorf("%s cgroup %s: %w", op, path, err)
	}
	at, closeDir, err := d.fs.OpenDir(dir)
	if err != nil {
		return d.wrap(op, path, err)
	}
	defer closeDir() //nolint:errcheck // nothing was written through it
	// The effective ids are those that the kernel goes by.
	if err := unix.Faccessat(at, name, unix.W_OK, unix.AT_EACCESS); err != nil {
		return d.wrap(op, path, &fs.PathError{Op: "access", Path: dir + "/" + name, Err: err})
	}
	if path != "/" || !d.partial || !d.nsDelegate {
		return nil
	}
	given, err := d.ReadDelegatable()
	if err != nil {
		return err
	}
	if !slices.Contains(given, name) {
		return fmt.Errorf("%s cgroup %s: the root of a namespace on a mount with nsdelegate: %w", op, path, unix.EPERM)
	}
	return nil
}
