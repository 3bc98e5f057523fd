package journal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Disk is the files that a journal lives in. The default is the real ones; a simulated
// disk can tear a write and fail at any call.
//
// Paths are absolute. Errors of a file that is not there match fs.ErrNotExist.
type Disk interface {
	// ReadFile returns a file's first bytes, at most limit of them.
	ReadFile(path string, limit int64) ([]byte, error)
	// Create makes an empty file for reading and writing, in place of one that is there. A
	// directory that is gone is made again.
	Create(path string) (File, error)
	// Rename gives a file another name, in place of what had it, in one step.
	Rename(from, to string) error
	// Remove removes a file.
	Remove(path string) error
}

// Small is implemented by a Disk on which the file is to be written anew from fewer bytes on
// than elsewhere; 0: as elsewhere.
type Small interface{ CompactBytes() int64 }

// File is a file that a journal writes.
type File interface {
	// WriteAt writes b at an offset. After an error any part of it may be there.
	io.WriterAt
	// Truncate cuts the file to a size.
	Truncate(size int64) error
	// Named reports whether a path leads to this very file.
	Named(path string) bool
	// Close closes the file.
	Close() error
}

// realDisk is the machine's own files.
type realDisk struct{}

// RealDisk returns the machine's own files.
func RealDisk() Disk { return realDisk{} }

func (realDisk) ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	return io.ReadAll(io.LimitReader(f, limit))
}

func (realDisk) Create(path string) (File, error) {
	const flags = os.O_CREATE | os.O_TRUNC | os.O_RDWR
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err == nil {
			f, err = os.OpenFile(path, flags, 0o600)
		}
	}
	if err != nil {
		return nil, err // and no *os.File that is nil
	}
	return realFile{f}, nil
}

func (realDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (realDisk) Remove(path string) error { return os.Remove(path) }

type realFile struct{ *os.File }

func (f realFile) Named(path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}
