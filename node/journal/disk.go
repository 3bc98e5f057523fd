package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Disk is the files that a journal lives in. The default is the real ones; a simulated
// disk can lose what was not synced, tear the last write and fail at any call.
//
// Paths are absolute. Errors of a file that is not there match fs.ErrNotExist.
type Disk interface {
	// ReadFile returns a file's first bytes, at most limit of them.
	ReadFile(path string, limit int64) ([]byte, error)
	// Create makes an empty file for reading and writing, in place of one that is there.
	Create(path string) (File, error)
	// Rename gives a file another name, in place of what had it, in one step.
	Rename(from, to string) error
	// Link gives a file a second name, which must not be taken.
	Link(from, to string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
}

// File is a file that a journal writes.
type File interface {
	// WriteAt writes b at an offset. After an error any part of it may be there.
	io.WriterAt
	// Truncate cuts the file to a size.
	Truncate(size int64) error
	// Sync makes what was written durable.
	Sync() error
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
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err // and no *os.File that is nil
	}
	return f, nil
}

func (realDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (realDisk) Link(from, to string) error { return os.Link(from, to) }

func (realDisk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync %s: %w", dir, err), d.Close())
	}
	return d.Close()
}
