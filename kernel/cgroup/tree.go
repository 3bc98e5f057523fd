package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// tree is the directories of the hierarchy that a driver tells groups apart by: the cpu
// controller's on v1, the one there is on v2.
type tree struct {
	fs    hostfs.FS
	top   string // mount point
	known *known // nil: every directory is listed each time
}

// known is what the last walks found in directories that have subdirectories. To list one is
// ten times as dear as to look at its links, and hardly one changes from walk to walk. Where
// as many subdirectories are there as were listed (its links say so), and each of those
// listed is still there (the walk goes to each), they are the same ones.
type known struct {
	mu   sync.Mutex
	dirs map[string]listing // by a group's path
	walk int
}

type listing struct {
	links   uint64
	subdirs []string
	walk    int // that last went by
}

// errMoved: what was known of a directory is not so any more.
var errMoved = errors.New("a directory's entries changed")

func newTree(fsys hostfs.FS, top string) tree {
	return tree{fs: fsys, top: top, known: &known{dirs: map[string]listing{}}}
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
// with the path that they come with; partial says what the list lacks, nil when nothing.
func (t tree) descendants(path string) (found []string, partial *PartialError, at string, err error) {
	if err := checkPath(path); err != nil {
		return nil, nil, path, err
	}
	if t.known != nil {
		t.known.mu.Lock()
		defer t.known.mu.Unlock()
		found, partial, at, err = t.below(path)
		if !errors.Is(err, errMoved) {
			return found, partial, at, err
		}
		clear(t.known.dirs)
	}
	return t.below(path)
}

// below walks once, those near the root first, so that what a bound cuts off is deep down.
// errMoved: not all that was known was so.
func (t tree) below(path string) (found []string, partial *PartialError, at string, err error) {
	if t.known != nil {
		t.known.walk++
	}
	todo, recalled := []string{path}, []bool{false}
	for i := 0; i < len(todo); i++ {
		names, known, err := t.subdirs(todo[i])
		switch {
		case err == nil:
		case i == 0:
			return nil, nil, todo[i], err
		case isGone(err):
			if recalled[i] {
				return nil, nil, todo[i], errMoved
			}
			continue // it was there a moment ago
		default:
			partial = partial.add(todo[i], err)
		}
		if why := tooMuch(todo[i], len(names), len(todo)); why != nil {
			partial, names = partial.add(todo[i], why), nil
		}
		for _, name := range names {
			todo, recalled = append(todo, join(todo[i], name)), append(recalled, known)
		}
	}
	if t.known != nil && path == "/" {
		maps.DeleteFunc(t.known.dirs, func(_ string, l listing) bool { return l.walk != t.known.walk })
	}
	// A group that vanished after its parent was listed stays in: whoever uses
	// the list meets ErrVanished anyway.
	found = todo[1:]
	slices.Sort(found)
	return found, partial, path, nil
}

// tooMuch returns why a walk leaves out what a group holds, nil when it does not.
func tooMuch(path string, holds, listed int) error {
	switch {
	case holds == 0:
		return nil
	case strings.Count(path, "/") >= maxDepth:
		return fmt.Errorf("%w: nested more than %d deep", ErrTooManyGroups, maxDepth)
	case holds > maxWidth:
		return fmt.Errorf("%w: more than %d in one", ErrTooManyGroups, maxWidth)
	case listed+holds > maxGroups+1:
		return fmt.Errorf("%w: more than %d", ErrTooManyGroups, maxGroups)
	}
	return nil
}

// subdirs returns the names of a group's subdirectories, and whether they were known. Most
// groups have none, which their links say. Where listing fails for a moment, names are those
// of the last time.
func (t tree) subdirs(path string) (names []string, known bool, err error) {
	dir, links := fileBelow(t.top, path, ""), uint64(0)
	if lc, ok := t.fs.(hostfs.LinkCounter); ok {
		if links, err = lc.Links(dir); err == nil && links == 2 {
			return nil, false, nil
		}
	}
	if t.known != nil && err == nil {
		if l, ok := t.known.dirs[path]; ok && l.links == links {
			l.walk = t.known.walk
			t.known.dirs[path] = l
			return l.subdirs, true, nil
		}
	}
	for range 2 { // once more where it lacks what the links count: the directory changed while it was listed
		entries, err := t.fs.ReadDir(dir)
		if err != nil {
			return t.lastKnown(path), false, err
		}
		names = nil
		for _, e := range entries {
			if e.IsDir {
				names = append(names, e.Name)
			}
		}
		if uint64(len(names))+2 >= links {
			break
		}
	}
	if t.known != nil && uint64(len(names))+2 == links {
		t.known.dirs[path] = listing{links, names, t.known.walk}
	}
	return names, false, nil
}

// lastKnown returns what a group held when it was last listed.
func (t tree) lastKnown(path string) []string {
	if t.known == nil {
		return nil
	}
	l, ok := t.known.dirs[path]
	if ok {
		l.walk = t.known.walk
		t.known.dirs[path] = l
	}
	return l.subdirs
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
// is still missing between two looks at one and the same directory. Where a look itself
// fails, as for want of memory, nothing is known (nil).
func (t tree) whyAbsent(path string, err error) error {
	before, statErr := t.inode(path)
	if statErr != nil {
		return vanishedIf(isGone(statErr))
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		if _, statErr := t.fs.Inode(pe.Path); !isGone(statErr) {
			return vanishedIf(statErr == nil)
		}
	}
	if after, statErr := t.inode(path); statErr != nil || after != before {
		return vanishedIf(statErr == nil || isGone(statErr))
	}
	return ErrUnsupported
}

func vanishedIf(is bool) error {
	if is {
		return ErrVanished
	}
	return nil
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
