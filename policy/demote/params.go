package demote

import "github.com/commensal-io/commensal/model"

// Params are the policy's parameters.
type Params struct {
	// UpTo is the most important BE that is demoted: best-effort, batch or critical.
	UpTo string `json:"up_to"`
	// HoldNsec is how long a demotion stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
}

// Defaults are ours: all BE.
func Defaults() Params { return Params{UpTo: model.Critical.String(), HoldNsec: 15e9} }

// ranks orders what BE is, the least important first.
var ranks = []model.Importance{model.BestEffort, model.Batch, model.Critical}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	words := make([]string, len(ranks))
	for i := range ranks {
		words[i] = ranks[i].String()
	}
	return []model.Param{
		{Key: "up_to", At: &p.UpTo, Words: words, Why: "the most important BE that is demoted; critical: all of it"},
	}
}
