package spec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Figure 7: of 450,000 values from CPI²'s own GEV(1.73, 0.133, -0.0534), in the bins of a sketch, the fit finds it again, and with it mean 1.8
// and standard deviation 0.16.
func TestFigure7(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	paper := GEV{1.73, 0.133, -0.0534}
	var s Sketch
	sum, squares, n := 0.0, 0.0, 450_000
	for range n {
		x := paper.Quantile(rng.Float64())
		sum, squares = sum+x, squares+x*x
		s.Add(x, 1)
	}
	mean := sum / float64(n)
	if sd := math.Sqrt(squares/float64(n) - mean*mean); math.Abs(mean-1.8) > 0.01 || math.Abs(sd-0.16) > 0.01 {
		t.Errorf("the paper's curve has mean %.3f and deviation %.3f; its text says 1.8 and 0.16", mean, sd)
	}
	g, ok := FitGEV(&s)
	if !ok || math.Abs(g.Location-1.73) > 0.01 || math.Abs(g.Scale-0.133) > 0.005 || math.Abs(g.Shape+0.0534) > 0.02 {
		t.Errorf("%+v", g)
	}
	p := beyond(2)
	if got, want := g.Quantile(p), paper.Quantile(p); math.Abs(got-want) > 0.015 || math.Abs(want-2.184) > 0.002 {
		t.Errorf("threshold %.3f, of the paper's curve %.3f; mean + 2 sigma is 2.12", got, want)
	}
}

// A threshold by the fit leaves as much above it as two deviations of a normal distribution, also where the distribution is skewed; where nothing
// can be fitted it is mean and deviations.
func TestThresholdByFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	skewed := GEV{1, 0.1, 0.15}
	for fit, most := range map[bool]float64{true: 0.027, false: 0.06} {
		p, s := Defaults(), New()
		p.Fit = fit
		fleet(s, &p, 10, 2000, func(int) float64 { return skewed.Quantile(rng.Float64()) })
		s.Calculate(&p, start)
		j := s.Jobs[web]
		above := 0
		for range 100_000 {
			if skewed.Quantile(rng.Float64()) > j.limit(&p, 0) {
				above++
			}
		}
		if share := float64(above) / 100_000; share > most || fit && share < 0.019 || !fit && share < 0.03 {
			t.Errorf("by fit %v: %.4f of the windows lie above the threshold %.3f", fit, share, j.limit(&p, 0))
		}
		if (inForce(j, 0).Tail > 0) != fit {
			t.Errorf("%+v", inForce(j, 0))
		}
	}
	p, s := Defaults(), New()
	p.Fit = true
	fleet(s, &p, 10, 200, func(int) float64 { return 1 })
	s.Calculate(&p, start)
	if sp := cpi(t, s); sp.Tail != 0 || sp.Mean != 1 {
		t.Errorf("%+v", sp)
	}
}
