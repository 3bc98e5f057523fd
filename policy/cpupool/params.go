package cpupool

// Params are the policy's parameters. The section is 4.1 of seed 001.
type Params struct {
	// IntervalNsec is the length of a period of the algorithm. Section 4.1: "executed every
	// 5 seconds".
	IntervalNsec int64 `json:"interval_nsec"`
	// UtilisationHigh is U_H, the share of the pool's CPU time above which quotas come down.
	// Section 4.1: 45 %.
	UtilisationHigh float64 `json:"utilisation_high"`
	// Increase is the additive step, as a share of the task's original quota. The seed gives
	// none; see the package comment.
	Increase float64 `json:"increase"`
	// Decrease is what is left of a quota that comes down. Section 4.1: half.
	Decrease float64 `json:"decrease"`
	// MaxFactor bounds a quota, as a multiple of the original. Not of the seed.
	MaxFactor float64 `json:"max_factor"`
	// BurstyBelow: only a task whose average use was below this share of its original quota is
	// given more. 1: what the seed's text says, and no more.
	BurstyBelow float64 `json:"bursty_below"`
	// BelowOriginal lets quotas come down below the original one while the pool is over
	// UtilisationHigh, to FloorFactor of the original at the least. The seed's text leaves
	// open whether it does.
	BelowOriginal bool    `json:"below_original"`
	FloorFactor   float64 `json:"floor_factor"`
	// GiveBackNsec: a quota that was not exhausted for so long goes one step back to the
	// original. 0: it stays. Not of the seed.
	GiveBackNsec int64 `json:"give_back_nsec"`
	// EarlyUtilisation brings all raised quotas down between two periods, when the pool's
	// utilisation over EarlyNsec is above it. 0: never, which is the seed's way.
	EarlyUtilisation float64 `json:"early_utilisation"`
	EarlyNsec        int64   `json:"early_nsec"`
	// HoldNsec is how long a claim stands that is not renewed; it is renewed each period.
	HoldNsec int64 `json:"hold_nsec"`
	// RetryNsec is for how long a task is left alone after the kernel refused its quota; each
	// further refusal doubles it, up to 16 times.
	RetryNsec int64 `json:"retry_nsec"`
}

// Defaults are the seed's values, and ours where it gives none.
func Defaults() Params {
	return Params{
		IntervalNsec: 5e9, UtilisationHigh: 0.45, Increase: 0.25, Decrease: 0.5, MaxFactor: 4, BurstyBelow: 0.9,
		FloorFactor: 0.5, GiveBackNsec: 600e9, EarlyNsec: 500e6, HoldNsec: 15e9, RetryNsec: 60e9,
	}
}
