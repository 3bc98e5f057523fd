package spec

import "math"

// GEV is a generalised extreme value distribution, which fitted CPI best of those that CPI²'s authors tried (figure 7). Shape is
// their third parameter: below 0 the right tail ends somewhere.
type GEV struct {
	Location float64 `json:"location"`
	Scale    float64 `json:"scale"`
	Shape    float64 `json:"shape"`
}

// FitGEV fits by the first three L-moments (J. R. M. Hosking, J. R. Wallis and E. F. Wood, "Estimation of the generalized extreme-value distribution by
// the method of probability-weighted moments", Technometrics 27, 1985), which can be had of a histogram and are little moved by single
// values. ok is false where there is nothing to fit.
func FitGEV(s *Sketch) (g GEV, ok bool) {
	total, seen := s.Count(), 0.0
	if total <= 0 || len(s.Bins()) < 3 {
		return g, false
	}
	var b0, b1, b2 float64 // probability-weighted moments
	s.each(func(at int32, n float64) {
		x, f, w := valueOf(at), (seen+n/2)/total, n/total
		seen += n
		// Within a bin values and ranks lie evenly and rise together: what that adds to their products.
		both := w * x * 2 * Accuracy / 12
		b0, b1, b2 = b0+n*x, b1+n*(x*f+both), b2+n*(x*(f*f+w*w/12)+2*f*both)
	})
	b0, b1, b2 = b0/total, b1/total, b2/total
	l2, l3 := 2*b1-b0, 6*b2-6*b1+b0
	if l2 <= 0 {
		return g, false
	}
	c := 2/(3+l3/l2) - math.Ln2/math.Log(3)
	k := 7.859*c + 2.9554*c*c
	if math.Abs(k) < 1e-6 {
		k = 1e-6 // the limit is Gumbel's distribution
	}
	gamma1 := math.Gamma(1 + k)
	g.Scale = l2 * k / (gamma1 * (1 - math.Pow(2, -k)))
	g.Location, g.Shape = b0-g.Scale*(1-gamma1)/k, -k
	return g, g.Scale > 0 && !math.IsInf(g.Scale, 0) && !math.IsNaN(g.Location)
}

// Quantile returns the value below which a share p of all is.
func (g GEV) Quantile(p float64) float64 {
	return g.Location + g.Scale/g.Shape*(math.Pow(-math.Log(p), -g.Shape)-1)
}

// beyond is the share of a normal distribution that lies below its mean and so many standard deviations.
func beyond(sigmas float64) float64 { return 0.5 * math.Erfc(-sigmas/math.Sqrt2) }
