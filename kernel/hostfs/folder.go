package hostfs

import (
	"errors"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Folder is an open directory: what openat(2) and flock(2) do with its descriptor. It
// stays bound to the directory that it was opened on: the folder of a process that ended
// opens nothing (ESRCH), whoever has its number by then.
type Folder interface {
	// OpenAt opens a file of the directory for reading, by its name.
	OpenAt(name string) (FileAt, error)
	// Flock is flock(2), with unix.LOCK_SH, LOCK_EX, LOCK_UN and LOCK_NB. Errors are errnos.
	// Closing the folder gives the lock back.
	Flock(how int) error
	// Close closes the directory.
	Close() error
}

// FileAt is an open file that is read in pieces. Errors are errnos in a *fs.PathError.
type FileAt interface {
	// Pread is one pread(2) into p at offset off: it may be short, and is 0 at the end.
	Pread(p []byte, off int64) (int, error)
	io.Closer
}

// FolderOpener is implemented by an FS whose directories have no descriptors of the
// running kernel: a simulated one. OpenFolder makes do with OpenDir otherwise.
type FolderOpener interface {
	// OpenFolder opens a directory.
	OpenFolder(path string) (Folder, error)
}

// OpenFolder opens a directory.
func OpenFolder(fsys FS, path string) (Folder, error) {
	if o, ok := fsys.(FolderOpener); ok {
		return o.OpenFolder(path)
	}
	fd, closeDir, err := fsys.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return &fdFolder{fd: fd, path: path, closeDir: closeDir}, nil
}

// fdFolder is a folder of the running kernel.
type fdFolder struct {
	fd       int
	path     string
	closeDir func() error
}

// OpenAt implements Folder.
func (d *fdFolder) OpenAt(name string) (FileAt, error) {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	path := d.path + "/" + name
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &fdFileAt{fd: fd, path: path}, nil
}

// Flock implements Folder.
func (d *fdFolder) Flock(how int) error { return unix.Flock(d.fd, how) }

// Close implements Folder.
func (d *fdFolder) Close() error { return d.closeDir() }

// fdFileAt is a file of the running kernel.
type fdFileAt struct {
	fd   int
	path string
}

// Pread implements OffsetReader. It does not allocate.
func (f *fdFileAt) Pread(buf []byte, off int64) (int, error) {
	n, err := unix.Pread(f.fd, buf, off)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Pread(f.fd, buf, off)
	}
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: err}
	}
	return n, nil
}

// Close implements FileAt.
func (f *fdFileAt) Close() error {
	if err := unix.Close(f.fd); err != nil {
		return &fs.PathError{Op: "close", Path: f.path, Err: err}
	}
	return nil
}
