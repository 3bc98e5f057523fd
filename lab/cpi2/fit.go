package cpi2

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/optimize"
	gonum "gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/commensal-io/commensal/lab/stat"
)

// Fit is a distribution fitted to a sample by maximum likelihood, and how well it fits.
type Fit struct {
	Name   string     `json:"name"`
	Params [3]float64 `json:"params"` // as Text names them
	Text   string     `json:"text"`
	// LogLikelihood of the sample; AIC counts the parameters against it: smaller is better.
	LogLikelihood float64 `json:"log_likelihood"`
	AIC           float64 `json:"aic"`
	// KS is the greatest distance between the sample's distribution function and the fit's.
	KS float64 `json:"ks"`
}

// gev is the generalised extreme value distribution of figure 7, in CPI²'s order and
// sign: location, scale, shape; a negative shape bounds it above. (scipy's c is -shape.)
type gev struct{ mu, sigma, xi float64 }

// gumbelShape is the shape below which the distribution is taken for its limit at 0: the
// two differ by less than the rounding of the powers.
const gumbelShape = 1e-8

// logProb returns the log of the density, -Inf outside of the support.
func (g gev) logProb(x float64) float64 {
	z := (x - g.mu) / g.sigma
	if math.Abs(g.xi) < gumbelShape {
		return -math.Log(g.sigma) - z - math.Exp(-z)
	}
	t := 1 + g.xi*z
	if t <= 0 {
		return math.Inf(-1)
	}
	l := math.Log(t) / g.xi
	return -math.Log(g.sigma) - (1+g.xi)*l - math.Exp(-l)
}

// cdf returns the distribution function.
func (g gev) cdf(x float64) float64 {
	z := (x - g.mu) / g.sigma
	if math.Abs(g.xi) < gumbelShape {
		return math.Exp(-math.Exp(-z))
	}
	t := 1 + g.xi*z
	if t <= 0 {
		if g.xi > 0 {
			return 0
		}
		return 1
	}
	return math.Exp(-math.Pow(t, -1/g.xi))
}

// fitAll fits the four distributions of figure 7 to a sample of positive values that is
// not all alike, the best (least AIC) first.
func fitAll(sample []float64) ([]Fit, error) {
	s := slices.Clone(sample)
	slices.Sort(s)
	if len(s) < 10 || !(s[0] > 0) || s[0] == s[len(s)-1] {
		return nil, fmt.Errorf("cpi2: a fit asks for 10 positive values that are not all alike, not %d", len(s))
	}
	fits := []Fit{fitNormal(s), fitLogNormal(s)}
	for _, f := range []func([]float64) (Fit, error){fitGamma, fitGEV} {
		fit, err := f(s)
		if err != nil {
			return nil, err
		}
		fits = append(fits, fit)
	}
	slices.SortStableFunc(fits, func(a, b Fit) int { return cmp.Compare(a.AIC, b.AIC) })
	return fits, nil
}

func fitNormal(s []float64) Fit {
	m, sd := stat.MeanStdDev(s)
	d := distuv.Normal{Mu: m, Sigma: sd}
	return judgeFit(Fit{Name: "normal", Params: [3]float64{m, sd}, Text: fmt.Sprintf("mu %.4g, sigma %.4g", m, sd)}, 2, s, d.LogProb, d.CDF)
}

func fitLogNormal(s []float64) Fit {
	logs := make([]float64, len(s))
	for i, v := range s {
		logs[i] = math.Log(v)
	}
	m, sd := stat.MeanStdDev(logs)
	d := distuv.LogNormal{Mu: m, Sigma: sd}
	return judgeFit(Fit{Name: "log-normal", Params: [3]float64{m, sd}, Text: fmt.Sprintf("mu %.4g, sigma %.4g (of the log)", m, sd)}, 2, s, d.LogProb, d.CDF)
}

// fitGamma searches over the shape alone: the best rate for a shape is shape / mean.
func fitGamma(s []float64) (Fit, error) {
	m, sd := stat.MeanStdDev(s)
	logs := 0.0
	for _, v := range s {
		logs += math.Log(v)
	}
	n := float64(len(s))
	loss := func(x []float64) float64 {
		a := math.Exp(x[0])
		lg, _ := math.Lgamma(a)
		return -((a-1)*logs/n - a + a*math.Log(a/m) - lg)
	}
	x, err := minimise(loss, []float64{2 * math.Log(m/sd)})
	if err != nil {
		return Fit{}, fmt.Errorf("cpi2: fit gamma: %w", err)
	}
	a := math.Exp(x[0])
	d := distuv.Gamma{Alpha: a, Beta: a / m}
	return judgeFit(Fit{Name: "gamma", Params: [3]float64{a, m / a}, Text: fmt.Sprintf("shape %.4g, scale %.4g", a, m/a)}, 2, s, d.LogProb, d.CDF), nil
}

// fitGEV begins at the Gumbel distribution with the sample's mean and deviation.
func fitGEV(s []float64) (Fit, error) {
	m, sd := stat.MeanStdDev(s)
	scale := sd * math.Sqrt(6) / math.Pi
	const euler = 0.57721566490153286
	loss := func(x []float64) float64 {
		g := gev{m + x[0]*sd, sd * math.Exp(x[1]), x[2]}
		sum := 0.0
		for _, v := range s {
			sum -= g.logProb(v)
		}
		if math.IsInf(sum, 1) || math.IsNaN(sum) {
			return math.MaxFloat64 // outside of the support; the search does not like Inf
		}
		return sum / float64(len(s))
	}
	x, err := minimise(loss, []float64{-euler * scale / sd, math.Log(scale / sd), -0.05})
	if err != nil {
		return Fit{}, fmt.Errorf("cpi2: fit GEV: %w", err)
	}
	g := gev{m + x[0]*sd, sd * math.Exp(x[1]), x[2]}
	return judgeFit(Fit{Name: "GEV", Params: [3]float64{g.mu, g.sigma, g.xi}, Text: fmt.Sprintf("mu %.4g, sigma %.4g, xi %.4g", g.mu, g.sigma, g.xi)}, 3, s, g.logProb, g.cdf), nil
}

func minimise(loss func([]float64) float64, from []float64) ([]float64, error) {
	settings := &optimize.Settings{Converger: &optimize.FunctionConverge{Absolute: 1e-12, Iterations: 200}}
	res, err := optimize.Minimize(optimize.Problem{Func: loss}, from, settings, &optimize.NelderMead{})
	if err != nil {
		return nil, err
	}
	return res.X, nil
}

// judgeFit fills in how well a fit of k parameters describes a sorted sample.
func judgeFit(f Fit, k int, s []float64, logProb, cdf func(float64) float64) Fit {
	for _, v := range s {
		f.LogLikelihood += logProb(v)
	}
	f.AIC = 2*float64(k) - 2*f.LogLikelihood
	n := float64(len(s))
	for i, v := range s {
		p := cdf(v)
		f.KS = math.Max(f.KS, math.Max(p-float64(i)/n, float64(i+1)/n-p))
	}
	return f
}

// histogram counts values in equal bins.
func histogram(values []float64, low, high float64, bins int) []float64 {
	edges := make([]float64, bins+1)
	for i := range edges {
		edges[i] = low + (high-low)*float64(i)/float64(bins)
	}
	s := slices.Clone(values)
	slices.Sort(s)
	s = slices.DeleteFunc(s, func(v float64) bool { return v < low || v >= high })
	return gonum.Histogram(nil, edges, s, nil)
}
