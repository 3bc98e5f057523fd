// Package cputrace records the CPU use of a cgroup by the millisecond. What it records is
// for the choice of a bucket (Alibaba §4.1, "Parameter tuning"): a quota throttles
// within a period of 100 ms, so a recording by the second says nothing about it.
//
// The kernel's counters do not step by the millisecond. It charges CPU time when it takes a
// task off a CPU and at each tick (update_curr, kernel/sched/fair.c), and no reading makes
// it charge what runs at that moment on another CPU: not cpuacct.usage, not cpu.stat, not
// /proc/<tid>/schedstat, and not the CPU clock of another process. Measured on Linux 6.18
// with CONFIG_HZ=250: the counter of a thread that spins stands still for three readings of
// four and then steps by 4 ms.
//
// But a charge is the time that one task ran on one CPU without a break up to the moment of
// the charge. So a step of one CPU's counter that is larger than the time since the last
// reading tells when it was used: just before, on one CPU. Such steps are put back to there
// (lane). With cgroup v1 the counters are by CPU, and what is left open is where in the time
// between two readings the charge fell: a millisecond or two. On v2 there is one counter of
// all CPUs, and how many ran at a time is taken from how much it stepped since it stood
// still: within a tick the true number may be larger, for a shorter time.
//
// Rejected: the sum over /proc/<tid>/schedstat (the same steps for more reading, and it
// loses threads that end), software perf events (each reading interrupts the CPUs that run
// the group), and a BPF program on each switch (exact, and a cost to every task).
package cputrace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
)

// MaxDuration bounds a recording. Its memory is 4 bytes a millisecond.
const MaxDuration = time.Hour

var (
	// ErrIdle: the cgroup used no CPU while it was recorded.
	ErrIdle = errors.New("no CPU use")
	// ErrDuration: the duration is below a millisecond, or above MaxDuration.
	ErrDuration = errors.New("duration out of bounds")
)

// Recording is CPU use by the millisecond with what is to be known of how it was taken.
type Recording struct {
	Path   string    `json:"task"`   // of the cgroup
	Kernel string    `json:"kernel"` // release
	Source string    `json:"source"` // kernel file
	CPUs   int       `json:"cpus"`   // that have a counter of their own; 0: one counter of all
	Tick   float64   `json:"tick_ms"`
	Start  time.Time `json:"start"`
	// Ended says why it is shorter than what was asked for; "" when it is not.
	Ended string `json:"ended,omitempty"`

	Limit Limit `json:"limit"`

	Readings int `json:"readings"`
	// PutBack is the share of the CPU time that came in steps larger than the time between
	// two readings, and was put back to where it must have been used.
	PutBack float64 `json:"put_back"`
	// Late is the share of milliseconds whose reading was late by half a millisecond or
	// more, or fell out. What was used then is spread evenly over the milliseconds that the
	// next reading covers.
	Late        float64  `json:"late"`
	LateP99Usec int64    `json:"late_p99_usec"` // of a reading, in steps of 10 us
	LateMaxUsec int64    `json:"late_max_usec"`
	OwnCPU      float64  `json:"own_cpu"`        // CPU-sec/sec that the recording took itself
	MeanCPU     float64  `json:"mean_cpu"`       // CPU-sec/sec of the task
	LargestMsec float64  `json:"largest_ms"`     // CPU time of the largest millisecond
	Largest100  float64  `json:"largest_100_ms"` // CPU time of the largest 100 ms
	UsedNsec    []uint32 `json:"-"`              // by the millisecond
}

// Limit is the quota under which the group itself ran.
type Limit struct {
	// Known: the group can have a quota, and it could be read.
	Known bool `json:"known"`
	// QuotaUsec is below 0 when there is none.
	QuotaUsec  int64 `json:"quota_usec"`
	PeriodUsec int64 `json:"period_usec"`
	BurstUsec  int64 `json:"burst_usec"`
	// Periods and Throttled count the periods of the recording, and those in which the
	// quota ran out. ThrottledAround is the same over its descendants and those above too.
	Periods         uint64 `json:"periods"`
	Throttled       uint64 `json:"throttled"`
	ThrottledAround uint64 `json:"throttled_around"`
}

// counters are what is read each millisecond: one number a CPU, or one in all.
type counters interface {
	UsageNsec(dst []uint64) ([]uint64, error)
}

// whole is the counter of a group, of all CPUs together.
type whole struct{ group cgroup.Group }

// UsageNsec implements counters.
func (w whole) UsageNsec(dst []uint64) ([]uint64, error) {
	v, err := w.group.UsageNsec()
	return append(dst[:0], v), err
}

// Record records a cgroup until the time is over, the context ends or the cgroup goes. The
// path is below the hierarchy's root. Errors are those of package cgroup, ErrIdle and
// ErrDuration; a recording that was cut short is none.
func Record(ctx context.Context, root hostfs.FS, path string, d time.Duration) (*Recording, error) {
	if d < time.Millisecond || d > MaxDuration {
		return nil, fmt.Errorf("record %s for %s: %w: 1ms to %s", path, d, ErrDuration, MaxDuration)
	}
	mounts, err := cgroup.Discover(root)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	driver, err := cgroup.Open(root, mounts)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	group, err := driver.Open(path)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	defer group.Close() //nolint:errcheck // reading only
	from, closeCounters, err := open(driver, group)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	defer closeCounters() //nolint:errcheck // reading only
	r := &Recording{Path: path, Start: time.Now(), Source: "cpu.stat"}
	if r.Kernel, err = procstat.ReadKernelRelease(root); err != nil {
		r.Kernel = "unknown"
	}
	if _, ok := driver.(*cgroup.V1); ok {
		r.Source = "cpuacct.usage"
	}
	_, byCPU := from.(*cgroup.UsagePerCPU)
	if byCPU {
		r.Source = "cpuacct.usage_percpu"
	}
	tick := tickNsec()
	r.Tick = float64(tick) / 1e6
	before := readLimit(driver, group, path)
	rec := newRecorder(int(d/time.Millisecond), tick, byCPU)
	if err := rec.onOwnThread(ctx, from); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r.Limit = since(before, readLimit(driver, group, path))
	rec.report(r)
	if r.MeanCPU == 0 {
		return nil, fmt.Errorf("record %s: %w in %d ms", path, ErrIdle, len(r.UsedNsec))
	}
	return r, nil
}

// open returns the finest counters that there are.
func open(driver cgroup.Driver, group cgroup.Group) (counters, func() error, error) {
	if v1, ok := driver.(*cgroup.V1); ok {
		u, err := v1.OpenUsagePerCPU(group.Identity().Path)
		if err == nil {
			return u, u.Close, nil
		}
		if !errors.Is(err, cgroup.ErrUnsupported) {
			return nil, nil, err
		}
	}
	return whole{group}, func() error { return nil }, nil
}

// readLimit reads what can be read of the group's quota; after it is gone, nothing.
func readLimit(driver cgroup.Driver, group cgroup.Group, path string) Limit {
	v, err := driver.ReadCPUMax(path)
	if err != nil {
		return Limit{}
	}
	t, err := group.Throttling()
	if err != nil {
		return Limit{}
	}
	return Limit{
		Known: true, QuotaUsec: v.QuotaUsec, PeriodUsec: v.PeriodUsec, BurstUsec: v.BurstUsec,
		Periods: t.Own.NrPeriods, Throttled: t.Own.NrThrottled, ThrottledAround: t.NrThrottledAround,
	}
}

// since returns the later limit with what was counted since the earlier one. Without a
// later one the earlier says which quota there was.
func since(a, b Limit) Limit {
	if !a.Known || !b.Known {
		a.Periods, a.Throttled, a.ThrottledAround = 0, 0, 0
		return a
	}
	less := func(x, y uint64) uint64 { return y - min(x, y) } // counts begin anew with a controller
	b.Periods, b.Throttled = less(a.Periods, b.Periods), less(a.Throttled, b.Throttled)
	b.ThrottledAround = less(a.ThrottledAround, b.ThrottledAround)
	return b
}

// tickNsec returns the kernel's tick: the resolution of the clock that steps with it.
func tickNsec() int64 {
	var ts unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil || ts.Nano() <= 0 {
		return int64(10 * time.Millisecond) // the longest that kernels are built with
	}
	return ts.Nano()
}
