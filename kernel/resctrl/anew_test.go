package resctrl

import (
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// fickle is a tree in which a path is missing so many times, and whose mount has an id.
type fickle struct {
	hostfs.FS
	missing map[string]int
	mount   uint64
}

func (f *fickle) miss(op, path string) error {
	if f.missing[path] == 0 {
		return nil
	}
	f.missing[path]--
	return &fs.PathError{Op: op, Path: path, Err: unix.ENOENT}
}

func (f *fickle) Inode(path string) (uint64, error) {
	if err := f.miss("stat", path); err != nil {
		return 0, err
	}
	return f.FS.Inode(path)
}

func (f *fickle) ReadFile(path string, buf []byte) ([]byte, error) {
	if err := f.miss("open", path); err != nil {
		return nil, err
	}
	return f.FS.ReadFile(path, buf)
}

func (f *fickle) MountID(string) (uint64, error) { return f.mount, nil }

func openFickle(t *testing.T) (*Driver, *fickle) {
	t.Helper()
	f := &fickle{FS: hostfs.NewRoot("testdata/qemu-rdt-6.12"), missing: map[string]int{}, mount: 7}
	at := must[MountInfo](t)(Discover(f))
	return must[*Driver](t)(Open(f, at, DefaultOptions())), f
}

// A group that was gone for a moment was made anew. That this kernel cannot do something
// is another thing, after which a caller never asks again.
func TestMadeAnewIsNotUnsupported(t *testing.T) {
	d, f := openFickle(t)
	be := Name{Ctrl: "commensal-be"}
	id := Identity{Name: be, Inode: must[uint64](t)(f.Inode(d.path(be)))}
	var want Schemata
	want.Set(MB, 0, 50)
	write := func() error { _, err := d.WriteSchemata(id, want); return err }
	read := func() error { _, err := d.ReadSchemata(be); return err }
	for _, c := range []struct {
		name    string
		missing map[string]int
		call    func() error
		is      error
	}{
		{"the group, for a moment", map[string]int{d.path(be): 1}, write, ErrVanished},
		{"the group", map[string]int{d.path(be): 9}, write, ErrVanished},
		{"its file, for a moment", map[string]int{d.path(be) + "/schemata": 1}, read, ErrVanished},
		{"its file", map[string]int{d.path(be) + "/schemata": 9}, read, ErrUnsupported},
		{"all", map[string]int{d.path(be) + "/schemata": 9, d.at.Point + statusFile: 9}, read, ErrNotMounted},
	} {
		f.missing = c.missing
		wantError(t, c.name, c.call(), "", c.is)
	}
}

// The same options and inodes say nothing where the mount is another one.
func TestMountedAnewWithTheSameOptions(t *testing.T) {
	d, f := openFickle(t)
	if _, err := d.Info(); err != nil {
		t.Fatal(err)
	}
	f.mount++
	_, err := d.Info()
	wantError(t, "Info", err, "mount 8, was 7", ErrRemounted)
}

// halved lists half of what is there, so many times, on a file system that counts its directories.
type halved struct {
	*fickle
	times int
}

func (f *halved) ReadDir(path string) ([]hostfs.DirEntry, error) {
	list, err := f.fickle.ReadDir(path)
	if f.times > 0 && err == nil {
		f.times--
		list = list[:len(list)/2]
	}
	return list, err
}

func (f *halved) Links(path string) (uint64, error) {
	n := uint64(2)
	list, err := f.fickle.ReadDir(path)
	for i := range list {
		if list[i].IsDir {
			n++
		}
	}
	return n, err
}

// A directory that is listed short is listed again; one that stays so is an error, since what is missing would count as gone.
func TestListedShort(t *testing.T) {
	d, f := openFickle(t)
	all := must[[]Group](t)(d.Groups(ListOptions{}))
	h := &halved{fickle: f}
	d.fs = h
	for h.times = range listTries {
		if got, err := d.Groups(ListOptions{}); err != nil || len(got) != len(all) || len(all) < 3 {
			t.Errorf("short %d times: %d of %d groups, %v", h.times, len(got), len(all), err)
		}
	}
	h.times = listTries
	_, err := d.Groups(ListOptions{})
	wantError(t, "always short", err, "were listed of", ErrMalformed)
}
