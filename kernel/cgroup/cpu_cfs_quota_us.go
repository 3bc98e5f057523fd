package cgroup

// cpu.cfs_quota_us, cpu.cfs_period_us and cpu.cfs_burst_us: the CPU bandwidth limit of a
// v1 group (v2: cpu_max.go). All three in microseconds.
//
// https://docs.kernel.org/scheduler/sched-bwc.html
//
//	cpu.cfs_quota_us    20000    (-1: no limit)
//	cpu.cfs_period_us  100000
//	cpu.cfs_burst_us        0    (since Linux 5.14)
//
// The three are one limit in three files, and the kernel checks the whole after each
// write. Its rules (kernel/sched/core.c, tg_set_cfs_bandwidth and
// tg_cfs_schedulable_down), each refused with EINVAL:
//
//   - quota is at least 1000, period between 1000 and 1000000;
//   - burst is at most quota; without a quota any burst is taken (there are kernels with a
//     wider bound, so that this one rule is left to the kernel that runs);
//   - quota/period, as a 20-bit binary fraction, is at most that of the nearest ancestor
//     with a quota, and at least that of every descendant with one.
//
// So a change of the limit is a walk from one legal state to another on which every step
// must be legal as well. planCPUMax plans it.

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	quotaFile  = "cpu.cfs_quota_us"
	periodFile = "cpu.cfs_period_us"
	burstFile  = "cpu.cfs_burst_us"

	ratioShift = 20                     // BW_SHIFT: what the kernel compares
	noRatio    = uint64(math.MaxUint64) // RUNTIME_INF
)

// step is one write.
type step struct {
	file  string
	value int64
}

// ratioRoom is what the rest of the tree leaves a group: its ratio must lie in
// [floor, ceil] whenever it has a quota.
type ratioRoom struct {
	floor uint64 // the greatest finite ratio of its descendants; 0 if none
	ceil  uint64 // the least finite ratio of its ancestors; noRatio if none
}

// kernelRatio is the kernel's to_ratio.
func kernelRatio(quotaUsec, periodUsec int64) uint64 {
	if quotaUsec < 0 {
		return noRatio
	}
	return uint64(quotaUsec) << ratioShift / uint64(periodUsec)
}

// planCPUMax returns the writes that lead from one limit to another, both of which are
// legal in room, such that the kernel takes each of them.
//
// Burst goes down first and up last, so that it never exceeds a quota. Quota and period
// need care only when both change:
//
//   - Without a quota the period is free: from -1 the period goes first, to -1 last.
//   - When they move apart (quota up, period down or the reverse), each order passes
//     through a ratio between the old and the new.
//   - When they move the same way, one order dips below both ratios and the other
//     exceeds both. A dip holds the group a little tighter for some microseconds and is
//     refused only when a descendant's quota is in the way; so it is preferred. The
//     excess is refused only when an ancestor is in the way. When both are, the quota
//     is lifted, which always passes (a v1 group without quota counts as its parent).
//     A staircase of intermediate quotas was rejected: it needs room between the two
//     ratios, and its steps are in no journal.
func planCPUMax(from, to CPUMax, room ratioRoom) []step {
	var steps []step
	if to.BurstUsec < from.BurstUsec {
		steps = append(steps, step{burstFile, to.BurstUsec})
	}
	steps = append(steps, planRatio(from, to, room)...)
	if to.BurstUsec > from.BurstUsec {
		steps = append(steps, step{burstFile, to.BurstUsec})
	}
	return steps
}

func planRatio(from, to CPUMax, room ratioRoom) []step {
	quota, period := step{quotaFile, to.QuotaUsec}, step{periodFile, to.PeriodUsec}
	quotaFirst, periodFirst := []step{quota, period}, []step{period, quota}
	switch {
	case from.QuotaUsec == to.QuotaUsec && from.PeriodUsec == to.PeriodUsec:
		return nil
	case from.QuotaUsec == to.QuotaUsec:
		return []step{period}
	case from.PeriodUsec == to.PeriodUsec:
		return []step{quota}
	case from.QuotaUsec < 0:
		return periodFirst
	case to.QuotaUsec < 0:
		return quotaFirst
	}
	low, lowOrder := kernelRatio(to.QuotaUsec, from.PeriodUsec), quotaFirst
	high, highOrder := kernelRatio(from.QuotaUsec, to.PeriodUsec), periodFirst
	if low > high {
		low, lowOrder, high, highOrder = high, highOrder, low, lowOrder
	}
	switch {
	case low >= room.floor:
		return lowOrder
	case high <= room.ceil:
		return highOrder
	}
	return []step{{quotaFile, -1}, period, quota}
}

// ReadCPUMax implements Driver. The three files are read one after the other.
func (d *V1) ReadCPUMax(path string) (CPUMax, error) {
	var m CPUMax
	var err error
	if m.QuotaUsec, err = d.readInt(CPU, path, quotaFile); err != nil {
		return CPUMax{}, err
	}
	if m.PeriodUsec, err = d.readInt(CPU, path, periodFile); err != nil {
		return CPUMax{}, err
	}
	// A kernel without the file saves no burst up: 0 is what it does.
	m.BurstUsec, err = d.readInt(CPU, path, burstFile)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return CPUMax{}, err
	}
	if m.PeriodUsec <= 0 {
		return CPUMax{}, fmt.Errorf("read cpu limit of %s: %w: period %d", path, ErrMalformed, m.PeriodUsec)
	}
	return m, nil
}

// WriteCPUMax implements Driver: it reads what is there, plans, and writes only the
// files that differ. A limit that the tree has no room for is refused with EINVAL before
// anything is written; the kernel has the last word.
func (d *V1) WriteCPUMax(path string, v CPUMax) error {
	from, err := readBefore(path, v, d.ReadCPUMax)
	if err != nil {
		return err
	}
	room := ratioRoom{ceil: noRatio}
	if from.QuotaUsec != v.QuotaUsec || from.PeriodUsec != v.PeriodUsec {
		if room, err = d.roomFor(path, v); err != nil {
			return &CPUMaxError{Path: path, Err: err}
		}
	}
	return d.carryCPUMax(path, planCPUMax(from, v, room))
}

// ChangeCPUMax implements Driver. The tree around the group is read only where the order
// of the writes depends on it, and where the kernel refused one, to say who is in the way.
func (d *V1) ChangeCPUMax(path string, from, to CPUMax) error {
	if err := checkCPUMax(path, to); err != nil {
		return err
	}
	room := ratioRoom{ceil: noRatio}
	if from.QuotaUsec != to.QuotaUsec && from.PeriodUsec != to.PeriodUsec {
		var err error
		if room, err = d.roomFor(path, to); err != nil {
			return &CPUMaxError{Path: path, Err: err}
		}
	}
	err := d.carryCPUMax(path, planCPUMax(from, to, room))
	var ce *CPUMaxError
	if errors.As(err, &ce) && errors.Is(err, unix.EINVAL) && (ce.File == quotaFile || ce.File == periodFile) {
		if _, why := d.roomFor(path, to); why != nil && errors.Is(why, unix.EINVAL) {
			ce.Err = why
		}
	}
	return err
}

func (d *V1) carryCPUMax(path string, steps []step) error {
	text := make([]textStep, len(steps))
	for i, s := range steps {
		text[i] = textStep{s.file, strconv.FormatInt(s.value, 10)}
	}
	return carryOut(path, text, func(s textStep) error { return d.write(CPU, path, s.file, s.value) })
}

// roomFor reads the limits around a group and refuses a v that does not fit.
func (d *V1) roomFor(path string, v CPUMax) (ratioRoom, error) {
	room := ratioRoom{ceil: noRatio}
	for _, up := range ancestors(path) {
		m, err := d.ReadCPUMax(up)
		if err != nil {
			return room, err
		}
		room.ceil = min(room.ceil, kernelRatio(m.QuotaUsec, m.PeriodUsec))
		if v.QuotaUsec >= 0 && kernelRatio(v.QuotaUsec, v.PeriodUsec) > room.ceil {
			return room, fmt.Errorf("%s exceeds %s of its ancestor %s: %w", v, m, up, unix.EINVAL)
		}
	}
	below, err := Listed(d.Descendants(path)) // the kernel itself refuses a limit that is less than one of theirs
	if err != nil {
		return room, err
	}
	for _, down := range below {
		m, err := d.ReadCPUMax(down)
		switch {
		case errors.Is(err, ErrVanished):
			continue
		case err != nil:
			return room, err
		case m.QuotaUsec < 0:
			continue
		}
		room.floor = max(room.floor, kernelRatio(m.QuotaUsec, m.PeriodUsec))
		if v.QuotaUsec >= 0 && kernelRatio(v.QuotaUsec, v.PeriodUsec) < room.floor {
			return room, fmt.Errorf("%s is less than %s of its descendant %s: %w", v, m, down, unix.EINVAL)
		}
	}
	return room, nil
}
