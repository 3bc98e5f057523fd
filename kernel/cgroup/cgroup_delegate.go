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

// stat looks at a group's directory while it is open. Where the directory cannot be asked
// (a simulated kernel's) it is root's.
func (t tree) stat(path string, look func(fd int)) (uid uint32, err error) {
	dir, err := t.file(path, "")
	if err != nil {
		return 0, err
	}
	at, closeDir, err := t.fs.OpenDir(dir)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closeDir() //nolint:errcheck // nothing was written through it
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	look(at)
	return st.Uid, nil
}

// delegated says whether a group's directory was given to somebody else, or bears
// systemd's mark.
func (t tree) delegated(path string) (bool, error) {
	marked := false
	uid, err := t.stat(path, func(fd int) {
		value := make([]byte, 8)
		for _, mark := range delegateMarks {
			n, err := unix.Fgetxattr(fd, mark, value)
			marked = marked || err == nil && string(value[:n]) == "1"
		}
	})
	return err == nil && (uid != 0 || marked), err
}

// owner returns whose a group's directory is: who may make groups in it.
func (t tree) owner(path string, wrap func(op, path string, err error) error) (uint32, error) {
	uid, err := t.stat(path, func(int) {})
	if err != nil {
		return 0, wrap("look who owns", path, err)
	}
	return uid, nil
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

// Owner implements Driver: it looks in the hierarchy of the cpu controller.
func (d *V1) Owner(path string) (uint32, error) { return d.cpu.owner(path, d.wrap) }

// Owner implements Driver.
func (d *V2) Owner(path string) (uint32, error) { return d.owner(path, d.wrap) }
