package model

import (
	"encoding/json"
	"fmt"
	"math"
)

// Kernel bounds of CFS bandwidth (Documentation/scheduler/sched-bwc.rst): a quota of at
// least 1 ms, a period of 1 ms to 1 s.
const (
	minQuotaUsec  = 1_000
	maxPeriodUsec = 1_000_000
	// mostCPUs is far above any machine; its quota is still one that the kernel takes
	// (under 2^44 us), so that an absurd cap does not overflow into a tiny one.
	mostCPUs = 1 << 20
)

// CPUMax is a CFS bandwidth limit as the kernel holds it: cpu.cfs_quota_us,
// cpu.cfs_period_us and cpu.cfs_burst_us of cgroup v1, or cpu.max and cpu.max.burst of
// v2. The three are one knob: their bounds depend on each other (docs/DESIGN.md, decision 5).
type CPUMax struct {
	QuotaUsec  int64 `json:"quota_usec"` // -1: no limit
	PeriodUsec int64 `json:"period_usec"`
	BurstUsec  int64 `json:"burst_usec"`
}

// NoRoom says that its burst is more than its quota, which Linux does not take
// (kernel/sched/core.c, tg_set_cfs_bandwidth; there are kernels that do): a burst that was found
// under a quota that another program has written meanwhile, or one that he wrote under a greater quota
// of ours. The first is put back where his quota went before it is given up, and else stays what it is;
// the second becomes what the quota that is given back leaves room for.
func (m CPUMax) NoRoom() bool { return m.QuotaUsec >= 0 && m.BurstUsec > m.QuotaUsec }

var cpuMaxSpec = KnobSpec{
	Name:  "cpu.max",
	Takes: [NumClaimKinds][]Class{ClaimCap: {BE}, ClaimRaise: {LC}},
	Cap:   func(cpus float64, periodNsec int64) Setting { return Bandwidth(CapFor(cpus, periodNsec)) },
	Within: func(a, b Setting) bool {
		return a.Ratio() <= b.Ratio()
	},
	CPUs:  func(s Setting) float64 { return s.Ratio() },
	Raise: raised, Between: betweenCPUMax, Show: showCPUMax, Brief: briefCPUMax, Raised: raisedText,
	Encode: func(s Setting) any { return s.CPUMax },
	Decode: func(b []byte) (Setting, error) {
		s := Ask(CPUBandwidth)
		return s, json.Unmarshal(b, &s.CPUMax)
	},
}

// Ratio returns the limit in CPU-sec/sec, +Inf when there is none.
func (m CPUMax) Ratio() float64 {
	if m.QuotaUsec < 0 || m.PeriodUsec <= 0 {
		return math.Inf(1)
	}
	return float64(m.QuotaUsec) / float64(m.PeriodUsec)
}

// Bandwidth returns the setting of a CFS limit.
func Bandwidth(v CPUMax) Setting { return Setting{CPUMax: v} }

func showCPUMax(s Setting) string {
	if s.QuotaUsec < 0 {
		return fmt.Sprintf("no quota, period %d us, burst %d us", s.PeriodUsec, s.BurstUsec)
	}
	return fmt.Sprintf("quota %d us, period %d us, burst %d us", s.QuotaUsec, s.PeriodUsec, s.BurstUsec)
}

func briefCPUMax(s Setting) string {
	switch {
	case s.QuotaUsec < 0:
		return "no limit"
	case s.BurstUsec > 0:
		return fmt.Sprintf("%.3g CPU (%d us in %d us, burst %d us)", s.Ratio(), s.QuotaUsec, s.PeriodUsec, s.BurstUsec)
	}
	return fmt.Sprintf("%.3g CPU (%d us in %d us)", s.Ratio(), s.QuotaUsec, s.PeriodUsec)
}

func raisedText(found, claimed Setting) string {
	text := ""
	if claimed.QuotaUsec > 0 {
		to := CPUMax{QuotaUsec: claimed.QuotaUsec, PeriodUsec: found.PeriodUsec}
		text += fmt.Sprintf(" quota %.3g to %.3g CPU", found.Ratio(), to.Ratio())
	}
	if claimed.BurstUsec > 0 {
		text += fmt.Sprintf(" burst %g to %g ms", float64(found.BurstUsec)/1e3, float64(claimed.BurstUsec)/1e3)
	}
	return text
}

// betweenCPUMax: the three numbers are written one after the other, and between two limits
// the driver may lift the quota altogether for some microseconds.
func betweenCPUMax(now, from, to Setting) bool {
	if to.NoRoom() && now.BurstUsec == to.QuotaUsec {
		now.BurstUsec = to.BurstUsec // it comes down before the quota, where the kernel refuses that beside it
	}
	in := func(v, a, b int64) bool { return v == a || v == b }
	return (now.QuotaUsec < 0 || in(now.QuotaUsec, from.QuotaUsec, to.QuotaUsec)) &&
		in(now.PeriodUsec, from.PeriodUsec, to.PeriodUsec) && in(now.BurstUsec, from.BurstUsec, to.BurstUsec)
}

// raised puts the greatest quota and the greatest burst that are claimed over what was
// found, in its period. A burst that the kernel's own bound (the quota) allowed with the quota
// that was found is kept within it when the quota goes below.
func raised(found Setting, claims []Claim) (Setting, bool) {
	quota, burst := int64(0), int64(0)
	for i := range claims {
		c := &claims[i]
		if c.Kind != ClaimRaise {
			continue
		}
		burst = max(burst, c.Value.BurstUsec)
		if c.Over.PeriodUsec == 0 || c.Over.QuotaUsec == found.QuotaUsec && c.Over.PeriodUsec == found.PeriodUsec {
			quota = max(quota, c.Value.QuotaUsec)
		}
	}
	v := found
	if quota > 0 {
		v.QuotaUsec = max(quota, minQuotaUsec)
	}
	v.BurstUsec = max(v.BurstUsec, burst)
	if v.BurstUsec <= found.QuotaUsec {
		v.BurstUsec = min(v.BurstUsec, v.QuotaUsec)
	}
	return v, found.QuotaUsec >= 0
}

// CapFor turns CPU-sec/sec into a quota and a period (CPI² §5: 25 ms in each
// 250 ms window is 0.1). Where the quota would fall under the kernel's least, the
// period is stretched, up to the kernel's greatest; a smaller cap than 1 ms a second
// cannot be had and becomes that.
func CapFor(cpus float64, periodNsec int64) CPUMax {
	const least = float64(minQuotaUsec) / maxPeriodUsec
	if !(cpus > least) { // NaN too
		cpus = least
	}
	cpus = min(cpus, mostCPUs)
	period := min(max(periodNsec/1000, minQuotaUsec), maxPeriodUsec)
	quota := int64(math.Round(cpus * float64(period)))
	if quota < minQuotaUsec {
		quota = minQuotaUsec
		period = min(int64(math.Round(minQuotaUsec/cpus)), maxPeriodUsec)
	}
	return CPUMax{QuotaUsec: quota, PeriodUsec: period}
}
