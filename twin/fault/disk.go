package fault

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/node/journal"
)

// Memory is a journal's disk in memory. It outlives the agents that write it: a killed
// process's writes are the kernel's already.
type Memory struct {
	files   map[string]*inode
	limit   int64
	changes uint64
}

// inode is a file, with a name or without.
type inode struct{ data []byte }

// maxDisk bounds a file, so that one that grows without end fails a run and not the machine.
const maxDisk = 64 << 20

// NewMemory returns an empty disk.
func NewMemory() *Memory { return &Memory{files: map[string]*inode{}, limit: maxDisk} }

var _ journal.Disk = (*Memory)(nil)

// Size returns how large a file is, 0 when it is not there.
func (m *Memory) Size(path string) int64 {
	if f := m.files[path]; f != nil {
		return int64(len(f.data))
	}
	return 0
}

// CompactBytes implements journal.Small: so small that a run of minutes gets there.
func (m *Memory) CompactBytes() int64 { return 1 << 10 }

// Changes returns how often the disk was changed: as long as it stays the same what was read
// once is still true.
func (m *Memory) Changes() uint64 { return m.changes }

// Names returns the names of all files, sorted.
func (m *Memory) Names() []string {
	names := make([]string, 0, len(m.files))
	for n := range m.files {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// ReadFile implements journal.Disk.
func (m *Memory) ReadFile(path string, limit int64) ([]byte, error) {
	f := m.files[path]
	if f == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	}
	return bytes.Clone(f.data[:min(int64(len(f.data)), limit)]), nil
}

// Create implements journal.Disk.
func (m *Memory) Create(path string) (journal.File, error) {
	f := m.files[path]
	if f == nil {
		f = &inode{}
		m.files[path] = f
	}
	f.data = nil
	m.changes++
	return &memoryFile{disk: m, inode: f, path: path}, nil
}

// Rename implements journal.Disk.
func (m *Memory) Rename(from, to string) error {
	f := m.files[from]
	if f == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: unix.ENOENT}
	}
	delete(m.files, from)
	m.files[to] = f
	m.changes++
	return nil
}

// Remove implements journal.Disk.
func (m *Memory) Remove(path string) error {
	if m.files[path] == nil {
		return &fs.PathError{Op: "remove", Path: path, Err: unix.ENOENT}
	}
	delete(m.files, path)
	m.changes++
	return nil
}

// memoryFile is an open file of a Memory.
type memoryFile struct {
	disk  *Memory
	inode *inode
	path  string
}

func (f *memoryFile) WriteAt(b []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(b)) > f.disk.limit {
		return 0, &fs.PathError{Op: "write", Path: f.path, Err: unix.EFBIG}
	}
	f.disk.changes++
	if n := int(off) + len(b); n > len(f.inode.data) {
		f.inode.data = append(f.inode.data, make([]byte, n-len(f.inode.data))...)
	}
	return copy(f.inode.data[off:], b), nil
}

func (f *memoryFile) Truncate(size int64) error {
	if size < 0 || size > f.disk.limit {
		return &fs.PathError{Op: "truncate", Path: f.path, Err: unix.EINVAL}
	}
	f.disk.changes++
	if n := int(size); n <= len(f.inode.data) {
		f.inode.data = f.inode.data[:n]
	} else {
		f.inode.data = append(f.inode.data, make([]byte, n-len(f.inode.data))...)
	}
	return nil
}

func (f *memoryFile) Named(path string) bool { return f.disk.files[path] == f.inode }

func (f *memoryFile) Close() error { return nil }

// Disk is a journal.Disk with faults. Every call that changes it is one of the writes at
// which the life may end: before it, after it, or, of a write, anywhere within.
type Disk struct {
	inner journal.Disk
	o     *Owner
}

var _ journal.Disk = (*Disk)(nil)

// Disk wraps a disk for this life.
func (o *Owner) Disk(inner journal.Disk) *Disk { return &Disk{inner: inner, o: o} }

// CompactBytes implements journal.Small, where the inner disk does.
func (d *Disk) CompactBytes() int64 {
	if s, ok := d.inner.(journal.Small); ok {
		return s.CompactBytes()
	}
	return 0
}

// change makes a call that changes the disk; half does a part of it.
func (o *Owner) change(call, path string, whole func() error, half func()) error {
	r, err := o.before(Append, call, path)
	if err != nil {
		return err
	}
	e := Event{Who: o.name, Op: Append, Path: path, Data: call}
	pathError := func(err error) error { return &fs.PathError{Op: call, Path: path, Err: err} }
	switch {
	case o.dies():
		e.Fault, err = "kill", pathError(ErrKilled)
		switch o.i.rng.IntN(3) {
		case 0:
		case 1:
			half()
		default:
			e.Took = whole() == nil
		}
	case r != nil && r.Kind == Short:
		half()
		e.Fault, err = o.i.hit(r), pathError(unix.ENOSPC)
	case r != nil && r.Kind == FailAfter:
		e.Took = whole() == nil
		e.Fault, err = o.i.hit(r), pathError(r.Errno)
	default:
		err = whole()
		e.Took = err == nil
	}
	e.Err = err
	o.i.notice(&e)
	return err
}

// ReadFile implements journal.Disk.
func (d *Disk) ReadFile(path string, limit int64) ([]byte, error) {
	r, err := d.o.before(Read, "read", path)
	if err != nil {
		return nil, err
	}
	b, err := d.inner.ReadFile(path, limit)
	if r != nil && r.Kind == FailAfter {
		return d.o.spoil(r, path, b, err)
	}
	return b, err
}

// Create implements journal.Disk.
func (d *Disk) Create(path string) (journal.File, error) {
	var f journal.File
	err := d.o.change("create", path, func() (err error) {
		f, err = d.inner.Create(path)
		return err
	}, func() {})
	if err != nil {
		return nil, err
	}
	return &diskFile{inner: f, path: path, o: d.o}, nil
}

// Rename implements journal.Disk.
func (d *Disk) Rename(from, to string) error {
	return d.o.change("rename", to, func() error { return d.inner.Rename(from, to) }, func() {})
}

// Remove implements journal.Disk.
func (d *Disk) Remove(path string) error {
	return d.o.change("remove", path, func() error { return d.inner.Remove(path) }, func() {})
}

// diskFile is an open file of a Disk.
type diskFile struct {
	inner journal.File
	path  string
	o     *Owner
}

func (f *diskFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.o.change("append", f.path, func() (err error) {
		n, err = f.inner.WriteAt(b, off)
		return err
	}, func() {
		n, _ = f.inner.WriteAt(b[:f.o.i.rng.IntN(len(b)+1)], off) // half is what it is for
	})
	return n, err
}

func (f *diskFile) Truncate(size int64) error {
	return f.o.change("truncate", f.path, func() error { return f.inner.Truncate(size) }, func() {})
}

func (f *diskFile) Named(path string) bool { return f.inner.Named(path) }

func (f *diskFile) Close() error {
	if f.o.Killed() {
		return nil
	}
	return f.inner.Close()
}

// String describes a disk for a failure's report.
func (m *Memory) String() string {
	s := ""
	for _, n := range m.Names() {
		s += fmt.Sprintf("%s (%d bytes)\n%s", n, len(m.files[n].data), m.files[n].data)
	}
	return s
}
