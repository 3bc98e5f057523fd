package throttle

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a mean with its 95 % interval. Blocks is how many values it is of: with one
// there is no interval, and Low and High are the mean.
type Interval struct {
	Mean   float64 `json:"mean"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Blocks int     `json:"blocks"`
}

// interval is Student's, over blocks that were played apart.
func interval(v []float64) Interval {
	n := float64(len(v))
	if n == 0 {
		return Interval{}
	}
	m := mean(v)
	out := Interval{Mean: m, Low: m, High: m, Blocks: len(v)}
	if len(v) == 1 {
		return out
	}
	sum := 0.0
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * math.Sqrt(sum/(n-1)/n)
	out.Low, out.High = m-half, m+half
	return out
}

// text prints an interval with a factor and so many decimals.
func (i Interval) text(times float64, decimals int) string {
	switch i.Blocks {
	case 0:
		return "absent"
	case 1:
		return fmt.Sprintf("%.*f", decimals, i.Mean*times)
	}
	return fmt.Sprintf("%.*f [%.*f, %.*f]", decimals, i.Mean*times, decimals, i.Low*times, decimals, i.High*times)
}

// share is text for a share, which is never outside [0, 1].
func (i Interval) share(decimals int) string {
	i.Low, i.High = max(0, i.Low), min(1, i.High)
	return i.text(100, decimals)
}

func mean(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// quantile returns the smallest value that at least the share q of all does not pass; NaN
// of nothing.
func quantile(q float64, v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return s[min(len(s)-1, max(0, int(math.Ceil(q*float64(len(s))))-1))]
}

// Spread says how a quantity is distributed.
type Spread struct {
	Mean float64 `json:"mean"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// spread summarises values; of none it is zero.
func spread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{Mean: mean(v), P95: quantile(0.95, v), P99: quantile(0.99, v), Max: slices.Max(v)}
}

// ratio is a over b, 0 where b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
