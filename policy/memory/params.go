package memory

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/beside"
)

// Params are the policy's parameters. Share is of what a held task took since the victim was well, MinShare of what all others did, and Rise of
// what all others have.
type Params struct {
	beside.Steps
	// LeastBytes is what a held task may always have.
	LeastBytes int64 `json:"least_bytes"`
	// ReclaimBytes is how much is taken back at once before a task is held; 0: nothing, it is held at once.
	ReclaimBytes int64 `json:"reclaim_bytes"`
}

// Defaults are policy io's but for those that are of memory. None was calibrated.
func Defaults() Params {
	p := Params{Steps: beside.Defaults(), LeastBytes: 64 << 20, ReclaimBytes: 1 << 30}
	p.Share, p.MinShare, p.SettleNsec, p.LoosenAfter = 0.5, 0.2, 30e9, 15
	return p
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return append([]model.Param{
		{Key: "share", At: &p.Share, Least: 0.01, Most: 0.9, Soak: [2]float64{0.05, 0.8}, Unit: "a share", Why: "of the memory that a held task took since the victim was well, that it may still have, where nothing tells how much others lost; else they get that back and a tenth more. What helps and is not enough is halved, twice at most"},
		{Key: "least_bytes", At: &p.LeastBytes, Least: 1 << 20, Most: 1 << 40, Soak: [2]float64{1 << 20, 1 << 28}, Unit: "bytes", Why: "that every held task may have"},
		{Key: "reclaim_bytes", At: &p.ReclaimBytes, Most: 1 << 40, Soak: [2]float64{0, 1 << 28}, Unit: "bytes", Why: "taken back of a task at once, at each window until verify_windows are over, before it is held; 0: it is held at once"},
		{Key: "settle", At: model.Nsec(&p.SettleNsec), Most: 3600e9, Soak: [2]float64{0, 10e9}, Why: "for so long after memory was taken back or limited a victim that still waits says nothing: what it lost comes back only as it is used"},
		{Key: "min_share", At: &p.MinShare, Most: 1, Soak: [2]float64{0, 0.3}, Unit: "a share", Why: "of what all others have more while the victim suffers, and of what all others lost; who took less is not to blame"},
		{Key: "rise", At: &p.Rise, Most: 10, Soak: [2]float64{0, 0.3}, Unit: "a share", Why: "by so much more must others take, beyond what they had all along, while the victim suffers than while it does not; else it needs more itself"},
	}, p.Steps.Rows()...)
}
