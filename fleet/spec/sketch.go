package spec

import (
	"maps"
	"math"
	"slices"
)

// Sketch is a histogram of positive values by their logarithm, from which quantiles are told to within
// Accuracy of themselves, and which can be aged: DDSketch's mapping (C. Masson, J. E. Rim and H. K. Lee, "DDSketch",
// VLDB 2019). The bins from the least to the greatest value lie side by side, two bytes each: a signal of a job takes some fifty to a
// hundred. They count units, the greatest of them some ten thousands, so that what has aged costs no bin a rounding; what does not come out even is rounded up
// or down by lot, as often as is right in the long run. Beyond maxBins, a span of 28,000 times, the lowest count as the one above them, as DDSketch does it: what is asked for are high quantiles.
type Sketch struct {
	N      []uint16 // units
	Unit   float32  // values in a unit, as they are weighted; 0: nothing was counted yet
	Zeros  float32  // values of at most least
	Unseen float32  // values that it should have as well, and that nobody knows: they were adopted
	At     int16    // the number of the first bin: bin i counts the values in (gamma^(At+i-1), gamma^(At+i)]
	Lot    uint16   // state of what draws
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

// finest is the unit of what counts few values: their weights are right to as much.
const finest = 1.0 / 4096

// Add takes a value in, so many times.
func (s *Sketch) Add(v float64, times float32) { s.count(binOf(v), times) }

func (s *Sketch) count(at int32, times float32) {
	if at <= lowest {
		s.Zeros += times
		return
	}
	if s.Unit == 0 {
		s.Unit = finest
	}
	i := int(at) - int(s.At)
	if i < 0 || i >= len(s.N) {
		s.reach(at)
		i = max(0, int(at)-int(s.At))
	}
	for float32(s.N[i])+times/s.Unit >= math.MaxUint16 {
		s.coarsen()
	}
	s.N[i] += s.units(times / s.Unit)
}

// units is a number made whole, up or down by lot.
func (s *Sketch) units(n float32) uint16 {
	whole := uint16(n)
	part := n - float32(whole)
	if part == 0 {
		return whole
	}
	s.Lot = s.Lot*25173 + 13849
	if float32(s.Lot) < part*(1<<16) {
		whole++
	}
	return whole
}

// coarsen makes the unit twice as large.
func (s *Sketch) coarsen() {
	s.Unit *= 2
	for i, n := range s.N {
		s.N[i] = s.units(float32(n) / 2)
	}
}

// room is how many bins more than needed are made at once.
const room = 3

// reach makes room for a bin, or collapses where that is too much.
func (s *Sketch) reach(at int32) {
	if len(s.N) == 0 {
		s.At, s.N = int16(at), make([]uint16, 1, 1+room) //nolint:gosec // bins of doubles are fewer
		return
	}
	from, to := int32(s.At), int32(s.At)+int32(len(s.N)) //nolint:gosec // at most maxBins
	if at < from {
		from = max(at-room, lowest+1)
	} else {
		to = at + 1 + room
	}
	from = max(from, to-maxBins)
	old, was, unit := s.N, int32(s.At), s.Unit
	s.At, s.N = int16(from), make([]uint16, to-from) //nolint:gosec // as above
	for i, c := range old {
		if c > 0 {
			s.put(max(from, was+int32(i)), c, unit) //nolint:gosec // at most maxBins
		}
	}
}

// put adds units, each worth so much, to a bin that there is.
func (s *Sketch) put(at int32, units uint16, unit float32) {
	n := &s.N[at-int32(s.At)]
	if sum := uint32(*n) + uint32(units); sum <= math.MaxUint16 && unit == s.Unit {
		*n = uint16(sum)
		return
	}
	s.count(at, float32(units)*unit)
}

// fill makes it count these values and none but those at most least; unit 0: the finest that there is room for.
func (s *Sketch) fill(bins []Bin, unit float32) {
	s.N, s.Unit = nil, unit
	if unit == 0 {
		for _, b := range bins {
			s.Unit = max(s.Unit, b.N/math.MaxUint16, finest)
		}
	}
	for _, b := range slices.Backward(bins) { // from the highest: what is too low for it is collapsed at once
		if b.At <= lowest {
			s.Zeros += b.N
			continue
		}
		if i := int(b.At) - int(s.At); len(s.N) == 0 || i < 0 || i >= len(s.N) {
			s.reach(b.At)
		}
		s.put(max(b.At, int32(s.At)), uint16(min(math.Round(float64(b.N)/float64(s.Unit)), math.MaxUint16)), s.Unit)
	}
}

// each calls f with each bin that counts something, from the lowest.
func (s *Sketch) each(f func(at int32, n float64)) {
	if s.Zeros > 0 {
		f(lowest, float64(s.Zeros))
	}
	for i, n := range s.N {
		if n > 0 {
			f(int32(s.At)+int32(i), float64(n)*float64(s.Unit)) //nolint:gosec // at most maxBins
		}
	}
}

// Bin counts the values in (gamma^(At-1), gamma^At].
type Bin struct {
	At int32
	N  float32
}

// Bins are those that count something, from the lowest.
func (s *Sketch) Bins() []Bin { return s.appendBins(nil) }

func (s *Sketch) appendBins(list []Bin) []Bin {
	s.each(func(at int32, n float64) { list = append(list, Bin{at, float32(n)}) })
	return list
}

// valueOf is what a bin's values are taken for: no one of them is further off than Accuracy.
func valueOf(at int32) float64 { return 2 * math.Exp(float64(at)*logGamma) / (gamma + 1) }

// Age multiplies all counts, and forgets bins in which hardly anything is left.
func (s *Sketch) Age(w float64) {
	const hardly = 1e-3
	s.Unit, s.Unseen = s.Unit*float32(w), s.Unseen*float32(w)
	if s.Zeros *= float32(w); s.Zeros < hardly {
		s.Zeros = 0
	}
	from, to := len(s.N), 0
	for i, n := range s.N {
		if float32(n)*s.Unit < hardly {
			s.N[i] = 0
		} else {
			from, to = min(from, i), i+1
		}
	}
	if to-from < len(s.N)/2 { // else it is not worth the copy
		s.At, s.N = s.At+int16(from), slices.Clone(s.N[min(from, to):to]) //nolint:gosec // at most maxBins
	}
	if len(s.N) == 0 {
		s.N, s.Unit = nil, 0
	}
}

// Merge takes another one's values in, each w times what it weighs there: bins are the same everywhere, so that quantiles are those of one sketch that had
// all of them, to within Accuracy of the values as ever. The order of merging does not matter, but for the rounding of counts to units, and where the lowest are collapsed.
func (s *Sketch) Merge(o *Sketch, w float64) {
	n := map[int32]float64{}
	s.each(func(at int32, v float64) { n[at] += v })
	o.each(func(at int32, v float64) { n[at] += v * w })
	var bins []Bin
	for _, at := range slices.Sorted(maps.Keys(n)) {
		bins = append(bins, Bin{at, float32(n[at])})
	}
	s.Zeros, s.Unseen = 0, s.Unseen+o.Unseen*float32(w)
	s.fill(bins, 0)
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
