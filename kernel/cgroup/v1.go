package cgroup

import (
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// V1 is the driver of hosts where the cpu controller is on cgroup v1. Besides Driver it
// has the v1 files that no v2 host shares. It keeps nothing open and nothing cached.
type V1 struct {
	fs     hostfs.FS
	layout Layout
	mounts map[Controller]string
	cpu    tree // of the cpu controller: it says which groups there are
}

// Layout implements Driver.
func (d *V1) Layout() Layout { return d.layout }

// List implements Driver.
func (d *V1) List() ([]string, error) { return d.Descendants("/") }

// Inode implements Driver.
func (d *V1) Inode(path string) (uint64, error) {
	inode, err := d.cpu.inode(path)
	if err != nil {
		return 0, d.wrap("identify", path, err)
	}
	return inode, nil
}

// Descendants implements Driver.
func (d *V1) Descendants(path string) ([]string, error) {
	found, partial, at, err := d.cpu.descendants(path)
	if err != nil {
		return nil, d.wrap("list", at, err)
	}
	return found, partial.orNil()
}

// Procs returns the thread-group ids of the group itself as the kernel lists them,
// without its descendants'.
func (d *V1) Procs(path string) ([]int32, error) {
	data, err := d.read(CPU, path, "cgroup.procs")
	return parsed(data, err, path, "cgroup.procs", parseOwnProcs)
}

// file returns the absolute path of a group's file, or of its directory for name "".
func (d *V1) file(c Controller, path, name string) (string, error) {
	if err := checkPath(path); err != nil {
		return "", err
	}
	dir, ok := d.mounts[c]
	if !ok {
		return "", fmt.Errorf("%w: no v1 hierarchy with controller %s", ErrUnsupported, c)
	}
	return fileBelow(dir, path, name), nil
}

func (d *V1) read(c Controller, path, name string) ([]byte, error) {
	file, err := d.file(c, path, name)
	if err != nil {
		return nil, fmt.Errorf("read %s of cgroup %s: %w", name, path, err)
	}
	data, err := d.fs.ReadFile(file, nil)
	if err != nil {
		return nil, d.wrap("read "+name+" of", path, err)
	}
	return data, nil
}

// parsed makes something of a group's file, once it has been read.
func parsed[T any](data []byte, err error, path, name string, parse func([]byte) (T, error)) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	v, err := parse(data)
	if err != nil {
		return none, fmt.Errorf("read %s of cgroup %s: %w", name, path, err)
	}
	return v, nil
}

func (d *V1) readInt(c Controller, path, name string) (int64, error) {
	data, err := d.read(c, path, name)
	return parsed(data, err, path, name, parseInt)
}

func (d *V1) write(c Controller, path, name, value string) error {
	err := CheckPath(path)
	if err != nil {
		return fmt.Errorf("write %s of cgroup %s: %w", name, path, err)
	}
	file, err := d.file(c, path, name)
	if err != nil {
		return fmt.Errorf("write %s of cgroup %s: %w", name, path, err)
	}
	if err := d.fs.WriteFile(file, []byte(value)); err != nil {
		return d.wrap("write "+name+" of", path, err)
	}
	return nil
}

func (d *V1) writeInt(c Controller, path, name string, value int64) error {
	return d.write(c, path, name, strconv.FormatInt(value, 10))
}

// wrap gives a failed operation its sentinel (tree.wrap).
func (d *V1) wrap(op, path string, err error) error { return d.cpu.wrap(op, path, err) }
