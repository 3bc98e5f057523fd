package cgroup

// memory.events and memory.events.local: how often a v2 group met its memory bounds.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
//
//	low 0
//	high 13
//	max 0
//	oom 0
//	oom_kill 0
//	oom_group_kill 0     (since Linux 5.17)
//
// memory.events counts the group with its descendants, memory.events.local (since Linux
// 5.2) the group's own bounds only. The root group has neither.

import "fmt"

// MemoryEvents are counts since the group was made. They only grow.
type MemoryEvents struct {
	Low     uint64 // reclaimed although below memory.low
	High    uint64 // tasks slowed to reclaim because of memory.high
	Max     uint64 // about to pass memory.max
	OOM     uint64 // an allocation was about to fail at the bound
	OOMKill uint64 // processes killed by any out-of-memory killer
	// OOMGroupKill counts kills of the whole group; meaningless unless HasOOMGroupKill.
	OOMGroupKill    uint64
	HasOOMGroupKill bool
}

// ReadMemoryEvents returns the events of the group and its descendants.
func (d *V2) ReadMemoryEvents(path string) (MemoryEvents, error) {
	return d.readMemoryEvents(path, "memory.events")
}

// ReadMemoryEventsLocal returns the events of the group's own bounds.
func (d *V2) ReadMemoryEventsLocal(path string) (MemoryEvents, error) {
	return d.readMemoryEvents(path, "memory.events.local")
}

func (d *V2) readMemoryEvents(path, name string) (MemoryEvents, error) {
	data, err := d.read(path, name)
	if err != nil {
		return MemoryEvents{}, err
	}
	e, err := parseMemoryEvents(data)
	if err != nil {
		return MemoryEvents{}, fmt.Errorf("read %s of cgroup %s: %w", name, path, err)
	}
	return e, nil
}

// parseMemoryEvents needs the five lines that every kernel writes, and passes over lines
// that it does not know.
func parseMemoryEvents(data []byte) (MemoryEvents, error) {
	var e MemoryEvents
	const all = 1<<5 - 1
	seen := 0
	err := eachFigure(data, func(name []byte, value uint64) {
		switch string(name) {
		case "low":
			e.Low, seen = value, seen|1
		case "high":
			e.High, seen = value, seen|2
		case "max":
			e.Max, seen = value, seen|4
		case "oom":
			e.OOM, seen = value, seen|8
		case "oom_kill":
			e.OOMKill, seen = value, seen|16
		case "oom_group_kill":
			e.OOMGroupKill, e.HasOOMGroupKill = value, true
		}
	})
	if err == nil && seen != all {
		err = fmt.Errorf("%w memory.events: low, high, max, oom or oom_kill is missing", ErrMalformed)
	}
	if err != nil {
		return MemoryEvents{}, err
	}
	return e, nil
}
