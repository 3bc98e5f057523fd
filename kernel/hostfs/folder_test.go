package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFolder(t *testing.T) {
	root, dir := tree(t)
	open := func() Folder {
		t.Helper()
		d, err := OpenFolder(root, "/sys")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d, other := open(), open()
	f, err := d.OpenAt("b")
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 3000)
	for _, c := range []struct {
		off  int64
		want int
	}{{0, 3000}, {3000, 2000}, {5000, 0}} {
		if n, err := f.Pread(buf, c.off); n != c.want || err != nil {
			t.Errorf("%d bytes at %d, %v, want %d", n, c.off, err, c.want)
		}
	}
	if n := testing.AllocsPerRun(20, func() { _, err = f.Pread(buf, 0) }); n != 0 || err != nil {
		t.Errorf("Pread: %v allocations, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	var pe *fs.PathError
	if _, err := d.OpenAt("missing"); !errors.Is(err, unix.ENOENT) || !errors.As(err, &pe) || pe.Path != "/sys/missing" {
		t.Errorf("OpenAt: %v", err)
	}
	// The directory that was opened, not the one that has its name.
	if err := os.Rename(dir+"/sys", dir+"/moved"); err != nil {
		t.Fatal(err)
	}
	if f, err := d.OpenAt("b"); err != nil {
		t.Error(err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := OpenFolder(root, "/sys"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("OpenFolder: %v", err)
	}
	for what, got := range map[string]error{"exclusive": d.Flock(unix.LOCK_EX | unix.LOCK_NB), "shared": d.Flock(unix.LOCK_SH | unix.LOCK_NB)} {
		if got != nil {
			t.Errorf("%s: %v", what, got)
		}
	}
	if err := d.Flock(unix.LOCK_EX | unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := other.Flock(unix.LOCK_SH | unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("locked by another: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := other.Flock(unix.LOCK_EX | unix.LOCK_NB); err != nil {
		t.Errorf("closing gives the lock back: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

// own is an FS with folders of its own.
type own struct {
	FS
	asked string
}

func (o *own) OpenFolder(path string) (Folder, error) {
	o.asked = path
	return nil, unix.EIO
}

func TestOpenFolderAsksTheFS(t *testing.T) {
	o := &own{}
	if _, err := OpenFolder(o, "/x"); !errors.Is(err, unix.EIO) || o.asked != "/x" {
		t.Errorf("%v, asked for %q", err, o.asked)
	}
}
