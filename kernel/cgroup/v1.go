package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// V1 is the driver of hosts where the cpu controller is on cgroup v1. Besides Driver it
// has the v1 files that no v2 host shares. It keeps nothing open and nothing cached.
type V1 struct {
	fs     hostfs.FS
	layout Layout
	mounts map[Controller]string
}

// Layout implements Driver.
func (d *V1) Layout() Layout { return d.layout }

// List implements Driver.
func (d *V1) List() ([]string, error) { return d.Descendants("/") }

// Inode implements Driver.
func (d *V1) Inode(path string) (uint64, error) {
	inode, err := d.cpuInode(path)
	if err != nil {
		return 0, d.wrap("identify", path, err)
	}
	return inode, nil
}

// Descendants implements Driver.
func (d *V1) Descendants(path string) ([]string, error) {
	if err := checkPath(path); err != nil {
		return nil, fmt.Errorf("list cgroups below %s: %w", path, err)
	}
	todo := []string{path}
	for i := 0; i < len(todo); i++ {
		at := todo[i]
		dir, err := d.file(CPU, at, "")
		if err != nil {
			return nil, fmt.Errorf("list cgroups below %s: %w", path, err)
		}
		if d.leaf(dir) {
			continue
		}
		entries, err := d.fs.ReadDir(dir)
		if err != nil {
			if i > 0 && isGone(err) {
				continue // it was there a moment ago
			}
			return nil, d.wrap("list", at, err)
		}
		for _, e := range entries {
			if !e.IsDir {
				continue
			}
			if len(todo) > maxGroups {
				return nil, fmt.Errorf("list cgroups below %s: %w: more than %d", path, ErrTooManyGroups, maxGroups)
			}
			todo = append(todo, join(at, e.Name))
		}
	}
	// A group that vanished after its parent was listed stays in: whoever uses
	// the list meets ErrVanished anyway.
	found := todo[1:]
	slices.Sort(found)
	return found, nil
}

// leaf reports whether a directory certainly has no subdirectory. Most groups have none,
// and to learn it from their links is a tenth of the cost of listing some forty files.
func (d *V1) leaf(dir string) bool {
	lc, ok := d.fs.(hostfs.LinkCounter)
	if !ok {
		return false
	}
	n, err := lc.Links(dir)
	return err == nil && n == 2
}

// Procs returns the thread-group ids of the group itself as the kernel lists them,
// without its descendants'.
func (d *V1) Procs(path string) ([]int32, error) {
	data, err := d.read(CPU, path, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	list, err := parseProcs(nil, data)
	if err != nil {
		return nil, fmt.Errorf("read cgroup.procs of %s: %w", path, err)
	}
	return list, nil
}

// join appends a name to a group's path.
func join(path, name string) string {
	if path == "/" {
		return "/" + name
	}
	return path + "/" + name
}

// ancestors returns the groups above path, nearest first, without the root.
func ancestors(path string) []string {
	var list []string
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path, '/') {
		path = path[:i]
		list = append(list, path)
	}
	return list
}

// checkPath accepts "/" and "/a/b"; nothing relative, unclean or trailing.
func checkPath(path string) error {
	if path == "/" {
		return nil
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%w: cgroup path %q", hostfs.ErrBadPath, path)
	}
	for elem := range strings.SplitSeq(path[1:], "/") {
		if elem == "" || elem == "." || elem == ".." {
			return fmt.Errorf("%w: cgroup path %q", hostfs.ErrBadPath, path)
		}
	}
	return nil
}

func writablePath(path string) error {
	if path == "/" {
		return ErrRootGroup
	}
	return checkPath(path)
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
	if path != "/" {
		dir += path
	}
	if name != "" {
		dir += "/" + name
	}
	return dir, nil
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

func (d *V1) readInt(c Controller, path, name string) (int64, error) {
	data, err := d.read(c, path, name)
	if err != nil {
		return 0, err
	}
	v, err := parseInt(data)
	if err != nil {
		return 0, fmt.Errorf("read %s of cgroup %s: %w", name, path, err)
	}
	return v, nil
}

func (d *V1) write(c Controller, path, name, value string) error {
	err := writablePath(path)
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

// wrap gives a failed operation its sentinel. ENODEV is a descriptor whose group was
// removed; ENOENT is either the group or the file.
func (d *V1) wrap(op, path string, err error) error {
	kind := error(nil)
	switch {
	case errors.Is(err, unix.ENODEV):
		kind = ErrVanished
	case errors.Is(err, fs.ErrNotExist):
		kind = d.whyAbsent(path, err)
	}
	if kind == nil {
		return fmt.Errorf("%s cgroup %s: %w", op, path, err)
	}
	return fmt.Errorf("%s cgroup %s: %w: %w", op, path, kind, err)
}

// whyAbsent tells a group that is gone (ErrVanished) from a file that it never had
// (ErrUnsupported). To look whether its cpu directory is there is not enough: it may
// have been removed and made again since. So the file counts as never there only if it
// is still missing between two looks at one and the same directory.
func (d *V1) whyAbsent(path string, err error) error {
	before, statErr := d.cpuInode(path)
	if statErr != nil {
		return ErrVanished
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		if _, statErr := d.fs.Inode(pe.Path); statErr == nil {
			return ErrVanished
		}
	}
	if after, statErr := d.cpuInode(path); statErr != nil || after != before {
		return ErrVanished
	}
	return ErrUnsupported
}

func (d *V1) cpuInode(path string) (uint64, error) {
	dir, err := d.file(CPU, path, "")
	if err != nil {
		return 0, err
	}
	return d.fs.Inode(dir)
}

// isGone says whether err means that a file or directory is not there any more.
func isGone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}
