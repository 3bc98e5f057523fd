package policy

import (
	"slices"

	"github.com/commensal-io/commensal/model"
)

// memories is what was worked out of a topology and its classes, kept while they are the same.
type memories struct {
	of   *model.Topology
	have *model.Classes
	list []model.Memory
}

// Memories are the memories that the domains of classes are near (model.Memory): what is decided of a memory is decided of all of its domains together.
func (v *View) Memories(have *model.Classes) []model.Memory {
	if k := &v.memories; k.of != v.Topology || k.have != have {
		*k = memories{v.Topology, have, v.Topology.Memories(have)}
	}
	return v.memories.list
}

// MemoryUse is what the window says of each of Memories, in their order; none where nobody counts it.
func (v *View) MemoryUse(have *model.Classes) []model.MemoryObservation {
	of := v.Window.Memory()
	if len(of) == 0 {
		return nil
	}
	return model.ObserveMemories(v.Memories(have), of, nil)
}

// NearMemory reports whether a task may run on the CPUs that are near a memory; who may run everywhere, or whose CPUs are not known, is.
func (t *TaskView) NearMemory(have *model.Classes, m *model.Memory) bool {
	return slices.ContainsFunc(m.Domains, func(d int32) bool { return t.Near(have, d) })
}

// NearMemoryOf reports whether a task may run on the CPUs that are near the memory of a domain. A domain that is none of Memories goes by itself.
func (v *View) NearMemoryOf(have *model.Classes, t *TaskView, domain int32) bool {
	list := v.Memories(have)
	if at := slices.IndexFunc(list, func(m model.Memory) bool { return m.Has(domain) }); at >= 0 {
		return t.NearMemory(have, &list[at])
	}
	return t.Near(have, domain)
}

// ServedBy reports whether a memory is one that a service is served by: of its pages on memory that CPUs are near, a tenth or more lies there or, where nobody
// tells that, it may run on the CPUs near it. Pages on nodes without CPUs are near nobody, and limit nobody.
func (v *View) ServedBy(have *model.Classes, t *TaskView, m *model.Memory) bool {
	h := v.homes(t.Task.Num)
	if h == nil || m.Nodes.Empty() {
		return t.NearMemory(have, m)
	}
	near := model.PageHomes{Bytes: slices.Clone(h.Bytes)}
	for n := range near.Bytes {
		if !slices.ContainsFunc(v.Memories(have), func(o model.Memory) bool { return o.Nodes.Has(n) }) {
			near.Bytes[n] = 0
		}
	}
	away, ok := near.Away(m.Nodes)
	return ok && 1-away >= FarPages || !ok && t.NearMemory(have, m)
}

// MemoryAt returns the nodes of the memories that at is true of; none where there are no others to go to.
func (v *View) MemoryAt(have *model.Classes, at func(m *model.Memory) bool) (nodes model.CPUSet) {
	others, list := false, v.Memories(have)
	for i := range list {
		if m := &list[i]; at(m) {
			nodes = nodes.Or(m.Nodes)
		} else if !m.Nodes.Empty() {
			others = true
		}
	}
	if !others {
		return model.CPUSet{}
	}
	return nodes
}

// Load is what a memory delivers, and how much of that services draw, bytes a second.
type Load struct {
	Own  float64 `json:"own"`  // services, in the last window in which both are known
	All  float64 `json:"all"`  // everybody
	Most float64 `json:"most"` // that was seen
	// Domain is the most that the CPUs of one of its domains were seen to move, where it has several.
	Domain float64 `json:"domain,omitempty"`
}

// Alone reports whether services fill the memory by themselves: hardly anybody else draws from it, and it delivers about as much as it was ever seen to.
func (l *Load) Alone() bool { return l.All > 0 && l.Own >= ownLoad*l.All && l.All >= ownLoad*l.Most }

// Peak is the most that the memory of a domain was seen to move for that, bytes a second: a class has one level in all domains, and they are
// taken to be alike. 0: not known.
func Peak(list []Load) (peak float64) {
	for i := range list {
		if l := &list[i]; l.Domain > 0 {
			peak = max(peak, l.Domain)
		} else {
			peak = max(peak, l.Most)
		}
	}
	return peak
}

// NoPeak reports whether no level can be told yet by which memory bandwidth is taken, which is said once.
func (w *Wishes) NoPeak(have *model.Classes, list []Load) bool {
	if have.LevelBytes() == 0 || Peak(list) > 0 {
		return false
	}
	w.Once("no peak", model.Decision{
		Kind:   model.DecideLeftAlone,
		Reason: "levels of memory bandwidth are bytes a second on this machine, and nobody has counted yet what its memory moves: none is given",
	})
	return true
}

// Loads takes in what a window says of each of Memories, in whose order list is.
func (v *View) Loads(have *model.Classes, list []Load) []Load {
	all := v.Memories(have)
	if len(list) != len(all) {
		list = make([]Load, len(all))
	}
	for i, o := range v.MemoryUse(have) {
		if o.Node.Outcome != model.OK || !(o.Node.V > 0 && o.Node.V < Absurd) {
			continue
		}
		m, l := &all[i], &list[i]
		l.All, l.Most = o.Node.V, max(l.Most, o.Node.V)
		l.Own = min(l.All, v.own(have, m))
		for _, d := range v.Window.Memory() {
			if len(m.Domains) > 1 && m.Has(d.Domain) && d.Total.Outcome == model.OK && d.Total.V < Absurd {
				l.Domain = max(l.Domain, d.Total.V)
			}
		}
	}
	return list
}

// own is what services move from the CPUs near a memory: counted by resctrl, else by the misses of those that run near no other; 0 where neither is known.
func (v *View) own(have *model.Classes, m *model.Memory) (sum float64) {
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if t.Task.Class != model.LC || !t.NearMemory(have, m) {
			continue
		}
		drawn, counted := 0.0, false
		for _, d := range v.Window.Observation.In(t.Task.Num) {
			if m.Has(d.Domain) && d.Total.Outcome == model.OK {
				drawn, counted = drawn+d.Total.V, true
			}
		}
		if others := slices.ContainsFunc(have.Memory, func(d int32) bool { return !m.Has(d) && t.Near(have, d) }); !counted && !others {
			_, misses := v.History.Took(t.Task.Num, 0, 1)
			drawn = misses * LineBytes
		}
		if drawn > 0 && drawn < Absurd {
			sum += drawn
		}
	}
	return sum
}
