package model

import (
	"fmt"
	"math"
)

// KnobKind names one kernel control of a task. A knob is a task and a kind.
type KnobKind uint8

// The kinds of knob.
const (
	// CPUBandwidth is the CFS limit: quota, period and burst are one knob, because their
	// bounds depend on each other (DESIGN.md, decision 5).
	CPUBandwidth KnobKind = iota
	// CPUPlace is the CPUs on which the task may run.
	CPUPlace
	NumKnobs
)

var knobNames = [...]string{"cpu.max", "cpuset.cpus"}

// String returns the name of the kernel's file on cgroup v2.
func (k KnobKind) String() string { return nameOf(knobNames[:], uint8(k)) }

// MarshalText writes the kind's name.
func (k KnobKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *KnobKind) UnmarshalText(b []byte) error {
	return parseName(knobNames[:], string(b), "knob", (*uint8)(k))
}

// CPUMax is a CFS bandwidth limit as the kernel holds it: cpu.cfs_quota_us,
// cpu.cfs_period_us and cpu.cfs_burst_us of cgroup v1, or cpu.max and cpu.max.burst of
// v2. The three are one knob: their bounds depend on each other.
type CPUMax struct {
	QuotaUsec  int64 `json:"quota_usec"` // -1: no limit
	PeriodUsec int64 `json:"period_usec"`
	BurstUsec  int64 `json:"burst_usec"`
}

// Ratio returns the limit in CPU-sec/sec, +Inf when there is none.
func (m CPUMax) Ratio() float64 {
	if m.QuotaUsec < 0 || m.PeriodUsec <= 0 {
		return math.Inf(1)
	}
	return float64(m.QuotaUsec) / float64(m.PeriodUsec)
}

// Setting is what one knob is set to. Knob says which of the others counts; the rest is
// zero, so that settings can be compared.
type Setting struct {
	Knob   KnobKind `json:"knob,omitempty"` // absent: cpu.max
	CPUMax          // of CPUBandwidth
	// CPUs are those of CPUPlace as they were written: none, on cgroup v2, is what the group
	// above has.
	CPUs CPUSet `json:"cpus,omitzero"`
}

// Bandwidth returns the setting of a CFS limit.
func Bandwidth(v CPUMax) Setting { return Setting{CPUMax: v} }

// Place returns the setting of a task's CPUs.
func Place(cpus CPUSet) Setting { return Setting{Knob: CPUPlace, CPUs: cpus} }

// String describes a setting for people.
func (s Setting) String() string {
	switch {
	case s.Knob == CPUPlace && s.CPUs.Empty():
		return "CPUs of the group above"
	case s.Knob == CPUPlace:
		return "CPUs " + s.CPUs.String()
	case s.QuotaUsec < 0:
		return fmt.Sprintf("no quota, period %d us, burst %d us", s.PeriodUsec, s.BurstUsec)
	}
	return fmt.Sprintf("quota %d us, period %d us, burst %d us", s.QuotaUsec, s.PeriodUsec, s.BurstUsec)
}

// KnobReading is what a knob says now. That of a held knob differs from what we wrote when
// a stranger wrote it. Value.Knob is the kind whatever the outcome.
type KnobReading struct {
	Task    TaskNum `json:"task"`
	Value   Setting `json:"value"`
	Outcome Outcome `json:"outcome"`
}
