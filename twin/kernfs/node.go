package kernfs

import (
	"io/fs"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// node is a directory or a file of the simulated kernel. It is an inode: a name that is
// removed and made again is another node, and who has the old one open gets ENODEV.
type node struct {
	name     string
	ino      uint64
	parent   *node
	children map[string]*node // of a directory; nil: a file
	subdirs  int
	// other finds names that are not listed (/proc/TID); nil: there are none.
	other func(name string) *node
	link  bool // a symbolic link to a directory: it is listed, and not followed
	gone  bool

	// read appends what the file holds. write takes one write(2). nil is EINVAL, as
	// cgroupfs and sysfs have it for root.
	read  func(buf []byte) ([]byte, error)
	write func(data []byte) error
	// pread reads a file that is too long to be made whole (pagemap).
	pread func(buf []byte, off int64) (int, error)
	// cached: a descriptor serves what it read first until nobody has read it for a
	// second (cgroup.procs of v1).
	cached bool
	// changed counts what who waits for the file is told; only files with it can be
	// waited for.
	changed *signal

	// mkdir makes a directory in this one, rmdir removes this one. nil is EPERM.
	mkdir func(name string) error
	rmdir func() error
}

// addDir makes a directory.
func (k *Kernel) addDir(in *node, name string) *node {
	n := k.add(in, name)
	n.children = map[string]*node{}
	in.subdirs++
	return n
}

// addFile makes a file.
func (k *Kernel) addFile(in *node, name string, read func(buf []byte) ([]byte, error), write func(data []byte) error) *node {
	n := k.add(in, name)
	n.read, n.write = read, write
	return n
}

// addText makes a file that never changes.
func (k *Kernel) addText(in *node, name, text string) *node {
	return k.addFile(in, name, func(buf []byte) ([]byte, error) { return append(buf, text...), nil }, nil)
}

// add gives out an inode. The name is not taken.
func (k *Kernel) add(in *node, name string) *node {
	k.inodes++
	n := &node{name: name, ino: k.inodes, parent: in}
	in.children[name] = n
	return n
}

// remove takes a node and what is below it out of the tree.
func (k *Kernel) remove(n *node) {
	for _, c := range n.children {
		k.remove(c)
	}
	n.gone = true
	if n.changed != nil {
		n.changed.tell()
	}
	if n.parent == nil || n.parent.children[n.name] != n {
		return
	}
	delete(n.parent.children, n.name)
	if n.children != nil {
		n.parent.subdirs--
	}
}

// dir returns a directory below the root, and makes what is missing of its path.
func (k *Kernel) dir(path string) *node {
	at := k.root
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		next := at.children[name]
		if next == nil {
			next = k.addDir(at, name)
		}
		at = next
	}
	return at
}

// find follows a path.
func (k *Kernel) find(op, path string) (*node, error) {
	fail := func(err error) (*node, error) { return nil, &fs.PathError{Op: op, Path: path, Err: err} }
	if path == "" || path[0] != '/' || strings.IndexByte(path, 0) >= 0 {
		return fail(hostfs.ErrBadPath)
	}
	at, missing := k.root, error(nil)
	for rest := path[1:]; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch {
		case name == "..":
			return fail(hostfs.ErrBadPath)
		case name == "" || name == "." || missing != nil:
			continue
		case at.children == nil:
			missing = unix.ENOTDIR
			continue
		}
		next := at.children[name]
		if next == nil && at.other != nil {
			next = at.other(name)
		}
		if at = next; at == nil {
			missing = unix.ENOENT
		}
	}
	if missing != nil {
		return fail(missing)
	}
	return at, nil
}

// links is st_nlink.
func (n *node) links() uint64 {
	if n.children == nil {
		return 1
	}
	return 2 + uint64(n.subdirs)
}

// entries lists a directory.
func (n *node) entries() []hostfs.DirEntry {
	list := make([]hostfs.DirEntry, 0, len(n.children))
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		c := n.children[name]
		list = append(list, hostfs.DirEntry{Name: name, IsDir: c.children != nil && !c.link})
	}
	return list
}
