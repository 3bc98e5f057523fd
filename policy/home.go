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
