package cpi2

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// pearson returns the linear correlation of two series, NaN with fewer than three points
// or when one of them does not vary: there is no correlation to speak of.
func pearson(x, y []float64) float64 {
	if len(x) < 3 || len(x) != len(y) {
		return math.NaN()
	}
	return stat.Correlation(x, y, nil)
}

// quantile returns the p-quantile of values in any order, NaN without any.
func quantile(p float64, values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Clone(values)
	slices.Sort(s)
	return stat.Quantile(p, stat.LinInterp, s, nil)
}

func median(values []float64) float64 { return quantile(0.5, values) }

// mean returns NaN without values.
func mean(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return stat.Mean(values, nil)
}

// meanStd returns mean and population standard deviation, as the spec has them.
func meanStd(values []float64) (m, sd float64) {
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	m, v := stat.PopMeanVariance(values, nil)
	return m, math.Sqrt(v)
}

// share is a count out of others, with the 95 % interval of Wilson, which stays within
// [0, 1] and is right for few and for rare ones too.
type share struct {
	N    int     `json:"n"`
	Of   int     `json:"of"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func shareOf(n, of int) share {
	s := share{N: n, Of: of, High: 1}
	if of == 0 {
		return s
	}
	const z = 1.959964
	k, p := float64(of), float64(n)/float64(of)
	mid := (p + z*z/(2*k)) / (1 + z*z/k)
	half := z / (1 + z*z/k) * math.Sqrt(p*(1-p)/k+z*z/(4*k*k))
	s.Low, s.High = math.Max(0, mid-half), math.Min(1, mid+half)
	return s
}

// value returns the share, NaN of nothing.
func (s share) value() float64 {
	if s.Of == 0 {
		return math.NaN()
	}
	return float64(s.N) / float64(s.Of)
}
