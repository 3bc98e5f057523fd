package hardcap

import "math"

// Whether there is a rise at all. Shares of a rise add up to one however small it is, and on a busy host the time
// that a victim waits for others scatters from window to window by half of its mean and more: of a rise that is chance
// whoever happened to run has most. A window is bad by its longest waits, which need not make their sum larger.

// leastScatter is how many good windows it takes to say by how much they scatter.
const leastScatter = 5

// standardErrors is by how many standard errors of its own, as good windows scatter, the victim waited longer in bad
// windows than in good ones; not ok where good windows do not tell.
func standardErrors(bad, good *side) (z float64, ok bool) {
	nb, ng := float64(len(bad.at)), float64(len(good.at))
	if ng < leastScatter || nb == 0 {
		return 0, false
	}
	scatter := math.Sqrt(max(0, good.squares/ng-good.sum*good.sum/ng/ng) * ng / (ng - 1) * (1/nb + 1/ng))
	if scatter <= 0 {
		return 0, false
	}
	return max(0, bad.sum/nb-good.sum/ng) / scatter, true
}

// byChance says whether a rise of fewer standard errors than are asked for may be chance, and of how many it is; never where none is asked for.
func byChance(asked float64, bad, good *side) (z float64, chance bool) {
	if asked <= 0 {
		return 0, false
	}
	z, ok := standardErrors(bad, good)
	return z, ok && z < asked
}
