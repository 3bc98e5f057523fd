package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// V2 is the driver of hosts where the cpu controller is on cgroup v2. Besides Driver it
// has the v2 files that v1 does not know. It keeps nothing open and nothing cached.
//
// A group has a controller's files only where its parent hands that controller on
// (cgroup.subtree_control). A method that needs such a file fails with an
// *AbsentControllerError elsewhere; the files of the hierarchy itself (cgroup.*), cpu.stat
// with the CPU time and the pressure files are in every group.
type V2 struct {
	tree
	layout  Layout
	partial bool // the mount's root is a group itself
}

// openV2 returns the driver of pure v2 hosts.
func openV2(fs hostfs.FS, m *Mounts) (Driver, error) {
	d, err := OpenUnified(fs, m)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OpenUnified returns the v2 driver of the cgroup2 mount that Discover found, whatever
// the layout: on a hybrid host it gives freezing, killing, events and the like of groups
// there, and names the controllers that v1 holds as absent.
func OpenUnified(fs hostfs.FS, m *Mounts) (*V2, error) {
	if m.Unified == "" {
		return nil, fmt.Errorf("open cgroups: %w: no cgroup2 mount (layout %s)", ErrUnsupportedLayout, m.Layout)
	}
	return &V2{tree: newTree(fs, m.Unified), layout: m.Layout, partial: m.UnifiedPartial}, nil
}

// Layout implements Driver.
func (d *V2) Layout() Layout { return d.layout }

// Dir returns the directory of a group, for the interfaces that take one: perf events
// per cgroup, pressure files. It does not look whether the group is there.
func (d *V2) Dir(path string) (string, error) { return d.file(path, "") }

// List implements Driver. On v2 these are all groups, with and without the cpu controller.
func (d *V2) List() ([]string, error) { return d.Descendants("/") }

// Inode implements Driver.
func (d *V2) Inode(path string) (uint64, error) {
	inode, err := d.inode(path)
	if err != nil {
		return 0, d.wrap("identify", path, err)
	}
	return inode, nil
}

// Descendants implements Driver.
func (d *V2) Descendants(path string) ([]string, error) {
	found, partial, at, err := d.descendants(path)
	if err != nil {
		return nil, d.wrap("list", at, err)
	}
	return found, partial.orNil()
}

// Procs implements Driver. A threaded group lists no processes: ErrThreaded.
func (d *V2) Procs(path string) ([]int32, error) {
	data, err := d.read(path, "cgroup.procs")
	return parsed(data, err, path, "cgroup.procs", parseOwnProcs)
}

func (d *V2) read(path, name string) ([]byte, error) {
	file, err := d.file(path, name)
	if err != nil {
		return nil, fmt.Errorf("read %s of cgroup %s: %w", name, path, err)
	}
	data, err := d.fs.ReadFile(file, nil)
	if err != nil {
		return nil, d.wrap("read "+name+" of", path, err)
	}
	return data, nil
}

func (d *V2) readUint(path, name string) (uint64, error) {
	data, err := d.read(path, name)
	return parsed(data, err, path, name, parseUint)
}

func (d *V2) readLine(path, name string) (string, error) {
	data, err := d.read(path, name)
	return strings.TrimSuffix(string(data), "\n"), err
}

func (d *V2) write(path, name, value string) error {
	err := CheckPath(path)
	if err != nil {
		return fmt.Errorf("write %s of cgroup %s: %w", name, path, err)
	}
	file, err := d.file(path, name)
	if err != nil {
		return fmt.Errorf("write %s of cgroup %s: %w", name, path, err)
	}
	if err := d.fs.WriteFile(file, []byte(value)); err != nil {
		return d.wrap("write "+name+" of", path, err)
	}
	return nil
}

// wrap gives a failed operation its sentinel: those of tree.wrap, ErrThreaded, and an
// *AbsentControllerError where a file is missing because its controller is.
func (d *V2) wrap(op, path string, err error) error {
	if isThreaded(err) {
		return fmt.Errorf("%s cgroup %s: %w: %w", op, path, d.whyThreaded(path), err)
	}
	wrapped := d.tree.wrap(op, path, err)
	if !errors.Is(wrapped, ErrUnsupported) {
		return wrapped
	}
	var pe *fs.PathError
	if !errors.As(err, &pe) {
		return wrapped
	}
	name := pe.Path[strings.LastIndexByte(pe.Path, '/')+1:]
	if absent := d.absentController(path, name); absent != nil {
		return fmt.Errorf("%s cgroup %s: %w: %w", op, path, absent, err)
	}
	return wrapped
}

// absentController returns why the group has no file of that name, if it is for want of
// the controller; nil if the kernel lacks the file, or it could not be told.
func (d *V2) absentController(path, name string) error {
	prefix, _, _ := strings.Cut(name, ".")
	c := Controller(prefix)
	if !slices.Contains([]Controller{CPU, CPUSet, Memory, PIDs, IO}, c) {
		return nil
	}
	have, err := d.ReadControllers(path)
	if err != nil || slices.Contains(have, c) {
		return nil
	}
	e := &AbsentControllerError{Path: path, Controller: c}
	for _, up := range append(ancestors(path), "/") {
		have, err := d.ReadControllers(up)
		if err == nil && slices.Contains(have, c) {
			e.StopsAt = up
			break
		}
	}
	return e
}
