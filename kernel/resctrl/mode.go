package resctrl

// mode: how a control group shares cache ways.
//
// https://docs.kernel.org/filesystems/resctrl.html ("mode")
//
//	shareable          others may have the same ways
//	exclusive          nobody else may, whatever group
//	pseudo-locksetup   waits for the region to lock
//	pseudo-locked      its region stays in the cache

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const modeFile = "mode"

// Mode is how a control group shares.
type Mode string

// The modes.
const (
	Shareable       Mode = "shareable"
	Exclusive       Mode = "exclusive"
	PseudoLockSetup Mode = "pseudo-locksetup"
	PseudoLocked    Mode = "pseudo-locked"
)

// ReadMode reads a control group's mode.
func (d *Driver) ReadMode(n Name) (Mode, error) {
	data, err := d.fs.ReadFile(d.path(n.Parent())+"/"+modeFile, nil)
	if err != nil {
		return "", fmt.Errorf("read mode: %w", d.explain(n, err))
	}
	return Mode(strings.TrimSpace(string(data))), nil
}

// WriteMode makes one of our control groups shareable or exclusive. The kernel refuses
// exclusive while any other group, the root group included, or a device shares a way; as
// the root group is never written here, that takes an operator who shrank it. Pseudo-
// locking is not for us: it occupies cache for good.
func (d *Driver) WriteMode(id Identity, m Mode) error {
	if id.Name.IsMon() || m != Shareable && m != Exclusive {
		return fmt.Errorf("write mode %q of %s: %w", m, id.Name, unix.EINVAL)
	}
	return d.locked(toChange, func() error {
		if err := d.verifyOurs(id); err != nil {
			return fmt.Errorf("write mode: %w", err)
		}
		path := d.path(id.Name) + "/" + modeFile
		text := string(m) + "\n"
		return d.change(clears, "write", path, text, func() error {
			return d.fs.WriteFile(path, []byte(text))
		})
	})
}
