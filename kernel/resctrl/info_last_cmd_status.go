package resctrl

// info/last_cmd_status: why the last command failed, in words; "ok" when nothing was said.
//
// https://docs.kernel.org/filesystems/resctrl.html ("last_cmd_status")
//
//	The mask f7 has non-consecutive 1-bits
//
// The document says that it is reset on every command. Up to 6.12 at least, mkdir, rmdir
// and writes to cpus and cpus_list are no commands in that sense: they append to what an
// earlier command, anybody's, left there. (Later kernels clear it for them too.) Some
// refusals say nothing: a domain that is not there is EINVAL with "ok", and so is a write
// without a newline, which leaves the text as it was. The buffer holds 512 bytes; once it
// is full nothing more is said until somebody's command clears it.
//
// So the driver reads the text before and after, and takes what is new. Another tool that
// does not take the lock can still slip its own text in between.

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	statusFile = "/" + infoDir + "/last_cmd_status"
	// statusFull is a length from which on the next text may not have fitted in: the
	// buffer has 512 bytes and the longest messages some 90.
	statusFull = 512 - 100
)

// Error is a change that the kernel refused, or that the driver did not try.
type Error struct {
	Op     string // "mkdir", "rmdir", "rename", "write"
	Path   string // within the host's root
	Text   string // what was written, clipped; "" for other operations
	Status string // what the kernel said about it, "; " between lines; "" for nothing
	Kind   error  // one of the package's sentinels, or nil
	Err    error  // what the call returned: an errno in a *fs.PathError, or nil if it was not tried
}

// Error returns operation, path, the text written, errno and the kernel's own words.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "resctrl: %s %s", e.Op, e.Path)
	if e.Text != "" {
		fmt.Fprintf(&b, " %q", e.Text)
	}
	if e.Kind != nil {
		fmt.Fprintf(&b, ": %v", e.Kind)
	}
	var path *fs.PathError
	switch {
	case e.Err == nil:
	case errors.As(e.Err, &path) && path == e.Err: //nolint:errorlint // the error itself: its path stands above
		fmt.Fprintf(&b, ": %v", path.Err)
	default:
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Status != "" {
		fmt.Fprintf(&b, ": kernel says %q", e.Status)
	}
	return b.String()
}

// Unwrap returns the sentinel and the call's error.
func (e *Error) Unwrap() []error {
	var list []error
	if e.Kind != nil {
		list = append(list, e.Kind)
	}
	if e.Err != nil {
		list = append(list, e.Err)
	}
	return list
}

// command says whether an operation clears last_cmd_status on every kernel.
type command bool

const (
	clears  command = true  // writes to schemata, tasks and mode, and rename
	appends command = false // mkdir, rmdir, writes to cpus_list
)

// change carries out one operation, and returns what the kernel said when it failed. The
// caller holds the lock.
func (d *Driver) change(how command, op, path, text string, f func() error) error {
	before := ""
	if how == appends {
		before = d.status()
	}
	err := f()
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Path: path, Text: clip(text), Err: err}
	e.Status = freshStatus(how, before, d.status(), err)
	e.Kind = d.kind(e)
	return e
}

// status reads the text, "" when nothing was said or it cannot be read: it explains
// errors, and is none itself.
func (d *Driver) status() string {
	data, err := d.fs.ReadFile(d.at.Point+statusFile, nil)
	if err != nil {
		return ""
	}
	return parseStatus(string(data))
}

// parseStatus returns the text without the newline at its end, "" for "ok".
func parseStatus(text string) string {
	text = strings.TrimRight(text, "\n")
	if text == "ok" {
		return ""
	}
	return text
}

// freshStatus returns what is new in the text after a command, its lines joined by "; ".
func freshStatus(how command, before, after string, err error) string {
	fresh := after
	switch rest, grown := strings.CutPrefix(after, before); {
	case how == clears || before == "":
	case !grown: // cleared, and written anew
	case rest != "":
		fresh = rest
	case len(before) >= statusFull || !speaks(err):
		fresh = "" // full, or the kernel had nothing to say
	}
	var lines []string
	for line := range strings.Lines(fresh) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// speaks says whether the kernel has words for a refusal by mkdir or cpus_list. When it
// has, and the text is what it was before, then the text was cleared and the same was
// said again: appending would have made it longer.
func speaks(err error) bool {
	silent := []error{fs.ErrExist, fs.ErrNotExist, fs.ErrPermission, unix.ENODEV, unix.EROFS}
	return !slices.ContainsFunc(silent, func(s error) bool { return errors.Is(err, s) })
}

// kind sorts a refusal into the sentinels.
func (d *Driver) kind(e *Error) error {
	switch {
	case gone(e.Err):
		if _, err := d.fs.Inode(d.at.Point + statusFile); gone(err) {
			return ErrNotMounted
		}
		return ErrVanished
	case e.Op == "mkdir" && errors.Is(e.Err, unix.EBUSY):
		return ErrLimbo
	case e.Op == "mkdir" && errors.Is(e.Err, unix.ENOSPC) && strings.Contains(e.Status, "No space on"):
		return ErrNoRoom
	case e.Op == "mkdir" && errors.Is(e.Err, unix.ENOSPC):
		return ErrExhausted
	case e.Op == "rename" && errors.Is(e.Err, unix.EPERM) && e.Status == "":
		return ErrUnsupported // before Linux 6.4 there is no rename at all
	case errors.Is(e.Err, unix.EROFS):
		return ErrUnsupported
	}
	return nil
}
