package hardcap

import "math"

// Whether there is a rise at all. Shares of a rise add up to one however small it is, and on a busy host the time
// that a victim waits for others scatters from window to window by half of its mean and more: of a rise that is chance
// whoever happened to run has most. A window is bad by its longest waits, which need not make their sum larger.

// leastScatter is how many good windows it takes to say by how much they scatter.
const leastScatter = 5

// byChance is by how many standard errors, as good windows scatter, the victim waited longer in bad windows than usual in good ones, and whether those are
// fewer than are asked for, so that it may be chance: never where none are asked for, or good windows do not tell.
func byChance(asked, waited, usual float64, bad, good *side) (z float64, chance bool) {
	nb, ng := float64(len(bad.at)), float64(len(good.at))
	if asked <= 0 || ng < leastScatter || nb == 0 {
		return 0, false
	}
	scatter := math.Sqrt(max(0, good.squares/ng-usual*usual) * ng / (ng - 1) * (1/nb + 1/ng))
	if scatter <= 0 {
		return 0, false
	}
	z = max(0, waited-usual) / scatter
	return z, z < asked
}
