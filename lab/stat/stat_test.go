package stat

import (
	"encoding/json"
	"math"
	"testing"
)

// R: quantile(c(4, 1, 3, 2), q, type = 1).
func TestQuantile(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.25: 1, 0.5: 2, 0.51: 3, 0.99: 4, 1: 4} {
		if got := Quantile(q, v); got != want {
			t.Errorf("quantile %g = %g, want %g", q, got, want)
		}
	}
	if v[0] != 4 {
		t.Error("the caller's order was changed")
	}
	if got := Quantile(0.99, []float64{2, math.Inf(1), 1}); !math.IsInf(got, 1) {
		t.Errorf("what never comes is not the greatest: %g", got)
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		v            []float64
		median, mean float64
	}{{[]float64{3, 1, 8}, 3, 4}, {[]float64{4, 1, 9, 2}, 3, 4}, {[]float64{7}, 7, 7}} {
		if m := Median(c.v); m != c.median {
			t.Errorf("%v: median %g, want %g", c.v, m, c.median)
		}
		if m := Mean(c.v); m != c.mean {
			t.Errorf("%v: mean %g, want %g", c.v, m, c.mean)
		}
	}
	// numpy.std([2, 4, 4, 4, 5, 5, 7, 9]) is 2.
	if m, sd := MeanStdDev([]float64{2, 4, 4, 4, 5, 5, 7, 9}); m != 5 || sd != 2 {
		t.Errorf("mean %g, standard deviation %g", m, sd)
	}
}

// Nothing has neither a mean nor a share, and says so.
func TestNothing(t *testing.T) {
	m, sd := MeanStdDev(nil)
	for what, v := range map[string]float64{
		"mean": Mean(nil), "median": Median(nil), "quantile": Quantile(0.5, nil), "mean with deviation": m, "deviation": sd,
		"share": ShareOf(0, 0).Value(), "correlation of two": Correlation([]float64{1, 2}, []float64{1, 2}), "of what is alike": Correlation([]float64{1, 1, 1}, []float64{1, 2, 3}),
	} {
		if !math.IsNaN(v) {
			t.Errorf("%s of nothing is %g", what, v)
		}
	}
	if text := ShareOf(0, 0).Text(); text != "none" {
		t.Errorf("a share of nothing prints %q", text)
	}
	if Ratio(1, 0) != 0 || Ratio(1, -1) != 0 || Ratio(1, 4) != 0.25 {
		t.Error("ratios")
	}
}

// scipy.stats.pearsonr.
func TestCorrelation(t *testing.T) {
	if r := Correlation([]float64{1, 2, 3, 4, 7}, []float64{2, 1, 4, 3, 9}); math.Abs(r-0.9204922441828913) > 1e-12 {
		t.Errorf("r is %v", r)
	}
}

// scipy.stats.binomtest(...).proportion_ci(method="wilson"), and prop.test(k, n, correct =
// FALSE) of R, to four digits.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		n, of           int
		low, high, near float64
	}{
		{9, 10, 0.5958499732047615, 0.9821237869049271, 1e-12}, {0, 20, 0, 0.16112515805281935, 1e-12},
		{12, 12, 0.7575, 1, 5e-5}, {11, 12, 0.6461, 0.9851, 5e-5}, {5, 10, 0.2366, 0.7634, 5e-5},
	} {
		s := ShareOf(c.n, c.of)
		if math.Abs(s.Low-c.low) > c.near || math.Abs(s.High-c.high) > c.near {
			t.Errorf("%d of %d: [%v, %v], want [%v, %v]", c.n, c.of, s.Low, s.High, c.low, c.high)
		}
	}
	if text := ShareOf(2, 5).Text(); text != "40 % [12, 77]" {
		t.Errorf("it prints %q", text)
	}
}

func TestInterval(t *testing.T) {
	// Student's 97.5 % quantile with two degrees of freedom is 4.30265 (R: qt(0.975, 2)).
	got := IntervalOf([]float64{1, 2, 3})
	if half := 4.30265 / math.Sqrt(3); math.Abs(got.Mean-2) > 1e-9 || math.Abs(got.Low-(2-half)) > 1e-4 || math.Abs(got.High-(2+half)) > 1e-4 || got.Blocks != 3 {
		t.Errorf("%+v", got)
	}
	if got := IntervalOf([]float64{0.5}); got != (Interval{0.5, 0.5, 0.5, 1}) {
		t.Errorf("one block: %+v", got)
	}
	for text, i := range map[string]Interval{
		"absent": {}, "50.0": IntervalOf([]float64{0.5}), "0.0 [0.0, 0.0]": IntervalOf([]float64{0, 0}), "50.0 [0.0, 100.0]": IntervalOf([]float64{0, 1}),
	} {
		if got := i.Percent(1); got != text {
			t.Errorf("%+v prints %q, want %q", i, got, text)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		n          Number
		json, text string
	}{{1.25, "1.25", "1.2"}, {0, "0", "0.0"}, {Absent(), "null", "absent"}, {Number(math.Inf(1)), "null", "never"}} {
		b, err := json.Marshal(c.n)
		if err != nil || string(b) != c.json || c.n.Text(1) != c.text {
			t.Errorf("%v: %s, %v, %q", float64(c.n), b, err, c.n.Text(1))
		}
	}
	if Absent().Known() || !Number(0).Known() {
		t.Error("zero is known, absent is not")
	}
}
