// Package stat is the statistics of the labs, on top of gonum/stat: one definition of each, so
// that the same word means the same in every table.
//
// What there is nothing to say about is absent: NaN in a computation, null in a JSON document
// (Number), a word in a table (Text). It is never 0.
package stat

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	gonum "gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Mean returns the arithmetic mean, NaN of no values.
func Mean(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return gonum.Mean(v, nil)
}

// MeanStdDev returns the mean and the standard deviation of a whole population (divided by n,
// not by n-1), which is what a spec holds; NaN of no values.
func MeanStdDev(v []float64) (mean, stdDev float64) {
	if len(v) == 0 {
		return math.NaN(), math.NaN()
	}
	return gonum.PopMeanStdDev(v, nil)
}

// Median returns the value in the middle, the mean of the two in the middle where their number
// is even, and NaN of no values.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := Sorted(v)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Quantile returns the least of the values that at least the share q of all of them does not
// exceed (the nearest rank; type 1 of Hyndman and Fan), NaN of no values. It is always a value
// that was measured: with fewer than a hundred, the quantile 0.99 is the greatest of them.
func Quantile(q float64, v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return gonum.Quantile(q, gonum.Empirical, Sorted(v), nil)
}

// Sorted returns the values in rising order: a copy, unless they are in order already.
func Sorted(v []float64) []float64 {
	if slices.IsSorted(v) {
		return v
	}
	return slices.Sorted(slices.Values(v))
}

// Correlation returns the linear correlation of two series of one length (Pearson), NaN with
// fewer than three points or where one of them does not vary: there is none to speak of.
func Correlation(x, y []float64) float64 {
	if len(x) < 3 || len(x) != len(y) {
		return math.NaN()
	}
	return gonum.Correlation(x, y, nil)
}

// Ratio is a over b, and 0 where b is not positive.
func Ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// normal975 is the 97.5 % quantile of the normal distribution, for intervals of 95 %.
func normal975() float64 { return distuv.UnitNormal.Quantile(0.975) }

// Share is how many of how many, with the interval of 95 % of Wilson (1927), which stays within
// 0 and 1 and holds for few and for rare ones too.
type Share struct {
	N    int     `json:"n"`
	Of   int     `json:"of"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// ShareOf returns the share that n is of so many; of nothing the interval is 0 to 1.
func ShareOf(n, of int) Share {
	s := Share{N: n, Of: of, High: 1}
	if of == 0 {
		return s
	}
	z := normal975()
	k, p := float64(of), float64(n)/float64(of)
	mid := (p + z*z/(2*k)) / (1 + z*z/k)
	half := z / (1 + z*z/k) * math.Sqrt(p*(1-p)/k+z*z/(4*k*k))
	s.Low, s.High = max(0, mid-half), min(1, mid+half)
	return s
}

// Value returns the share as a number between 0 and 1, NaN of nothing.
func (s Share) Value() float64 {
	if s.Of == 0 {
		return math.NaN()
	}
	return float64(s.N) / float64(s.Of)
}

// Text writes the share and its interval in percent: "40 % [12, 77]".
func (s Share) Text() string {
	if s.Of == 0 {
		return "none"
	}
	return fmt.Sprintf("%.0f %% [%.0f, %.0f]", 100*s.Value(), 100*s.Low, 100*s.High)
}

// Interval is a mean with its interval of 95 %. Blocks is how many values it is of: with one
// there is no interval, and Low and High are the mean.
type Interval struct {
	Mean   float64 `json:"mean"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Blocks int     `json:"blocks"`
}

// IntervalOf returns Student's interval, of values that do not depend on each other: of blocks
// that were played apart.
func IntervalOf(v []float64) Interval {
	n := float64(len(v))
	if n == 0 {
		return Interval{}
	}
	mean := Mean(v)
	out := Interval{Mean: mean, Low: mean, High: mean, Blocks: len(v)}
	if len(v) > 1 {
		half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * gonum.StdErr(gonum.StdDev(v, nil), n)
		out.Low, out.High = mean-half, mean+half
	}
	return out
}

// Text writes the interval, times a factor, with so many decimals: "50.0 [48.1, 51.9]".
func (i Interval) Text(times float64, decimals int) string {
	switch i.Blocks {
	case 0:
		return absent
	case 1:
		return Text(i.Mean*times, decimals)
	}
	return fmt.Sprintf("%.*f [%.*f, %.*f]", decimals, i.Mean*times, decimals, i.Low*times, decimals, i.High*times)
}

// Percent is Text in percent for a share, whose interval is cut off at 0 and 1.
func (i Interval) Percent(decimals int) string {
	i.Low, i.High = max(0, i.Low), min(1, i.High)
	return i.Text(100, decimals)
}

// Number is a figure of a JSON document that may be absent: NaN and infinity, for which JSON has
// no word, are null.
type Number float64

// Absent is the Number that is not there.
func Absent() Number { return Number(math.NaN()) }

// Known says whether the figure is there.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) }

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Text is the function of that name.
func (n Number) Text(decimals int) string { return Text(float64(n), decimals) }

const absent = "absent"

// Text writes a figure with so many decimals for a table: "absent" for NaN, and "never" for
// infinity, the time until something that does not happen.
func Text(v float64, decimals int) string {
	switch {
	case math.IsNaN(v):
		return absent
	case math.IsInf(v, 0):
		return "never"
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Groups is a figure's values by the group, a drawn catalogue say, that each is of.
type Groups struct {
	of     []uint64
	values [][]float64
}

// Add takes a value in.
func (g *Groups) Add(group uint64, v float64) {
	i := slices.Index(g.of, group)
	if i < 0 {
		i = len(g.of)
		g.of, g.values = append(g.of, group), append(g.values, nil)
	}
	g.values[i] = append(g.values[i], v)
}

// Interval is that of the means of groups: what is of one group is not independent.
func (g *Groups) Interval() Interval {
	means := make([]float64, len(g.values))
	for i := range g.values {
		means[i] = Mean(g.values[i])
	}
	return IntervalOf(means)
}
