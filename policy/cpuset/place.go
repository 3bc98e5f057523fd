package cpuset

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// side is whose CPUs a task is to run on.
type side uint8

const (
	sideNone side = iota // left alone
	sideLC
	sideBE
	sideOwn
)

// Placed is on which side a task is.
type Placed struct {
	Task  model.TaskNum `json:"task"`
	Side  side          `json:"side,omitempty"`
	Known bool          `json:"known,omitempty"` // the task was there in an earlier look
}

// align gives each task its entry, in the view's order, and forgets those that are gone.
func (s *State) align(v *policy.View) {
	num := func(e *Placed) model.TaskNum { return e.Task }
	s.Placed, s.spare = policy.Match(v, s.Placed, s.spare, num, func(t *policy.TaskView, had *Placed, _ int) (Placed, bool) {
		if had != nil {
			return *had, true
		}
		return Placed{Task: t.Task.Num}, true
	})
}

// survey counts who is there and says on which side each task belongs, if it is ours to
// place.
func (s *State) survey(v *policy.View, w *policy.Wishes) counts {
	var n counts
	for i := range v.Tasks {
		t, e := &v.Tasks[i], &s.Placed[i]
		k := &t.Knobs[model.CPUPlace]
		e.Side = sideNone
		if t.Task.Class == model.System {
			continue
		}
		word, why := unusable(t)
		if why != "" && (k.Known || e.Known) { // of a newcomer the next reading may know more
			w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: e.Task, Reason: why + consequence(t.Task.Class)})
		}
		e.Known = true
		mayPlace := k.Known && !k.Void && t.Exempt == ""
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

// unusable says why a task's CPUs cannot be set, and a word for that; "" when they can.
func unusable(t *policy.TaskView) (word, why string) {
	k := &t.Knobs[model.CPUPlace]
	switch {
	case t.Exempt != "":
		return "exempt", t.Exempt
	case k.Void:
		return "void", "another program sets its CPUs"
	case k.Refused && !k.Ours:
		return "refused", "the kernel refused its CPUs: " + k.Why
	case !k.Known:
		return "unknown", "its CPUs cannot be read"
	}
	return "", ""
}

func consequence(c model.Class) string {
	if c == model.BE {
		return "; it is left where it is, and may run on LC's cores"
	}
	return "; it is left where it is, and its load counts"
}

// place asks for the CPUs of all tasks that are ours to place.
func (s *State) place(p *Params, v *policy.View, w *policy.Wishes) {
	if w.Why = string(s.Status); s.Status == Divided {
		w.Why = "it is not ours to place"
	}
	parked := s.parked()
	for i := range s.Placed {
		e, found := &s.Placed[i], v.Tasks[i].Knobs[model.CPUPlace].Found.CPUs
		want, reason := s.side(e)
		if want.Empty() {
			continue
		}
		if !found.Empty() { // empty on cgroup v2: whatever the group above has
			want = want.And(found)
		}
		if want.Empty() {
			w.Once("narrow", model.Decision{
				Kind: model.DecideLeftAlone, Task: e.Task,
				Reason: "it may run on CPUs " + found.String() + " only, none of which its side has: it is left where it is",
			})
			continue
		}
		w.Claims = append(w.Claims, model.Claim{
			Target: model.OfTask(e.Task), Kind: model.ClaimPlace, Value: model.Place(want), Reason: reason, HoldNsec: p.ClaimNsec,
		})
		switch {
		case e.Side != sideBE || s.FloorCores > 0: // never parked
		case parked:
			w.Claims = append(w.Claims, s.park(p, e))
		default:
			w.End(s.park(p, e), "BE has a core of its own again")
		}
	}
}

// side returns the CPUs on which a task belongs.
func (s *State) side(e *Placed) (cpus model.CPUSet, reason string) {
	switch e.Side {
	case sideNone:
		return model.CPUSet{}, ""
	case sideBE:
		return s.BECPUs, "BE's side of the partition"
	case sideLC:
		return s.LCCPUs, "LC's side of the partition"
	}
	return s.ownCPUs(e.Task), "cores of its own"
}
