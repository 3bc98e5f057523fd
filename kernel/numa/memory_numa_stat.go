package numa

// memory.numa_stat of a v2 group: its memory by node, in bytes.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.numa_stat)
//
//	anon N0=83886080 N1=20971520
//	file N0=1048576 N1=0
//	workingset_refault_anon N0=0 N1=0
//
// The group's descendants are counted with it. Nodes without memory are not listed, and
// the root group has no such file before Linux 5.11. anon is mapped anonymous memory, huge
// pages included, hugetlb not; memory that a process shares with others is charged to the
// group that touched it first. The kernel adds up lazily: some 64 changes a CPU may be
// missing for up to two seconds. Which lines there are depends on the version;
// workingset_* are events and are not read.

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// MemoryNumaStat is a v2 group's memory by node, in bytes. A field is empty where the
// kernel has no such line.
type MemoryNumaStat struct {
	AnonBytes, FileBytes, KernelStackBytes, PagetablesBytes, SecPagetablesBytes      Counts
	ShmemBytes, FileMappedBytes, FileDirtyBytes, FileWritebackBytes, SwapcachedBytes Counts
	AnonTHPBytes, FileTHPBytes, ShmemTHPBytes                                        Counts
	InactiveAnonBytes, ActiveAnonBytes, InactiveFileBytes, ActiveFileBytes           Counts
	UnevictableBytes, SlabReclaimableBytes, SlabUnreclaimableBytes                   Counts
}

// numaStatLines are the lines that are read, in the order of lines.
var numaStatLines = [...]string{
	"anon", "file", "kernel_stack", "pagetables", "sec_pagetables", "shmem", "file_mapped", "file_dirty", "file_writeback", "swapcached",
	"anon_thp", "file_thp", "shmem_thp", "inactive_anon", "active_anon", "inactive_file", "active_file",
	"unevictable", "slab_reclaimable", "slab_unreclaimable",
}

// lines returns the fields of numaStatLines.
func (s *MemoryNumaStat) lines() [len(numaStatLines)]*Counts {
	return [...]*Counts{
		&s.AnonBytes, &s.FileBytes, &s.KernelStackBytes, &s.PagetablesBytes, &s.SecPagetablesBytes,
		&s.ShmemBytes, &s.FileMappedBytes, &s.FileDirtyBytes, &s.FileWritebackBytes, &s.SwapcachedBytes,
		&s.AnonTHPBytes, &s.FileTHPBytes, &s.ShmemTHPBytes,
		&s.InactiveAnonBytes, &s.ActiveAnonBytes, &s.InactiveFileBytes, &s.ActiveFileBytes,
		&s.UnevictableBytes, &s.SlabReclaimableBytes, &s.SlabUnreclaimableBytes,
	}
}

// parse reads the file into s, reusing its memory. anon and file must be there.
func (s *MemoryNumaStat) parse(data []byte) error {
	lines := s.lines()
	for _, c := range lines {
		*c = (*c)[:0]
	}
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		key, rest, _ := bytes.Cut(line, []byte(" "))
		i := slices.Index(numaStatLines[:], string(key))
		if i < 0 {
			continue
		}
		if err := parseNodeCounts(lines[i], rest); err != nil {
			return fmt.Errorf("memory.numa_stat: %s: %w", key, err)
		}
	}
	if len(s.AnonBytes) == 0 || len(s.FileBytes) == 0 {
		return fmt.Errorf("%w memory.numa_stat: anon or file is missing", ErrMalformed)
	}
	return nil
}

// parseNodeCounts reads "N0=1 N1=2" into an empty dst. A second line of the same name, or
// a node named twice, is malformed.
func parseNodeCounts(dst *Counts, fields []byte) error {
	if len(*dst) != 0 {
		return fmt.Errorf("%w: the line stands twice", ErrMalformed)
	}
	for len(fields) > 0 {
		var field []byte
		field, fields, _ = bytes.Cut(fields, []byte(" "))
		node, v, ok := parseNodeCount(field)
		if _, twice := dst.Get(node); !ok || twice {
			return fmt.Errorf("%w: %q", ErrMalformed, clip(field))
		}
		*dst = dst.Add(node, v)
	}
	return nil
}

// MemoryNumaStatReader reads one v2 group's memory.numa_stat again and again through one
// descriptor. It is not safe for concurrent use.
type MemoryNumaStatReader = numaStatReader[MemoryNumaStat, *MemoryNumaStat]

// OpenMemoryNumaStat opens the file of a v2 group by the group's directory within root
// ("/sys/fs/cgroup/batch/job-7"). ErrUnsupported: the group has no such file (before
// Linux 5.11, or without the memory controller).
func OpenMemoryNumaStat(root hostfs.FS, dir string) (*MemoryNumaStatReader, error) {
	return openNumaStat[MemoryNumaStat](root, dir)
}

// numaStatReader is an open memory.numa_stat of either version.
type numaStatReader[T any, P interface {
	*T
	parse([]byte) error
}] struct {
	path string
	file hostfs.File
	buf  []byte
	stat T
}

func openNumaStat[T any, P interface {
	*T
	parse([]byte) error
}](root hostfs.FS, dir string) (*numaStatReader[T, P], error) {
	path := dir + "/memory.numa_stat"
	file, err := root.Open(path)
	if err != nil {
		missing := ErrUnsupported
		if _, gone := root.Inode(dir); gone != nil {
			missing = ErrVanished
		}
		return nil, wrapFile("open memory by node", err, missing)
	}
	return &numaStatReader[T, P]{path: path, file: file, buf: make([]byte, 0, 4096)}, nil
}

// Read reads the file. The result is the reader's and valid until the next call, which
// does not allocate. ErrVanished: the group is gone.
func (r *numaStatReader[T, P]) Read() (*T, error) {
	var err error
	if r.buf, err = r.file.ReadRecord(r.buf); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("read memory by node: %w: %w", ErrVanished, err)
		}
		return nil, fmt.Errorf("read memory by node: %w", err)
	}
	if err := P(&r.stat).parse(r.buf); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.path, err)
	}
	return &r.stat, nil
}

// Close closes the file.
func (r *numaStatReader[T, P]) Close() error { return r.file.Close() }
