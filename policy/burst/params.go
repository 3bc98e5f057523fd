package burst

// Params are the policy's parameters. The section is 4.1 of seed 001.
type Params struct {
	// Bucket is k: what a task may save up, in multiples of its quota. Section 4.1: 10.
	Bucket float64 `json:"bucket"`
	// IntervalNsec is how often claims are renewed, and tasks looked at one by one while all is
	// quiet.
	IntervalNsec int64 `json:"interval_nsec"`
	// HoldNsec is how long a burst stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
	// ProbeNsec is how long the kernel's answer is waited for when its bound is sought.
	ProbeNsec int64 `json:"probe_nsec"`
	// RetryNsec is for how long a task is left alone after the kernel refused what it takes
	// of others; each further refusal doubles it, up to 16 times.
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

// Defaults are the seed's values, and ours where it gives none.
func Defaults() Params {
	return Params{
		Bucket: 10, IntervalNsec: 5e9, HoldNsec: 15e9, ProbeNsec: 2e9, RetryNsec: 60e9,
		UserSpace: true, MaxRaise: 3, MinRaise: 1.5, MaxOverspend: 4, LateNsec: 100e6, NearShare: 0.9,
		QuietNsec: 30e9, RestNsec: 250e6, MaxWritesPerSec: 40,
	}
}
