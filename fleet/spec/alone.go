package spec

import "slices"

// Names of jobs are free, and each takes memory: what only one node speaks of is bounded, and what nobody speaks of is forgotten.

// maxAlone is how many jobs a node may be the only one to speak of.
const maxAlone = 1000

// jobOf returns a job that a node speaks of; nil: it has brought too many that nobody else has.
func (s *State) jobOf(k Key, node uint32) *Job {
	if s.alone == nil {
		s.alone = map[uint32]int{}
		for _, j := range s.Jobs {
			s.alone[j.Only]++
		}
	}
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

// lose takes a job away.
func (s *State) lose(k Key) {
	if j := s.Jobs[k]; j != nil && s.alone != nil {
		s.alone[j.Only]--
	}
	delete(s.Jobs, k)
}

// idle: no task of it gave a sample for a day or two, and nothing was published or is held back of it.
func (j *Job) idle() bool {
	return !j.Pinned && len(j.Signals) > 0 && !slices.ContainsFunc(j.Signals, func(s Signal) bool { return s.Spec != nil || s.Held != nil || len(s.Tallies) > 0 })
}
