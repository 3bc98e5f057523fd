package remedy

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// On several sockets a service feels what tasks have that share a cache or a memory with it. What is held beside it is given back while it is well,
// whoever else is in trouble; trouble of others is no verdict on that, and comes first (Params.Apart). There is one trial at a time all the same.

// scene is what a step sees.
type scene struct {
	apart bool // services may be apart: there are several memories
	have  *model.Classes
	v     *policy.View
}

// feels reports whether a service can feel what a best-effort task has, 0: any: they share a cache or a memory, or it reaches the service's memory from
// elsewhere; where that is not counted, its pages may have been moved there.
func (s *State) feels(x *Victim, task model.TaskNum) bool {
	if !s.at.apart || task == 0 {
		return true
	}
	a, b := s.at.v.Task(x.Task), s.at.v.Task(task)
	if a == nil || b == nil || beside(s.at.have, s.at.v, a, b) {
		return true
	}
	if s.counted(task) {
		return s.reaches(s.at.have, s.at.v, a, task) > 0
	}
	return s.batch(task).away()
}

// stand notes since when everything stands that a service feels.
func (s *State) stand(p *Params, v *policy.View) {
	for i := range s.Victims {
		switch x := &s.Victims[i]; {
		case !p.Apart:
		case s.changed && !s.moved: // of more than one task
			x.SetNsec = 0
		case s.SetNsec != 0 && x.SetNsec == 0:
			x.SetNsec = v.NowNsec
		}
	}
}
