package cpi2

import (
	"fmt"
	"math"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// detector is an engine that may only look. All detectors look at the same machine, on
// which nobody is held, so that what differs is their judgement alone.
type detector struct {
	Name   string
	Mutate func(*engine.Params)
}

// seedThreshold is table 2's.
const seedThreshold = 0.35

// thresholds are those of the sweeps of figures 15a and 16a.
func thresholds() []float64 {
	var list []float64
	for k := 2; k <= 12; k++ {
		list = append(list, float64(k)*0.05)
	}
	return list
}

// correlationOf makes a detector ask for another correlation.
func correlationOf(t float64) func(*engine.Params) {
	return func(p *engine.Params) { p.Hardcap.Antagonist[model.SourceCPI].Threshold = t }
}

// sweep is a detector for each threshold. CPI²'s own is one of them.
func sweep() []detector {
	var list []detector
	for _, t := range thresholds() {
		list = append(list, detector{fmt.Sprintf("%.2f", t), correlationOf(t)})
	}
	return list
}

// named is what a detector said first of a victim.
type named struct {
	detector int
	minute   int // after which it said so
	suspect  model.TaskNum
	path     string
	score    float64
	before   float64 // the victim's CPI
	mpki     float64 // ... and its misses per thousand instructions
}

// firstPick returns the first suspect that a detector would have held in an incident.
func firstPick(inc *model.Incident) (named, bool) {
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		if r.Chosen == nil {
			continue
		}
		n := named{suspect: *r.Chosen, path: r.ChosenPath, before: r.SignalBefore}
		for k := range r.Suspects {
			if r.Suspects[k].Task == n.suspect {
				n.score = r.Suspects[k].Score
			}
		}
		return n, true
	}
	return named{}, false
}

// paperDetector is the index in the sweep of CPI²'s own threshold.
func paperDetector() int { return detectorOf(seedThreshold) }

func detectorOf(threshold float64) int {
	for i, t := range thresholds() {
		if math.Abs(t-threshold) < 1e-9 {
			return i
		}
	}
	panic("cpi2: no detector of that threshold")
}
