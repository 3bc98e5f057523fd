package spec

import (
	"maps"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// What is learned is kept in a form that is not that of memory, which changes more often. Until version 2 memory had this form; since version 3 tasks have another hash,
// nodes may be in groups and tasks drawn.

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

type keptSketch struct{ Bins []Bin }

// Keep is all of a learner but its jobs.
func (s *State) Keep() *Kept { return &Kept{Nodes: s.Nodes, Passed: s.Passed} }

// Keep is a job as it is kept.
func (j *Job) Keep() *KeptJob {
	k := &KeptJob{Key: j.Key, Revision: j.Revision, Pinned: j.Pinned, Only: j.Only}
	for i := range j.Signals {
		s := &j.Signals[i]
		x := keptSignal{
			Source: s.Source, Definition: s.Definition, Full: s.Full, Grouped: s.Grouped, Level: s.Level, Nodes: int(s.Nodes), Since: s.Since, History: s.History,
			Unseen: s.Unseen, Tallies: s.Tallies, DayNsec: s.DayNsec, AtNsec: s.AtNsec, Held: s.Held,
		}
		x.Sketch.Bins = s.Sketch.Bins()
		if s.Spec != nil {
			sp := s.spec(j.Key, s.Spec)
			x.Spec = &sp
		}
		k.Signals = append(k.Signals, x)
	}
	return k
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

// Recall takes a job in that was kept. What was counted of tasks by their earlier hash begins anew.
func (s *State) Recall(k *KeptJob, version int) {
	j := s.job(k.Key)
	j.Revision, j.Pinned, j.Only = k.Revision, k.Pinned, k.Only
	for i := range k.Signals {
		x := &k.Signals[i]
		sig := j.signal(x.Source, x.Definition)
		sig.Full, sig.Grouped, sig.Level, sig.Nodes, sig.Since, sig.History, sig.Unseen = x.Full, x.Grouped, x.Level, whole(int64(x.Nodes)), slices.Clip(x.Since), x.History, x.Unseen
		sig.DayNsec, sig.AtNsec, sig.Held = x.DayNsec, x.AtNsec, x.Held
		if version >= KeptVersion {
			sig.Tallies = slices.Clip(x.Tallies)
		}
		for _, b := range slices.Backward(x.Sketch.Bins) { // from the highest: what is too low for it is collapsed at once
			sig.Sketch.count(b.At, b.N)
		}
		if x.Spec != nil {
			sig.Spec = figuresOf(x.Spec)
		}
	}
}
