package antagonist

import "github.com/commensal-io/commensal/model"

// Tasks of one job that move as one. The regression of group.go cannot find a group that came
// a few windows ago: that its members started when the distress began is one coincidence,
// however many they are. But tasks of one job run one program (CPI²'s own premise, section
// 3.1), and where one of them is a suspect, those that run when it runs are the same suspect.

// Alike reports whether two suspects cannot be told apart: their usage, windows before they
// came included, correlates at 0.95 or more. Usage that does not vary is like nobody's.
func (h *History) Alike(a, b model.TaskNum) bool {
	i, ok := h.find(a)
	k, also := h.find(b)
	if !ok || !also || h.Filled < minGroupWindows {
		return false
	}
	return cosine(h.Rows[i].Usage[:h.Filled], h.Rows[k].Usage[:h.Filled]) >= alike
}
