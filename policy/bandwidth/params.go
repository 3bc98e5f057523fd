package bandwidth

import "github.com/commensal-io/commensal/model"

// Params are the policy's parameters.
type Params struct {
	// UtilisationLow and UtilisationHigh are the shares of a memory's bandwidth between which the threshold falls from
	// Most to Least, as far as memory takes longer than LatencyNsec to answer.
	UtilisationLow  float64 `json:"utilisation_low"`
	UtilisationHigh float64 `json:"utilisation_high"`
	LatencyNsec     int64   `json:"latency_nsec"`
	ThresholdMost   float64 `json:"threshold_most"`
	ThresholdLeast  float64 `json:"threshold_least"`
	// Peak is what one domain's memory can deliver, GB/s; 0: the largest rate that was seen, once LearnNsec are over.
	Peak      float64 `json:"peak"`
	LearnNsec int64   `json:"learn_nsec"`
	// Windows are so many with LC's CPI on either side of a comparison. Where those without a limit are missing after
	// PatienceNsec, BE is let go for as many. LC's CPI has to be lower by Gain under a limit, or there is none for RestNsec.
	Windows      int     `json:"windows"`
	PatienceNsec int64   `json:"patience_nsec"`
	Gain         float64 `json:"gain"`
	RestNsec     int64   `json:"rest_nsec"`
	// Adaptive searches the level by LC's CPI alone: the highest at which that is at most Tolerance above what it is
	// while BE moves least. A level that was too high is tried again after so many windows, and each time later.
	Adaptive  bool    `json:"adaptive"`
	Tolerance float64 `json:"tolerance"`
	Retry     int     `json:"retry"`
	// HoldNsec is how long a claim stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
}

// Defaults are Alibaba's figures, and ours where they say nothing.
func Defaults() Params {
	return Params{
		UtilisationLow: 0.2, UtilisationHigh: 0.6, LatencyNsec: 200, ThresholdMost: 120, ThresholdLeast: 20, LearnNsec: 600e9,
		Windows: 6, PatienceNsec: 600e9, Gain: 0.02, RestNsec: 3600e9, Tolerance: 0.05, Retry: 4, HoldNsec: 60e9,
	}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "utilisation_low", At: &p.UtilisationLow, Most: 1, Soak: [2]float64{0, 0.3}, Unit: "of the memory's bandwidth", Why: "up to it BE has no limit (Alibaba §4.2: 20 %)"},
		{Key: "utilisation_high", At: &p.UtilisationHigh, Least: 0.01, Most: 2, Soak: [2]float64{0.4, 0.9}, Unit: "of the memory's bandwidth", Why: "from it on the threshold is least (Alibaba §4.2: 60 %)"},
		{Key: "latency", At: model.Nsec(&p.LatencyNsec), Most: 1e6, Soak: [2]float64{60, 300}, Why: "while memory answers within it BE has no limit (Alibaba §4.2: 200 ns)"},
		{Key: "threshold_most", At: &p.ThresholdMost, Least: 1, Most: 1000, Soak: [2]float64{60, 120}, Unit: "per cent of the memory's bandwidth", Why: "P where BE has no limit (Alibaba §4.2: 120; the unit is ours)"},
		{Key: "threshold_least", At: &p.ThresholdLeast, Most: 1000, Soak: [2]float64{1, 40}, Unit: "per cent of the memory's bandwidth", Why: "P from utilisation_high on (Alibaba §4.2: 20; the unit is ours)"},
		{Key: "peak", At: &p.Peak, Most: 1e5, Soak: [2]float64{0, 100}, Unit: "GB/s of one memory: of a socket, or of a node where it has several", Why: "what utilisation is a share of, which Linux does not tell; 0: the largest rate that was seen"},
		{Key: "learn", At: model.Nsec(&p.LearnNsec), Most: 24 * 3600e9, Soak: [2]float64{0, 60e9}, Why: "the largest rate counts once it was looked for so long"},
		{Key: "windows", At: &p.Windows, Least: 2, Most: 1000, Soak: [2]float64{2, 6}, Why: "so many with LC's CPI without a limit, and as many with one, are compared"},
		{Key: "patience", At: model.Nsec(&p.PatienceNsec), Most: 24 * 3600e9, Soak: [2]float64{0, 60e9}, Why: "where those without a limit are missing for so long, BE is let go for as many windows"},
		{Key: "gain", At: &p.Gain, Most: 1, Soak: [2]float64{0, 0.1}, Unit: "a share", Why: "under a limit LC's CPI has to be lower by this much, or there is none for rest"},
		{Key: "rest", At: model.Nsec(&p.RestNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{5e9, 60e9}, Why: "for so long nothing is limited that did not help, and nothing compared that did"},
		{Key: "adaptive", At: &p.Adaptive, Soak: [2]float64{0.5, 0.5}, Why: "search the level by LC's CPI alone, whatever programs there are (Alibaba §4.3 leaves it open)"},
		{Key: "tolerance", At: &p.Tolerance, Least: 0.005, Most: 1, Soak: [2]float64{0.01, 0.2}, Unit: "a share", Why: "adaptive: so far LC's CPI may be above what it is while BE moves least"},
		{Key: "retry", At: &p.Retry, Least: 1, Most: 1000, Soak: [2]float64{1, 8}, Unit: "windows", Why: "adaptive: a level that was too high is tried again after so many, then after twice as many, up to 16 times"},
	}
}

// Check finds parameters that do not fit each other.
func (p *Params) Check() (key, why string) {
	switch {
	case p.UtilisationLow >= p.UtilisationHigh:
		return "utilisation_low", "has to be below utilisation_high"
	case p.ThresholdLeast > p.ThresholdMost:
		return "threshold_least", "is above threshold_most"
	}
	return "", ""
}
