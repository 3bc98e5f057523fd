package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// driven are the controllers that this package writes or reads files of.
func driven() []Controller { return []Controller{CPU, CPUSet, Memory, PIDs} }

// Mkdir implements Driver. The groups above, without the root group, are made to hand
// down the controllers that the root group hands down. Controllers that it keeps are
// missing from the new group, and stay so: to enable them for the whole machine is its
// owner's decision (AbsentControllerError says where). A parent with processes of its
// own cannot hand controllers down: ErrHasProcesses. On an error nothing is left behind.
//
// For the lab, tests and commensal-hub try: the agent makes no groups.
func (d *V2) Mkdir(path string) error {
	maker, err := d.dirMaker(path)
	if err != nil {
		return fmt.Errorf("make cgroup %s: %w", path, err)
	}
	dir := fileBelow(d.top, path, "")
	if err := maker.Mkdir(dir, groupPerm); err != nil {
		return d.wrap("make", path, err)
	}
	if err := d.enableAbove(path); err != nil {
		return errors.Join(fmt.Errorf("make cgroup %s: %w", path, err), maker.Rmdir(dir))
	}
	return nil
}

// enableAbove enables the controllers of this package from the top group down to path's
// parent, and takes back what it did when it fails.
func (d *V2) enableAbove(path string) error {
	var undo []func() error
	for _, up := range slices.Backward(ancestors(path)) {
		have, err := d.ReadControllers(up)
		if err != nil {
			return d.undo(undo, err)
		}
		on, err := d.ReadSubtreeControl(up)
		if err != nil {
			return d.undo(undo, err)
		}
		var missing []Controller
		for _, c := range driven() {
			if slices.Contains(have, c) && !slices.Contains(on, c) {
				missing = append(missing, c)
			}
		}
		if len(missing) == 0 {
			continue
		}
		if err := d.Enable(up, missing...); err != nil {
			return d.undo(undo, err)
		}
		undo = append(undo, func() error { return d.Disable(up, missing...) })
	}
	return nil
}

func (d *V2) undo(steps []func() error, err error) error {
	for _, step := range slices.Backward(steps) {
		err = errors.Join(err, step())
	}
	return err
}

// Rmdir implements Driver.
func (d *V2) Rmdir(path string) error {
	maker, err := d.dirMaker(path)
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	err = maker.Rmdir(fileBelow(d.top, path, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %s: %w: %w", path, ErrVanished, err)
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}

// MovePID implements Driver. A group that hands controllers down takes no processes:
// ErrInnerGroup. The kernel itself refuses that only where a domain controller (memory)
// is among them; with threaded ones alone it would make the group the root of a threaded
// subtree and its children invalid, which nobody means who moves a process.
//
// For the lab, tests and commensal-hub try, on processes and groups of their own.
func (d *V2) MovePID(path string, pid int) error {
	if err := checkPath(path); err != nil {
		return fmt.Errorf("move process %d: %w", pid, err)
	}
	if pid <= 0 {
		// The kernel reads 0 as "the writer": never what is meant here.
		return fmt.Errorf("move process %d to cgroup %s: %w: not a process id", pid, path, fs.ErrInvalid)
	}
	op := fmt.Sprintf("move process %d to", pid)
	if err := d.takesProcesses(path); err != nil {
		return fmt.Errorf("%s cgroup %s: %w", op, path, err)
	}
	err := d.fs.WriteFile(fileBelow(d.top, path, "cgroup.procs"), []byte(strconv.Itoa(pid)))
	var pe *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s cgroup %s: %w: %w", op, path, ErrInnerGroup, err)
	case errors.Is(err, unix.ENOENT) && errors.As(err, &pe) && pe.Op == "write":
		return fmt.Errorf("%s cgroup %s: %w: %w", op, path, ErrOutsideNamespace, err)
	}
	return d.wrap(op, path, err)
}

// takesProcesses refuses an inner group that is no root of a threaded subtree yet.
func (d *V2) takesProcesses(path string) error {
	on, err := d.ReadSubtreeControl(path)
	if err != nil || len(on) == 0 || path == "/" {
		return err
	}
	t, err := d.ReadType(path)
	if err != nil || t != Domain {
		return err
	}
	return fmt.Errorf("%w: %s", ErrInnerGroup, on)
}
