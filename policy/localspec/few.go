package localspec

import (
	"math"
	"slices"
)

// A first spec rests on few windows, and mean + 2 sigma of few windows is what the worst of them
// says: two noisy windows of 24 had put a threshold at 3.5 that belonged at 2.3, and nobody was
// named. CPI²'s specs are of thousands of windows, among which noise is nothing; its profile
// keeps its formula.
//
// So a first spec is taken in two steps. What lies further from the median than 5.2 median
// deviations is noise, and is left out (Hampel's rule X84: F. R. Hampel, "The breakdown points of
// the mean combined with some rejection rules", Technometrics 27, 1985). Of the rest, what lies further
// than two deviations is held there before mean and deviation are calculated, as it is later,
// when there is a threshold (Huber's winsorising: ISO 13528, algorithm A, takes it further).
// The median and its deviation stand up to half of the windows being noise, and no estimate of
// spread is moved less by the worst that a few can do (R. D. Martin and R. H. Zamar, "Bias robust
// estimation of scale", Annals of Statistics 21, 1993).
//
// Rejected: median and median deviation as mean and sigma. Of 24 windows they are too rough (37 %
// of the efficiency), and of a signal that is skewed to the right, as waiting is, they put the
// threshold so low that one quiet window in eight is above it. The deviation of the windows above
// the median alone, which fits such signals: three noisy windows of thirty move it twice as far.

// medianSigma is the standard deviation of a normal distribution in median deviations.
const medianSigma = 1.4826

const (
	grossSigmas = 3.5 // X84: 5.2 median deviations
	heldSigmas  = 2.0
	// leastSpread, as a share of the median: where most windows are alike to the last digit, the
	// median deviation says nothing.
	leastSpread = 0.01
)

// maxFew is how many windows are kept of a key until its spec rests on more than so many. It is
// also the size below which a spec is held for young enough to have been learned in noise.
const maxFew = 256

// ofFew is the distribution of few windows, and how many of them were left out as noise.
func ofFew(values []float64) (m Moments, leftOut int) {
	sorted := slices.Sorted(slices.Values(values))
	mid := middle(sorted)
	off := make([]float64, len(sorted))
	for i, v := range sorted {
		off[i] = math.Abs(v - mid)
	}
	slices.Sort(off)
	sigma := max(medianSigma*middle(off), leastSpread*math.Abs(mid))
	for _, v := range sorted {
		if math.Abs(v-mid) > grossSigmas*sigma {
			leftOut++
			continue
		}
		m.add(min(max(v, mid-heldSigmas*sigma), mid+heldSigmas*sigma), 0)
	}
	return m, leftOut
}

func middle(sorted []float64) float64 {
	n := len(sorted)
	return sorted[(n-1)/2]/2 + sorted[n/2]/2
}

// keepFew keeps a window as it was measured: all before the first spec, and the latest while it
// is young.
func (e *Entry) keepFew(v float64) {
	switch {
	case e.Spec == nil && len(e.Few) < maxFew, e.young() && len(e.Few) < refuting:
		e.Few = append(e.Few, v)
	case e.young():
		copy(e.Few, e.Few[1:])
		e.Few[len(e.Few)-1] = v
	}
}

func (e *Entry) young() bool { return e.Spec != nil && e.Spec.NumSamples < maxFew }

// A young spec was learned in noise, or beside a neighbour that has left, when of the latest thirty
// windows all but three lie below its mean, what is normal in them does so as a whole, up to
// their own two deviations, and their mean is lower by three quarters of the spec's deviation: by
// less, and a lull of a skewed signal would do; where 36 % of the windows were noise it is as much.
// A spec that is merely a little high stays.
const (
	refuting  = 30
	above     = 3
	farSigmas = 0.75
)

// anew returns what the latest windows say when they refute the spec.
func (e *Entry) anew() (m Moments, leftOut int, refuted bool) {
	if !e.young() || len(e.Few) < refuting {
		return m, 0, false
	}
	high := 0
	for _, v := range e.Few {
		if v >= e.Spec.Mean {
			high++
		}
	}
	if high > above {
		return m, 0, false
	}
	m, leftOut = ofFew(e.Few)
	return m, leftOut, m.farBelow(e.Spec.Mean, e.Spec.StdDev)
}

func (m *Moments) farBelow(mean, stddev float64) bool {
	return m.Mean+max(heldSigmas*math.Sqrt(m.M2/m.N), farSigmas*stddev) < mean
}
