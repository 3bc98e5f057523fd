package remedy

import (
	"slices"

	"github.com/commensal-io/commensal/policy"
)

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

// known is what is remembered of a pair; nil: nothing.
func (s *State) known(victim, job string, m Means) *Known {
	i := slices.IndexFunc(s.Known, func(k Known) bool { return k.Victim == victim && k.Job == job && k.Means == m })
	if i < 0 {
		return nil
	}
	return &s.Known[i]
}

// remember notes that a means helped a pair of jobs.
func (s *State) remember(victim, task *policy.TaskView, h *Hold) {
	if victim == nil || task == nil {
		return
	}
	if k := s.known(victim.Task.Job, task.Task.Job, h.Means); k != nil {
		k.Effect = h.Effect
		return
	}
	if len(s.Known) >= mostKnown {
		s.Known = slices.Delete(s.Known, 0, 1)
	}
	s.Known = append(s.Known, Known{Victim: victim.Task.Job, Job: task.Task.Job, Means: h.Means, Effect: h.Effect})
}
