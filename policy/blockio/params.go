package blockio

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/beside"
)

// Params are the policy's parameters. Share is of what a held task did on the device, MinShare and Rise of what all do there.
type Params struct {
	beside.Steps
	// A held task may always do LeastBytes and LeastOps a second.
	LeastBytes int64 `json:"least_bytes"`
	LeastOps   int64 `json:"least_ops"`
	// OpBytes is how many bytes an operation counts as: both take a device's time.
	OpBytes int64 `json:"op_bytes"`
}

// Defaults are ours, chosen on development seeds.
func Defaults() Params {
	p := Params{Steps: beside.Defaults(), LeastBytes: 1 << 20, LeastOps: 16, OpBytes: 57_000}
	p.Trial = 0.5
	return p
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return append([]model.Param{
		{Key: "share", At: &p.Share, Least: 0.01, Most: 0.9, Soak: [2]float64{0.05, 0.8}, Unit: "a share", Why: "of what a held task did on the device, that it may still do"},
		{Key: "least_bytes", At: &p.LeastBytes, Least: 4096, Most: 1 << 40, Soak: [2]float64{1 << 16, 1 << 24}, Unit: "bytes a second", Why: "that every held task may do: who is stopped altogether keeps locks and journals from others"},
		{Key: "least_ops", At: &p.LeastOps, Least: 1, Most: 1e9, Soak: [2]float64{1, 100}, Unit: "operations a second", Why: "the same"},
		{Key: "op_bytes", At: &p.OpBytes, Least: 0, Most: 1 << 30, Soak: [2]float64{0, 1 << 20}, Unit: "bytes", Why: "an operation counts as so many; of the kernel's io.cost model of an SSD that it does not know: 489 MB/s against 8,518 random reads a second (blk-iocost.c)"},
		{Key: "min_share", At: &p.MinShare, Most: 1, Soak: [2]float64{0, 0.3}, Unit: "a share", Why: "of all that is done on the device while the victim suffers; with less nobody is to blame"},
		{Key: "rise", At: &p.Rise, Most: 10, Soak: [2]float64{0, 0.3}, Unit: "a share", Why: "by so much more must be done on the device while the victim suffers than while it does not; else the device itself is slow"},
		{Key: "trial", At: &p.Trial, Most: 1, Soak: [2]float64{0, 0.8}, Unit: "a share", Why: "where a victim is little above its threshold no suspect can clear the correlation that is asked for by 0.1: then one is held that comes so far from what a steady one scores to what one does that used the device in bad windows alone; whether it helps shows, as of every hold. 0: never"},
	}, p.Steps.Rows()...)
}
