package model

import "fmt"

// Prior is what a fleet has seen of two jobs of which one hurt the other: evidence from elsewhere (CPI² section 9, "From forensics to placement").
type Prior struct {
	Antagonist string `json:"antagonist"` // a job
	Incidents  int    `json:"incidents"`
	Nodes      int    `json:"nodes"` // that these were on
	// Degradation is the victim's signal by its threshold, the mean over nodes; Low and High are its interval at 95 %.
	Degradation float64 `json:"degradation"`
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	// Confidence is the least share of these incidents, at 95 %, in which the victim recovered while the other was held, whichever node is left out.
	Confidence float64 `json:"confidence"`
}

// Priors are all that a fleet says of who hurts a job on a platform.
type Priors struct {
	Job   string  `json:"job"`
	Pairs []Prior `json:"pairs"`
}

// What a fleet can have seen of two jobs.
const (
	maxPriorIncidents = 10_000_000
	maxDegradation    = 1e6
)

// Check says what is wrong with a prior; nil: nothing.
func (p *Prior) Check() error {
	share := func(v, most float64) bool { return v >= 0 && v <= most } // and no NaN
	switch {
	case p.Antagonist == "":
		return fmt.Errorf("a prior names no antagonist")
	case p.Nodes < 1 || p.Incidents < p.Nodes || p.Incidents > maxPriorIncidents:
		return fmt.Errorf("prior of %.70q: %d incidents on %d nodes; expected at least one on each, at most %d", p.Antagonist, p.Incidents, p.Nodes, maxPriorIncidents)
	case !share(p.Degradation, maxDegradation) || !share(p.Low, p.Degradation) || !share(p.High, maxDegradation) || p.High < p.Degradation:
		return fmt.Errorf("prior of %.70q: degradation %g, %g to %g; expected 0 to %g, within its interval", p.Antagonist, p.Degradation, p.Low, p.High, maxDegradation)
	case !share(p.Confidence, 1):
		return fmt.Errorf("prior of %.70q: confidence %g; expected 0 to 1", p.Antagonist, p.Confidence)
	}
	return nil
}
