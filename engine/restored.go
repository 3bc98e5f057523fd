package engine

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/burst"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/policy/headroom"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/remedy"
)

// Restored is what an earlier run of the agent had learned or was told, and what this one
// goes on with. It comes as input, so that a replay sees it.
type Restored struct {
	Specs      []localspec.Kept `json:"specs,omitempty"`
	BurstBound *burst.KeptBound `json:"burst_bound,omitempty"`
	ProtectOff []string         `json:"protect_off,omitempty"` // jobs; "" stands for all
	// Pairs are what nudges have shown of jobs that hurt each other a little, again and again.
	Pairs []hardcap.KeptPair `json:"pairs,omitempty"`
	// Headroom is what jobs use, by hour of the day.
	Headroom []*headroom.Profile `json:"headroom,omitempty"`
	// Remedies are what helped which job against which.
	Remedies []remedy.Known `json:"remedies,omitempty"`
}

// Keep returns what should outlive a restart, as it is at a moment.
func (e *Engine) Keep(monoNsec, wallNsec int64) Restored {
	s := e.State
	r := Restored{Specs: s.Specs.Keep(monoNsec, wallNsec), ProtectOff: slices.Clone(s.ProtectOff), Pairs: s.Hardcap.KeepPairs(monoNsec, wallNsec)}
	for i := range policyRows {
		if k := policyRows[i].keeps; k != nil {
			k.keep(&e.Params, s, &r)
		}
	}
	return r
}

// KeepMark is another number when Keep would return something else, in this process.
func (e *Engine) KeepMark() uint64 {
	var h maphash.Hash
	h.SetSeed(keepSeed)
	for _, job := range e.State.ProtectOff {
		maphash.WriteComparable(&h, job)
	}
	for i := range e.State.Specs.Entries {
		if sp := e.State.Specs.Entries[i].Spec; sp != nil {
			maphash.WriteComparable(&h, [2]int64{int64(i), sp.MonoNsec})
		}
	}
	for i := range policyRows {
		if k := policyRows[i].keeps; k != nil {
			maphash.WriteComparable(&h, k.mark(e.State))
		}
	}
	for i := range e.State.Hardcap.Pairs {
		maphash.WriteComparable(&h, e.State.Hardcap.Pairs[i])
	}
	return h.Sum64()
}

var keepSeed = maphash.MakeSeed()

// restore takes up what an earlier run had.
func (e *Engine) restore(in *Input) {
	s, r := e.State, in.Restored
	for i := range r.Specs {
		k := &r.Specs[i]
		if sp := s.Specs.Restore(k, in.MonoNsec, in.WallNsec); sp != nil {
			age := time.Duration(max(0, in.WallNsec-k.WallNsec)).Round(time.Second)
			e.decide(in, model.Decision{
				Kind: model.DecideSpec, Path: sp.Job, Facts: []model.Fact{model.FactMean.Is(sp.Mean), model.FactThreshold.Is(e.Params.Outlier.Threshold(sp))},
				Reason: fmt.Sprintf("%s of %s as it was learned before the agent was restarted, %s ago: %.4g +- %.2g", sp.Source, sp.Job, age, sp.Mean, sp.StdDev),
			})
		}
	}
	for i := range policyRows {
		row := &policyRows[i]
		if row.keeps == nil {
			continue
		}
		if d, ok := row.keeps.restore(&e.Params, s, r); ok {
			d.Policy = row.name
			e.decide(in, d)
		}
	}
	for i := range r.Pairs {
		if k := &r.Pairs[i]; s.Hardcap.RestorePair(&e.Params.Hardcap.Repeat, k, in.MonoNsec, in.WallNsec) {
			e.decide(in, s.Hardcap.Recalled(&e.Params.Hardcap, k, in.MonoNsec))
		}
	}
	for _, job := range r.ProtectOff {
		if !slices.Contains(s.ProtectOff, job) {
			s.ProtectOff = append(s.ProtectOff, job)
			e.decide(in, model.Decision{Kind: model.DecideOperator, Path: jobName(job), Reason: "protection stays off, as an operator had turned it before the agent was restarted"})
		}
	}
}
