package cgroup

// cgroup.controllers: the controllers that a v2 group has files of, which are those that
// its parent hands on; in the root group, those of the hierarchy.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#enabling-and-disabling
//
//	cpuset cpu io memory pids

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrNoController: the group exists, and the controller that the file belongs to is not
// enabled for it. Every such error is an *AbsentControllerError.
var ErrNoController = errors.New("controller is not enabled")

// AbsentControllerError says which controller a group has not, and where it ends. It
// matches ErrNoController.
type AbsentControllerError struct {
	Path       string // of the group
	Controller Controller
	// StopsAt is the nearest group above that has the controller and does not hand
	// it on: its cgroup.subtree_control lacks it. "" when no group has it: the kernel
	// was built or started without it, a v1 hierarchy holds it, or the groups above
	// are outside of this cgroup namespace.
	StopsAt string
}

// Error implements error.
func (e *AbsentControllerError) Error() string {
	if e.StopsAt == "" {
		return fmt.Sprintf("%s for %s: the hierarchy has no controller %s", ErrNoController, e.Path, e.Controller)
	}
	return fmt.Sprintf("%s for %s: cgroup.subtree_control of %s lacks %s", ErrNoController, e.Path, e.StopsAt, e.Controller)
}

// Is implements errors.Is for ErrNoController.
func (e *AbsentControllerError) Is(target error) bool { return target == ErrNoController }

// ReadControllers returns the controllers that a group has, in the kernel's order.
func (d *V2) ReadControllers(path string) ([]Controller, error) {
	return d.readControllers(path, "cgroup.controllers")
}

func (d *V2) readControllers(path, name string) ([]Controller, error) {
	data, err := d.read(path, name)
	return parsed(data, err, path, name, parseControllers)
}

// parseControllers reads names of small letters, digits and "_", a blank between them.
func parseControllers(data []byte) ([]Controller, error) {
	var list []Controller
	for _, name := range bytes.Fields(data) {
		for _, c := range name {
			if c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				return nil, fmt.Errorf("%w list of controllers %q", ErrMalformed, clip(data))
			}
		}
		list = append(list, Controller(name))
	}
	return list, nil
}
