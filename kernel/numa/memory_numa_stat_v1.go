package numa

// memory.numa_stat of a v1 group: its pages by node.
//
// https://docs.kernel.org/admin-guide/cgroup-v1/memory.html#numa-stat
//
//	total=5148 N0=5148
//	file=213 N0=213
//	anon=374 N0=374
//	unevictable=4561 N0=4561
//	hierarchical_total=523527 N0=523527
//	hierarchical_file=516576 N0=516576
//	hierarchical_anon=2390 N0=2390
//	hierarchical_unevictable=4561 N0=4561
//
// Numbers are base pages on the group's lists; total is the sum of the other three, so
// locked pages are missing from anon and file, and are in unevictable. The lines without
// "hierarchical_" are the group's own, whether or not its children are accounted to it.

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// PagesByKind is pages by node, by the list that holds them.
type PagesByKind struct {
	TotalPages, FilePages, AnonPages, UnevictablePages Counts
}

// MemoryNumaStatV1 is a v1 group's memory by node, in base pages.
type MemoryNumaStatV1 struct {
	Own          PagesByKind // without descendants
	Hierarchical PagesByKind // with descendants
}

func (s *MemoryNumaStatV1) counter(key []byte) *Counts {
	kind := &s.Own
	if name, ok := bytes.CutPrefix(key, []byte("hierarchical_")); ok {
		key, kind = name, &s.Hierarchical
	}
	switch string(key) {
	case "total":
		return &kind.TotalPages
	case "file":
		return &kind.FilePages
	case "anon":
		return &kind.AnonPages
	case "unevictable":
		return &kind.UnevictablePages
	}
	return nil
}

// parse reads the file into s, reusing its memory. All eight lines must be there.
func (s *MemoryNumaStatV1) parse(data []byte) error {
	const lines = 8
	for _, k := range []*PagesByKind{&s.Own, &s.Hierarchical} {
		*k = PagesByKind{k.TotalPages[:0], k.FilePages[:0], k.AnonPages[:0], k.UnevictablePages[:0]}
	}
	seen := 0
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		name, fields, _ := bytes.Cut(line, []byte(" "))
		key, sum, _ := bytes.Cut(name, []byte("="))
		dst := s.counter(key)
		if dst == nil {
			continue
		}
		if _, ok := parseUint(sum); !ok || len(fields) == 0 {
			return fmt.Errorf("%w memory.numa_stat: line %q", ErrMalformed, clip(line))
		}
		if err := parseNodeCounts(dst, fields); err != nil {
			return fmt.Errorf("memory.numa_stat: %s: %w", key, err)
		}
		seen++
	}
	if seen != lines {
		return fmt.Errorf("%w memory.numa_stat: %d of %d lines", ErrMalformed, seen, lines)
	}
	return nil
}

// MemoryNumaStatV1Reader is MemoryNumaStatReader for v1.
type MemoryNumaStatV1Reader = numaStatReader[MemoryNumaStatV1, *MemoryNumaStatV1]

// OpenMemoryNumaStatV1 opens the file of a v1 group by the group's directory within root
// ("/sys/fs/cgroup/memory/batch/job-7"). ErrUnsupported: the group has no such file.
func OpenMemoryNumaStatV1(root hostfs.FS, dir string) (*MemoryNumaStatV1Reader, error) {
	return openNumaStat[MemoryNumaStatV1](root, dir)
}
