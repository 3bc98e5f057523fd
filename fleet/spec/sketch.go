package spec

import (
	"math"
	"slices"
)

// Sketch is a histogram of positive values by their logarithm, from which quantiles are told to within
// Accuracy of themselves, and which can be merged and aged: DDSketch's mapping (C. Masson, J. E. Rim and H. K. Lee, "DDSketch",
// VLDB 2019), with its bins in one ordered slice. A signal of a job takes some eighty of them, eight bytes each.
type Sketch struct {
	Bins []Bin // ordered by At
}

// Bin counts the values in (gamma^(At-1), gamma^At].
type Bin struct {
	At int32
	N  float32
}

// Accuracy is how far a quantile may be off, as a share of it.
const Accuracy = 0.01

var (
	gamma    = (1 + Accuracy) / (1 - Accuracy)
	logGamma = math.Log(gamma)
)

// least is what smaller values, and 0, count as; lowest is its bin.
const least = 1e-6

var lowest = binOf(least)

func binOf(v float64) int32 { return int32(math.Ceil(math.Log(max(v, least)) / logGamma)) }

// Add takes a value in, so many times.
func (s *Sketch) Add(v float64, times float32) {
	at := binOf(v)
	i, ok := slices.BinarySearchFunc(s.Bins, at, func(b Bin, at int32) int { return int(b.At) - int(at) })
	if !ok {
		s.Bins = insert(s.Bins, i, Bin{At: at})
	}
	s.Bins[i].N += times
}

// valueOf is what a bin's values are taken for: no one of them is further off than Accuracy.
func valueOf(at int32) float64 { return 2 * math.Exp(float64(at)*logGamma) / (gamma + 1) }

// Age multiplies all counts, and forgets bins in which hardly anything is left.
func (s *Sketch) Age(w float64) {
	for i := range s.Bins {
		s.Bins[i].N *= float32(w)
	}
	s.Bins = slices.DeleteFunc(s.Bins, func(b Bin) bool { return b.N < 1e-3 })
}

// Count is how many values there are, as they are weighted.
func (s *Sketch) Count() (n float64) {
	for _, b := range s.Bins {
		n += float64(b.N)
	}
	return n
}

// Quantile returns the value below which a share q of all is; 0 where there is none.
func (s *Sketch) Quantile(q float64) float64 {
	rank, seen := q*s.Count(), 0.0
	for _, b := range s.Bins {
		if seen += float64(b.N); seen >= rank {
			if b.At <= lowest {
				return 0
			}
			return valueOf(b.At)
		}
	}
	return 0
}
