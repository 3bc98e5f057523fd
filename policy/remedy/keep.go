package remedy

import "slices"

// Mark is another number when what is remembered of pairs of jobs is other than it was.
func (s *State) Mark() (mark float64) {
	for i := range s.Known {
		mark += float64(i+1) * (1 + s.Known[i].Effect)
	}
	return mark
}

// Restore takes up what an earlier run of the agent remembered of pairs of jobs.
func (s *State) Restore(known []Known) {
	for _, k := range known {
		if valid := k.Effect > 0 && k.Effect < mostEffect && slices.Contains(allMeans, k.Means); valid && len(s.Known) < mostKnown {
			s.Known = append(s.Known, k)
		}
	}
}

// mostEffect is the logarithm of more than any signal comes down by.
const mostEffect = 35
