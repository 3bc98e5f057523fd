package cgroup

// memory.stat: what a v2 group's memory is, and what happened to it.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
//
//	anon 67108864
//	file 0
//	...
//	pgmajfault 0
//
// Some sixty lines, with their number and order changing from kernel to kernel: amounts
// in bytes, events as counts that only grow. All are of the group with its descendants.
// The root group has the file too.

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// MemoryStat is one reading of memory.stat. The fields are figures that every kernel
// has; Figure gives the rest.
type MemoryStat struct {
	AnonBytes, FileBytes, ShmemBytes   uint64
	InactiveAnonBytes, ActiveAnonBytes uint64
	InactiveFileBytes, ActiveFileBytes uint64
	UnevictableBytes                   uint64
	PageFaults, MajorPageFaults        uint64
	figures                            []figure // sorted by name
}

type figure struct {
	name  string
	value uint64
}

// Figure returns a line by the kernel's name ("workingset_refault_file"), and whether
// this kernel has it.
func (s *MemoryStat) Figure(name string) (uint64, bool) {
	i, ok := slices.BinarySearchFunc(s.figures, name, func(f figure, name string) int {
		return bytes.Compare([]byte(f.name), []byte(name))
	})
	if !ok {
		return 0, false
	}
	return s.figures[i].value, true
}

// ReadMemoryStat returns the group's memory.stat. The kernel adds the figures up over
// CPUs and descendants for it: not for every tick.
func (d *V2) ReadMemoryStat(path string) (*MemoryStat, error) {
	data, err := d.read(path, "memory.stat")
	if err != nil {
		return nil, err
	}
	s, err := parseMemoryStat(data)
	if err != nil {
		return nil, fmt.Errorf("read memory.stat of cgroup %s: %w", path, err)
	}
	return s, nil
}

func parseMemoryStat(data []byte) (*MemoryStat, error) {
	s := &MemoryStat{}
	err := eachFigure(data, func(name []byte, value uint64) {
		s.figures = append(s.figures, figure{string(name), value})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.figures, func(a, b figure) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	for _, f := range []struct {
		name string
		dst  *uint64
	}{
		{"anon", &s.AnonBytes}, {"file", &s.FileBytes}, {"shmem", &s.ShmemBytes},
		{"inactive_anon", &s.InactiveAnonBytes}, {"active_anon", &s.ActiveAnonBytes},
		{"inactive_file", &s.InactiveFileBytes}, {"active_file", &s.ActiveFileBytes},
		{"unevictable", &s.UnevictableBytes}, {"pgfault", &s.PageFaults}, {"pgmajfault", &s.MajorPageFaults},
	} {
		v, ok := s.Figure(f.name)
		if !ok {
			return nil, fmt.Errorf("%w memory.stat: no line %q", ErrMalformed, f.name)
		}
		*f.dst = v
	}
	return s, nil
}

// eachFigure hands the lines "name number" of a flat keyed file to f. Empty lines are
// passed over.
func eachFigure(data []byte, f func(name []byte, value uint64)) error {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(" "))
		v, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil || len(name) == 0 {
			return fmt.Errorf("%w line %q", ErrMalformed, clip(line))
		}
		f(name, v)
	}
	return nil
}
