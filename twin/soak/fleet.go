package soak

import (
	"math/rand/v2"

	"github.com/commensal-io/commensal/model"
)

// maxPairs is how many pairs of jobs an agent keeps what is known of (package hardcap).
const maxPairs = 256

// fleetSays lets a fleet's hub tell the agent who hurts whom: of anybody, whether that is so or not, and at times what cannot be. It draws from a
// stream of its own.
func (w *world) fleetSays(seed uint64) {
	r := source{rand.New(rand.NewPCG(seed, 3))}
	said := model.Priors{Job: pick(r, "web0", "web1", "batch", "nobody", "")}
	for range r.count(0, 5) {
		p := model.Prior{Antagonist: pick(r, "batch", "scrap", "vital", "system", "web0", "nobody"), Nodes: r.count(-1, 9), Degradation: r.between(0.5, 3), Confidence: r.between(0, 1.1)}
		p.Incidents, p.Low, p.High = p.Nodes+r.count(-1, 30), p.Degradation-0.1, p.Degradation+0.1
		if r.chance(0.1) {
			p.Confidence = pick(r, 7.0, -1, 1)
		}
		said.Pairs = append(said.Pairs, p)
	}
	w.life.TellPriors(said)
}
