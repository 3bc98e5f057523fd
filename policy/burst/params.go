package burst

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// Params are the policy's parameters.
type Params struct {
	// Bucket is k: what a task may save up, in multiples of its quota.
	Bucket float64 `json:"bucket"`
	// IntervalNsec is how often claims are renewed, and tasks looked at one by one while all is
	// quiet.
	IntervalNsec int64 `json:"interval_nsec"`
	// HoldNsec is how long a burst stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
	// ProbeNsec is how long the kernel's answer is waited for when its bound is sought.
	ProbeNsec int64 `json:"probe_nsec"`
	// RetryNsec is for how long a task is not raised after the kernel refused a raised quota, and
	// not asked for the kernel's bound after it refused one that it takes of others.
	RetryNsec int64 `json:"retry_nsec"`

	// UserSpace carries in user space what the kernel's bucket is too small for.
	UserSpace bool `json:"user_space"`
	// MaxRaise and MinRaise bound a quota that is raised for a burst, in multiples of the
	// original quota.
	MaxRaise float64 `json:"max_raise"`
	MinRaise float64 `json:"min_raise"`
	// MaxOverspend is by how much a task may at worst use more than a bucket of Bucket in the
	// kernel would let it, in multiples of the original quota.
	MaxOverspend float64 `json:"max_overspend"`
	// LateNsec is the longest time, from one pulse to the moment at which what the next pulse
	// decided is in force, that MaxOverspend holds for. Pulses that come later make it
	// greater, by (MaxRaise - 1) of the quota for each period.
	LateNsec int64 `json:"late_nsec"`
	// NearShare: a task that used so much of what the kernel could have given it, without a
	// raise, since the pulse before is taken to burst, before it is throttled.
	NearShare float64 `json:"near_share"`
	// QuietNsec: a burst is over when it was not seen for so long.
	QuietNsec int64 `json:"quiet_nsec"`
	// RestNsec is the least time between the end of one raise of a task and the next.
	RestNsec int64 `json:"rest_nsec"`
	// MaxWritesPerSec bounds the writes of all raises together; a raise takes two.
	MaxWritesPerSec float64 `json:"max_writes_per_sec"`
}

// Defaults are Alibaba's values, and ours where it gives none.
func Defaults() Params {
	return Params{
		Bucket: 10, IntervalNsec: 5e9, HoldNsec: 15e9, ProbeNsec: 2e9, RetryNsec: 60e9,
		UserSpace: true, MaxRaise: 3, MinRaise: 1.5, MaxOverspend: 4, LateNsec: 100e6, NearShare: 0.9,
		QuietNsec: 30e9, RestNsec: 250e6, MaxWritesPerSec: 40,
	}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "bucket", At: &p.Bucket, Least: 0.01, Most: 1000, Soak: [2]float64{0.5, 10}, Unit: "times the quota", Why: "Alibaba §4.1: k = 10 times the quota"},
		{Key: "user_space", At: &p.UserSpace, Soak: [2]float64{0.4, 0.6}, Why: "what the kernel's bucket is too small for is carried by raising quotas"},
		{Key: "max_raise", At: &p.MaxRaise, Least: 1, Most: 1000, Soak: [2]float64{1.5, 4}, Unit: "times the original quota", Why: "a quota raised for a burst, times the original"},
		{Key: "min_raise", At: &p.MinRaise, Least: 1, Most: 1000, Soak: [2]float64{1, 2}, Unit: "times the original quota, not above max_raise", Why: "less is not worth two writes"},
		{Key: "max_overspend", At: &p.MaxOverspend, Most: 1000, Soak: [2]float64{0.5, 6}, Unit: "times the original quota", Why: "beyond a bucket in the kernel at worst, times the quota"},
		{Key: "near_share", At: &p.NearShare, Least: 0.01, Most: 1, Unit: "of what the kernel could give", Why: "who used so much of what it could is taken to burst"},
		{Key: "quiet", At: model.Nsec(&p.QuietNsec), Least: 10e6, Most: 3600e9, Soak: [2]float64{1e9, 30e9}, Why: "a burst is over when it was not seen for so long"},
		{Key: "rest", At: model.Nsec(&p.RestNsec), Most: 3600e9, Soak: [2]float64{100e6, 1e9}, Why: "between the end of a raise and the next one of a task"},
		{Key: "max_writes_per_sec", At: &p.MaxWritesPerSec, Least: 0.1, Most: 1e6, Unit: "writes", Why: "of all raises together"},
	}
}

// Derive works out what follows from how far apart pulses are: what one decides is in force with
// the next one at the latest.
func (p *Params) Derive(pulseNsec int64) { p.LateNsec = 2 * pulseNsec }

// Check finds parameters that do not fit each other: the first one's key, and why.
func (p *Params) Check() (key, why string) {
	if p.MinRaise > p.MaxRaise {
		return "min_raise", fmt.Sprintf("is %g; expected 1 to %g (times the original quota, not above max_raise)", p.MinRaise, p.MaxRaise)
	}
	return "", ""
}

// Pace is how often the policy looks at the machine when it enforces: savings that are kept
// in user space are followed from pulse to pulse.
func (p *Params) Pace() model.Pace {
	if p.UserSpace {
		return model.PacePulse
	}
	return model.PaceTick
}
