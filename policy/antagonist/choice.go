package antagonist

import "github.com/commensal-io/commensal/model"

// MaxSuspects is how many suspects a round keeps: CPI²'s longest list (case 4) has
// nine.
const MaxSuspects = 10

// ClearlyBetter is by how much a suspect that nobody can hold must beat the best BE
// suspect before holding the latter makes no sense. CPI²'s own lists of like
// suspects (figures 8a, 11a) lie within 0.1 of their neighbours.
const ClearlyBetter = 0.1

// Choice is who of a round's suspects is held: the first of those that may be, a critical one only where no other may.
type Choice struct{ pick, critical int }

// NewChoice returns one that nobody is in.
func NewChoice() Choice { return Choice{-1, -1} }

// Take takes in the suspect of the i-th score, the greatest first, and keeps it in the round. Who may not be held was judged before.
func (c *Choice) Take(r *model.Round, i int, sus model.Suspect, may, critical bool) {
	switch {
	case !may:
	case c.pick >= 0:
		sus.Judge(model.SuspectBehind, "")
	case critical:
		sus.Judge(model.SuspectLast, "")
		if c.critical < 0 {
			c.critical = i
		}
	default:
		c.pick = i
		sus.Judge(model.SuspectChosen, "")
	}
	if len(r.Suspects) < MaxSuspects || i == c.pick {
		r.Suspects = append(r.Suspects, sus)
	}
}

// Made returns the index of the score of who is to be held, or -1.
func (c *Choice) Made(r *model.Round) int {
	if c.pick >= 0 || c.critical < 0 {
		return c.pick
	}
	if c.critical < len(r.Suspects) {
		r.Suspects[c.critical].Judge(model.SuspectChosenLast, "")
	}
	return c.critical
}
