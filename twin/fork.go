package twin

import (
	"maps"
	"slices"
)

// Fork returns a copy of the host with a copy of its machine: both go on alike until one
// of them is told something else.
func (h *Host) Fork() *Host {
	f := *h
	f.m = h.m.Fork()
	f.tasks = slices.Clone(h.tasks)
	f.added, f.removed = slices.Clone(h.added), slices.Clone(h.removed)
	f.made, f.results, f.late = slices.Clone(h.made), slices.Clone(h.results), Late{slices.Clone(h.late.held), slices.Clone(h.late.ready)}
	f.metered, f.had = slices.Clone(h.metered), slices.Clone(h.had)
	f.services = maps.Clone(h.services)
	f.classes = make([]*classKnob, len(h.classes))
	for i, k := range h.classes {
		own := *k
		f.classes[i] = &own
	}
	if h.stalls != nil {
		f.stalls = h.stalls.Fork(f.m)
	}
	f.waits.owner = slices.Clone(h.waits.owner)
	f.waits.taken.Charged = nil
	return &f
}
