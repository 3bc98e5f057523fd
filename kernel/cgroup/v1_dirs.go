package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
)

// Mkdir makes a group in every hierarchy of the controllers that this package knows. It
// copies cpuset.cpus and cpuset.mems from the parent, without which the group would take
// no process. A group that exists already in any of them is an error, and what was made
// until then is removed. For the lab, tests and commensal-hub try: the agent makes no groups.
func (d *V1) Mkdir(path string) error {
	maker, err := d.cpu.dirMaker(path)
	if err != nil {
		return fmt.Errorf("make cgroup %s: %w", path, err)
	}
	var made []string
	for _, dir := range d.hierarchies() {
		if err = maker.Mkdir(dir+path, groupPerm); err != nil {
			if isGone(err) { // the parent is not there
				err = fmt.Errorf("%w: %w", ErrVanished, err)
			}
			break
		}
		made = append(made, dir+path)
	}
	if err == nil {
		err = d.inheritCPUSet(path)
	}
	if err == nil {
		return nil
	}
	for _, dir := range slices.Backward(made) {
		err = errors.Join(err, maker.Rmdir(dir))
	}
	return fmt.Errorf("make cgroup %s: %w", path, err)
}

// Rmdir removes a group from every hierarchy it is in. It must have neither processes
// nor children (EBUSY). Hierarchies that do not hold it are passed over; if none does,
// the error is ErrVanished.
func (d *V1) Rmdir(path string) error {
	maker, err := d.cpu.dirMaker(path)
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	removed := 0
	var failed error
	for _, dir := range d.hierarchies() {
		err := maker.Rmdir(dir + path)
		switch {
		case err == nil:
			removed++
		case !errors.Is(err, fs.ErrNotExist):
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil && removed == 0 {
		failed = ErrVanished
	}
	if failed != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, failed)
	}
	return nil
}

// MovePID moves the process with thread-group id pid into the group, in every hierarchy
// that Mkdir makes groups in. On an error it may have moved in some of them. For the lab
// and for tests, on processes and groups of their own.
func (d *V1) MovePID(path string, pid int) error {
	if err := checkPath(path); err != nil {
		return fmt.Errorf("move process %d: %w", pid, err)
	}
	if pid <= 0 {
		// The kernel reads 0 as "the writer": never what is meant here.
		return fmt.Errorf("move process %d to cgroup %s: %w: not a process id", pid, path, fs.ErrInvalid)
	}
	for _, dir := range d.hierarchies() {
		if path != "/" {
			dir += path
		}
		if err := d.fs.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid))); err != nil {
			return d.wrap(fmt.Sprintf("move process %d to", pid), path, err)
		}
	}
	return nil
}

// hierarchies returns the mount points of all known controllers, sorted, each once.
func (d *V1) hierarchies() []string {
	return slices.Compact(slices.Sorted(maps.Values(d.mounts)))
}

func (d *V1) inheritCPUSet(path string) error {
	if _, ok := d.mounts[CPUSet]; !ok {
		return nil
	}
	parent := "/"
	if up := ancestors(path); len(up) > 0 {
		parent = up[0]
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		list, err := d.readLine(parent, name)
		if err != nil {
			return err
		}
		if err := d.write(CPUSet, path, name, list+"\n"); err != nil {
			return err
		}
	}
	return nil
}
