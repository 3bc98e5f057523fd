package cgroup

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// blindFS has no file of a name, and answers the n-th look at what is there with an error.
type blindFS struct {
	hostfs.FS
	name string
	n    int
	err  error
}

func (b *blindFS) Inode(path string) (uint64, error) {
	if b.n--; b.n == 0 {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: b.err}
	}
	if strings.HasSuffix(path, b.name) {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: unix.ENOENT}
	}
	return b.FS.Inode(path)
}

func (b *blindFS) ReadFile(path string, buf []byte) ([]byte, error) {
	if strings.HasSuffix(path, b.name) {
		return buf, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	}
	return b.FS.ReadFile(path, buf)
}

// A file is missing, and the kernel is too busy to say whether its group is still there: it is
// not taken for gone, nor the file for one that this kernel does not have.
func TestBusyKernelIsNoGroupGone(t *testing.T) {
	dir := copyFixture(t)
	for n := 1; n <= 3; n++ {
		for errno, gone := range map[unix.Errno]bool{unix.EINTR: false, unix.ENOMEM: false, unix.ENOENT: n != 2, unix.ENODEV: n != 2} {
			f := &blindFS{FS: hostfs.NewRoot(dir), name: "/cpu.cfs_quota_us"}
			d := fixtureDriver(t, f)
			f.n, f.err = n, errno
			_, err := d.ReadCPUMax("/batch")
			if errors.Is(err, ErrVanished) != gone {
				t.Errorf("look %d fails with %v: %v", n, errno, err)
			}
			if unsupported := errors.Is(err, ErrUnsupported); unsupported != (n == 2 && (errno == unix.ENOENT || errno == unix.ENODEV)) {
				t.Errorf("look %d fails with %v: %v", n, errno, err)
			}
		}
	}
}
