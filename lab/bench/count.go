package bench

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// countingFS counts the calls that open, close, list and stat. Reads and writes are not
// counted here: the kernel does that itself, per thread (ioCounter), and is believed.
type countingFS struct {
	*hostfs.Root
	calls    uint64
	listings uint64 // of folders, and looks whether they need it: a discovery does one or the other
}

var _ hostfs.FS = (*countingFS)(nil)

// Open implements hostfs.FS: one open.
func (c *countingFS) Open(path string) (hostfs.File, error) {
	c.calls++
	return c.Root.Open(path)
}

// ReadFile implements hostfs.FS: one open, one close.
func (c *countingFS) ReadFile(path string, buf []byte) ([]byte, error) {
	c.calls += 2
	return c.Root.ReadFile(path, buf)
}

// WriteFile implements hostfs.FS: one open, one close.
func (c *countingFS) WriteFile(path string, data []byte) error {
	c.calls += 2
	return c.Root.WriteFile(path, data)
}

// Inode implements hostfs.FS: one stat.
func (c *countingFS) Inode(path string) (uint64, error) {
	c.calls++
	return c.Root.Inode(path)
}

// Links implements hostfs.LinkCounter: one stat.
func (c *countingFS) Links(path string) (uint64, error) {
	c.calls++
	c.listings++
	return c.Root.Links(path)
}

// ReadDir implements hostfs.FS: one open, two getdents, one close.
func (c *countingFS) ReadDir(path string) ([]hostfs.DirEntry, error) {
	c.calls += 4
	c.listings++
	return c.Root.ReadDir(path)
}

// OpenDir implements hostfs.FS: one open, and one close later.
func (c *countingFS) OpenDir(path string) (int, func() error, error) {
	c.calls += 2
	return c.Root.OpenDir(path)
}

// ioCounter reads the kernel's own count of this thread's read and write calls
// (Documentation/filesystems/proc.rst, 3.3: syscr and syscw). It counts pread(2) and what
// write(2) hands to a socket; recvmmsg(2) it does not.
type ioCounter struct {
	fd  int
	buf [512]byte
}

// openIO must be called on the locked thread that is to be counted.
func openIO() (*ioCounter, error) {
	fd, err := unix.Open("/proc/thread-self/io", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("bench: open /proc/thread-self/io: %w", err)
	}
	return &ioCounter{fd: fd}, nil
}

func (c *ioCounter) close() error { return unix.Close(c.fd) }

// calls returns the counts. One reading is one read itself, which the next one shows.
func (c *ioCounter) calls() (reads, writes uint64, err error) {
	n, err := unix.Pread(c.fd, c.buf[:], 0)
	if err != nil {
		return 0, 0, fmt.Errorf("bench: read /proc/thread-self/io: %w", err)
	}
	for line := range bytes.Lines(c.buf[:n]) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		dst := &reads
		switch string(key) {
		case "syscr":
		case "syscw":
			dst = &writes
		default:
			continue
		}
		if *dst, err = strconv.ParseUint(string(value), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("bench: /proc/thread-self/io: %w", err)
		}
	}
	return reads, writes, nil
}
