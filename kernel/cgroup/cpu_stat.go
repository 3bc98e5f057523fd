package cgroup

// cpu.stat: what the group's own quota did, and on v2 the CPU time.
//
// https://docs.kernel.org/scheduler/sched-bwc.html#statistics
// https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
//
//	v1                          v2
//	                            usage_usec 3141592
//	                            user_usec 3000000
//	                            system_usec 141592
//	nr_periods 118              nr_periods 118
//	nr_throttled 37             nr_throttled 37
//	throttled_time 2910412386   throttled_usec 2910412
//	nr_bursts 0                 nr_bursts 0
//	burst_time 0                burst_usec 0
//
// Times are nanoseconds on v1 and microseconds on v2. Periods count only while the group
// has a quota and runnable tasks. Throttled time adds up over run queues, so it can pass
// wall time. The burst lines came with Linux 5.14. On v2 every group has the file; the
// lines from nr_periods on are there only with the cpu controller, without which a group
// has no quota. More lines come with newer kernels (nice_usec, core_sched.force_idle_usec).
//
// usage_usec is the CPU time of the group and its descendants, also of those that are
// gone, from the scheduler's own clock, cut to whole microseconds. In the true root group
// it is made of the kernel's tick counters instead, as /proc/stat is, and counted stolen
// time as used before Linux 6.15.

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// CPUStat is a group's own cpu.stat. All fields only grow, but on v2 they begin anew when
// the cpu controller is disabled and enabled for the group.
type CPUStat struct {
	// HasQuota: the group can have a quota. False on v2 where the cpu controller is
	// not enabled for it; then the rest is zero.
	HasQuota      bool
	NrPeriods     uint64 // enforcement periods that passed
	NrThrottled   uint64 // of these, periods in which the group was stopped
	ThrottledNsec uint64 // time stopped, summed over run queues
	HasBursts     bool   // the kernel reports the two figures below
	NrBursts      uint64 // periods that used saved-up burst
	BurstNsec     uint64 // time used beyond the quota in these
}

// CPUTime is the CPU time in a v2 group's cpu.stat, in nanoseconds with a resolution of a
// microsecond. User and system are estimates that add up to about the usage.
type CPUTime struct {
	UsageNsec, UserNsec, SystemNsec uint64
}

// The lines of cpu.stat, as bits.
const (
	statPeriods = 1 << iota
	statThrottled
	statThrottledTime
	statBursts
	statBurstTime
	statUsage
	statUser
	statSystem

	statQuota = statPeriods | statThrottled | statThrottledTime
	statTime  = statUsage | statUser | statSystem
)

// parseCPUStat reads a v1 group's. It needs the three lines that every kernel with CFS
// bandwidth writes, and passes over lines that it does not know. It does not allocate
// unless it fails.
func parseCPUStat(data []byte) (CPUStat, error) {
	s, _, seen, err := parseStatLines(data)
	if err != nil {
		return CPUStat{}, err
	}
	if seen&statQuota != statQuota {
		return CPUStat{}, fmt.Errorf("%w cpu.stat: nr_periods, nr_throttled or throttled_time is missing", ErrMalformed)
	}
	return s, nil
}

// parseThrottling reads the throttling of a v2 group, parseCPUTime its CPU time.
func parseThrottling(data []byte) (CPUStat, error) {
	s, _, err := parseUsageAndThrottling(data)
	return s, err
}

// parseUsageAndThrottling reads both, of the CPU time the usage alone.
func parseUsageAndThrottling(data []byte) (CPUStat, uint64, error) {
	s, t, seen, err := parseStatLines(data)
	if err != nil {
		return CPUStat{}, 0, err
	}
	if seen&statUsage == 0 || (seen&statQuota != 0 && seen&statQuota != statQuota) {
		return CPUStat{}, 0, fmt.Errorf("%w cpu.stat: usage_usec, nr_periods, nr_throttled or throttled_usec is missing", ErrMalformed)
	}
	return s, t.UsageNsec, nil
}

func parseCPUTime(data []byte) (CPUTime, error) {
	_, t, seen, err := parseStatLines(data)
	if err != nil {
		return CPUTime{}, err
	}
	if seen&statTime != statTime {
		return CPUTime{}, fmt.Errorf("%w cpu.stat: usage_usec, user_usec or system_usec is missing", ErrMalformed)
	}
	return t, nil
}

func parseStatLines(data []byte) (s CPUStat, t CPUTime, seen int, err error) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		key, value, _ := bytes.Cut(line, []byte(" "))
		var dst *uint64
		bit, unit := 0, uint64(1)
		switch string(key) {
		case "usage_usec":
			dst, bit, unit = &t.UsageNsec, statUsage, 1000
		case "user_usec":
			dst, bit, unit = &t.UserNsec, statUser, 1000
		case "system_usec":
			dst, bit, unit = &t.SystemNsec, statSystem, 1000
		case "nr_periods":
			dst, bit = &s.NrPeriods, statPeriods
		case "nr_throttled":
			dst, bit = &s.NrThrottled, statThrottled
		case "throttled_time":
			dst, bit = &s.ThrottledNsec, statThrottledTime
		case "throttled_usec":
			dst, bit, unit = &s.ThrottledNsec, statThrottledTime, 1000
		case "nr_bursts":
			dst, bit = &s.NrBursts, statBursts
		case "burst_time":
			dst, bit = &s.BurstNsec, statBurstTime
		case "burst_usec":
			dst, bit, unit = &s.BurstNsec, statBurstTime, 1000
		default:
			continue
		}
		v, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil || v > math.MaxUint64/unit {
			return CPUStat{}, CPUTime{}, 0, fmt.Errorf("%w cpu.stat: line %q", ErrMalformed, clip(line))
		}
		*dst, seen = v*unit, seen|bit
	}
	s.HasQuota = seen&statQuota == statQuota
	s.HasBursts = seen&(statBursts|statBurstTime) == statBursts|statBurstTime
	return s, t, seen, nil
}

// v2RootUsage reads the true root group's cpu.stat.
type v2RootUsage struct {
	file hostfs.File
	buf  []byte
}

// OpenRootUsage implements Driver. On v2 the figure is no more exact than /proc/stat: it
// grows by ticks. Time that a hypervisor stole is not in it. Where the root group is not
// the machine's (Partial) it is ErrUnsupported.
func (d *V2) OpenRootUsage() (RootUsage, error) {
	if d.partial {
		return nil, fmt.Errorf("open the root's usage: %w: the root of %s is a group of its own (a cgroup namespace)", ErrUnsupported, d.top)
	}
	f, err := d.fs.Open(d.top + "/cpu.stat")
	if err != nil {
		return nil, d.wrap("open cpu.stat of", "/", err)
	}
	return &v2RootUsage{file: f}, nil
}

// UsageNsec implements RootUsage. It adds user and system time up, because usage_usec
// counts stolen time on some kernels and does not on others.
func (u *v2RootUsage) UsageNsec() (uint64, error) {
	var err error
	if u.buf, err = u.file.ReadRecord(u.buf); err != nil {
		return 0, fmt.Errorf("read the root's cpu.stat: %w", err)
	}
	t, err := parseCPUTime(u.buf)
	if err != nil {
		return 0, fmt.Errorf("read the root's cpu.stat: %w", err)
	}
	return t.UserNsec + t.SystemNsec, nil
}

// Close implements RootUsage.
func (u *v2RootUsage) Close() error { return u.file.Close() }
