package spec

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// What nodes sent since the last calculation stays apart by node until it is used, so that none of them decides. Of a job with many nodes it stays apart by groups of
// them: which groups says a node's number and, so that nobody always shares one with the same others, the time of the last calculation.

// groups is how many nodes of a signal are told apart, and into how many groups they go where there are more.
const groups = 32

// From is what one node, or a group of them, sent since the last calculation: Moments, in as little room as does it, for each node of a job has one a signal.
type From struct {
	Node  uint32 // of State.Nodes; of a group, which of its nodes sent something: a bit for each, up to number groups * 32
	N     uint32
	Mean  float64
	M2    float32
	Usage float32
}

func (f *From) add(v, usage float64) {
	m := f.moments()
	m.add(v, usage)
	f.set(&m, f.N+1)
}

func (f *From) set(m *Moments, n uint32) {
	f.N, f.Mean, f.M2, f.Usage = n, m.Mean, float32(m.M2), float32(m.Usage)
}

func (f *From) moments() Moments {
	return Moments{N: float64(f.N), Mean: f.Mean, M2: float64(f.M2), Usage: float64(f.Usage)}
}

// from returns where a node's samples go. What it returned before may not be used afterwards.
func (s *Signal) from(node uint32) *From {
	if s.Grouped {
		return s.group(node)
	}
	i, ok := slices.BinarySearchFunc(s.Since, node, func(f From, node uint32) int { return cmp.Compare(f.Node, node) })
	if ok {
		return &s.Since[i]
	}
	if len(s.Since) < groups {
		s.Since = insert(s.Since, i, From{Node: node})
		return &s.Since[i]
	}
	alone := s.Since
	s.Since, s.Grouped = make([]From, groups), true
	for i := range alone {
		g, o := s.group(alone[i].Node), alone[i].moments()
		m := g.moments()
		m.merge(o, 1)
		g.set(&m, g.N+alone[i].N)
	}
	return s.group(node)
}

// group is of a node: each 32 nodes whose numbers follow each other are in different ones, and in others than those before them by a shift that changes.
func (s *Signal) group(node uint32) *From {
	row, shift := node/groups, uint32(s.AtNsec/1e9)%groups //nolint:gosec // what is cut off does not matter
	g := &s.Since[(node+row*shift)%groups]
	g.Node |= 1 << (row % 32)
	return g
}

// size is how many nodes an entry is of.
func (s *Signal) size(f *From) float64 {
	if s.Grouped {
		return float64(bits.OnesCount32(f.Node))
	}
	return 1
}

const (
	// A node counts at most this many times what the median one does; of groups, their nodes together.
	heaviest = 2
	// From so many nodes on one is left out whose mean is so many median deviations off the median of all (Hampel's X84:
	// 3.5 sigmas), and by more than a tenth; of groups, all of it.
	judgedFrom  = 5
	farSigmas   = 3.5
	medianSigma = 1.4826
	farShare    = 0.1
)

// fair puts together what the nodes sent, so that none of them can decide.
func (s *Signal) fair() (all Moments, nodes, leftOut int) {
	var counts, means []float64 // samples a node, and mean
	since := make([]*From, 0, len(s.Since))
	for i := range s.Since {
		if f := &s.Since[i]; f.N > 0 {
			since, counts, means = append(since, f), append(counts, float64(f.N)/s.size(f)), append(means, f.Mean)
		}
	}
	typical, centre := median(counts), median(means)
	off := make([]float64, len(means))
	for i := range means {
		off[i] = math.Abs(means[i] - centre)
	}
	far := max(farSigmas*medianSigma*median(off), farShare*centre)
	for i, f := range since {
		m := f.moments()
		if len(means) >= judgedFrom && off[i] > far {
			leftOut += int(f.N)
			continue
		}
		w := 1.0
		if len(counts) >= 3 && counts[i] > heaviest*typical {
			w = heaviest * typical / counts[i]
		}
		all.merge(m, w)
		nodes += int(s.size(f))
	}
	return all, nodes, leftOut
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}
