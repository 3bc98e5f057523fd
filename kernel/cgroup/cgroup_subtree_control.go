package cgroup

// cgroup.subtree_control: the controllers that a v2 group hands to its children. They
// decide which files the children have, and by that what can be limited in them.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#controlling-controllers
//
//	cpuset cpu memory pids        (written: "+cpu -memory", all or nothing)
//
// A group hands on only what it has (else ENOENT), stops only what no child hands on
// (else EBUSY), and, but for the root group, hands on only while it has no processes of
// its own (else EBUSY): the no-internal-process constraint.
//
// With threaded controllers alone (cpu, cpuset, pids) the kernel does not refuse a group
// with processes: it makes it the root of a threaded subtree instead, in which its
// children are no domains and take no processes (cgroup_type.go). Nobody who calls Enable
// means that, so Enable refuses it.

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrHasProcesses: the group has processes of its own, so its children cannot get
// controllers.
var ErrHasProcesses = errors.New("cgroup has processes of its own and can hand no controller to its children")

// ErrInUse: a child hands the controller on, or the children are its users otherwise.
var ErrInUse = errors.New("controller is in use below")

// ReadSubtreeControl returns the controllers that a group hands to its children, in the
// kernel's order.
func (d *V2) ReadSubtreeControl(path string) ([]Controller, error) {
	return d.readControllers(path, "cgroup.subtree_control")
}

// Enable makes a group hand controllers to its children, all of them or none. The root
// group is refused like any write to it (ErrRootGroup): what it hands down is the
// decision of the machine's owner. The errors are an *AbsentControllerError,
// ErrHasProcesses, ErrThreaded, or the kernel's own.
func (d *V2) Enable(path string, controllers ...Controller) error {
	op := "enable controllers below"
	if err := CheckPath(path); err != nil {
		return fmt.Errorf("%s cgroup %s: %w", op, path, err)
	}
	have, err := d.ReadControllers(path)
	if err != nil {
		return err
	}
	for _, c := range controllers {
		if !slices.Contains(have, c) {
			if absent := d.absentController(path, string(c)+"."); absent != nil {
				return fmt.Errorf("%s cgroup %s: %w", op, path, absent)
			}
			return fmt.Errorf("%s cgroup %s: %w: %w", op, path, ErrNoController, unix.ENOENT)
		}
	}
	pids, err := d.Procs(path)
	if err != nil && !errors.Is(err, ErrThreaded) {
		return err
	}
	if len(pids) > 0 {
		return fmt.Errorf("%s cgroup %s: %w: %d of them", op, path, ErrHasProcesses, len(pids))
	}
	err = d.writeSubtreeControl(path, "+", controllers)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s cgroup %s: %w: %w", op, path, ErrHasProcesses, err)
	}
	return err
}

// Disable makes a group hand controllers no more, all of them or none. The children's
// files of these controllers vanish, and with them their limits. A controller that a
// child hands on is ErrInUse.
func (d *V2) Disable(path string, controllers ...Controller) error {
	err := d.writeSubtreeControl(path, "-", controllers)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("disable controllers below cgroup %s: %w: %w", path, ErrInUse, err)
	}
	return err
}

func (d *V2) writeSubtreeControl(path, sign string, controllers []Controller) error {
	var b strings.Builder
	for i, c := range controllers {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(sign + string(c))
	}
	return d.write(path, "cgroup.subtree_control", b.String())
}
