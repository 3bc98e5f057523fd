package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// What a remedy of memory takes for granted of a service (BALM §II): its pages are local, its threads run on one socket, and it does not
// fill its memory by itself. Each is looked at where the machine tells, and said once where it does not hold.

const (
	// FarPages is the share of a service's pages from which on a memory is one of those that it is served by: what one step of BALM moves.
	FarPages = 0.1
	// ownLoad is the share of what a memory delivers, and of the most that it was seen to deliver, from which on services that draw so much fill it by
	// themselves: what is left to take from others is a fifth.
	ownLoad = 0.8
	// LineBytes is what an LLC miss loads.
	LineBytes = 64
	// FewMisses is how many misses per thousand instructions say that a service does not wait for memory: at 100 ns each, a
	// few at a time, they are a tenth of a cycle an instruction.
	FewMisses = 1
	// Absurd is above any figure that a machine has.
	Absurd = 1e15
)

// homes is where a task's pages lie; nil: nobody told.
func (v *View) homes(task model.TaskNum) *model.PageHomes {
	i, ok := slices.BinarySearchFunc(v.Homes, task, func(h model.PageHomes, n model.TaskNum) int { return cmp.Compare(h.Num, n) })
	if !ok {
		return nil
	}
	return &v.Homes[i]
}

// nodes are the memory nodes of the domains that at is true of.
func (v *View) nodes(have *model.Classes, at func(domain int32) bool) (set model.CPUSet) {
	for i := range v.Topology.CPUs {
		c := &v.Topology.CPUs[i]
		for j := range have.Domains {
			if d := &have.Domains[j]; d.CPUs.Has(c.ID) && at(d.ID) {
				set.Add(c.Node)
			}
		}
	}
	return set
}

// ServedBy reports whether a domain's memory is one that a service is served by: a tenth of its pages or more lies there or, where nobody tells that,
// it may run on the domain's CPUs.
func (v *View) ServedBy(have *model.Classes, t *TaskView, domain int32) bool {
	if h := v.homes(t.Task.Num); h != nil {
		if nodes := v.nodes(have, func(d int32) bool { return d == domain }); !nodes.Empty() {
			away, ok := h.Away(nodes)
			return ok && 1-away >= FarPages || !ok && t.Near(have, domain)
		}
	}
	return t.Near(have, domain)
}

// Premises is what is known of a service's pages and threads.
type Premises struct {
	Far     float64 // share of its pages on memory of sockets on which it may not run; 0 where that is not known
	Sockets int     // on whose CPUs it may run; 0: not known
}

// PremisesOf returns what is known of a service by the CPUs that it may run on, none where nobody tells, and by where its pages lie, nil likewise.
func PremisesOf(machine *model.Topology, cpus model.CPUSet, h *model.PageHomes) (p Premises) {
	if cpus.Empty() {
		return p
	}
	var sockets, nodes model.CPUSet
	for i := range machine.CPUs {
		if c := &machine.CPUs[i]; cpus.Has(c.ID) {
			sockets.Add(c.Socket)
		}
	}
	for i := range machine.CPUs { // a socket may have several nodes
		if c := &machine.CPUs[i]; sockets.Has(c.Socket) {
			nodes.Add(c.Node)
		}
	}
	p.Sockets = sockets.Len()
	if h != nil {
		if away, ok := h.Away(nodes); ok {
			p.Far = math.Round(100*away) / 100
		}
	}
	return p
}

// Hold reports whether pages are local and threads on one socket, as far as is known.
func (p *Premises) Hold() bool { return p.Far < FarPages && p.Sockets <= 1 }

// String says what does not hold; "" where all does.
func (p *Premises) String() string {
	switch {
	case p.Hold():
		return ""
	case p.Far < FarPages:
		return fmt.Sprintf("it may run on %d sockets", p.Sockets)
	case p.Sockets <= 1:
		return fmt.Sprintf("%.0f %% of its pages lie on other sockets' memory", 100*p.Far)
	}
	return fmt.Sprintf("it may run on %d sockets, and %.0f %% of its pages lie on memory of none of them", p.Sockets, 100*p.Far)
}

// Premises says once what does not hold of a service: who is to give way goes by the memories that its pages lie on then.
func (w *Wishes) Premises(v *View, t *TaskView) Premises {
	p := PremisesOf(v.Topology, t.Knobs[model.CPUPlace].Now.CPUs, v.homes(t.Task.Num))
	if why := p.String(); why != "" {
		w.Once("premises", model.Decision{
			Kind: model.DecideBasis, Task: t.Task.Num, Path: t.Task.Path,
			Facts:  []model.Fact{model.FactPagesFar.Is(p.Far), model.FactSockets.Is(float64(p.Sockets))},
			Reason: why + ": the memories that count are those on which a tenth of its pages or more lies, as far as is told, else those of all of its sockets",
		})
	}
	return p
}

// Load is what a memory delivers, and how much of that services draw, bytes a second.
type Load struct {
	Own  float64 `json:"own"`  // services, in the last window in which both are known
	All  float64 `json:"all"`  // everybody
	Most float64 `json:"most"` // that was seen
}

// Alone reports whether services fill the memory by themselves: hardly anybody else draws from it, and it delivers about as much as it was ever seen to.
func (l *Load) Alone() bool { return l.All > 0 && l.Own >= ownLoad*l.All && l.All >= ownLoad*l.Most }

// Peak is the most that any of the memories was seen to move, bytes a second: a class has one level at all of them, and they are
// taken to be alike. 0: not known.
func Peak(list []Load) (peak float64) {
	for i := range list {
		peak = max(peak, list[i].Most)
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

// Loads takes in what a window says of each memory in have, in whose order list is.
func (v *View) Loads(have *model.Classes, list []Load) []Load {
	if len(list) != len(have.Memory) {
		list = make([]Load, len(have.Memory))
	}
	for _, m := range v.Window.Memory() {
		at := slices.Index(have.Memory, m.Domain)
		if at < 0 || m.Node.Outcome != model.OK || !(m.Node.V > 0 && m.Node.V < Absurd) {
			continue
		}
		l := &list[at]
		l.All, l.Most = m.Node.V, max(l.Most, m.Node.V)
		l.Own = min(l.All, v.own(have, m.Domain))
	}
	return list
}

// own is what services move from a domain's CPUs: counted by resctrl, else by the misses of those that run in no other domain; 0 where neither is known.
func (v *View) own(have *model.Classes, domain int32) (sum float64) {
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if t.Task.Class != model.LC || !t.Near(have, domain) {
			continue
		}
		drawn, counted := 0.0, false
		for _, d := range v.Window.Observation.In(t.Task.Num) {
			if d.Domain == domain && d.Total.Outcome == model.OK {
				drawn, counted = d.Total.V, true
			}
		}
		if !counted && !slices.ContainsFunc(have.Memory, func(d int32) bool { return d != domain && t.Near(have, d) }) {
			_, misses := v.History.Took(t.Task.Num, 0, 1)
			drawn = misses * LineBytes
		}
		if drawn > 0 && drawn < Absurd {
			sum += drawn
		}
	}
	return sum
}
