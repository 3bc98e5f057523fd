package kernfs

import (
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

var (
	_ hostfs.FolderOpener = (*Kernel)(nil)
)

// folder is an open directory.
type folder struct {
	k      *Kernel
	n      *node
	path   string
	closed bool
}

// OpenFolder implements hostfs.FolderOpener.
func (k *Kernel) OpenFolder(path string) (hostfs.Folder, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.find("open", path)
	if err != nil {
		return nil, err
	}
	if n.children == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	}
	k.opened(n, 1)
	return &folder{k: k, n: n, path: path}, nil
}

// OpenAt implements hostfs.Folder. In the folder of a process that ended it is ESRCH.
func (d *folder) OpenAt(name string) (hostfs.FileAt, error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	path := d.path + "/" + name
	n := d.n.children[name]
	var err error
	switch {
	case d.closed:
		err = fs.ErrClosed
	case d.n.gone && strings.HasPrefix(d.path, "/proc/"):
		err = unix.ESRCH
	case n == nil:
		err = unix.ENOENT
	default:
		return &fileAt{k: d.k, n: n, path: path}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: err}
}

// Close implements hostfs.Folder.
func (d *folder) Close() error {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if d.closed {
		return &fs.PathError{Op: "close", Path: d.path, Err: fs.ErrClosed}
	}
	d.closed = true
	d.k.opened(d.n, -1)
	d.k.locks.release(d)
	return nil
}

// Flock implements hostfs.Folder. It never waits: a lock that would have to be waited for
// is EWOULDBLOCK with or without LOCK_NB.
func (d *folder) Flock(how int) error {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	switch {
	case d.closed:
		return unix.EBADF
	case how&unix.LOCK_UN != 0:
		d.k.locks.release(d)
		return nil
	case how&^unix.LOCK_NB != unix.LOCK_SH && how&^unix.LOCK_NB != unix.LOCK_EX:
		return unix.EINVAL
	}
	return d.k.locks.take(d, how&unix.LOCK_EX != 0)
}

// flock is a lock that an open directory holds.
type flock struct {
	holder    *folder
	exclusive bool
}

// flocks are all there are, in the order in which they were taken.
type flocks []flock

// take takes a lock, or changes the one that is held, which gives it back first.
func (l *flocks) take(d *folder, exclusive bool) error {
	l.release(d)
	for _, o := range *l {
		if o.holder.n == d.n && (exclusive || o.exclusive) {
			return unix.EWOULDBLOCK
		}
	}
	*l = append(*l, flock{d, exclusive})
	return nil
}

func (l *flocks) release(d *folder) {
	*l = slices.DeleteFunc(*l, func(o flock) bool { return o.holder == d })
}

// fileAt is an open file that is read in pieces. What it holds is made at the first read
// and when it is read from the start again, as seq_file does.
type fileAt struct {
	k      *Kernel
	n      *node
	path   string
	data   []byte
	closed bool
}

// Pread implements hostfs.FileAt.
func (f *fileAt) Pread(buf []byte, off int64) (int, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	switch {
	case f.closed:
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrClosed}
	case f.n.pread != nil:
		n, err := f.n.pread(buf, off)
		if err != nil {
			return 0, &fs.PathError{Op: "read", Path: f.path, Err: err}
		}
		return n, nil
	}
	if off == 0 || f.data == nil {
		err := error(unix.ESRCH) // of a process that ended
		if !f.n.gone {
			f.data, err = f.n.readInto(f.data, f.path)
		}
		if err != nil {
			return 0, err
		}
	}
	return copy(buf, f.data[min(off, int64(len(f.data))):]), nil
}

// Close implements hostfs.FileAt.
func (f *fileAt) Close() error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	f.closed = true
	return nil
}

// Rename implements hostfs.DirMaker: directories of resctrl and groups of cgroup v1 can be
// renamed, the latter where they are.
func (k *Kernel) Rename(from, to string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.find("rename", from)
	if err != nil {
		return err
	}
	dir, name := split(to)
	in, err := k.find("rename", dir)
	switch {
	case err != nil:
		return err
	case k.resctrl != nil && k.resctrl.has(n):
		err = k.resctrl.rename(n, in, name)
	default:
		err = k.renameGroup(n, in, name)
	}
	if err != nil {
		return &fs.PathError{Op: "rename", Path: from, Err: err}
	}
	return nil
}
