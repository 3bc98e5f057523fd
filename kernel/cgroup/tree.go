package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// tree is the directories of the hierarchy that a driver tells groups apart by: the cpu
// controller's on v1, the one there is on v2.
type tree struct {
	fs  hostfs.FS
	top string // mount point
}

// file returns the absolute path of a group's file, or of its directory for name "".
func (t tree) file(path, name string) (string, error) {
	if err := checkPath(path); err != nil {
		return "", err
	}
	return fileBelow(t.top, path, name), nil
}

func fileBelow(dir, path, name string) string {
	if path != "/" {
		dir += path
	}
	if name != "" {
		dir += "/" + name
	}
	return dir
}

func (t tree) inode(path string) (uint64, error) {
	dir, err := t.file(path, "")
	if err != nil {
		return 0, err
	}
	return t.fs.Inode(dir)
}

// descendants lists the groups below path, sorted. Its errors are still to be wrapped,
// with the path that they come with.
func (t tree) descendants(path string) (found []string, at string, err error) {
	if err := checkPath(path); err != nil {
		return nil, path, err
	}
	todo := []string{path}
	for i := 0; i < len(todo); i++ {
		at := todo[i]
		dir := fileBelow(t.top, at, "")
		if t.leaf(dir) {
			continue
		}
		entries, err := t.fs.ReadDir(dir)
		if err != nil {
			if i > 0 && isGone(err) {
				continue // it was there a moment ago
			}
			return nil, at, err
		}
		for _, e := range entries {
			if !e.IsDir {
				continue
			}
			if len(todo) > maxGroups {
				return nil, path, fmt.Errorf("%w: more than %d", ErrTooManyGroups, maxGroups)
			}
			todo = append(todo, join(at, e.Name))
		}
	}
	// A group that vanished after its parent was listed stays in: whoever uses
	// the list meets ErrVanished anyway.
	found = todo[1:]
	slices.Sort(found)
	return found, path, nil
}

// leaf reports whether a directory certainly has no subdirectory. Most groups have none,
// and to learn it from their links is a tenth of the cost of listing some forty files.
func (t tree) leaf(dir string) bool {
	lc, ok := t.fs.(hostfs.LinkCounter)
	if !ok {
		return false
	}
	n, err := lc.Links(dir)
	return err == nil && n == 2
}

// wrap gives a failed operation its sentinel. ENODEV is a descriptor whose group was
// removed; ENOENT from opening is either the group or the file. ENOENT from write(2) is
// what the kernel thinks of the value, and stays what it is.
func (t tree) wrap(op, path string, err error) error {
	kind := error(nil)
	switch {
	case errors.Is(err, unix.ENODEV):
		kind = ErrVanished
	case isAbsent(err):
		kind = t.whyAbsent(path, err)
	}
	if kind == nil {
		return fmt.Errorf("%s cgroup %s: %w", op, path, err)
	}
	return fmt.Errorf("%s cgroup %s: %w: %w", op, path, kind, err)
}

// whyAbsent tells a group that is gone (ErrVanished) from a file that it never had
// (ErrUnsupported). To look whether its directory is there is not enough: it may
// have been removed and made again since. So the file counts as never there only if it
// is still missing between two looks at one and the same directory.
func (t tree) whyAbsent(path string, err error) error {
	before, statErr := t.inode(path)
	if statErr != nil {
		return ErrVanished
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		if _, statErr := t.fs.Inode(pe.Path); statErr == nil {
			return ErrVanished
		}
	}
	if after, statErr := t.inode(path); statErr != nil || after != before {
		return ErrVanished
	}
	return ErrUnsupported
}

// isAbsent says whether err means that there was nothing to open at a path.
func isAbsent(err error) bool {
	var pe *fs.PathError
	return errors.Is(err, fs.ErrNotExist) && (!errors.As(err, &pe) || pe.Op != "write")
}

// isGone says whether err means that a file or directory is not there any more.
func isGone(err error) bool { return errors.Is(err, unix.ENODEV) || isAbsent(err) }

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

// CheckPath refuses what is no path of a group ("/a/b"), and the root, which is the
// machine's and no task's, with ErrRootGroup.
func CheckPath(path string) error {
	if path == "/" {
		return ErrRootGroup
	}
	return checkPath(path)
}

// groupPerm are the permissions of groups that Mkdir makes.
const groupPerm = 0o755

// dirMaker checks that path may be made or removed, and that the file access can do so.
func (t tree) dirMaker(path string) (hostfs.DirMaker, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	maker, ok := t.fs.(hostfs.DirMaker)
	if !ok {
		return nil, fmt.Errorf("%w: this file access makes no directories", ErrUnsupported)
	}
	return maker, nil
}
