package headroom

import (
	"slices"
)

// Keep returns a copy of what was learned of jobs, which outlives a restart.
func (s *State) Keep() []*Profile {
	list := make([]*Profile, len(s.Profiles))
	for i, o := range s.Profiles {
		c := *o
		list[i] = &c
	}
	return list
}

// Restore takes up again what an earlier run had learned; what is known already stays. Its age is in it: weights
// decay by the wall clock.
func (s *State) Restore(kept []*Profile) {
	for _, k := range kept {
		if k == nil {
			continue
		}
		i, ok := slices.BinarySearchFunc(s.Profiles, k, func(a, b *Profile) int { return a.compare(b.Class, b.Job) })
		if ok || len(s.Profiles) >= maxJobs {
			continue
		}
		c := *k
		s.Profiles = slices.Insert(s.Profiles, i, &c)
	}
	s.matched = false
}
