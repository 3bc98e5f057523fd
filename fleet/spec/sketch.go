package spec

import (
	"math"
	"slices"
)

// Sketch is a histogram of positive values by their logarithm, from which quantiles are told to within
// Accuracy of themselves, and which can be aged: DDSketch's mapping (C. Masson, J. E. Rim and H. K. Lee, "DDSketch",
// VLDB 2019). The bins from the least to the greatest value lie side by side, four bytes each: a signal of a job takes some fifty to a
// hundred. Beyond maxBins, a span of 28,000 times, the lowest count as the one above them, as DDSketch does it: what is asked for are high quantiles.
type Sketch struct {
	At    int32     // the number of the first bin: bin i counts the values in (gamma^(At+i-1), gamma^(At+i)]
	Zeros float32   // values of at most least
	N     []float32 // counts
}

// maxBins bounds Sketch.N.
const maxBins = 512

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
func (s *Sketch) Add(v float64, times float32) { s.count(binOf(v), times) }

func (s *Sketch) count(at int32, times float32) {
	if at <= lowest {
		s.Zeros += times
		return
	}
	i := int(at) - int(s.At)
	if i < 0 || i >= len(s.N) {
		s.reach(at)
		i = max(0, int(at)-int(s.At))
	}
	s.N[i] += times
}

// room is how many bins more than needed are made at once.
const room = 3

// reach makes room for a bin, or collapses where that is too much.
func (s *Sketch) reach(at int32) {
	if len(s.N) == 0 {
		s.At, s.N = at, make([]float32, 1, 1+room)
		return
	}
	from, to := s.At, s.At+int32(len(s.N)) //nolint:gosec // at most maxBins
	if at < from {
		from = max(at-room, lowest+1)
	} else {
		to = at + 1 + room
	}
	from = max(from, to-maxBins)
	n := make([]float32, to-from)
	for i, c := range s.N {
		n[max(0, s.At+int32(i)-from)] += c //nolint:gosec // at most maxBins
	}
	s.At, s.N = from, n
}

// each calls f with each bin that counts something, from the lowest.
func (s *Sketch) each(f func(at int32, n float64)) {
	if s.Zeros > 0 {
		f(lowest, float64(s.Zeros))
	}
	for i, n := range s.N {
		if n > 0 {
			f(s.At+int32(i), float64(n)) //nolint:gosec // at most maxBins
		}
	}
}

// Bin counts the values in (gamma^(At-1), gamma^At].
type Bin struct {
	At int32
	N  float32
}

// Bins are those that count something, from the lowest.
func (s *Sketch) Bins() (list []Bin) {
	s.each(func(at int32, n float64) { list = append(list, Bin{at, float32(n)}) })
	return list
}

// valueOf is what a bin's values are taken for: no one of them is further off than Accuracy.
func valueOf(at int32) float64 { return 2 * math.Exp(float64(at)*logGamma) / (gamma + 1) }

// Age multiplies all counts, and forgets bins in which hardly anything is left.
func (s *Sketch) Age(w float64) {
	age := func(n float32) float32 {
		if n *= float32(w); n < 1e-3 {
			return 0
		}
		return n
	}
	s.Zeros = age(s.Zeros)
	from, to := len(s.N), 0
	for i := range s.N {
		if s.N[i] = age(s.N[i]); s.N[i] > 0 {
			from, to = min(from, i), i+1
		}
	}
	if to-from < len(s.N)/2 { // else it is not worth the copy
		s.At, s.N = s.At+int32(from), slices.Clone(s.N[min(from, to):to]) //nolint:gosec // at most maxBins
	}
}

// Merge takes another one's values in, each w times what it weighs there: bins are the same everywhere, so that quantiles are those of one sketch that had
// all of them, to within Accuracy of the values as ever. The order of merging does not matter, but for the rounding of counts to 24 bits, and where the lowest are collapsed.
func (s *Sketch) Merge(o *Sketch, w float64) {
	for _, b := range slices.Backward(o.Bins()) { // from the highest: what is too low for it is collapsed at once
		s.count(b.At, float32(float64(b.N)*w))
	}
}

// Count is how many values there are, as they are weighted.
func (s *Sketch) Count() (sum float64) {
	s.each(func(_ int32, n float64) { sum += n })
	return sum
}

// Quantile returns the value below which a share q of all is; 0 where there is none.
func (s *Sketch) Quantile(q float64) (v float64) {
	rank, seen := q*s.Count(), 0.0
	found := false
	s.each(func(at int32, n float64) {
		seen += n
		if !found && seen >= rank {
			if found = true; at > lowest {
				v = valueOf(at)
			}
		}
	})
	return v
}
