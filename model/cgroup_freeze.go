package model

// freezingSpec is whether a task's group is to be frozen: cgroup.freeze of cgroup v2, freezer.state of v1. It is the
// group's own wish: below a group that is frozen every group is, whatever its own file says. A cap is what the task may
// do: below 1 nothing, it is frozen; from 1 on it runs.
var freezingSpec = func() KnobSpec {
	s := KnobSpec{
		Name:   "cgroup.freeze",
		Takes:  [NumClaimKinds][]Class{ClaimCap: {BE}},
		Cap:    func(runs float64, _ int64) Setting { return Freeze(runs < 1) },
		Within: func(a, b Setting) bool { return a.Amount >= b.Amount },
		Show: func(s Setting) string {
			if s.Amount == 0 {
				return "runs"
			}
			return "frozen"
		},
	}
	s.Encode, s.Decode = oneNumber(GroupFreeze)
	return s
}()

// Freeze returns the setting of a task that is frozen, or runs.
func Freeze(frozen bool) Setting {
	s := Ask(GroupFreeze)
	if frozen {
		s.Amount = 1
	}
	return s
}
