package linux

import (
	"maps"
	"slices"

	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// Domains come and go with the last of their CPUs, and the kernel knows nothing of what was written before.

// anew returns the domains all of whose CPUs were offline at some time since the last look, and are back: the kernel forgot what was written
// there, also where nobody looked meanwhile. It says so once.
func (w *classWorker) anew() (list map[classKnob]bool, err error) {
	if len(w.groups) == 0 {
		w.born = nil
		return nil, nil
	}
	online, err := cputopology.ReadOnline(w.fs)
	if err != nil {
		return nil, err
	}
	now, come := maps.Clone(w.born), model.CPUSet{}
	if now == nil {
		now = map[int]uint64{}
	}
	for cpu := range now {
		now[cpu] = 0
	}
	for _, cpu := range online {
		was, known := w.born[cpu]
		if now[cpu], err = cputopology.CachesInode(w.fs, cpu); err != nil {
			return nil, err
		}
		if known && was != now[cpu] {
			come.Add(cpu)
		}
	}
	list = map[classKnob]bool{}
	for _, cpu := range come.Members() {
		for level, kinds := range map[int][]model.KnobKind{2: {model.L2Ways}, 3: {model.CacheWays, model.MemoryBandwidth}} {
			c, err := cputopology.ReadCache(w.fs, cpu, level)
			if err != nil {
				return nil, err
			}
			if c.Level == 0 || slices.ContainsFunc(c.Shared, func(o int) bool { return !come.Has(o) }) {
				continue
			}
			for _, kind := range kinds {
				list[classKnob{kind, int32(c.ID)}] = true
			}
		}
	}
	w.born = now
	return list, nil
}

// writeAgain writes what the kernel forgot, also in now: a cache or a memory whose CPUs were all offline comes back as
// a new one. What cannot be written is tried again at the next look.
func (w *classWorker) writeAgain(g *classGroup, d *resctrl.Driver, now resctrl.Schemata) {
	for k, was := range g.limit {
		if k.domain == model.EveryDomain {
			was = w.newDomains(g, d, k, now)
		}
		var back resctrl.Schemata
		for r, v := range each(was) {
			at := classKnob{k.kind, int32(v.Domain)}
			switch _, there := now.Get(r, v.Domain); {
			case !there:
				g.away[at] = true
			case g.away[at] && amount(now, at) == amount(g.found, at):
				back.Set(r, v.Domain, v.Value)
			default:
				delete(g.away, at)
			}
		}
		if len(back) == 0 {
			continue
		}
		if _, err := d.WriteSchemata(g.id, back); err != nil {
			continue
		}
		for r, v := range each(back) {
			delete(g.away, classKnob{k.kind, int32(v.Domain)})
			now.Set(r, v.Domain, v.Value)
		}
	}
}

// newDomains gives domains that were offline when a knob of every domain was written their part of it: they count as such that come back.
func (w *classWorker) newDomains(g *classGroup, d *resctrl.Driver, k classKnob, now resctrl.Schemata) resctrl.Schemata {
	was := g.limit[k]
	come := func(r resctrl.Resource) []int {
		return slices.DeleteFunc(now.Domains(r), func(domain int) bool { _, known := was.Get(r, domain); return known })
	}
	if !slices.ContainsFunc(linesOf(k.kind), func(r resctrl.Resource) bool { return was.Has(r) && len(come(r)) > 0 }) {
		return was
	}
	want, err := w.rows(d, k.kind, int(amount(was, k)), come)
	if err != nil {
		return was // or at the next look
	}
	g.came(want, now)
	for r, v := range each(want) {
		was.Set(r, v.Domain, v.Value)
		g.away[classKnob{k.kind, int32(v.Domain)}] = true
	}
	g.limit[k] = was
	return was
}
