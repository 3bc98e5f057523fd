package spec

import (
	"cmp"
	"maps"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// What is learned is kept in a form that is not that of memory, which changes more often. Until version 2 memory had this form; since version 3 tasks have another hash,
// nodes may be in groups and tasks drawn. Each signal is kept with its own nodes and tasks, although in memory a job's signals share them.

// KeptVersion is of the form, as the field Version beside it says.
const KeptVersion = 3

// Kept is a State as it is kept. Jobs of version 1 are in it; later ones stand one by one behind it.
type Kept struct {
	Nodes  map[string]uint32
	Jobs   map[Key]*KeptJob
	Passed uint64
}

// KeptJob is a Job as it is kept.
type KeptJob struct {
	Key      Key
	Signals  []keptSignal
	Revision uint64
	Pinned   bool
	Only     uint32
}

type keptSignal struct {
	Source     model.Source
	Definition string
	Full       bool
	Grouped    bool
	Level      uint8
	Nodes      int
	Since      []From
	Sketch     keptSketch
	History    Moments
	Unseen     float64
	Tallies    []Tally
	DayNsec    int64
	AtNsec     int64
	Spec       *model.Spec
	Held       *Held
}

// From is what one node, or a group of them, sent of a signal since the last calculation.
type From struct {
	Node  uint32 // as Who.Node; of groups all are there, in their order
	N     uint32
	Mean  float64
	M2    float32
	Usage float32
}

type keptSketch struct {
	Bins []Bin
	Unit float32 // of their counts; 0: a learner that counted otherwise wrote them
}

// Keep is all of a learner but its jobs.
func (s *State) Keep() *Kept { return &Kept{Nodes: s.Nodes, Passed: s.Passed} }

// Keep is a job, which is of that key, as it is kept.
func (j *Job) Keep(key Key) *KeptJob {
	k := &KeptJob{}
	j.KeepIn(k, key)
	return k
}

// KeepIn is Keep into the room of a job that was kept before and is not needed any more: of all jobs together what they are kept as is more than they take here.
func (j *Job) KeepIn(k *KeptJob, key Key) {
	k.Key, k.Revision, k.Pinned, k.Only = key, j.Revision, j.Pinned, j.Only
	k.Signals = slices.Grow(k.Signals[:0], len(j.Signals))[:len(j.Signals)]
	for i := range j.Signals {
		s, x := &j.Signals[i], &k.Signals[i]
		*x = keptSignal{
			Source: s.Kind.Value().Source, Definition: s.Kind.Value().Definition, Full: j.Full, Grouped: j.Grouped, Level: j.Level, Nodes: int(s.Nodes), Since: j.keepSince(s, x.Since[:0]), History: s.History,
			Unseen: float64(s.Sketch.Unseen), Tallies: j.keepTallies(i, x.Tallies[:0]), DayNsec: j.DayNsec, AtNsec: j.at(i), Held: j.Held(i), Sketch: keptSketch{s.Sketch.appendBins(x.Sketch.Bins[:0]), s.Sketch.Unit},
		}
		if f, ok := j.Spec(i); ok {
			sp := s.spec(key, &f)
			x.Spec = &sp
		}
	}
}

// Recall is the learner that was kept, in a version that is known.
func (k *Kept) Recall(version int) *State {
	s := New()
	maps.Copy(s.Nodes, k.Nodes)
	s.Passed = k.Passed
	for _, j := range k.Jobs {
		s.Recall(j, version)
	}
	return s
}

// keepSince is what nodes sent of a signal.
func (j *Job) keepSince(s *Signal, list []From) []From {
	for i, w := range j.Since {
		if m := j.moments(s, i); m.N > 0 || j.Grouped {
			list = append(list, From{Node: w.Node, N: uint32(m.N), Mean: m.Mean, M2: float32(m.M2), Usage: float32(m.Usage)})
		}
	}
	if !j.Grouped {
		slices.SortFunc(list, func(a, b From) int { return cmp.Compare(a.Node, b.Node) })
	}
	return list
}

// keepTallies is what tasks gave of a signal.
func (j *Job) keepTallies(k int, list []Tally) []Tally {
	for i, t := range j.Tallies {
		if n, all := j.gave(k, i), t.samples(); n > 0 && n < all {
			day := int(t.Day&^recently) * n / all
			t.Day, t.Night = t.Day&recently|uint16(day), t.Night&recently|uint16(min(n-day, MaxSamplesPerTask)) //nolint:gosec // no more than there were
		} else if n == 0 {
			continue
		}
		list = append(list, t)
	}
	return list
}

// Recall takes a job in that was kept. What was counted of tasks by their earlier hash begins anew.
func (s *State) Recall(k *KeptJob, version int) {
	j := s.job(k.Key)
	j.Revision, j.Pinned, j.Only = k.Revision, k.Pinned, k.Only
	for i := range k.Signals {
		j.signal(k.Signals[i].Source, k.Signals[i].Definition)
	}
	of, ats := make([]*keptSignal, len(j.Signals)), make([]int64, len(j.Signals)) // as they lie here
	for i := range k.Signals {
		x := &k.Signals[i]
		at, _ := j.place(x.Source, x.Definition)
		sig := &j.Signals[at]
		of[at], ats[at] = x, x.AtNsec
		sig.Nodes, sig.History = whole16(x.Nodes), x.History
		j.setHeld(at, x.Held)
		sig.Sketch.fill(x.Sketch.Bins, x.Sketch.Unit)
		sig.Sketch.Unseen = float32(x.Unseen)
		if x.Spec != nil {
			j.setSpec(at, figuresOf(x.Spec))
		}
		j.Full, j.Level, j.DayNsec = j.Full || x.Full, max(j.Level, x.Level), max(j.DayNsec, x.DayNsec)
	}
	j.setAts(ats)
	j.recallSince(of)
	if version >= KeptVersion {
		j.recallTallies(of)
	}
}

// recallSince puts together what nodes sent of each signal. The windows of a node are as many as its signal with the most has.
func (j *Job) recallSince(of []*keptSignal) {
	grouped := slices.ContainsFunc(of, func(x *keptSignal) bool { return x.Grouped })
	if grouped {
		j.regroup()
	}
	type sent struct {
		most From
		of   []Moments
	}
	all := map[uint32]*sent{} // by node; of groups by their place
	for k, x := range of {
		for i, f := range x.Since {
			id := f.Node
			switch {
			case x.Grouped && i < groups:
				id = uint32(i) //nolint:gosec // few
				j.Since[i].Node |= f.Node
			case grouped:
				id = uint32(j.group(f.Node)) //nolint:gosec // few
			}
			s := all[id]
			if s == nil {
				s = &sent{of: make([]Moments, len(of))}
				all[id] = s
			}
			s.of[k].merge(Moments{N: float64(f.N), Mean: f.Mean, M2: float64(f.M2), Usage: float64(f.Usage)}, 1)
			if n := uint32(s.of[k].N); n > s.most.N {
				s.most.N, s.most.Usage = n, float32(s.of[k].Usage)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s, at := all[id], int(id)
		if !grouped {
			at = j.who(id)
		}
		j.give(at, s.most.N, float64(s.most.Usage), func(k int) Moments { return s.of[k] })
	}
}

// recallTallies puts together which tasks gave samples of each signal: of a task as many as of the signal of which it gave most, and no more tasks than the signal that has most of them.
func (j *Job) recallTallies(of []*keptSignal) {
	room := leastSlots
	for _, x := range of {
		room = max(room, len(x.Tallies))
	}
	for _, x := range of {
		for _, t := range x.Tallies {
			i, ok := j.find(t.Task)
			switch {
			case ok && t.samples() > j.Tallies[i].samples():
				j.Tallies[i] = t
			case !ok && len(j.Tallies) < room:
				j.Tallies = insert(j.Tallies, i, t, room)
			}
		}
	}
	for k, x := range of {
		had := make(map[uint32]int, len(x.Tallies))
		for _, t := range x.Tallies {
			had[t.Task] = t.samples()
		}
		for i, t := range j.Tallies {
			if not := t.samples() - had[t.Task]; not > 0 {
				j.setLack(k, i, uint32(not)) //nolint:gosec // it fits
			}
		}
	}
}
