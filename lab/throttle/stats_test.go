package throttle

import (
	"math"
	"testing"
)

func TestInterval(t *testing.T) {
	// Student's 97.5 % quantile with two degrees of freedom is 4.30265 (R: qt(0.975, 2)).
	got := interval([]float64{1, 2, 3})
	if half := 4.30265 / math.Sqrt(3); math.Abs(got.Mean-2) > 1e-9 || math.Abs(got.Low-(2-half)) > 1e-4 || math.Abs(got.High-(2+half)) > 1e-4 || got.Blocks != 3 {
		t.Errorf("%+v", got)
	}
	if got := interval([]float64{0.5}); got != (Interval{0.5, 0.5, 0.5, 1}) {
		t.Errorf("one block: %+v", got)
	}
	for text, i := range map[string]Interval{
		"absent": {}, "50.0": interval([]float64{0.5}), "0.0 [0.0, 0.0]": interval([]float64{0, 0}), "50.0 [0.0, 100.0]": interval([]float64{0, 1}),
	} {
		if got := i.share(1); got != text {
			t.Errorf("%+v prints %q, want %q", i, got, text)
		}
	}
	if got := fall(Interval{Mean: 0.4, Low: 0.3, High: 0.5, Blocks: 3}); got != "-40 [-50, -30]" {
		t.Errorf("a fall prints %q", got)
	}
}

func TestQuantile(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.25: 1, 0.5: 2, 0.51: 3, 0.99: 4, 1: 4} {
		if got := quantile(q, v); got != want {
			t.Errorf("quantile %g = %g, want %g", q, got, want)
		}
	}
	if !math.IsNaN(quantile(0.5, nil)) || !math.IsNaN(mean(nil)) || spread(nil) != (Spread{}) {
		t.Error("nothing has a quantile, a mean or a spread")
	}
	if v[0] != 4 {
		t.Error("the caller's order was changed")
	}
	if s := spread([]float64{1, 3}); s != (Spread{2, 3, 3, 3}) {
		t.Errorf("%+v", s)
	}
}
