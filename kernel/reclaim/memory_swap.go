package reclaim

// memory.swap.max, memory.swap.events, memory.zswap.max, memory.zswap.writeback (v2): what
// a group may move out of memory, and how often it was refused.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
//
//	max                       memory.swap.max, memory.zswap.max: "max" or bytes
//	high 0                    memory.swap.events: counts, with descendants
//	max 3
//	fail 3
//	1                         memory.zswap.writeback (since 6.8): 0 keeps it off the disk
//
// A page in zswap takes a slot of the swap device as well and counts in
// memory.swap.current. memory.zswap.writeback=0 forbids the disk, also directly: what
// zswap refuses then stays in memory. Limits of ancestors bind too (room.go). v1 has none
// of these: its memory.memsw.limit_in_bytes limits memory and swap together, so moving a
// page to swap never meets it.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// SwapEvents says how often a group met its swap limits.
type SwapEvents struct {
	High Counter // times above memory.swap.high
	Max  Counter // pages refused by memory.swap.max
	Fail Counter // pages that found no swap, for want of space or by the limit
}

// SwapLimits are the group's own limits. What this kernel does not have is not OK.
type SwapLimits struct {
	Swap  Limit // memory.swap.max
	Zswap Limit // memory.zswap.max
	// Writeback is memory.zswap.writeback; true also where the kernel has no such
	// file, because it then writes back.
	Writeback bool
}

// ReadSwapLimits reads the limits of a group. On v1 none is OK.
func (m *Memory) ReadSwapLimits(path string) (SwapLimits, error) {
	l := SwapLimits{Writeback: true}
	d, err := m.open(path)
	if err != nil || !m.v2 {
		return l, err
	}
	if l.Swap, err = d.limit("memory.swap.max"); err != nil {
		return l, err
	}
	if l.Zswap, err = d.limit("memory.zswap.max"); err != nil {
		return l, err
	}
	data, err := d.read("memory.zswap.writeback")
	if err == nil && data != nil {
		var n uint64
		if n, err = parseUint(data); err != nil {
			return l, d.wrap("read", "memory.zswap.writeback", err)
		}
		l.Writeback = n != 0
	}
	return l, err
}

// ReadSwapEvents reads memory.swap.events of a group. On v1 none is OK.
func (m *Memory) ReadSwapEvents(path string) (SwapEvents, error) {
	d, err := m.open(path)
	if err != nil || !m.v2 {
		return SwapEvents{}, err
	}
	data, err := d.read("memory.swap.events")
	if err != nil || data == nil {
		return SwapEvents{}, err
	}
	e, err := parseSwapEvents(data)
	if err != nil {
		return e, d.wrap("read", "memory.swap.events", err)
	}
	return e, nil
}

// read reads an optional file of the group; nil when this kernel has none.
func (d *dir) read(name string) ([]byte, error) {
	data, err := d.m.fs.ReadFile(d.abs+"/"+name, nil)
	if err == nil {
		return data, nil
	}
	if err = d.wrap("read", name, err); errors.Is(err, cgroup.ErrUnsupported) {
		return nil, nil
	}
	return nil, err
}

func (d *dir) limit(name string) (Limit, error) {
	data, err := d.read(name)
	if err != nil || data == nil {
		return Limit{}, err
	}
	l, err := parseLimit(data)
	if err != nil {
		return l, d.wrap("read", name, err)
	}
	return l, nil
}

func parseSwapEvents(data []byte) (SwapEvents, error) {
	var e SwapEvents
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		key, value, _ := bytes.Cut(line, []byte(" "))
		var c *Counter
		switch string(key) {
		case "high":
			c = &e.High
		case "max":
			c = &e.Max
		case "fail":
			c = &e.Fail
		default:
			continue
		}
		n, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return SwapEvents{}, fmt.Errorf("%w memory.swap.events: line %q", cgroup.ErrMalformed, clip(line))
		}
		*c = Counter{N: n, OK: true}
	}
	if !e.Max.OK || !e.Fail.OK {
		return SwapEvents{}, fmt.Errorf("%w memory.swap.events: no line max or fail", cgroup.ErrMalformed)
	}
	return e, nil
}
