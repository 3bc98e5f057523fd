package soak

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// How many writes there may be follows from what was decided: each change of a task's knob,
// and each restore, writes a group of it so many times and no more.

// perChange is how many writes one change, or one restore, takes in a group. Bandwidth takes
// four on v1 (lift the quota, period, quota, burst); a place two (old and new together, then
// the new), and so does a weight (normal again, then the weight). A kernel that refuses one of them has the others taken back: as many again.
var perChange = [model.NumKnobs]int{model.CPUBandwidth: 8, model.CPUPlace: 4, model.CPUWeight: 4, model.GroupFreeze: 4, model.IOMaxKnob: 4, model.MemoryHigh: 4}

const (
	// perBatch is how many calls on the journal's disk a turn with changes, or a restore, may
	// take: what is meant, what became of it, what was taken back, each a write and what a
	// full disk makes of it (a cut, once more a cut), and a file written anew.
	perBatch = 16
	// perTend is how many a look after the journal may take, each second, while its disk refuses
	// it: what the file does not say yet is tried again, in a file of its own where need be.
	perTend = 4
	// retries is how many more tries than changes there are in a minute: what the kernel
	// refused is tried again after 1, 2, 4, 8, 16 and 32 seconds.
	retries = 6
)

// storm counts what was decided and done in the last minute.
type storm struct {
	changes  map[taskKnob][]int64
	restores []int64 // by guardians, starts and clean ends
	batches  []int64 // turns with changes, and restores
	appends  []int64 // to the journal's disk
}

// taskKnob names a task's knob.
type taskKnob struct {
	task string
	kind model.KnobKind
}

// lately drops times that are older than a minute, and counts the others.
func lately(list *[]int64, now int64) int {
	i, _ := slices.BinarySearch(*list, now-minuteNsec)
	*list = (*list)[i:]
	return len(*list)
}

// restoring takes in that a guardian, a start or an end is about to put things back.
func (s *storm) restoring(now int64) {
	s.restores = append(s.restores, now)
	s.batches = append(s.batches, now)
}

// decided takes in the changes that a turn asked for.
func (s *storm) decided(out *engine.Output, path func(model.TaskNum) string, now int64) {
	for i := range out.Changes {
		c := &out.Changes[i]
		key := taskKnob{path(c.Task()), c.Value.Knob}
		s.changes[key] = append(s.changes[key], now)
	}
	if len(out.Changes) > 0 {
		s.batches = append(s.batches, now)
	}
}

// checkStorm looks whether more was written than was decided.
func (w *world) checkStorm() {
	v := w.witness
	s, now := &v.storm, w.now()
	restores := lately(&s.restores, now)
	for _, g := range v.list {
		for kind := range model.OfCgroups {
			k := &g.knobs[kind]
			if len(k.writes) == 0 {
				continue
			}
			list := s.changes[taskKnob{g.task, kind}]
			changes := lately(&list, now)
			s.changes[taskKnob{g.task, kind}] = list
			if n, most := lately(&k.writes, now), perChange[kind]*(changes+restores+retries); n > most {
				w.fail(checkStorm, fmt.Sprintf("%s of %s was written %d times in a minute, for %d changes and %d restores", kind, g.path, n, changes, restores))
			}
		}
	}
	n, batches := lately(&s.appends, now), lately(&s.batches, now)
	most := perBatch * (batches + retries)
	if v.refused > 0 && now-v.refused < minuteNsec {
		most += 60 * perTend
	}
	if n > most {
		w.fail(checkStorm, fmt.Sprintf("%d calls on the journal's disk in a minute, for %d turns with changes and restores", n, batches))
	}
}
