package cgroup

// cpu.stat (v1: /sys/fs/cgroup/cpu/<group>/cpu.stat): what the group's own quota did.
//
// https://docs.kernel.org/scheduler/sched-bwc.html#statistics
//
//	nr_periods 118
//	nr_throttled 37
//	throttled_time 2910412386
//	nr_bursts 0
//	burst_time 0
//
// Times are nanoseconds. Periods count only while the group has a quota and runnable
// tasks. throttled_time adds up over run queues, so it can pass wall time. The last two
// lines came with Linux 5.14.

import (
	"bytes"
	"fmt"
	"strconv"
)

// CPUStat is a group's own cpu.stat. All fields only grow.
type CPUStat struct {
	NrPeriods     uint64 // enforcement periods that passed
	NrThrottled   uint64 // of these, periods in which the group was stopped
	ThrottledNsec uint64 // time stopped, summed over run queues
	HasBursts     bool   // the kernel reports the two figures below
	NrBursts      uint64 // periods that used saved-up burst
	BurstNsec     uint64 // time used beyond the quota in these
}

// parseCPUStat needs the three lines that every kernel with CFS bandwidth writes, and
// passes over lines that it does not know. It does not allocate unless it fails.
func parseCPUStat(data []byte) (CPUStat, error) {
	var s CPUStat
	const periods, throttled, throttledTime, bursts, burstTime = 1, 2, 4, 8, 16
	seen := 0
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		key, value, _ := bytes.Cut(line, []byte(" "))
		var dst *uint64
		switch string(key) {
		case "nr_periods":
			dst, seen = &s.NrPeriods, seen|periods
		case "nr_throttled":
			dst, seen = &s.NrThrottled, seen|throttled
		case "throttled_time":
			dst, seen = &s.ThrottledNsec, seen|throttledTime
		case "nr_bursts":
			dst, seen = &s.NrBursts, seen|bursts
		case "burst_time":
			dst, seen = &s.BurstNsec, seen|burstTime
		default:
			continue
		}
		v, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			return CPUStat{}, fmt.Errorf("%w cpu.stat: line %q", ErrMalformed, line)
		}
		*dst = v
	}
	if need := periods | throttled | throttledTime; seen&need != need {
		return CPUStat{}, fmt.Errorf("%w cpu.stat: nr_periods, nr_throttled or throttled_time is missing", ErrMalformed)
	}
	s.HasBursts = seen&(bursts|burstTime) == bursts|burstTime
	return s, nil
}
