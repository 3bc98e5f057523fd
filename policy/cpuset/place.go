package cpuset

import (
	"github.com/commensal-io/commensal/model"
)

// side is whose CPUs a task is to run on.
type side uint8

const (
	sideNone side = iota // left alone
	sideLC
	sideBE
	sideOwn
)

// told is what was said of a task: each thing once.
type told uint8

const (
	toldUnusable told = 1 << iota // its cpuset is not ours to set
	toldShared                    // exclusive, but no cores of its own
	toldNarrow                    // nothing remains of where it may run
)

// Placed is what the policy asked for of one task.
type Placed struct {
	Task   model.TaskNum `json:"task"`
	Side   side          `json:"side,omitempty"`
	CPUs   model.CPUSet  `json:"cpus,omitzero"`
	AtNsec int64         `json:"at_nsec,omitempty"` // when it was last asked for; 0: no claim stands
	Told   told          `json:"told,omitempty"`
	Known  bool          `json:"known,omitempty"` // the task was there in an earlier look
	// CapNsec is when the cap of a parked task was last asked for; 0: none stands.
	CapNsec int64 `json:"cap_nsec,omitempty"`
}

// tell says something of a task once.
func (e *Placed) tell(w *model.Wishes, what told, kind model.DecisionKind, value float64, reason string) {
	if e.Told&what != 0 {
		return
	}
	e.Told |= what
	w.Decisions = append(w.Decisions, model.Decision{Kind: kind, Task: e.Task, Value: value, Reason: reason})
}

// align gives each task its entry, in the view's order, and forgets those that are gone.
func (s *State) align(v *model.CPUView) {
	same := len(s.Placed) == len(v.Tasks)
	for i := 0; same && i < len(v.Tasks); i++ {
		same = s.Placed[i].Task == v.Tasks[i].Task.Num
	}
	if same {
		return
	}
	old := make(map[model.TaskNum]int, len(s.Placed))
	for i := range s.Placed {
		old[s.Placed[i].Task] = i
	}
	list := make([]Placed, len(v.Tasks))
	for i := range v.Tasks {
		num := v.Tasks[i].Task.Num
		if at, ok := old[num]; ok {
			list[i] = s.Placed[at]
		} else {
			list[i] = Placed{Task: num}
		}
	}
	s.Placed = list
}

// survey counts who is there and says on which side each task belongs, if it is ours to
// place.
func (s *State) survey(v *model.CPUView, w *model.Wishes) counts {
	var n counts
	for i := range v.Tasks {
		t, e := &v.Tasks[i], &s.Placed[i]
		k := &t.Knobs[model.CPUPlace]
		e.Side = sideNone
		if t.Task.Class == model.System {
			continue
		}
		why := unusable(t)
		if why == "" {
			e.Told &^= toldUnusable
		} else if k.Known || e.Known { // of a newcomer the next reading may know more
			e.tell(w, toldUnusable, model.DecideLeftAlone, 0, why+consequence(t.Task.Class))
		}
		e.Known = true
		mayPlace := k.Known && !k.Void && !t.Exempt
		if t.Task.Class == model.LC {
			n.lc++
			if mayPlace {
				e.Side = sideLC
			}
			continue
		}
		n.be++
		if mayPlace {
			e.Side = sideBE
		}
		if why == "" {
			n.confinable++
		}
	}
	return n
}

// unusable says why a task's CPUs cannot be set, "" when they can.
func unusable(t *model.TaskView) string {
	k := &t.Knobs[model.CPUPlace]
	switch {
	case t.Exempt:
		return "an operator freed it"
	case k.Void:
		return "another program sets its CPUs"
	case k.Refused && !k.Ours:
		return "the kernel refused its CPUs: " + k.Why
	case !k.Known:
		return "its CPUs cannot be read"
	}
	return ""
}

func consequence(c model.Class) string {
	if c == model.BE {
		return "; it is left where it is, and may run on LC's cores"
	}
	return "; it is left where it is, and its load counts"
}

// place claims what changed and what is to be renewed. shrinks: BE lost a core, so its
// tasks come first, and what LC gains is free when LC gets it; else LC shrinks first.
func (s *State) place(p *Params, v *model.CPUView, w *model.Wishes, look, shrinks bool) {
	s.RenewNsec = v.NowNsec + p.ClaimNsec/4
	for i := range s.Placed {
		if s.Placed[i].Side == sideNone {
			s.drop(i, w, "the task is not ours to place")
		}
	}
	order := [...]side{sideLC, sideOwn, sideBE}
	if shrinks {
		order = [...]side{sideBE, sideLC, sideOwn}
	}
	for _, which := range order {
		for i := range s.Placed {
			if s.Placed[i].Side == which {
				s.claim(p, v, w, i, look)
			}
		}
	}
	s.park(p, v, w, look)
}

// claim asks for a task's CPUs where that is due.
func (s *State) claim(p *Params, v *model.CPUView, w *model.Wishes, i int, look bool) {
	e, k := &s.Placed[i], &v.Tasks[i].Knobs[model.CPUPlace]
	want, reason := s.side(e)
	if want.Empty() {
		s.drop(i, w, string(s.Status))
		return
	}
	if !k.Found.CPUs.Empty() { // empty on cgroup v2: whatever the group above has
		want = want.And(k.Found.CPUs)
	}
	if want.Empty() {
		s.drop(i, w, "nothing remains of the CPUs that it may run on")
		e.tell(w, toldNarrow, model.DecideLeftAlone, 0, "it may run on CPUs "+k.Found.CPUs.String()+" only, none of which its side has: it is left where it is")
		return
	}
	due := v.NowNsec-e.AtNsec >= p.ClaimNsec/4
	// The view of an earlier tick does not know of a claim made since, so only a new one says
	// that a claim is gone.
	lost := look && !k.Ours && !k.Pending && v.NowNsec > e.AtNsec
	switch {
	case e.AtNsec == 0:
	case due:
	case e.CPUs == want && (!lost || k.Refused): // what was refused the ledger tries again
		return
	}
	e.CPUs, e.AtNsec = want, v.NowNsec
	w.Claims = append(w.Claims, model.Claim{
		Task: e.Task, Kind: model.ClaimPlace, CPUs: want, Reason: reason, ExpiresNsec: v.NowNsec + p.ClaimNsec,
	})
}

// side returns the CPUs on which a task belongs.
func (s *State) side(e *Placed) (cpus model.CPUSet, reason string) {
	switch e.Side {
	case sideBE:
		return s.BECPUs, "BE's side of the partition"
	case sideLC:
		return s.LCCPUs, "LC's side of the partition"
	}
	return s.ownCPUs(e.Task), "cores of its own"
}

// drop gives a claim back.
func (s *State) drop(i int, w *model.Wishes, reason string) {
	e := &s.Placed[i]
	if e.AtNsec == 0 {
		return
	}
	e.CPUs, e.AtNsec = model.CPUSet{}, 0
	w.Drops = append(w.Drops, model.Drop{Task: e.Task, Kind: model.ClaimPlace, Reason: reason})
}
