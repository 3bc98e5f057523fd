package cgroup

// memory.min, memory.low, memory.high, memory.max and memory.swap.max: the bounds of a v2
// group's memory, in bytes, or "max".
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
//
//	memory.min       0          never reclaimed below it
//	memory.low       0          reclaimed below it only when nothing else is left
//	memory.high      max        above it the group's tasks are slowed and must reclaim
//	memory.max       1073741824 above it the group's tasks are killed
//	memory.swap.max  max        no swap above it
//
// The kernel rounds down to whole pages. A write of memory.high or memory.max below what
// the group holds reclaims before it returns, which can take long; memory.max then kills
// in the group if reclaim is not enough.

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// MemoryBound is one of the files, by the kernel's name.
type MemoryBound string

// The bounds.
const (
	MemoryMin  MemoryBound = "memory.min"
	MemoryLow  MemoryBound = "memory.low"
	MemoryHigh MemoryBound = "memory.high"
	MemoryMax  MemoryBound = "memory.max"
	SwapMax    MemoryBound = "memory.swap.max"
)

// NoBound is the value of a bound that is "max".
const NoBound uint64 = math.MaxUint64

// ReadMemoryBound returns a bound in bytes; NoBound for "max".
func (d *V2) ReadMemoryBound(path string, bound MemoryBound) (uint64, error) {
	data, err := d.read(path, string(bound))
	if err != nil {
		return 0, err
	}
	v, err := parseBound(data)
	if err != nil {
		return 0, fmt.Errorf("read %s of cgroup %s: %w", bound, path, err)
	}
	return v, nil
}

// WriteMemoryBound sets a bound in bytes; NoBound writes "max".
func (d *V2) WriteMemoryBound(path string, bound MemoryBound, bytes uint64) error {
	if bytes == NoBound {
		return d.write(path, string(bound), "max")
	}
	return d.write(path, string(bound), strconv.FormatUint(bytes, 10))
}

func parseBound(data []byte) (uint64, error) {
	if string(bytes.TrimSuffix(data, []byte("\n"))) == "max" {
		return NoBound, nil
	}
	v, err := parseUint(data)
	if err == nil && v == NoBound {
		return 0, fmt.Errorf("%w number %q", ErrMalformed, clip(data))
	}
	return v, err
}
