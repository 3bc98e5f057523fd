package antagonist

import "math"

// The arithmetic of a small regression: a handful of members over at most an hour of
// windows. Every sum is finite as long as figures stay below maxFigure.

// fit solves the regression of the signal on a set and returns the slopes and the share of
// the variance that they explain. ok is false when the members cannot be told apart.
func (o *Group) fit(set []int) (b []float64, explained float64, ok bool) {
	k := len(set)
	if k == 0 {
		return nil, 0, true
	}
	a := make([][]float64, k)
	centred := make([][]float64, k)
	for r, i := range set {
		centred[r] = centre(o.cols[i].usage)
	}
	signal := o.all
	for r := range a {
		a[r] = make([]float64, k+1)
		for c := range k {
			a[r][c] = dot(centred[r], centred[c])
		}
		a[r][k] = dot(centred[r], signal)
	}
	rhs := make([]float64, k)
	for r := range a {
		rhs[r] = a[r][k]
	}
	b, ok = solve(a)
	if !ok {
		return nil, 0, false
	}
	for r := range b {
		explained += b[r] * rhs[r]
	}
	explained /= o.sst
	if math.IsNaN(explained) || math.IsInf(explained, 0) {
		return nil, 0, false
	}
	return b, min(1, max(0, explained)), true
}

// lag is the autocorrelation of a centred series from one window to the next.
func lag(x []float64) float64 {
	size := dot(x, x)
	if size <= 0 {
		return 0
	}
	sum := 0.0
	for i := 1; i < len(x); i++ {
		sum += x[i] * x[i-1]
	}
	return min(1, max(-1, sum/size))
}

// remove takes the part of x along d out of x; size is d's square.
func remove(x, d []float64, size float64) {
	f := dot(x, d) / size
	for i := range x {
		x[i] -= f * d[i]
	}
}

// cosine is the correlation of two usages.
func cosine(a, b []float64) float64 {
	x, y := centre(a), centre(b)
	size := dot(x, x) * dot(y, y)
	if size <= 0 {
		return 0
	}
	return dot(x, y) / math.Sqrt(size)
}

func centre(u []float64) []float64 {
	mean := 0.0
	for _, v := range u {
		mean += v
	}
	mean /= float64(len(u))
	c := make([]float64, len(u))
	for i, v := range u {
		c[i] = v - mean
	}
	return c
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// solve is Gauss's elimination with pivoting on an augmented matrix.
func solve(a [][]float64) ([]float64, bool) {
	n := len(a)
	for c := range n {
		p := c
		for r := c + 1; r < n; r++ {
			if math.Abs(a[r][c]) > math.Abs(a[p][c]) {
				p = r
			}
		}
		a[c], a[p] = a[p], a[c]
		if !(math.Abs(a[c][c]) > 0) || math.IsInf(a[c][c], 0) {
			return nil, false
		}
		for r := c + 1; r < n; r++ {
			f := a[r][c] / a[c][c]
			for k := c; k <= n; k++ {
				a[r][k] -= f * a[c][k]
			}
		}
	}
	b := make([]float64, n)
	for r := n - 1; r >= 0; r-- {
		b[r] = a[r][n]
		for k := r + 1; k < n; k++ {
			b[r] -= a[r][k] * b[k]
		}
		b[r] /= a[r][r]
		if math.IsNaN(b[r]) || math.IsInf(b[r], 0) {
			return nil, false
		}
	}
	return b, true
}
