package kernfs

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

var (
	_ hostfs.FS          = (*Kernel)(nil)
	_ hostfs.DirMaker    = (*Kernel)(nil)
	_ hostfs.LinkCounter = (*Kernel)(nil)
)

// Open implements hostfs.FS.
func (k *Kernel) Open(path string) (hostfs.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.find("open", path)
	if err != nil {
		return nil, err
	}
	k.opened(n, 1)
	return &file{k: k, n: n, path: path}, nil
}

// ReadFile implements hostfs.FS.
func (k *Kernel) ReadFile(path string, buf []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.find("open", path)
	if err != nil {
		return buf[:0], err
	}
	return n.readInto(buf, path)
}

func (n *node) readInto(buf []byte, path string) ([]byte, error) {
	err := error(nil)
	switch {
	case n.gone:
		err = unix.ENODEV
	case n.children != nil:
		err = unix.EISDIR
	case n.read == nil:
		err = unix.EINVAL
	default:
		var out []byte
		if out, err = n.read(buf[:0]); err == nil {
			return out, nil
		}
	}
	return buf[:0], &fs.PathError{Op: "read", Path: path, Err: err}
}

// WriteFile implements hostfs.FS.
func (k *Kernel) WriteFile(path string, data []byte) error {
	if len(data) == 0 {
		return &fs.PathError{Op: "write", Path: path, Err: unix.EINVAL}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.find("open", path)
	if err != nil {
		return err
	}
	if n.children != nil {
		return &fs.PathError{Op: "open", Path: path, Err: unix.EISDIR}
	}
	err = unix.EINVAL
	if n.write != nil {
		err = n.write(data)
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// ReadDir implements hostfs.FS.
func (k *Kernel) ReadDir(path string) ([]hostfs.DirEntry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.find("open", path)
	if err != nil {
		return nil, err
	}
	if n.children == nil {
		return nil, &fs.PathError{Op: "readdirent", Path: path, Err: unix.ENOTDIR}
	}
	return n.entries(), nil
}

// Inode implements hostfs.FS.
func (k *Kernel) Inode(path string) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.find("stat", path)
	if err != nil {
		return 0, err
	}
	return n.ino, nil
}

// Links implements hostfs.LinkCounter.
func (k *Kernel) Links(path string) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := k.find("stat", path)
	if err != nil {
		return 0, err
	}
	return n.links(), nil
}

// OpenDir implements hostfs.FS. There are no descriptors of a simulated directory: what is
// called with one stands behind interfaces of its own (Counters).
func (k *Kernel) OpenDir(path string) (int, func() error, error) {
	return -1, nil, &fs.PathError{Op: "open", Path: path, Err: unix.EOPNOTSUPP}
}

// Mkdir implements hostfs.DirMaker.
func (k *Kernel) Mkdir(path string, _ uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.makeDir(path)
}

func (k *Kernel) makeDir(path string) error {
	dir, name := split(path)
	in, err := k.find("mkdir", dir)
	switch {
	case err != nil:
		return &fs.PathError{Op: "mkdir", Path: path, Err: err.(*fs.PathError).Err} //nolint:errorlint // find's own
	case in.children == nil:
		err = unix.ENOTDIR
	case name == "" || in.children[name] != nil:
		err = unix.EEXIST
	case in.mkdir == nil:
		err = unix.EPERM
	default:
		err = in.mkdir(name)
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// Rmdir implements hostfs.DirMaker.
func (k *Kernel) Rmdir(path string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.removeDir(path)
}

func (k *Kernel) removeDir(path string) error {
	n, err := k.find("rmdir", path)
	if err != nil {
		return err
	}
	switch {
	case n.children == nil:
		err = unix.ENOTDIR
	case n.rmdir == nil:
		err = unix.EPERM
	default:
		err = n.rmdir()
	}
	if err != nil {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

// split returns a path's directory and last name.
func split(path string) (dir, name string) {
	end := len(path)
	for end > 1 && path[end-1] == '/' {
		end--
	}
	path = path[:end]
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:max(i, 1)], path[i+1:]
		}
	}
	return path, ""
}

// file is an open file.
type file struct {
	k      *Kernel
	n      *node
	path   string
	closed bool
	seen   uint64 // changes when it was last read

	list     []byte // of a cached file
	listed   bool
	lastRead int64
}

// pidlistNsec is how long v1 keeps the list of ids that a descriptor serves after the last
// reading of it (CGROUP_PIDLIST_DESTROY_DELAY).
const pidlistNsec = 1e9

// ReadAll implements hostfs.File.
func (f *file) ReadAll(buf []byte) ([]byte, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return buf[:0], &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrClosed}
	}
	if f.n.changed != nil {
		f.seen = f.n.changed.count()
	}
	if !f.n.cached || f.n.gone {
		return f.n.readInto(buf, f.path)
	}
	now := f.k.m.NowNsec()
	if !f.listed || now-f.lastRead > pidlistNsec {
		list, err := f.n.readInto(f.list, f.path)
		if err != nil {
			return buf[:0], err
		}
		f.list, f.listed = list, true
	}
	f.lastRead = now
	return append(buf[:0], f.list...), nil
}

// ReadRecord implements hostfs.File.
func (f *file) ReadRecord(buf []byte) ([]byte, error) { return f.ReadAll(buf) }

// Wait implements hostfs.ChangeWaiter. The time is the caller's own: nothing but a call
// changes such a file, so that to let simulated time pass here would be of no use.
func (f *file) Wait(within time.Duration) (bool, error) {
	f.k.mu.Lock()
	closed, gone, s, seen := f.closed, f.n.gone, f.n.changed, f.seen
	f.k.mu.Unlock()
	switch {
	case closed:
		return false, &fs.PathError{Op: "poll", Path: f.path, Err: fs.ErrClosed}
	case s == nil:
		return false, &fs.PathError{Op: "poll", Path: f.path, Err: unix.EPERM}
	case gone:
		return true, nil
	}
	return s.wait(seen, within), nil
}

// Close implements hostfs.File.
func (f *file) Close() error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	f.closed = true
	f.k.opened(f.n, -1)
	return nil
}
