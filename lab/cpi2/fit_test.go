package cpi2

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sample is what scipy made of genextreme.ppf((i+0.5)/200, 0.0534, 1.73, 0.133) rounded to
// three digits: 200 values of CPI²'s own GEV(1.73, 0.133, -0.0534).
func gevSample() []float64 {
	const mu, sigma, xi = 1.73, 0.133, -0.0534
	s := make([]float64, 200)
	for i := range s {
		p := (float64(i) + 0.5) / 200
		s[i] = math.Round(1000*(mu+sigma*(math.Pow(-math.Log(p), -xi)-1)/xi)) / 1000
	}
	return s
}

// The fits are scipy 1.17.1's: genextreme.fit(x), gamma.fit(x, floc=0), norm.fit(x),
// lognorm.fit(x, floc=0), with logpdf(...).sum() and kstest(...).statistic.
func TestFitsAgainstScipy(t *testing.T) {
	fits, err := fitAll(gevSample())
	if err != nil {
		t.Fatal(err)
	}
	if fits[0].Name != "GEV" {
		t.Errorf("the best fit of a GEV sample is %s", fits[0].Name)
	}
	want := map[string]Fit{
		"GEV":        {Params: [3]float64{1.7302259893670757, 0.13261368404281992, -0.05590567112204163}, LogLikelihood: 94.8432653183973, KS: 0.004596971795380489},
		"gamma":      {Params: [3]float64{132.7214080355253, 0.013561979387064722}, LogLikelihood: 87.98732720461508, KS: 0.04847339596219635},
		"normal":     {Params: [3]float64{1.799965, 0.15907524563865993}, LogLikelihood: 83.88788249818998, KS: 0.05992786694842883},
		"log-normal": {Params: [3]float64{0.5839951997222042, 0.08618812172344677}, LogLikelihood: 89.65783538254237, KS: 0.04259819935259346},
	}
	for _, f := range fits {
		w := want[f.Name]
		// scipy stops its own searches at 1e-4 or so of the parameters.
		for i := range f.Params {
			if math.Abs(f.Params[i]-w.Params[i]) > 2e-3*math.Max(0.1, math.Abs(w.Params[i])) {
				t.Errorf("%s: parameter %d is %v, scipy's %v", f.Name, i, f.Params[i], w.Params[i])
			}
		}
		if math.Abs(f.LogLikelihood-w.LogLikelihood) > 2e-3 || math.Abs(f.KS-w.KS) > 1e-3 {
			t.Errorf("%s: log-likelihood %v, KS %v; scipy's %v, %v", f.Name, f.LogLikelihood, f.KS, w.LogLikelihood, w.KS)
		}
	}
}

// scipy.stats.genextreme.logpdf(q, 0.0534, 1.73, 0.133) and .cdf; at shape 0 it is
// gumbel_r, here by its own formula.
func TestGEVAgainstScipy(t *testing.T) {
	g := gev{1.73, 0.133, -0.0534}
	for _, c := range []struct{ x, log, p float64 }{
		{1.5, -1.645083850704038, 0.0053629747044070565},
		{1.73, 1.017406150760383, 0.36787944117144233},
		{2.2, -1.7095965176762418, 0.9802806257801923},
	} {
		if math.Abs(g.logProb(c.x)-c.log) > 1e-12 || math.Abs(g.cdf(c.x)-c.p) > 1e-12 {
			t.Errorf("at %v: %v and %v, scipy's %v and %v", c.x, g.logProb(c.x), g.cdf(c.x), c.log, c.p)
		}
	}
	end := g.mu - g.sigma/g.xi // the upper end of the support
	if !math.IsInf(g.logProb(end+1), -1) || g.cdf(end+1) != 1 {
		t.Errorf("beyond the end: %v, %v", g.logProb(end+1), g.cdf(end+1))
	}
	heavy := gev{1, 1, 0.5}
	if !math.IsInf(heavy.logProb(-2), -1) || heavy.cdf(-2) != 0 {
		t.Errorf("below the begin: %v, %v", heavy.logProb(-2), heavy.cdf(-2))
	}
	gumbel, near := gev{1, 2, 0}, gev{1, 2, 1e-6}
	for _, x := range []float64{-3, 0, 1, 4, 20} {
		if math.Abs(gumbel.logProb(x)-near.logProb(x)) > 1e-3 || math.Abs(gumbel.cdf(x)-near.cdf(x)) > 1e-5 {
			t.Errorf("at %v the limit is %v, near it %v", x, gumbel.logProb(x), near.logProb(x))
		}
	}
}

func TestFitRefuses(t *testing.T) {
	same := make([]float64, 20)
	for i := range same {
		same[i] = 1
	}
	for name, s := range map[string][]float64{"few": {1, 2, 3}, "alike": same, "zero": append([]float64{0}, gevSample()...)} {
		if _, err := fitAll(s); err == nil {
			t.Errorf("%s: fitted", name)
		}
	}
}

// Each distribution is the best fit of its own samples.
func TestFitFindsItsOwn(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	normal, logs := make([]float64, 4000), make([]float64, 4000)
	for i := range normal {
		normal[i] = 5 + rng.NormFloat64()
		logs[i] = math.Exp(0.5 * rng.NormFloat64())
	}
	for want, s := range map[string][]float64{"normal": normal, "log-normal": logs} {
		fits, err := fitAll(s)
		if err != nil {
			t.Fatal(err)
		}
		if fits[0].Name != want {
			t.Errorf("%s: best is %s", want, fits[0].Name)
		}
	}
}
