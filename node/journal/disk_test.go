package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// failingDisk fails one call, after half of what it had to write.
type failingDisk struct {
	Disk
	left   int // calls until it fails
	always bool
}

func (d *failingDisk) fails() error {
	d.left--
	if d.left == 0 || d.always {
		return unix.EIO
	}
	return nil
}

func (d *failingDisk) Create(path string) (File, error) {
	if err := d.fails(); err != nil {
		return nil, err
	}
	f, err := d.Disk.Create(path)
	return &failingFile{f, d}, err
}

func (d *failingDisk) Rename(from, to string) error {
	if err := d.fails(); err != nil {
		return err
	}
	return d.Disk.Rename(from, to)
}

func (d *failingDisk) Remove(path string) error {
	if err := d.fails(); err != nil {
		return err
	}
	return d.Disk.Remove(path)
}

type failingFile struct {
	File
	d *failingDisk
}

func (f *failingFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.d.fails(); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	return f.File.WriteAt(b, off)
}

func (f *failingFile) Truncate(size int64) error {
	if err := f.d.fails(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Whichever call of the disk fails, the journal can be read afterwards, names every limit
// that may have been written and not put back, and once the disk is well again no other.
func TestDiskFailsAtEveryCall(t *testing.T) {
	failed := 0
	for n := 1; ; n++ {
		path := filepath.Join(t.TempDir(), "journal")
		d := &failingDisk{Disk: RealDisk(), left: n}
		held, err := session(d, path)
		if d.left > 0 {
			break
		}
		failed++
		if err != nil && !errors.Is(err, unix.EIO) {
			t.Fatalf("call %d: %v", n, err)
		}
		c, err := Read(path)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		known := map[string]bool{}
		for _, l := range c.Limits {
			known[l.Path] = true
		}
		if len(known) != len(held) {
			t.Errorf("call %d: the journal has %v in the end; held are %v", n, known, held)
		}
		for path := range held {
			if !known[path] {
				t.Errorf("call %d: %s is held and not in the journal: %+v", n, path, c.Limits)
			}
		}
	}
	if failed < 11 {
		t.Errorf("%d calls only", failed)
	}
}

// session uses a journal and goes on after what failed; it returns the limits that were
// held at the end and the first error.
func session(d Disk, path string) (held map[string]bool, first error) {
	held = map[string]bool{}
	note := func(err error) bool {
		if first == nil {
			first = err
		}
		return err == nil
	}
	j, err := ContinueOn(d, path, "boot-1", []Limit{lim("/old", "/old", 9, 2000)})
	if note(err) {
		held["/old"] = true // else the old file stays, of which there is none here
	}
	for i := range 4 {
		p := fmt.Sprintf("/task-%d", i)
		if note(j.Intent([]Limit{lim(p, p, uint64(i), 5000)})) {
			held[p], held["/old"] = true, true
			j.Wrote(p, uint64(i), quota(5000))
		}
		if i < 3 {
			delete(held, p) // put back, whether the file takes it or not
			j.Done(Key{Path: p, Inode: uint64(i)})
		}
	}
	note(j.Tend())
	note(j.Close())
	return held, first
}
