package balm

import "github.com/commensal-io/commensal/model"

// Params are the policy's parameters.
type Params struct {
	// Until is the state from which on trouble is over: UntilGreen (BALM's prose) or UntilGrey (its algorithm 1).
	Until string `json:"until"`
	// SettleNsec is how long after a change stands what services say of it counts: a latency source looks back for so long.
	SettleNsec int64 `json:"settle_nsec"`
	// Retries are so many more readings in trouble with nobody left to take bandwidth from, before that is said.
	Retries int `json:"retries"`
	// Gain is by how much the worst figure has to have come down by then; else all get back what was taken, and
	// nothing is taken for RestNsec.
	Gain     float64 `json:"gain"`
	RestNsec int64   `json:"rest_nsec"`
	// RetryNsec is how long a step back that brought trouble is not tried again; twice as long after each in a row.
	RetryNsec int64 `json:"retry_nsec"`
	// BlindNsec is how long what was taken is kept without a valid figure, and a change is waited for.
	BlindNsec int64 `json:"blind_nsec"`
	// Pages: pages of who has less are moved off the memories of services in trouble, where there are others.
	Pages bool `json:"pages,omitempty"`
	// HoldNsec is how long a claim stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
}

// What trouble may end in.
const (
	UntilGreen = "green"
	UntilGrey  = "grey"
)

// Defaults are BALM's figures, and ours where it says nothing.
func Defaults() Params {
	return Params{Until: UntilGreen, SettleNsec: 3e9, Retries: 3, Gain: 0.1, RestNsec: 600e9, RetryNsec: 30e9, BlindNsec: 60e9, Pages: true, HoldNsec: 60e9}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "until", At: &p.Until, Words: []string{UntilGreen, UntilGrey}, Why: "bandwidth is taken until services are so, and given back while they are: green (BALM's prose), or neither red nor yellow (grey: its algorithm 1)"},
		{Key: "settle", At: model.Nsec(&p.SettleNsec), Most: 600e9, Soak: [2]float64{0, 5e9}, Why: "after a change services are looked at no sooner (BALM §IV-A: their figures look back for 3 s)"},
		{Key: "retries", At: &p.Retries, Most: 1000, Soak: [2]float64{0, 3}, Unit: "readings", Why: "so many more in trouble with nobody left to take from, before it is said that this cannot be fixed (BALM: MAXRETRIES, without a number)"},
		{Key: "gain", At: &p.Gain, Most: 1, Soak: [2]float64{0, 0.3}, Unit: "a share", Why: "by how much the worst figure must have come down by then, or everything is given back"},
		{Key: "rest", At: model.Nsec(&p.RestNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{5e9, 60e9}, Why: "for so long nothing is taken then, and nothing from a task whose class was refused"},
		{Key: "pages", At: &p.Pages, Why: "a tenth of a task's pages at a time moves to other sockets' memory, after a step back that brought trouble, and where levels do not help (BALM §III-A); they stay there"},
		{Key: "retry", At: model.Nsec(&p.RetryNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{1e9, 30e9}, Why: "a step back that brought trouble is tried again after so long, then after twice as long, up to 16 times"},
		{Key: "blind", At: model.Nsec(&p.BlindNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{2e9, 60e9}, Why: "without a valid figure for so long everything is given back"},
	}
}
