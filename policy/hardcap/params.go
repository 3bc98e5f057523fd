package hardcap

// The three policies that go beyond the seed. Each is off unless its switch says otherwise,
// and what is off leaves the seed's behaviour as it is to the byte.

// Groups are the parameters of antagonists that hurt a victim together (section 4.2 names
// them as what the seed cannot find). How a group is told from chance is argued in
// policy/antagonist, group.go.
type Groups struct {
	Enabled    bool `json:"enabled"`
	MaxMembers int  `json:"max_members"` // tasks in one group
	// Explained is the least share of the victim's variance that the group must explain.
	Explained float64 `json:"explained"`
	// Gain is the least share of the variance that each member must add.
	Gain float64 `json:"gain"`
	// Chance is how probable it may be that the luckiest of all innocents looks as guilty
	// as a member.
	Chance float64 `json:"chance"`
	// Threshold is the correlation asked for of the group's pressure; 0: that of a single
	// suspect.
	Threshold float64 `json:"threshold"`
	// HelpShare is the part of the victim's distress that a cap must take away to be kept,
	// although the victim did not recover, while the next suspect is added to it.
	HelpShare float64 `json:"help_share"`
	// ProbeWindows is for how many windows a member is released on trial, once the victim is
	// well, before it is taken for innocent.
	ProbeWindows int `json:"probe_windows"`
}

// Feedback are the parameters of caps that follow the victim (section 9).
type Feedback struct {
	Enabled bool `json:"enabled"`
	// AllowedSigmas is the degradation that the victim may suffer, in standard deviations
	// above its spec's mean; 0: its outlier threshold.
	AllowedSigmas float64 `json:"allowed_sigmas"`
	// Step is by how much a cap is loosened at once, as a share of what was taken away.
	Step float64 `json:"step"`
	// LoosenAfter and TightenAfter are the windows in a row in which the victim must be well,
	// or not, before the cap is changed.
	LoosenAfter  int `json:"loosen_after"`
	TightenAfter int `json:"tighten_after"`
	// RetryWindows is how long a level that was too loose is not tried again; each further
	// failure doubles it.
	RetryWindows int `json:"retry_windows"`
	// MildExcess: up to this excess of the victim's signal over its threshold, as a share of
	// the threshold, the first cap takes only half of the suspect's usage. 0: never.
	MildExcess float64 `json:"mild_excess"`
	// MaxDurationNsec bounds the whole hold, renewals included.
	MaxDurationNsec int64 `json:"max_duration_nsec"`
}

// Confirm are the parameters of active confirmation (section 4.2 leaves it open).
type Confirm struct {
	Enabled bool `json:"enabled"`
	// Margin: the evidence is split when the runner-up scores within it of the prime
	// suspect; a prime suspect that misses the threshold by no more than it is tried too.
	Margin float64 `json:"margin"`
	// Windows is for how many judged windows a suspect is nudged.
	Windows int `json:"windows"`
	// UsageShare is the share of its usage that a nudged suspect keeps; 0: the seed's quota.
	UsageShare float64 `json:"usage_share"`
	// Drop is the share of the victim's excess that must go away, and Sigmas the least size of
	// that in standard errors of its spec.
	Drop   float64 `json:"drop"`
	Sigmas float64 `json:"sigmas"`
	// MaxPerIncident and MaxPerHour bound the nudges.
	MaxPerIncident int `json:"max_per_incident"`
	MaxPerHour     int `json:"max_per_hour"`
}
