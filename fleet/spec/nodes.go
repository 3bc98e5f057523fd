package spec

import (
	"math"
	"math/bits"
	"slices"
)

// What nodes sent since the last calculation stays apart by node until it is used, so that none of them decides. Of a job with many nodes it stays apart by groups of
// them: which groups says a node's number and, so that nobody always shares one with the same others, the time of the last calculation.

// groups is how many nodes of a job are told apart, and into how many groups they go where there are more.
const groups = 32

// Who is a node that gave windows of a job since the last calculation, or a group of them. All signals of the job share it, since most windows have all of them.
type Who struct {
	Node  uint32 // of State.Nodes; of a group, which of its nodes sent something: a bit for each, up to number groups * 32
	N     uint32 // windows in which some signal had a value
	Usage float32
}

// Part is what one signal had in a Who's windows.
type Part struct{ Mean, M2 float32 }

// Less says what signals had less than all of their job's windows.
type Less struct {
	Windows Table // by Signal.Row, less one, and Job.Since: the windows that had it not
	Tasks   Table // by signal and Job.Tallies: the samples that a task gave not
}

// rows is how many signals had something since the last calculation.
func (j *Job) rows() int {
	if len(j.Since) == 0 {
		return 0
	}
	return len(j.Parts) / len(j.Since)
}

// addRows makes room for the signals that some is true of, where there is none yet. All windows so far had them not.
func (j *Job) addRows(some func(k int) bool) {
	had := j.rows()
	rows := had
	for k := range j.Signals {
		if s := &j.Signals[k]; s.Row == 0 && rows < math.MaxUint16 && some(k) {
			rows++
			s.Row = uint16(rows) //nolint:gosec // as is looked
			for i := range j.Since {
				j.setLess(s, i, j.Since[i].N)
			}
		}
	}
	if rows == had {
		return
	}
	parts := make([]Part, len(j.Since)*rows, cap(j.Since)*rows)
	for i := range j.Since {
		copy(parts[i*rows:], j.Parts[i*had:(i+1)*had])
	}
	j.Parts = parts
}

// had is how many windows of the i-th of Since had the signal.
func (j *Job) had(s *Signal, i int) uint32 {
	n := j.Since[i].N
	switch {
	case s.Row == 0:
		return 0
	case j.Less != nil:
		n -= j.Less.Windows.at(int(s.Row)-1, i)
	}
	return n
}

// setLess says how many windows of the i-th of Since had the signal not.
func (j *Job) setLess(s *Signal, i int, n uint32) {
	if j.Less == nil {
		if n == 0 {
			return
		}
		j.Less = &Less{}
	}
	j.Less.Windows.set(int(s.Row)-1, i, n, j.rows(), len(j.Since))
}

// part is the room for what the signal had of the i-th of Since; it has a row.
func (j *Job) part(s *Signal, i int) *Part { return &j.Parts[i*j.rows()+int(s.Row)-1] }

// moments is what the signal had of the i-th of Since.
func (j *Job) moments(s *Signal, i int) (m Moments) {
	if n := j.had(s, i); n > 0 {
		part := j.part(s, i)
		m = Moments{N: float64(n), Mean: float64(part.Mean), M2: float64(part.M2), Usage: float64(j.Since[i].Usage)}
	}
	return m
}

// give adds windows to the i-th of Since, with what each signal, by its place in Signals, had of them.
func (j *Job) give(i int, windows uint32, usage float64, got func(k int) Moments) {
	j.addRows(func(k int) bool { return got(k).N > 0 })
	w := &j.Since[i]
	for k := range j.Signals {
		s := &j.Signals[k]
		if s.Row == 0 {
			continue
		}
		m := j.moments(s, i)
		m.merge(got(k), 1)
		*j.part(s, i) = Part{Mean: float32(m.Mean), M2: float32(m.M2)}
		j.setLess(s, i, w.N+windows-uint32(m.N))
	}
	w.N += windows
	if w.N > 0 {
		w.Usage += float32((usage - float64(w.Usage)) * float64(windows) / float64(w.N))
	}
}

// who returns where in Since a node's windows go.
func (j *Job) who(node uint32) int {
	if j.Grouped {
		return j.group(node)
	}
	if i := slices.IndexFunc(j.Since, func(w Who) bool { return w.Node == node }); i >= 0 {
		return i
	}
	if n := len(j.Since); n < groups {
		rows := j.rows()
		j.Since = insert(j.Since, n, Who{Node: node}, groups)
		if len(j.Parts)+rows > cap(j.Parts) {
			j.Parts = append(make([]Part, 0, cap(j.Since)*rows), j.Parts...)
		}
		j.Parts = append(j.Parts, make([]Part, rows)...)
		return n
	}
	j.regroup()
	return j.group(node)
}

// regroup goes on with groups of nodes.
func (j *Job) regroup() {
	alone, was := j.Since, make([][groups]Moments, len(j.Signals))
	for k := range j.Signals {
		for i := range alone {
			was[k][i] = j.moments(&j.Signals[k], i)
		}
	}
	j.since(make([]Who, groups), true)
	for i, w := range alone {
		j.give(j.group(w.Node), w.N, float64(w.Usage), func(k int) Moments { return was[k][i] })
	}
}

// since begins anew with what came since the last calculation.
func (j *Job) since(who []Who, grouped bool) {
	j.Since, j.Parts, j.Grouped = who, nil, grouped
	for k := range j.Signals {
		j.Signals[k].Row = 0
	}
	if j.Less != nil {
		j.Less.Windows = Table{}
		j.noLess()
	}
}

// noLess forgets that signals had less, where none has.
func (j *Job) noLess() {
	if j.Less != nil && j.Less.Windows.Rows == 0 && j.Less.Tasks.Rows == 0 {
		j.Less = nil
	}
}

// groupOf is where a node goes: each 32 nodes whose numbers follow each other are in different ones, and in others than those before them by a shift that changes.
func (j *Job) groupOf(node uint32) int {
	row, shift := node/groups, uint32(j.AtNsec/1e9)%groups //nolint:gosec // what is cut off does not matter
	return int((node + row*shift) % groups)
}

// group is that, of a node that sent something.
func (j *Job) group(node uint32) int {
	g := j.groupOf(node)
	j.Since[g].Node |= 1 << (node / groups % 32)
	return g
}

// size is how many nodes one of Since is of.
func (j *Job) size(i int) float64 {
	if j.Grouped {
		return float64(bits.OnesCount32(j.Since[i].Node))
	}
	return 1
}

const (
	// A node counts at most this many times what the median one does; of groups, their nodes together.
	heaviest  = 2
	leastRoom = 1000 // samples
	// From so many nodes on one is left out whose mean is so many median deviations off the median of all (Hampel's X84:
	// 3.5 sigmas), and by more than a tenth; of groups, all of it.
	judgedFrom  = 5
	farSigmas   = 3.5
	medianSigma = 1.4826
	farShare    = 0.1
)

// room is how many more samples of a node go into a job's sketches until the next calculation: like the moments (fair), they are to have at most twice
// of one node what they have of the median one, and so many in any case: nodes do not send at the same time.
// windows are how many it has now.
func (j *Job) room(node, windows uint32) float64 {
	at := slices.IndexFunc(j.Since, func(w Who) bool { return w.Node == node })
	if j.Grouped {
		at = j.groupOf(node)
	}
	each := func(i int) float64 { return float64(j.Since[i].N) / max(1, j.size(i)) }
	mine := 0.0
	if at >= 0 {
		mine = each(at)
	}
	if len(j.Since) < 3 || mine+float64(windows) <= leastRoom { // the median need not be known
		return math.Inf(1)
	}
	counts := make([]float64, len(j.Since))
	for i := range counts {
		counts[i] = each(i)
	}
	return max(0, max(leastRoom, heaviest*median(counts))-mine)
}

// fair puts together what the nodes sent of a signal, so that none of them can decide.
func (j *Job) fair(s *Signal) (all Moments, nodes, leftOut int) {
	var counts, means []float64 // samples a node, and mean
	var since []int
	for i := range j.Since {
		if m := j.moments(s, i); m.N > 0 {
			since, counts, means = append(since, i), append(counts, m.N/j.size(i)), append(means, m.Mean)
		}
	}
	if len(since) == 0 {
		return all, 0, 0
	}
	typical, centre := median(counts), median(means)
	off := make([]float64, len(means))
	for i := range means {
		off[i] = math.Abs(means[i] - centre)
	}
	far := max(farSigmas*medianSigma*median(off), farShare*centre)
	for i, at := range since {
		m := j.moments(s, at)
		if len(means) >= judgedFrom && off[i] > far {
			leftOut += int(m.N)
			continue
		}
		w := 1.0
		if len(counts) >= 3 && counts[i] > heaviest*typical {
			w = heaviest * typical / counts[i]
		}
		all.merge(m, w)
		nodes += int(j.size(at))
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
