package antagonist

import "github.com/commensal-io/commensal/model"

// Who uses what the victim lacks. The score of section 4.2 looks at the rhythm of a suspect alone and not
// at its size: whoever used little, but at the right times, scores as the culprit does. Where counters
// tell what each task takes of cache and memory, suspects of like rhythm are told apart by that.

// PutMisses notes a task's LLC misses a second in the open window; i is its row's index.
func (h *History) PutMisses(i int, perSecond float64) {
	r := &h.Rows[i]
	if !(perSecond > 0 && perSecond <= maxFigure) {
		return // no row without a counter has any
	}
	if len(r.Misses) == 0 {
		r.Misses = make([]float64, h.Cap)
	}
	r.Misses[h.Next] = perSecond
}

// Taken is by how many LLC misses a second a suspect made more, in the windows in which the victim of the
// last Correlate suffered, than in the others, each window weighted as in the score; 0 where nobody counted.
func (h *History) Taken(num model.TaskNum) float64 {
	i, ok := h.find(num)
	if !ok || len(h.Rows[i].Misses) == 0 || len(h.bad)+len(h.good) == 0 {
		return 0
	}
	sum := 0.0
	for _, list := range [][]weighted{h.bad, h.good} {
		for _, w := range list {
			sum += w.weight * h.Rows[i].Misses[w.window]
		}
	}
	return sum / float64(len(h.bad)+len(h.good))
}
