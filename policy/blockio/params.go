package blockio

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// Params are the policy's parameters.
type Params struct {
	// Share is what a held task may do on the device, of what it did; never less than LeastBytes and LeastOps a second.
	Share      float64 `json:"share"`
	LeastBytes int64   `json:"least_bytes"`
	LeastOps   int64   `json:"least_ops"`
	// OpBytes is how many bytes an operation counts as: both take a device's time.
	OpBytes int64 `json:"op_bytes"`
	// MinShare is the least part of all that is done on the device in bad windows which a suspect must have, and Rise by how much
	// more is done there than in good ones where anybody is to blame at all.
	MinShare float64 `json:"min_share"`
	Rise     float64 `json:"rise"`
	// As of the hard cap: windows in a row under the threshold that mean recovered, windows that a hold has for it, analyses before a
	// search gives up, suspects held one after the other, and peace for a victim that could not be helped.
	RecoveredWindows int   `json:"recovered_windows"`
	VerifyWindows    int   `json:"verify_windows"`
	SearchWindows    int   `json:"search_windows"`
	MaxRounds        int   `json:"max_rounds"`
	RetryAfterNsec   int64 `json:"retry_after_nsec"`
	// LoosenAfter and TightenAfter are the windows in a row in which the victim is well, or not, before the limit is raised, or lowered below what
	// was good once. What failed is tried again after four times as many windows, and twice as many each time it fails.
	LoosenAfter     int   `json:"loosen_after"`
	TightenAfter    int   `json:"tighten_after"`
	MaxDurationNsec int64 `json:"max_duration_nsec"`
	// HoldNsec is how long a limit stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
}

// Defaults are those of the hard cap where it has the same, else ours, chosen on development seeds.
func Defaults() Params {
	return Params{
		Share: 0.2, LeastBytes: 1 << 20, LeastOps: 16, OpBytes: 57_000, MinShare: 0.1, Rise: 0.1, RecoveredWindows: 2, VerifyWindows: 4,
		SearchWindows: 30, MaxRounds: 3, RetryAfterNsec: 300e9, LoosenAfter: 5, TightenAfter: 2, MaxDurationNsec: 1800e9, HoldNsec: 30e9,
	}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "share", At: &p.Share, Least: 0.01, Most: 0.9, Soak: [2]float64{0.05, 0.8}, Unit: "a share", Why: "of what a held task did on the device, that it may still do"},
		{Key: "least_bytes", At: &p.LeastBytes, Least: 4096, Most: 1 << 40, Soak: [2]float64{1 << 16, 1 << 24}, Unit: "bytes a second", Why: "that every held task may do: who is stopped altogether keeps locks and journals from others"},
		{Key: "least_ops", At: &p.LeastOps, Least: 1, Most: 1e9, Soak: [2]float64{1, 100}, Unit: "operations a second", Why: "the same"},
		{Key: "op_bytes", At: &p.OpBytes, Least: 0, Most: 1 << 30, Soak: [2]float64{0, 1 << 20}, Unit: "bytes", Why: "an operation counts as so many; of the kernel's io.cost model of an SSD that it does not know: 489 MB/s against 8,518 random reads a second (blk-iocost.c)"},
		{Key: "min_share", At: &p.MinShare, Most: 1, Soak: [2]float64{0, 0.3}, Unit: "a share", Why: "of all that is done on the device while the victim suffers; with less nobody is to blame"},
		{Key: "rise", At: &p.Rise, Most: 10, Soak: [2]float64{0, 0.3}, Unit: "a share", Why: "by so much more must be done on the device while the victim suffers than while it does not; else the device itself is slow"},
		{Key: "recovered_windows", At: &p.RecoveredWindows, Least: 1, Most: 1000, Soak: [2]float64{1, 3}, Unit: "windows", Why: "windows in a row under the threshold that mean recovered"},
		{Key: "verify_windows", At: &p.VerifyWindows, Least: 1, Most: 1000, Soak: [2]float64{3, 8}, Unit: "windows, not below recovered_windows", Why: "windows judged before a limit that does not help is taken back"},
		{Key: "search_windows", At: &p.SearchWindows, Least: 1, Most: 1000, Soak: [2]float64{2, 10}, Unit: "analyses", Why: "bad windows before a search for the antagonist gives up: who did a tenth as much before takes 25 to stand out, and a search costs nobody anything. So many windows in a row that say nothing of the victim end its incident, and a hold with it"},
		{Key: "max_rounds", At: &p.MaxRounds, Least: 1, Most: 1000, Soak: [2]float64{1, 4}, Unit: "suspects", Why: "suspects held one after the other in one incident"},
		{Key: "retry_after", At: model.Nsec(&p.RetryAfterNsec), Most: model.Unbounded, Soak: [2]float64{5e9, 30e9}, Why: "peace for a victim that could not be helped"},
		{Key: "loosen_after", At: &p.LoosenAfter, Least: 1, Most: 1000, Soak: [2]float64{1, 5}, Unit: "windows", Why: "good windows in a row before a limit is raised, half way to what was too much and at most to double"},
		{Key: "tighten_after", At: &p.TightenAfter, Least: 1, Most: 1000, Soak: [2]float64{1, 5}, Unit: "windows", Why: "bad windows in a row before a limit is lowered that was good once; one that is tried goes back after one"},
		{Key: "max_duration", At: model.Nsec(&p.MaxDurationNsec), Least: 1e9, Most: model.Unbounded, Soak: [2]float64{60e9, 600e9}, Why: "of a hold; then it is given back whatever the victim does"},
	}
}

// Check finds parameters that do not fit each other.
func (p *Params) Check() (key, why string) {
	if p.VerifyWindows < p.RecoveredWindows {
		return "verify_windows", fmt.Sprintf("is %d; expected at least recovered_windows, %d", p.VerifyWindows, p.RecoveredWindows)
	}
	return "", ""
}
