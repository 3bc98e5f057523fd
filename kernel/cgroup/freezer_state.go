package cgroup

// freezer.state: stops and resumes all tasks of a v1 group and its descendants (v2:
// cgroup_freeze.go).
//
// https://docs.kernel.org/admin-guide/cgroup-v1/freezer-subsystem.html
//
//	THAWED            (or FREEZING: some tasks still run; or FROZEN)
//
// Only FROZEN and THAWED are written. Freezing takes as long as the slowest task needs to
// come out of the kernel, which may be for ever (uninterruptible sleep), so the wait is
// bounded. A group below a frozen one reads FROZEN and cannot thaw by itself.

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// FreezerState is what freezer.state reads.
type FreezerState string

// The states.
const (
	Thawed   FreezerState = "THAWED"
	Freezing FreezerState = "FREEZING"
	Frozen   FreezerState = "FROZEN"
)

// ErrFreezerTimeout means that the state was written, and not reached in the time given.
var ErrFreezerTimeout = errors.New("freezer did not reach the state in time")

// freezerPoll is the pause between readings of freezer.state. Freezing a runnable task
// takes well under a millisecond.
const freezerPoll = time.Millisecond

// ReadFreezer returns the group's freezer.state.
func (d *V1) ReadFreezer(path string) (FreezerState, error) {
	data, err := d.read(Freezer, path, "freezer.state")
	return parsed(data, err, path, "freezer.state", parseFreezerState)
}

// ReadFreezeAsked returns freezer.self_freezing.
func (d *V1) ReadFreezeAsked(path string) (bool, error) {
	data, err := d.read(Freezer, path, "freezer.self_freezing")
	return parsed(data, err, path, "freezer.self_freezing", parseFlag)
}

// WriteFreezeAsked writes freezer.state and does not wait.
func (d *V1) WriteFreezeAsked(path string, frozen bool) error {
	want := Thawed
	if frozen {
		want = Frozen
	}
	return d.write(Freezer, path, "freezer.state", string(want))
}

// FreezerInode implements Driver.
func (d *V1) FreezerInode(path string) (uint64, error) {
	dir, err := d.file(Freezer, path, "")
	if err != nil {
		return 0, fmt.Errorf("identify the freezer of cgroup %s: %w", path, err)
	}
	inode, err := d.fs.Inode(dir)
	if err != nil {
		return 0, d.wrap("identify the freezer of", path, err)
	}
	return inode, nil
}

func parseFreezerState(data []byte) (FreezerState, error) {
	switch s := FreezerState(bytes.TrimSuffix(data, []byte("\n"))); s {
	case Thawed, Freezing, Frozen:
		return s, nil
	}
	return "", fmt.Errorf("%w freezer.state %q", ErrMalformed, clip(data))
}

// WriteFreezer writes Frozen or Thawed and waits until it is reached, at most within.
// On ErrFreezerTimeout the write stands: a caller that gives up freezing must thaw.
func (d *V1) WriteFreezer(path string, want FreezerState, within time.Duration) error {
	if want != Frozen && want != Thawed {
		return fmt.Errorf("write freezer.state of cgroup %s: %w: %q is not written", path, ErrUnsupported, want)
	}
	if err := d.write(Freezer, path, "freezer.state", string(want)); err != nil {
		return err
	}
	deadline := time.Now().Add(within)
	for {
		got, err := d.ReadFreezer(path)
		if err != nil || got == want {
			return err
		}
		if !time.Now().Before(deadline) {
			why := ""
			if v, err := d.readInt(Freezer, path, "freezer.parent_freezing"); err == nil && v == 1 && want == Thawed {
				why = " (an ancestor is frozen)"
			}
			return fmt.Errorf("write freezer.state of cgroup %s: %w: %s after %s, want %s%s", path, ErrFreezerTimeout, got, within, want, why)
		}
		time.Sleep(freezerPoll)
	}
}
