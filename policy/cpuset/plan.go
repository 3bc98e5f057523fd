package cpuset

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// counts is who is on the node.
type counts struct {
	lc, be     int
	shared     int // LC tasks without cores of their own
	confinable int // BE tasks that can be confined
}

// replan looks at everything anew: who is there, which cores there are, who has them.
func (s *State) replan(p *Params, v *policy.View, w *policy.Wishes) {
	m := machineOf(v.Topology)
	s.align(v)
	n := s.survey(v, w)
	left := s.assign(p, m, v, w)
	pinned := s.pinned(v)
	m.pin(pinned)
	moved := pinned != s.Pinned
	s.Pinned = pinned
	n.shared = n.lc - len(s.Exclusive)
	least := min(n.shared, 1)
	status := Divided
	switch {
	case n.lc == 0:
		status = NoLC
	case n.be == 0:
		status = NoBE
	case n.confinable == 0:
		status = Unconfinable
	case left < least+1 || s.immovable(p, n.shared, left):
		status = TooFew
	}
	was := s.Status
	s.Status = status
	if status == Divided {
		s.divide(p, m, v.NowNsec, w, was, least, moved)
		return
	}
	s.undivide(p, m)
	if was != status {
		s.sayUndivided(w, len(m.cores))
	}
}

// immovable reports whether LC would have its one core for good, whatever it needs, since BE keeps the others: then it is better off beside BE
// on all of them (docs/PARTITION.md, "The agent's defaults on two cores"). Exclusive tasks have theirs, and are worth a border that stands still.
func (s *State) immovable(p *Params, shared, cores int) bool {
	return shared > 0 && len(s.Exclusive) == 0 && cores-1 <= p.floor(cores)
}

// pinned returns the CPUs of the shared LC tasks that may not run everywhere.
func (s *State) pinned(v *policy.View) model.CPUSet {
	online := v.Topology.Online()
	var set model.CPUSet
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if t.Task.Class != model.LC || s.Placed[i].Side == sideOwn {
			continue
		}
		if k := &t.Knobs[model.CPUPlace]; k.Known && !online.Within(k.Found.CPUs) {
			set = set.Or(k.Found.CPUs)
		}
	}
	return set
}

// divide sets the two sides up, or follows what changed. moved: LC tasks are pinned to other
// cores than before.
func (s *State) divide(p *Params, m *machine, nowNsec int64, w *policy.Wishes, was Status, least int, moved bool) {
	beHad, lcHad := s.BECPUs, s.LCCPUs
	same := was == Divided && !moved && s.covers(m)
	if !same {
		kept := s.still(m)
		s.Order, s.BE = m.order(kept, s.Exclusive, p.Sockets), len(kept)
	}
	cores := len(s.Order)
	floor := min(p.floor(len(m.cores)), cores-least)
	if least == 0 {
		floor = max(floor, 1) // parking is for the sake of shared LC tasks
	}
	same = same && floor == s.FloorCores && least == s.LeastCores
	s.FloorCores, s.LeastCores = floor, least
	s.plan = s.derive(p, m)
	switch {
	case was != Divided: // nobody watched LC yet: BE begins at its floor
		s.Pace = Pace{MoveNsec: nowNsec}
		s.BE = floor
	case !same:
		has := max(cores-s.BE, s.least(p, s.Load.Mean()), least)
		s.BE = max(cores-has, floor)
	}
	s.setSides()
	if was == Divided && s.BECPUs == beHad && s.LCCPUs == lcHad {
		return
	}
	reason := "the machine's CPUs, or those of exclusive tasks, changed"
	if was != Divided {
		reason = "the machine is divided, and BE begins at its floor"
	}
	w.Decide(model.Decision{
		Kind: model.DecideResize, Facts: []model.Fact{model.FactCPUs.Is(float64(s.BECPUs.Len())), model.FactLoad.Is(s.Load.Rate)},
		Reason: fmt.Sprintf("%s: LC has CPUs %s, BE has %s", reason, named(s.LCCPUs), s.BECPUs),
	})
}

func named(set model.CPUSet) string {
	if set.Empty() {
		return "none"
	}
	return set.String()
}

// still returns the cores of BE that it can go on having: those that are there, that no
// exclusive task has, and to which no LC task is pinned.
func (s *State) still(m *machine) []int {
	var list []int
	for _, id := range s.Order[:s.BE] {
		if at, ok := m.find(id); ok && !m.cores[at].pinned && !s.owned(id) {
			list = append(list, id)
		}
	}
	return list
}

func (s *State) owned(id int) bool {
	for i := range s.Exclusive {
		if slices.Contains(s.Exclusive[i].Cores, id) {
			return true
		}
	}
	return false
}

// covers says whether the order has exactly the cores that no exclusive task has.
func (s *State) covers(m *machine) bool {
	n := len(m.cores)
	for i := range s.Exclusive {
		n -= len(s.Exclusive[i].Cores)
	}
	if n != len(s.Order) {
		return false
	}
	for _, id := range s.Order {
		if _, ok := m.find(id); !ok || s.owned(id) {
			return false
		}
	}
	return true
}

// undivide takes the border away. Exclusive tasks keep their cores as long as somebody else
// is there; shared LC tasks then have all others. Where the kernel took no BE task's cpuset
// the claims on those stay, on the floor: the ledger tries again, and the border comes when
// one was taken.
func (s *State) undivide(p *Params, m *machine) {
	free := m.order(nil, s.Exclusive, p.Sockets)
	s.Order, s.BE, s.Pace = nil, 0, Pace{}
	s.FloorCores, s.LeastCores = 0, 0
	s.LCCPUs, s.BECPUs = model.CPUSet{}, model.CPUSet{}
	s.plan = s.derive(p, m)
	if s.Status == NoLC || s.Status == TooFew {
		s.Exclusive = nil
		return
	}
	floor := 0
	if s.Status == Unconfinable {
		floor = min(max(p.floor(len(m.cores)), 1), len(free))
		s.BECPUs = m.cpus(free[:floor])
	}
	if len(s.Exclusive) > 0 {
		s.LCCPUs = m.cpus(free[floor:])
	}
}

// sayUndivided tells why nobody is placed.
func (s *State) sayUndivided(w *policy.Wishes, cores int) {
	d := model.Decision{Kind: model.DecideLeftAlone, Facts: []model.Fact{model.FactCores.Is(float64(cores))}}
	switch s.Status {
	case NoLC:
		d.Reason = "no LC task is here: nobody is placed"
	case NoBE:
		d.Reason = "no BE task is here: nobody is placed"
	case Unconfinable:
		d.Reason = "no BE task can be confined, so LC is not confined either and shares its CPUs with BE"
	case TooFew:
		d.Kind = model.DecideLimit
		d.Reason = fmt.Sprintf("the machine cannot be divided: %d physical cores are too few for two sides and a border that can move", cores)
	}
	if len(s.Exclusive) > 0 {
		d.Reason += "; exclusive tasks keep their cores"
	}
	w.Decide(d)
}
