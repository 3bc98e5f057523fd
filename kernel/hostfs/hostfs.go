// Package hostfs gives rooted access to a host's files, so that one set of kernel
// drivers serves a live host (root "/"), a captured tree in a test, and a simulated
// kernel that implements the same small interfaces.
//
// Paths are absolute within the root ("/proc/stat"). Errors are *fs.PathError and
// carry the errno, so that errors.Is works with unix.ENODEV as with fs.ErrNotExist.
//
// Only what a driver needs is here: reading a whole pseudo-file, one write(2), a
// directory's names, an inode. What only some drivers need (new directories,
// descriptors for writing) stands in interfaces of its own, which a driver asks for
// by type assertion, so that a simulated kernel need not pretend to have it.
package hostfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrBadPath is returned for a path that is not absolute, or that has an element ".."
// or a NUL byte. Nothing was opened.
var ErrBadPath = errors.New("path must be absolute within the root, without \"..\" or NUL")

// FS is a rooted view of a host's files. Implementations are safe for concurrent use.
type FS interface {
	// Open opens a file for reading (O_RDONLY, O_CLOEXEC). The file stays bound to
	// the inode it was opened on: if its cgroup is removed, reads fail with ENODEV
	// even when a new one of the same name exists.
	Open(path string) (File, error)
	// ReadFile reads a whole pseudo-file into buf[:0], in as few reads as possible
	// and without stat (pseudo-files have size 0), and returns the bytes read.
	ReadFile(path string, buf []byte) ([]byte, error)
	// WriteFile hands data to the kernel in exactly one write(2) that takes effect:
	// an interrupted one (EINTR, nothing taken) is repeated, a short one is an
	// error. It never creates and never truncates. Kernel files treat an empty
	// write as no write at all, so empty data is refused with EINVAL.
	WriteFile(path string, data []byte) error
	// ReadDir lists a directory sorted by name.
	ReadDir(path string) ([]DirEntry, error)
	// Inode returns the inode number of what path names, following symbolic links.
	Inode(path string) (uint64, error)
	// OpenDir opens a directory and returns its descriptor, for calls that take one
	// (perf_event_open with PERF_FLAG_PID_CGROUP). The descriptor is valid until
	// the returned function is called.
	OpenDir(path string) (fd int, closeDir func() error, err error)
}

// File is an open file. It is not safe for concurrent use.
type File interface {
	// ReadAll reads from offset 0 to the end of the file into buf[:0], so that one
	// descriptor serves any number of readings. It allocates only when buf is too
	// small; it needs one byte more than the file holds, to see the end. On an
	// error it returns buf[:0], possibly grown.
	ReadAll(buf []byte) ([]byte, error)
	// ReadRecord is ReadAll for a file that the kernel makes as one record (a seq_file
	// with a show function and no iterator: cpu.stat, cpuacct.usage): it hands such a
	// file out whole, so a read that leaves room in the buffer was the last one, and the
	// read that would see the end is saved. A file with an iterator (cgroup.procs) is
	// handed out in pieces, and must be read with ReadAll.
	ReadRecord(buf []byte) ([]byte, error)
	// Close closes the file. A second Close is an error, and harmless.
	Close() error
}

// DirEntry is one name in a directory.
type DirEntry struct {
	Name  string
	IsDir bool // a directory itself; a symbolic link to one is not
}

// DirMaker is implemented by an FS that can make, rename and remove directories.
type DirMaker interface {
	// Mkdir makes one directory with permissions perm; an existing one is EEXIST.
	Mkdir(path string, perm uint32) error
	// Rename is rename(2): resctrl moves monitoring groups so.
	Rename(from, to string) error
	// Rmdir removes one directory.
	Rmdir(path string) error
}

// WriteOpener is implemented by an FS that hands out descriptors for reading and
// writing (O_RDWR, O_CLOEXEC), which PSI triggers need: their trigger lives as long
// as the descriptor.
type WriteOpener interface {
	// OpenReadWrite opens an existing file. The descriptor is valid until the
	// returned function is called.
	OpenReadWrite(path string) (fd int, closeFile func() error, err error)
}

// LinkCounter is implemented by an FS that can count a directory's links.
type LinkCounter interface {
	// Links returns st_nlink. In cgroupfs, sysfs and most Unix file systems it is 2
	// and the number of subdirectories; some (btrfs, overlayfs) say 1 for every
	// directory. So 2 means that there is none, and any other number nothing.
	Links(path string) (uint64, error)
}

// MountIdentifier is implemented by an FS that can tell one mount from a later one at the
// same place.
type MountIdentifier interface {
	// MountID returns the id of the mount that path is on, which no other mount has until
	// the next boot; 0 where the kernel has none (before Linux 6.8).
	MountID(path string) (uint64, error)
}

// ReadAs reads a whole file and makes something of it. An error of the file begins with what
// was done, one of the parser with the file's path.
func ReadAs[T any](fs FS, what, path string, parse func([]byte) (T, error)) (T, error) {
	var none T
	data, err := fs.ReadFile(path, nil)
	if err != nil {
		return none, fmt.Errorf("%s: %w", what, err)
	}
	v, err := parse(data)
	if err != nil {
		return none, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}

// Unescape undoes the escapes of the kernel's seq_path, which many files of /proc use
// for paths: "\040" is a blank. A backslash that three octal digits do not follow stands
// for itself.
func Unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(v))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// ChangeWaiter is implemented by a File whose kernel can say that it changed
// (cgroup.events and the like).
type ChangeWaiter interface {
	// Wait blocks until the file has changed since it was last read with ReadRecord
	// (true), or within has passed (false). A file that is removed has changed. It
	// may hold an operating system thread while it waits.
	Wait(within time.Duration) (bool, error)
}
