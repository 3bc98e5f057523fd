package spec

import (
	"slices"

	"github.com/commensal-io/commensal/fleet/wire"
)

// Names of jobs are free, and each takes memory: what only one node speaks of is bounded, and what nobody speaks of is forgotten.

// maxAlone is how many jobs a node may be the only one to speak of.
const maxAlone = 1000

// jobOf returns a job that a node speaks of; nil: it has brought too many that nobody else has.
func (s *State) jobOf(k Key, node uint32) *Job {
	s.countOnce()
	j := s.Jobs[k]
	switch {
	case j != nil && j.Only != 0 && j.Only != node+1:
		s.alone[j.Only]--
		j.Only = 0
	case j == nil && s.alone[node+1] >= maxAlone:
		return nil
	case j == nil:
		j = s.job(k)
		j.Only = node + 1
		s.alone[j.Only]++
	}
	return j
}

// countOnce counts what is counted from then on.
func (s *State) countOnce() {
	if s.alone != nil {
		return
	}
	s.alone, s.sizes = map[uint32]int{}, map[Key]int{}
	for k, j := range s.Jobs {
		s.alone[j.Only]++
		s.size(k, 1)
	}
}

// size counts a key with a size that came or went.
func (s *State) size(k Key, n int) {
	if k.Size == "" || s.sizes == nil {
		return
	}
	k.Size = ""
	if s.sizes[k] += n; s.sizes[k] == 0 {
		delete(s.sizes, k)
	}
}

// sizeOf returns what is known of a task's size of its job; nil: it has none, or the job has too many.
func (s *State) sizeOf(p *Params, t *wire.Task, platform string, node uint32) *Job {
	if t.Size == "" {
		return nil
	}
	k := Key{t.Job, platform, t.Size}
	s.countOnce()
	if s.Jobs[k] == nil && s.sizes[Key{t.Job, platform, ""}] >= p.Sizes {
		return nil
	}
	return s.jobOf(k, node)
}

// lose takes a job away.
func (s *State) lose(k Key) {
	if j := s.Jobs[k]; j != nil && s.alone != nil {
		s.alone[j.Only]--
		s.size(k, -1)
	}
	delete(s.Jobs, k)
}

// specified: something is in force of it, or held back.
func (j *Job) specified() bool {
	return slices.ContainsFunc(j.Signals, func(s Signal) bool { return s.Tasks > 0 }) || slices.ContainsFunc(j.Apart, func(a Apart) bool { return a.Spec != nil || a.Held != nil })
}

// idle: no task of it gave a sample for a day or two, and nothing was published or is held back of it.
func (j *Job) idle() bool {
	return !j.Pinned && len(j.Signals) > 0 && len(j.Tallies) == 0 && !j.specified()
}
