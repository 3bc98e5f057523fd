package resctrl

// /proc/<tid>/cpu_resctrl_groups: the groups that a thread is in (since Linux 5.6).
//
// https://docs.kernel.org/filesystems/proc.html
//
//	res:commensal-be
//	mon:m1
//
// "res:/" is the root group; an empty "mon:" is no monitoring group; an empty "res:" says
// that resctrl is not mounted. The monitoring group is below the control group named. A
// thread whose numbers no group has cannot be read: ENOENT.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errOrphan: a thread has the numbers of a group that is gone (see rmdir.go).
var errOrphan = errors.New("its group is gone")

// GroupOf returns the monitoring group that a thread is in, or else its control group. A
// thread that has ended is unix.ESRCH.
func (d *Driver) GroupOf(tid int32) (Name, error) {
	n, _, err := d.groupOf(tid, nil)
	return n, err
}

// groupOf is GroupOf with a buffer to use again.
func (d *Driver) groupOf(tid int32, buf []byte) (Name, []byte, error) {
	dir := "/proc/" + strconv.Itoa(int(tid))
	path := dir + "/cpu_resctrl_groups"
	buf, err := d.fs.ReadFile(path, buf)
	switch {
	case errors.Is(err, unix.ESRCH):
		return Name{}, buf, fmt.Errorf("read groups of thread %d: %w", tid, err)
	case gone(err):
		if _, e := d.fs.Inode(path); e == nil {
			return Name{}, buf, fmt.Errorf("read groups of thread %d: %w: %w", tid, errOrphan, err)
		}
		if _, e := d.fs.Inode(dir); e != nil {
			return Name{}, buf, fmt.Errorf("read groups of thread %d: %w: %w", tid, unix.ESRCH, err)
		}
		return Name{}, buf, fmt.Errorf("read groups of thread %d: %w: %w", tid, ErrUnsupported, err)
	case err != nil:
		return Name{}, buf, fmt.Errorf("read groups of thread %d: %w", tid, err)
	}
	n, err := parseGroupsOf(string(buf))
	if err != nil {
		return Name{}, buf, fmt.Errorf("read %s: %w", path, err)
	}
	return n, buf, nil
}

// parseGroupsOf reads the file. Group names may hold blanks and colons.
func parseGroupsOf(text string) (Name, error) {
	res, rest, ok1 := strings.Cut(text, "\n")
	mon, _, ok2 := strings.Cut(rest, "\n")
	res, ok3 := strings.CutPrefix(res, "res:")
	mon, ok4 := strings.CutPrefix(mon, "mon:")
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return Name{}, fmt.Errorf("%w: %q", ErrMalformed, clip(text))
	}
	if res == "" {
		return Name{}, ErrNotMounted
	}
	if res == "/" {
		res = ""
	}
	n := Name{Ctrl: res, Mon: mon}
	if n.Ctrl != "" && !validElement(n.Ctrl) || n.Mon != "" && !validElement(n.Mon) {
		return Name{}, fmt.Errorf("%w: %q", ErrMalformed, clip(text))
	}
	return n, nil
}
