package fault

import (
	"io/fs"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// FS is a hostfs.FS with faults. It also is a hostfs.LinkCounter, a hostfs.DirMaker and a hostfs.FolderOpener.
type FS struct {
	inner hostfs.FS
	o     *Owner
}

var (
	_ hostfs.FS           = (*FS)(nil)
	_ hostfs.LinkCounter  = (*FS)(nil)
	_ hostfs.DirMaker     = (*FS)(nil)
	_ hostfs.FolderOpener = (*FS)(nil)
)

// FS wraps a file system for this life.
func (o *Owner) FS(inner hostfs.FS) *FS { return &FS{inner: inner, o: o} }

// before is the part of a call in which it may be refused.
func (o *Owner) before(op Op, call, path string) (*Rule, error) {
	if o.Killed() {
		return nil, &fs.PathError{Op: call, Path: path, Err: ErrKilled}
	}
	r := o.i.draw(op, path)
	if o.Killed() { // while it waited
		return nil, &fs.PathError{Op: call, Path: path, Err: ErrKilled}
	}
	err := fails(r, call, path)
	if err != nil {
		o.i.notice(&Event{Who: o.name, Op: op, Path: path, Fault: o.i.hit(r), Err: err})
	}
	return r, err
}

// Open opens a file for reading; see hostfs.FS.
func (f *FS) Open(path string) (hostfs.File, error) {
	if _, err := f.o.before(Open, "open", path); err != nil {
		return nil, err
	}
	inner, err := f.inner.Open(path)
	if err != nil {
		return nil, err
	}
	return &file{inner, path, f.o}, nil
}

// ReadFile reads a whole file; see hostfs.FS.
func (f *FS) ReadFile(path string, buf []byte) ([]byte, error) {
	r, err := f.o.before(Read, "read", path)
	if err != nil {
		return buf[:0], err
	}
	buf, err = f.inner.ReadFile(path, buf)
	return f.o.spoil(r, path, buf, err)
}

// WriteFile writes data; see hostfs.FS. It is one of the writes at which the life may
// end: just before the kernel has it, or just after.
func (f *FS) WriteFile(path string, data []byte) error {
	return f.write("write", path, string(data), func() error { return f.inner.WriteFile(path, data) })
}

// write is a call that changes something.
func (f *FS) write(call, path, data string, do func() error) error {
	r, err := f.o.before(Write, call, path)
	if err != nil {
		return err
	}
	e := Event{Who: f.o.name, Op: Write, Path: path, Data: data}
	dies := f.o.dies()
	if dies {
		e.Fault = "kill"
	}
	if dies && f.o.i.rng.IntN(2) == 0 {
		e.Err = ErrKilled
		f.o.i.notice(&e)
		return &fs.PathError{Op: call, Path: path, Err: ErrKilled}
	}
	err = do()
	e.Took = err == nil
	switch {
	case dies:
		err = &fs.PathError{Op: call, Path: path, Err: ErrKilled}
	case err == nil && r != nil && r.Kind == FailAfter:
		e.Fault = f.o.i.hit(r)
		err = &fs.PathError{Op: call, Path: path, Err: r.Errno}
	}
	e.Err = err
	f.o.i.notice(&e)
	if r != nil && r.Kind == Foreign && len(r.Texts) > 0 {
		// What the kernel refuses a stranger is a stranger's trouble.
		_ = f.o.i.Stranger(path, r.Texts[f.o.i.rng.IntN(len(r.Texts))])
	}
	return err
}

// The calls that make and remove directories, as the trail of a run names them.
const (
	MadeDir    = "mkdir"
	RemovedDir = "rmdir"
)

// Mkdir makes a directory; see hostfs.DirMaker.
func (f *FS) Mkdir(path string, perm uint32) error {
	return f.write(MadeDir, path, MadeDir, func() error { return f.maker().Mkdir(path, perm) })
}

// Rmdir removes a directory; see hostfs.DirMaker.
func (f *FS) Rmdir(path string) error {
	return f.write(RemovedDir, path, RemovedDir, func() error { return f.maker().Rmdir(path) })
}

// Rename moves a directory; see hostfs.DirMaker.
func (f *FS) Rename(from, to string) error {
	return f.write("rename", from, "rename", func() error { return f.maker().Rename(from, to) })
}

// maker is the kernel below. One that makes no directories is no kernel.
func (f *FS) maker() hostfs.DirMaker { return f.inner.(hostfs.DirMaker) } //nolint:forcetypeassert // see above

// OpenFolder opens a directory; see hostfs.FolderOpener.
func (f *FS) OpenFolder(path string) (hostfs.Folder, error) {
	if _, err := f.o.before(Open, "open", path); err != nil {
		return nil, err
	}
	dir, err := hostfs.OpenFolder(f.inner, path)
	if err == nil {
		f.o.open = append(f.o.open, dir)
	}
	return &folder{dir, f.o}, err
}

// folder is an open directory with faults.
type folder struct {
	hostfs.Folder
	o *Owner
}

// Close closes the directory; see hostfs.Folder.
func (f *folder) Close() error {
	if i := slices.Index(f.o.open, f.Folder); i >= 0 {
		f.o.open = slices.Delete(f.o.open, i, i+1)
		return f.Folder.Close()
	}
	return nil // with its owner
}

// Flock locks the directory; see hostfs.Folder.
func (f *folder) Flock(how int) error {
	if f.o.Killed() {
		return ErrKilled
	}
	return f.Folder.Flock(how)
}

// ReadDir lists a directory; see hostfs.FS.
func (f *FS) ReadDir(path string) ([]hostfs.DirEntry, error) {
	r, err := f.o.before(List, "readdir", path)
	if err != nil {
		return nil, err
	}
	list, err := f.inner.ReadDir(path)
	if err != nil {
		return list, err
	}
	short := r != nil && r.Kind == Short && !f.o.i.short[path]
	if short { // the directory changes while it is listed
		f.o.i.hit(r)
		list = list[:len(list)/2]
	}
	f.o.i.short[path] = short
	return list, nil
}

// Inode returns an inode number; see hostfs.FS.
func (f *FS) Inode(path string) (uint64, error) {
	if _, err := f.o.before(Identify, "stat", path); err != nil {
		return 0, err
	}
	return f.inner.Inode(path)
}

// Links returns a number of links, 1 (nothing is known) where the inner file system
// cannot count them; see hostfs.LinkCounter.
func (f *FS) Links(path string) (uint64, error) {
	if _, err := f.o.before(Identify, "stat", path); err != nil {
		return 0, err
	}
	if c, ok := f.inner.(hostfs.LinkCounter); ok {
		return c.Links(path)
	}
	return 1, nil
}

// OpenDir opens a directory; see hostfs.FS.
func (f *FS) OpenDir(path string) (int, func() error, error) {
	if _, err := f.o.before(Open, "open", path); err != nil {
		return -1, nil, err
	}
	return f.inner.OpenDir(path)
}

// file is an open file with faults.
type file struct {
	hostfs.File // closed by the kernel where its owner is dead
	path        string
	o           *Owner
}

// ReadAll reads the file; see hostfs.File.
func (f *file) ReadAll(buf []byte) ([]byte, error) { return f.read(buf, f.File.ReadAll) }

// ReadRecord reads a file of one record; see hostfs.File.
func (f *file) ReadRecord(buf []byte) ([]byte, error) { return f.read(buf, f.File.ReadRecord) }

func (f *file) read(buf []byte, inner func([]byte) ([]byte, error)) ([]byte, error) {
	r, err := f.o.before(Read, "read", f.path)
	if err != nil {
		return buf[:0], err
	}
	buf, err = inner(buf)
	return f.o.spoil(r, f.path, buf, err)
}

// spoil changes what was read.
func (o *Owner) spoil(r *Rule, path string, b []byte, err error) ([]byte, error) {
	if err != nil || r == nil {
		return b, err
	}
	switch r.Kind {
	case FailAfter:
		b, err = b[:0], &fs.PathError{Op: "read", Path: path, Err: r.Errno}
	case Short:
		b = b[:len(b)/2]
	case Garble:
		for i, c := range b {
			if c >= '0' && c <= '9' {
				b[i] = 'a' + c - '0'
			}
		}
	case Back:
		b = numbers(b, func(n uint64) uint64 { return n / 2 })
	case Jump:
		b = numbers(b, func(n uint64) uint64 { return n + jump })
	default:
		return b, nil
	}
	o.i.notice(&Event{Who: o.name, Op: Read, Path: path, Fault: o.i.hit(r), Err: err})
	return b, err
}

// jump is by how much a counter jumps: eleven days of nanoseconds.
const jump = uint64(1e15)

// numbers replaces each decimal number of a text. A number that stands in a word, as in
// "cpu0", is part of the word.
func numbers(b []byte, f func(uint64) uint64) []byte {
	var out []byte
	for i := 0; i < len(b); {
		j := i
		for j < len(b) && b[j] >= '0' && b[j] <= '9' {
			j++
		}
		if j == i || i > 0 && b[i-1] != ' ' && b[i-1] != '\n' {
			j = max(j, i+1)
			out = append(out, b[i:j]...)
			i = j
			continue
		}
		n, err := strconv.ParseUint(string(b[i:j]), 10, 64)
		if err != nil {
			out = append(out, b[i:j]...)
		} else {
			out = strconv.AppendUint(out, f(n), 10)
		}
		i = j
	}
	return append(b[:0], out...)
}

// errnoOf is the errno that a rule refuses a call with.
func errnoOf(r *Rule) unix.Errno {
	if r.Kind == Vanish {
		return unix.ESRCH
	}
	return r.Errno
}
