package cgroup

// cpu.max and cpu.max.burst: the CPU bandwidth limit of a v2 group, in microseconds, and
// what both layouts say of such a limit (v1's files: cpu_cfs_quota_us.go).
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
// https://docs.kernel.org/scheduler/sched-bwc.html
//
//	cpu.max        max 100000     (no limit; or "20000 100000": quota and period)
//	cpu.max.burst  0              (since Linux 5.14)
//
// Quota and period change in one write, so only the burst needs an order. The kernel's
// rules (kernel/sched/core.c, tg_set_cfs_bandwidth), each refused with EINVAL:
//
//   - quota is at least 1000, period between 1000 and 1000000;
//   - burst is at most quota; without a quota any burst is taken (there are kernels with a
//     wider bound, so that this one rule is left to the kernel that runs).
//
// Each write refills the group's time, as cpu_cfs_quota_us.go says.
//
// Unlike on v1 a child may have more than its parent: the lesser of the two binds
// (tg_cfs_schedulable_down). A group has these files where its parent hands the cpu
// controller on; the root group has none.

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxFile      = "cpu.max"
	maxBurstFile = "cpu.max.burst"

	minQuotaUsec  = 1000           // min_cfs_quota_period
	minPeriodUsec = 1000           // min_cfs_quota_period
	maxPeriodUsec = 1000000        // max_cfs_quota_period
	maxQuota      = 1<<(64-20) - 1 // MAX_BW, microseconds
)

// CPUMax is a group's bandwidth limit: QuotaUsec of CPU time in each PeriodUsec, and
// BurstUsec that may be saved up from earlier periods.
type CPUMax struct {
	QuotaUsec  int64 // -1: no limit
	PeriodUsec int64
	BurstUsec  int64 // 0 also on kernels without burst
}

// Ratio returns the limit in CPUs; +Inf when there is none.
func (m CPUMax) Ratio() float64 {
	if m.QuotaUsec < 0 {
		return math.Inf(1)
	}
	return float64(m.QuotaUsec) / float64(m.PeriodUsec)
}

// String returns the limit as people read it: "20000/100000 burst 0", "max/100000 burst 0".
func (m CPUMax) String() string {
	quota := "max"
	if m.QuotaUsec >= 0 {
		quota = fmt.Sprint(m.QuotaUsec)
	}
	return fmt.Sprintf("%s/%d burst %d", quota, m.PeriodUsec, m.BurstUsec)
}

// validate refuses what no kernel takes, so that nothing is written of it. A burst above
// the quota is not among that: mainline refuses it, and other kernels take it.
func (m CPUMax) validate() error {
	switch {
	case m.QuotaUsec != -1 && (m.QuotaUsec < minQuotaUsec || m.QuotaUsec > maxQuota):
		return fmt.Errorf("quota %d µs is neither -1 nor within [%d, %d]: %w", m.QuotaUsec, minQuotaUsec, int64(maxQuota), unix.EINVAL)
	case m.PeriodUsec < minPeriodUsec || m.PeriodUsec > maxPeriodUsec:
		return fmt.Errorf("period %d µs is not within [%d, %d]: %w", m.PeriodUsec, minPeriodUsec, maxPeriodUsec, unix.EINVAL)
	case m.BurstUsec < 0 || m.BurstUsec > maxQuota:
		return fmt.Errorf("burst %d µs is not within [0, %d]: %w", m.BurstUsec, int64(maxQuota), unix.EINVAL)
	case m.QuotaUsec >= 0 && m.BurstUsec+m.QuotaUsec > maxQuota:
		return fmt.Errorf("burst and quota together pass %d µs: %w", int64(maxQuota), unix.EINVAL)
	}
	return nil
}

// IsIntermediate says whether current can be a state on the way from found to intended:
// each component is the one or the other. A crash inside WriteCPUMax leaves such a
// state. The one exception is the lifted quota of planCPUMax's last resort: its -1 is
// none of the two. Who knows that a write was not finished (the journal does) may take
// it for our own.
func IsIntermediate(found, intended, current CPUMax) bool {
	one := func(f, i, c int64) bool { return c == f || c == i }
	return one(found.QuotaUsec, intended.QuotaUsec, current.QuotaUsec) &&
		one(found.PeriodUsec, intended.PeriodUsec, current.PeriodUsec) &&
		one(found.BurstUsec, intended.BurstUsec, current.BurstUsec)
}

// CPUMaxError says how far WriteCPUMax came. It unwraps to the cause: an errno, an
// ErrVanished, an ErrUnsupported.
type CPUMaxError struct {
	Path    string   // of the group
	File    string   // that was refused; "" when nothing was tried
	Value   string   // that was refused, as it was written
	Written []string // files already changed: the limit is in between
	Err     error
}

// Error implements error.
func (e *CPUMaxError) Error() string {
	s := "write cpu limit of " + e.Path + ": "
	if e.File != "" {
		s += e.File + " = " + e.Value + ": "
	}
	s += e.Err.Error()
	if len(e.Written) > 0 {
		s += " (already written: " + strings.Join(e.Written, ", ") + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *CPUMaxError) Unwrap() error { return e.Err }

// OfBurst says that it was the burst that was refused.
func (e *CPUMaxError) OfBurst() bool { return e.File == burstFile || e.File == maxBurstFile }

// ReadCPUMax implements Driver. The two files are read one after the other.
func (d *V2) ReadCPUMax(path string) (CPUMax, error) {
	data, err := d.read(path, maxFile)
	if err != nil {
		return CPUMax{}, err
	}
	m, err := parseCPUMax(data)
	if err != nil {
		return CPUMax{}, fmt.Errorf("read cpu.max of cgroup %s: %w", path, err)
	}
	// A kernel without the file saves no burst up: 0 is what it does.
	burst, err := d.readUint(path, maxBurstFile)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return CPUMax{}, err
	}
	if burst > maxQuota {
		return CPUMax{}, fmt.Errorf("read cpu.max.burst of cgroup %s: %w: %d", path, ErrMalformed, burst)
	}
	m.BurstUsec = int64(burst)
	return m, nil
}

// parseCPUMax reads "max 100000" or "20000 100000".
func parseCPUMax(data []byte) (CPUMax, error) {
	quota, period, ok := bytes.Cut(bytes.TrimSuffix(data, []byte("\n")), []byte(" "))
	m := CPUMax{QuotaUsec: -1}
	var err, err2 error
	if string(quota) != "max" {
		m.QuotaUsec, err = strconv.ParseInt(string(quota), 10, 64)
	}
	m.PeriodUsec, err2 = strconv.ParseInt(string(period), 10, 64)
	if !ok || err != nil || err2 != nil || m.QuotaUsec < -1 || m.PeriodUsec <= 0 || string(quota) == "-1" {
		return CPUMax{}, fmt.Errorf("%w cpu.max %q", ErrMalformed, clip(data))
	}
	return m, nil
}

// planCPUMaxV2 returns the writes that lead from one limit to another, each of which the
// kernel takes: burst goes down before the quota and up after it. So what a crash leaves
// behind has each of quota, period and burst from one end or the other (IsIntermediate).
func planCPUMaxV2(from, to CPUMax) []textStep {
	var steps []textStep
	burst := textStep{maxBurstFile, strconv.FormatInt(to.BurstUsec, 10)}
	if to.BurstUsec < from.BurstUsec {
		steps = append(steps, burst)
	}
	if from.QuotaUsec != to.QuotaUsec || from.PeriodUsec != to.PeriodUsec {
		quota := "max"
		if to.QuotaUsec >= 0 {
			quota = strconv.FormatInt(to.QuotaUsec, 10)
		}
		steps = append(steps, textStep{maxFile, quota + " " + strconv.FormatInt(to.PeriodUsec, 10)})
	}
	if to.BurstUsec > from.BurstUsec {
		steps = append(steps, burst)
	}
	return steps
}

// textStep is one write.
type textStep struct{ file, value string }

// WriteCPUMax implements Driver: it reads what is there and writes only the files that
// differ. What no kernel takes is refused before anything is written.
func (d *V2) WriteCPUMax(path string, v CPUMax) error {
	from, err := readBefore(path, v, d.ReadCPUMax)
	if err != nil {
		return err
	}
	return d.ChangeCPUMax(path, from, v)
}

// ChangeCPUMax implements Driver.
func (d *V2) ChangeCPUMax(path string, from, to CPUMax) error {
	if err := checkCPUMax(path, to); err != nil {
		return err
	}
	return carryOut(path, planCPUMaxV2(from, to), func(s textStep) error { return d.write(path, s.file, s.value) })
}

// checkCPUMax refuses what no kernel takes. The error is a *CPUMaxError.
func checkCPUMax(path string, v CPUMax) error {
	err := CheckPath(path)
	if err == nil {
		err = v.validate()
	}
	if err != nil {
		return &CPUMaxError{Path: path, Err: err}
	}
	return nil
}

// readBefore checks what is to be written and reads what is there. The error is a
// *CPUMaxError.
func readBefore(path string, v CPUMax, read func(path string) (CPUMax, error)) (CPUMax, error) {
	if err := checkCPUMax(path, v); err != nil {
		return CPUMax{}, err
	}
	from, err := read(path)
	if err != nil {
		return CPUMax{}, &CPUMaxError{Path: path, Err: err}
	}
	return from, nil
}

// carryOut writes one file after the other. The error is a *CPUMaxError.
func carryOut(path string, steps []textStep, write func(textStep) error) error {
	var written []string
	for _, s := range steps {
		if err := write(s); err != nil {
			return &CPUMaxError{Path: path, File: s.file, Value: s.value, Written: written, Err: err}
		}
		written = append(written, s.file)
	}
	return nil
}

// CapAbove implements Driver.
func (d *V1) CapAbove(path string) (at string, v CPUMax, err error) {
	return capAbove(path, d.ReadCPUMax)
}

// CapAbove implements Driver.
func (d *V2) CapAbove(path string) (at string, v CPUMax, err error) {
	return capAbove(path, d.ReadCPUMax)
}

// capAbove finds the least limit among a group's ancestors; a group above without a limit
// of its own, or without the controller, bounds nothing.
func capAbove(path string, read func(path string) (CPUMax, error)) (at string, least CPUMax, err error) {
	least = CPUMax{QuotaUsec: -1}
	if err := CheckPath(path); err != nil {
		return "", least, fmt.Errorf("read cpu limits above cgroup %s: %w", path, err)
	}
	for _, up := range ancestors(path) {
		m, err := read(up)
		switch {
		case errors.Is(err, ErrNoController) || errors.Is(err, ErrUnsupported):
		case err != nil:
			return "", CPUMax{QuotaUsec: -1}, err
		case m.QuotaUsec >= 0 && kernelRatio(m.QuotaUsec, m.PeriodUsec) < least.kernelRatio():
			at, least = up, m
		}
	}
	return at, least, nil
}

func (m CPUMax) kernelRatio() uint64 {
	if m.PeriodUsec <= 0 {
		return noRatio
	}
	return kernelRatio(m.QuotaUsec, m.PeriodUsec)
}

// Exceeds says whether a limit is more than another as the kernel compares them, by the
// ratio of quota and period as a 20-bit binary fraction. No limit exceeds every other.
func (m CPUMax) Exceeds(other CPUMax) bool { return m.kernelRatio() > other.kernelRatio() }
