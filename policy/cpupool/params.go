package cpupool

import "github.com/commensal-io/commensal/model"

// Params are the policy's parameters.
type Params struct {
	// IntervalNsec is the length of a period of the algorithm.
	IntervalNsec int64 `json:"interval_nsec"`
	// UtilisationHigh is U_H, the share of the pool's CPU time above which quotas come down.
	UtilisationHigh float64 `json:"utilisation_high"`
	// Increase is the additive step, as a share of the task's original quota; see the
	// package comment.
	Increase float64 `json:"increase"`
	// Decrease is what is left of a quota that comes down.
	Decrease float64 `json:"decrease"`
	// MaxFactor bounds a quota, as a multiple of the original.
	MaxFactor float64 `json:"max_factor"`
	// BurstyBelow: only a task whose average use was below this share of its original quota is
	// given more.
	BurstyBelow float64 `json:"bursty_below"`
	// BelowOriginal lets quotas come down below the original one while the pool is over
	// UtilisationHigh, to FloorFactor of the original at the least.
	BelowOriginal bool    `json:"below_original"`
	FloorFactor   float64 `json:"floor_factor"`
	// GiveBackNsec: a quota that was not exhausted for so long goes one step back to the
	// original. 0: it stays.
	GiveBackNsec int64 `json:"give_back_nsec"`
	// EarlyUtilisation brings all raised quotas down between two periods, when the pool's
	// utilisation over EarlyNsec is above it. 0: never.
	EarlyUtilisation float64 `json:"early_utilisation"`
	EarlyNsec        int64   `json:"early_nsec"`
	// LCOnly: U is of LC alone wherever it runs, as it was before records had what the machine used.
	LCOnly bool `json:"lc_only,omitempty"`
	// HoldNsec is how long a claim stands that is not renewed; it is renewed each period.
	HoldNsec int64 `json:"hold_nsec"`
}

// Defaults are Alibaba's values, and ours where it gives none.
func Defaults() Params {
	return Params{
		IntervalNsec: 5e9, UtilisationHigh: 0.45, Increase: 0.25, Decrease: 0.5, MaxFactor: 4, BurstyBelow: 0.9,
		FloorFactor: 0.5, GiveBackNsec: 600e9, EarlyNsec: 500e6, HoldNsec: 15e9,
	}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "interval", At: model.Nsec(&p.IntervalNsec), Least: 1e9, Most: 3600e9, Soak: [2]float64{1e9, 5e9}, Why: "Alibaba §4.1: every 5 seconds"},
		{Key: "utilisation_high", At: &p.UtilisationHigh, Least: 0.05, Most: 1, Unit: "a utilisation", Why: "Alibaba §4.1: U_H = 45 %"},
		{Key: "increase", At: &p.Increase, Least: 0.01, Most: 10, Soak: [2]float64{0.05, 1}, Unit: "of the original quota", Why: "additive step, of the original quota"},
		{Key: "decrease", At: &p.Decrease, Least: 0.01, Most: 0.99, Unit: "of the quota is left", Why: "Alibaba §4.1: half is left"},
		{Key: "max_factor", At: &p.MaxFactor, Least: 1, Most: 1000, Soak: [2]float64{2, 10}, Unit: "times the original quota", Why: "times the original quota at most"},
		{Key: "bursty_below", At: &p.BurstyBelow, Least: 0.01, Most: 1, Unit: "of the original quota", Why: "only who uses less than this of its original quota on average gets more; 1: Alibaba §4.1 to the letter"},
		{Key: "below_original", At: &p.BelowOriginal, Soak: [2]float64{0.8, 0.2}, Why: "what Alibaba §4.1 leaves open: also below the original quota"},
		{Key: "floor_factor", At: &p.FloorFactor, Least: 0.01, Most: 1, Soak: [2]float64{0.2, 0.9}, Unit: "of the original quota", Why: "then not below this share of it"},
		{Key: "give_back", At: model.Nsec(&p.GiveBackNsec), Most: 86400e9, Soak: [2]float64{0, 60e9}, Why: "a quota not used up for so long goes a step back; 0: stays"},
		{Key: "early_utilisation", At: &p.EarlyUtilisation, Most: 1, Unit: "a utilisation; 0: never", Why: "between two periods everything comes down above it; 0: never"},
		{Key: "early", At: model.Nsec(&p.EarlyNsec), Least: 50e6, Most: 60e9, Why: "over so long"},
	}
}

// Derive works out what follows from other parameters: a claim stands for three periods.
func (p *Params) Derive() { p.HoldNsec = 3 * p.IntervalNsec }

// Pace is how often the policy looks at the machine when it enforces: its periods are seconds.
func (p *Params) Pace() model.Pace { return model.PaceTick }
