package cgroup

// Who a group is delegated to: the owner of its directory, or who systemd says.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#delegation
//
// The delegated group's limits stay with who delegated; in groups below, which the
// delegatee makes, all files are his. A process can be moved by him only where he may
// write cgroup.procs of the target and of the nearest common ancestor (else EACCES). With
// the mount option nsdelegate a cgroup namespace is such a border too, for root as well:
// the namespace's root takes no other write (EPERM), and no process crosses the border
// (ENOENT).

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

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
