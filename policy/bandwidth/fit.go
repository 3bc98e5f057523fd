package bandwidth

import (
	"math"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// What a level does to the bytes that BE moves is the machine's own affair: Intel's per cents delay each core's
// requests, which many cores do not feel until the level is low and few feel at once. So it is learned: one mean a rung,
// made monotone, since a higher level never lets BE move less. Levels that were not tried yet are taken to be
// proportional to the nearest that was; the next window knows better.

// maxRungs is how many levels are told apart.
const maxRungs = 20

// ladder is the levels of a machine that are used, the lowest first. The last is no limit.
type ladder struct {
	levels [maxRungs]int
	shares [maxRungs]float64 // a rung that was not tried is expected to let BE move in proportion to these
	n      int
}

// ladder returns the levels of the ith memory. Where levels are bytes a second each of its domains has its part of them.
func (s *State) ladder(have *model.Classes, v *policy.View, i int) ladder {
	return ladderOf(have, s.Domains[i].PeakBytes/float64(len(v.Memories(have)[i].Domains)))
}

// ladderOf returns a machine's levels. Where levels are bytes a second they are tenths of a peak.
func ladderOf(c *model.Classes, peak float64) (l ladder) {
	step, unit := max(c.LevelStep, 1), c.LevelBytes()
	up := func(n int) int { return (n + step - 1) / step * step }
	add := func(level int) {
		if level = up(max(level, c.LeastLevel, 1)); l.n < maxRungs-1 && level < c.MostLevel && (l.n == 0 || level > l.levels[l.n-1]) {
			l.levels[l.n], l.shares[l.n] = level, float64(level)
			l.n++
		}
	}
	if unit > 0 {
		for tenth := 1.0; tenth < 10; tenth++ {
			add(int(tenth / 10 * min(peak/unit, float64(c.MostLevel))))
		}
	} else if c.MostLevel > c.LeastLevel {
		width := up(max(step, (c.MostLevel-c.LeastLevel)/(maxRungs-1)))
		for i := range maxRungs - 1 {
			add(c.LeastLevel + i*width)
		}
	}
	l.levels[l.n], l.shares[l.n] = c.MostLevel, float64(c.MostLevel)
	if unit > 0 && peak > 0 {
		l.shares[l.n] = min(peak/unit, float64(c.MostLevel))
	}
	l.n++
	return l
}

// top is the rung that is no limit.
func (l *ladder) top() int { return l.n - 1 }

// rung returns the highest rung whose level is at most one.
func (l *ladder) rung(level int) int {
	r := l.top()
	for r > 0 && l.levels[r] > level {
		r--
	}
	return r
}

// fit is what BE moved at each rung, bytes a second.
type fit struct {
	Bytes [maxRungs]float64 `json:"bytes"`
	N     [maxRungs]float64 `json:"n"` // windows; 0: not tried
}

const (
	fresh = 0.3 // weight of a new window
	manyN = 8   // so many windows are as good as any number
)

// add takes a window in.
func (f *fit) add(rung int, bytes float64) {
	if !(bytes >= 0 && bytes < policy.Absurd) || rung < 0 || rung >= maxRungs {
		return
	}
	if f.N[rung] == 0 {
		f.Bytes[rung] = bytes
	}
	f.Bytes[rung] += fresh * (bytes - f.Bytes[rung])
	f.N[rung] = min(f.N[rung]+1, manyN)
}

// monotone pools neighbours that are in the wrong order, and returns those of n rungs that were tried with their values.
func (f *fit) monotone(n int) (rungs []int, values []float64) {
	type block struct {
		sum, n float64
		rungs  int
	}
	var blocks []block
	for i, n := range f.N[:n] {
		if n == 0 {
			continue
		}
		rungs = append(rungs, i)
		b := block{f.Bytes[i] * n, n, 1}
		for len(blocks) > 0 && blocks[len(blocks)-1].sum/blocks[len(blocks)-1].n > b.sum/b.n {
			last := blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
			b = block{last.sum + b.sum, last.n + b.n, last.rungs + b.rungs}
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		for range b.rungs {
			values = append(values, b.sum/b.n)
		}
	}
	return rungs, values
}

// predict returns what BE would move at a rung; ok is false where nothing is known.
func (f *fit) predict(l *ladder, rung int) (bytes float64, ok bool) {
	rungs, values := f.monotone(l.n)
	if len(rungs) == 0 {
		return 0, false
	}
	last := len(rungs) - 1
	for k, r := range rungs {
		switch {
		case r == rung:
			return values[k], true
		case r > rung && k == 0:
			return values[0] * l.shares[rung] / l.shares[r], true
		case r > rung:
			before := rungs[k-1]
			return values[k-1] + (values[k]-values[k-1])*float64(rung-before)/float64(r-before), true
		}
	}
	return values[last] * l.shares[rung] / l.shares[rungs[last]], true
}

// choose returns the highest rung at which BE is expected to move no more than a target.
func (f *fit) choose(l *ladder, target float64) int {
	best := 0
	for rung := range l.n {
		if bytes, ok := f.predict(l, rung); ok && bytes <= target && !math.IsNaN(target) {
			best = rung
		}
	}
	return best
}
