package model

import (
	"cmp"
	"slices"
)

// IOSample is one raw reading of what a task has done on one block device since its group was made: bytes and operations.
// Devices that lie on others (partitions aside, those of LVM, RAID, loops) are not listed: what goes through them is counted below.
type IOSample struct {
	Num    TaskNum `json:"task"`
	Device Device  `json:"device"`
	Read   uint64  `json:"read"`    // bytes
	Wrote  uint64  `json:"written"` // bytes
	Reads  uint64  `json:"reads"`   // operations
	Writes uint64  `json:"writes"`  // operations
}

// IOObservation is what a window says of a task on one device: bytes and operations a second.
type IOObservation struct {
	Num                        TaskNum
	Device                     Device
	Read, Wrote, Reads, Writes float64
}

// observeIO derives the rates of each task and device that the second snapshot has. A device that a task had not used before begins
// at 0, if its devices were read then; what was not read, or went back, gives nothing.
func observeIO(prev, cur *Snapshot, elapsed int64, dst []IOObservation) []IOObservation {
	for i := range cur.IO {
		c := &cur.IO[i]
		var p IOSample
		if j, ok := slices.BinarySearchFunc(prev.IO, c, func(a IOSample, b *IOSample) int {
			return cmp.Or(cmp.Compare(a.Num, b.Num), cmp.Compare(a.Device, b.Device))
		}); ok {
			p = prev.IO[j]
		} else if !readIO(prev, c.Num) {
			continue
		}
		if c.Read < p.Read || c.Wrote < p.Wrote || c.Reads < p.Reads || c.Writes < p.Writes {
			continue
		}
		a := func(now, then uint64) float64 { return float64(now-then) / float64(elapsed) * 1e9 }
		dst = append(dst, IOObservation{c.Num, c.Device, a(c.Read, p.Read), a(c.Wrote, p.Wrote), a(c.Reads, p.Reads), a(c.Writes, p.Writes)})
	}
	return dst
}

// readIO reports whether a task's devices were read.
func readIO(s *Snapshot, num TaskNum) bool {
	j, ok := slices.BinarySearchFunc(s.Tasks, num, func(t TaskSample, n TaskNum) int { return cmp.Compare(t.Num, n) })
	return ok && s.Tasks[j].C[CountIOBytes].Outcome == OK
}
