package hostfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// stackPath is the length of joined paths that open without an allocation.
	// Container runtimes nest cgroups to about 200 bytes; longer ones cost one.
	stackPath = 384
	// firstRead is the buffer that a reading without one starts with: nearly every
	// kernel file of interest is smaller.
	firstRead = 512
)

// Root implements FS, DirMaker, WriteOpener and LinkCounter on the files below a directory.
//
// The check against ".." is lexical. Symbolic links are followed as the kernel
// follows them (sysfs is full of them), so Root is no sandbox: it keeps drivers from
// leaving the tree by mistake, and does not confine a hostile tree.
type Root struct {
	dir   string // without a trailing slash; "" for the live host
	spare spare
}

// NewRoot returns the files below dir; "/" is the live host. The directory is not
// looked at before it is used.
func NewRoot(dir string) *Root { return &Root{dir: strings.TrimRight(dir, "/")} }

// Open opens a file for reading; see FS.
func (r *Root) Open(path string) (File, error) {
	fd, err := r.open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &rootFile{fd: fd, path: path}, nil
}

// ReadFile reads a whole file; see FS. It does not allocate when buf is large enough.
func (r *Root) ReadFile(path string, buf []byte) ([]byte, error) {
	fd, err := r.openShortly(path, unix.O_RDONLY)
	if err != nil {
		return buf[:0], err
	}
	buf, err = readAll(fd, buf, false)
	closeErr := unix.Close(fd)
	if err != nil {
		return buf, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	if closeErr != nil {
		return buf[:0], &fs.PathError{Op: "close", Path: path, Err: closeErr}
	}
	return buf, nil
}

// WriteFile writes data in one write(2); see FS.
func (r *Root) WriteFile(path string, data []byte) error {
	if len(data) == 0 {
		return &fs.PathError{Op: "write", Path: path, Err: unix.EINVAL}
	}
	fd, err := r.openShortly(path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	n, err := unix.Write(fd, data)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Write(fd, data)
	}
	closeErr := unix.Close(fd)
	switch {
	case err != nil:
		return &fs.PathError{Op: "write", Path: path, Err: err}
	case n != len(data):
		return &fs.PathError{Op: "write", Path: path, Err: io.ErrShortWrite}
	case closeErr != nil:
		return &fs.PathError{Op: "close", Path: path, Err: closeErr}
	}
	return nil
}

// ReadDir lists a directory sorted by name; see FS. No driver lists directories on a
// hot path, so the standard library's reader serves.
func (r *Root) ReadDir(path string) ([]DirEntry, error) {
	if !validPath(path) {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: ErrBadPath}
	}
	list, err := os.ReadDir(r.dir + path)
	if isFull(err) && r.Lend() {
		list, err = os.ReadDir(r.dir + path)
	}
	r.refill()
	if err != nil {
		return nil, rooted(err, path)
	}
	entries := make([]DirEntry, len(list))
	for i, e := range list {
		entries[i] = DirEntry{Name: e.Name(), IsDir: e.IsDir()}
	}
	return entries, nil
}

// Inode returns an inode number; see FS.
func (r *Root) Inode(path string) (uint64, error) {
	st, err := r.stat(path)
	return st.Ino, err
}

// Links returns a number of links; see LinkCounter.
func (r *Root) Links(path string) (uint64, error) {
	st, err := r.stat(path)
	return uint64(st.Nlink), err //nolint:unconvert // 32 bits on some architectures
}

// MountID returns a mount's id; see MountIdentifier.
func (r *Root) MountID(path string) (uint64, error) {
	if !validPath(path) {
		return 0, &fs.PathError{Op: "statx", Path: path, Err: ErrBadPath}
	}
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, r.dir+path, 0, unix.STATX_MNT_ID_UNIQUE, &st)
	for errors.Is(err, unix.EINTR) {
		err = unix.Statx(unix.AT_FDCWD, r.dir+path, 0, unix.STATX_MNT_ID_UNIQUE, &st)
	}
	if err != nil {
		return 0, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return 0, nil
	}
	return st.Mnt_id, nil
}

func (r *Root) stat(path string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if !validPath(path) {
		return st, &fs.PathError{Op: "stat", Path: path, Err: ErrBadPath}
	}
	err := unix.Stat(r.dir+path, &st)
	for errors.Is(err, unix.EINTR) {
		err = unix.Stat(r.dir+path, &st)
	}
	if err != nil {
		return unix.Stat_t{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st, nil
}

// OpenDir opens a directory; see FS.
func (r *Root) OpenDir(path string) (int, func() error, error) {
	return r.descriptor(path, unix.O_RDONLY|unix.O_DIRECTORY)
}

// OpenReadWrite opens an existing file for reading and writing; see WriteOpener.
func (r *Root) OpenReadWrite(path string) (int, func() error, error) {
	return r.descriptor(path, unix.O_RDWR|unix.O_NONBLOCK)
}

// Mkdir makes one directory; see DirMaker.
func (r *Root) Mkdir(path string, perm uint32) error {
	if !validPath(path) {
		return &fs.PathError{Op: "mkdir", Path: path, Err: ErrBadPath}
	}
	if err := unix.Mkdir(r.dir+path, perm); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// Rename renames a directory; see DirMaker.
func (r *Root) Rename(from, to string) error {
	if !validPath(from) || !validPath(to) {
		return &fs.PathError{Op: "rename", Path: from, Err: ErrBadPath}
	}
	if err := unix.Rename(r.dir+from, r.dir+to); err != nil {
		return &fs.PathError{Op: "rename", Path: from, Err: err}
	}
	return nil
}

// Rmdir removes one directory; see DirMaker.
func (r *Root) Rmdir(path string) error {
	if !validPath(path) {
		return &fs.PathError{Op: "rmdir", Path: path, Err: ErrBadPath}
	}
	if err := unix.Rmdir(r.dir + path); err != nil {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

func (r *Root) descriptor(path string, flags int) (int, func() error, error) {
	fd, err := r.open(path, flags)
	if err != nil {
		return -1, nil, err
	}
	f := &rootFile{fd: fd, path: path}
	return fd, f.Close, nil
}

// open joins path to the root and opens it. unix.Open would copy the path to the heap
// for its terminating NUL; here it is built on the stack, because files that must be
// opened anew for each reading (cgroup.procs) are on the hot path.
func (r *Root) open(path string, flags int) (int, error) {
	if !validPath(path) {
		return -1, &fs.PathError{Op: "open", Path: path, Err: ErrBadPath}
	}
	var stack [stackPath]byte
	name := append(stack[:0], r.dir...)
	name = append(name, path...)
	name = append(name, 0)
	flags |= unix.O_CLOEXEC
	dirfd := unix.AT_FDCWD
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd),
			uintptr(unsafe.Pointer(&name[0])), uintptr(flags), 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return -1, &fs.PathError{Op: "open", Path: path, Err: errno}
		}
		return int(fd), nil
	}
}

type rootFile struct {
	fd   int
	path string
}

func (f *rootFile) ReadAll(buf []byte) ([]byte, error) {
	if f.fd < 0 {
		return buf[:0], &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrClosed}
	}
	buf, err := readAll(f.fd, buf, false)
	if err != nil {
		return buf, &fs.PathError{Op: "read", Path: f.path, Err: err}
	}
	return buf, nil
}

// ReadRecord reads a file of one record; see File.
func (f *rootFile) ReadRecord(buf []byte) ([]byte, error) {
	if f.fd < 0 {
		return buf[:0], &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrClosed}
	}
	buf, err := readAll(f.fd, buf, true)
	if err != nil {
		return buf, &fs.PathError{Op: "read", Path: f.path, Err: err}
	}
	return buf, nil
}

// Wait polls for what kernfs signals with POLLPRI; see ChangeWaiter.
func (f *rootFile) Wait(within time.Duration) (bool, error) {
	if f.fd < 0 {
		return false, &fs.PathError{Op: "poll", Path: f.path, Err: fs.ErrClosed}
	}
	deadline := time.Now().Add(within)
	for {
		left := max(time.Until(deadline), 0)
		fds := []unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLPRI}}
		n, err := unix.Poll(fds, int((left+time.Millisecond-1)/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false, &fs.PathError{Op: "poll", Path: f.path, Err: err}
		default:
			return n > 0, nil
		}
	}
}

func (f *rootFile) Close() error {
	if f.fd < 0 {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	fd := f.fd
	f.fd = -1 // also after a failed close: the kernel has let go of the number
	if err := unix.Close(fd); err != nil {
		return &fs.PathError{Op: "close", Path: f.path, Err: err}
	}
	return nil
}

// readAll reads fd from offset 0 until a read returns nothing. A short read is not
// the end, unless the file is one record: the kernel hands long pseudo-files out in
// pieces.
func readAll(fd int, buf []byte, record bool) ([]byte, error) {
	if cap(buf) == 0 {
		buf = make([]byte, 0, firstRead)
	}
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := unix.Pread(fd, buf[len(buf):cap(buf)], int64(len(buf)))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return buf[:0], err
		case n == 0:
			return buf, nil
		}
		buf = buf[:len(buf)+n]
		if record && len(buf) < cap(buf) {
			return buf, nil
		}
	}
}

// validPath says whether path is absolute and stays below the root lexically.
func validPath(path string) bool {
	if path == "" || path[0] != '/' || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	for rest := path; rest != ""; {
		var elem string
		elem, rest, _ = strings.Cut(rest, "/")
		if elem == ".." {
			return false
		}
	}
	return true
}

// rooted gives an error of package os the path within the root.
func rooted(err error, path string) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &fs.PathError{Op: pe.Op, Path: path, Err: pe.Err}
	}
	return &fs.PathError{Op: "readdir", Path: path, Err: err}
}
