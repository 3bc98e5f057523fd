package antagonist

import (
	"math"
	"math/bits"
)

// Coded experiments: who of several suspects hurts, found out in one pass.
//
// Intuition. To hold suspects one after the other asks one question a window, and each answer has the noise of
// one window. Here about half of all suspects are held in each window, another half each time, so that every
// window says something of every suspect. The halves are the columns of a Walsh-Hadamard matrix: any two
// suspects are held together as often as not, so that the effect of one does not look like that of another,
// whatever their rhythms are: the patterns are ours. An effect is then known from all windows: its variance falls
// with their number, where one-by-one nudges have it from one window each.
//
// The order of the windows is the matrix's own (window w holds suspect j where w and j+1 have an odd number of
// bits in common), which has a property that makes it sequential: after 1, 3, 7 ... windows the suspects fall into
// cells, those of one cell having been held in the same windows, and these cells are a whole design of their own. One may
// look then, let go of cells that did nothing, and stop at one that did.
//
// Hard cases:
//   - A hold is refused, or a suspect leaves: windows are judged by who was held, not by the plan. Who was held in
//     the same windows is one cell; what cannot be told apart gives no effects.
//   - The harm of several together is more than the sum: an effect is then the mean over the others' patterns.
//     Who hurts has a positive one all the same.
//   - More looks, more suspects: each look and cell has its share of the doubt that one accepts (Bonferroni), so
//     that the chance that any innocent cell is convicted in an experiment stays below the doubt, however the
//     looks depend on each other. Rejected: boundaries as O'Brien and Fleming's, which ask more of the first look, at which the victim gains most.

// MaxCoded is how many suspects a design can have: a window's pattern is one word.
const MaxCoded = 63

// Design says who is held in which window of an experiment with so many suspects.
type Design struct{ Suspects int }

// Windows is how many windows the whole design has.
func (d Design) Windows() int {
	n := min(max(0, d.Suspects), MaxCoded)
	return 1<<bits.Len(uint(n)) - 1
}

// Held is the pattern of a window, the first being 0: one bit a suspect.
func (d Design) Held(window int) (pattern uint64) {
	for j := range min(d.Suspects, MaxCoded) {
		if bits.OnesCount(uint(window+1)&uint(j+1))%2 == 1 {
			pattern |= 1 << j
		}
	}
	return pattern
}

// Look reports whether cells can be told apart after so many windows.
func (d Design) Look(windows int) bool { return windows > 0 && windows&(windows+1) == 0 }

// Looks is how many looks there are.
func (d Design) Looks() int { return bits.Len(uint(d.Windows())) }

// Coded is a window of an experiment: who was held, and by how much the signals were lower than
// before it, in standard deviations.
type Coded struct {
	Held uint64  `json:"held"`
	Fell float64 `json:"fell"`
}

// Effect is what the suspects of a cell did together: by how much the signals fall while all of them are held.
type Effect struct {
	Cell  uint64 // who was held in the same windows
	Fell  float64
	Error float64 // standard error
}

// Effects regresses the signals on the patterns. free is how many windows without a hold there were before, to which Fell
// refers. ok is false where the windows cannot tell the cells apart.
func Effects(windows []Coded, free int) (effects []Effect, ok bool) {
	cells := cellsOf(windows)
	if k := len(cells); k == 0 || k > len(windows) || len(windows) > MaxCoded || free < 1 {
		return nil, false
	}
	// The unknowns are the level without a hold, then the cells. Each has a word that says in which windows it counts: all products of
	// the regression are numbers of bits.
	in := make([]uint64, len(cells)+1)
	in[0] = 1<<len(windows) - 1
	rhs := make([]float64, len(in))
	for w := range windows {
		rhs[0] += windows[w].Fell
		for i, c := range cells {
			if windows[w].Held&c != 0 {
				in[i+1] |= 1 << w
				rhs[i+1] += windows[w].Fell
			}
		}
	}
	a := make([][]float64, len(in))
	for i := range a {
		a[i] = make([]float64, len(in))
		for j := range i + 1 {
			a[i][j] = float64(bits.OnesCount64(in[i] & in[j]))
		}
	}
	a[0][0] += float64(free)
	if !invert(a) {
		return nil, false
	}
	for i, c := range cells {
		e := Effect{Cell: c, Fell: dot(a[i+1], rhs), Error: math.Sqrt(a[i+1][i+1])}
		if !(e.Error > 0) || math.IsInf(e.Error, 0) || math.IsNaN(e.Fell) || math.IsInf(e.Fell, 0) {
			return nil, false
		}
		effects = append(effects, e)
	}
	return effects, true
}

// cellsOf gathers the suspects that were held in the same windows; those that were never held are left out.
func cellsOf(windows []Coded) (cells []uint64) {
	rest := uint64(0)
	for _, w := range windows {
		rest |= w.Held
	}
	for rest != 0 {
		cell := rest
		first := rest & -rest
		for _, w := range windows {
			if w.Held&first != 0 {
				cell &= w.Held
			} else {
				cell &^= w.Held
			}
		}
		cells = append(cells, cell)
		rest &^= cell
	}
	return cells
}

// leastPivot is from where on an equation is one of its own: entries are small whole numbers, and rounding leaves 1e-12.
const leastPivot = 1e-9

// invert replaces a symmetric positive definite matrix, of which the lower half is given, by its inverse (the sweep operator, which
// for such a one needs no pivoting). It reports whether it could.
func invert(a [][]float64) bool {
	col := make([]float64, len(a))
	for c := range a {
		p := a[c][c]
		if !(p > leastPivot) {
			return false
		}
		for i := range a {
			col[i] = a[max(i, c)][min(i, c)]
		}
		for i, row := range a {
			f := col[i] / p
			if i == c || f == 0 {
				continue
			}
			for j, v := range col[:i+1] {
				row[j] -= f * v
			}
		}
		for i := range a {
			a[max(i, c)][min(i, c)] = col[i] / p
		}
		a[c][c] = -1 / p
	}
	for i := range a {
		for j := range i + 1 {
			a[i][j] = -a[i][j]
			a[j][i] = a[i][j]
		}
	}
	return true
}

// Beyond is how many standard errors an effect must have for the chance that any of so many cells without one reaches it, at
// any of so many looks, to be at most doubt.
func Beyond(doubt float64, cells, looks int) float64 {
	p := doubt / float64(max(1, cells)*max(1, looks))
	if !(p > 0) {
		return math.Inf(1)
	}
	return math.Sqrt2 * math.Erfinv(1-2*min(p, 0.5))
}
