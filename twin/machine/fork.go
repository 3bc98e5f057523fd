package machine

import (
	"math/rand/v2"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// generator is a seeded generator that can be copied: rand.Rand hides its source.
type generator struct {
	*rand.Rand
	pcg *rand.PCG
}

func newGenerator(a, b uint64) generator {
	pcg := rand.NewPCG(a, b)
	return generator{rand.New(pcg), pcg}
}

// fork returns a generator that draws what this one will draw.
func (g generator) fork() generator {
	pcg := *g.pcg
	return generator{rand.New(&pcg), &pcg}
}

// Fork returns a copy of the machine that shares nothing with it: both go on alike, with
// the same chances, until one of them is told something else. What differs then is the
// effect of that alone.
//
// What never changes once a task has started (its phases, curve and requests as they were
// configured) is shared. A field that is added and forgotten here fails TestForkSharesNothing.
func (m *Machine) Fork() *Machine {
	f := *m
	f.rng = m.rng.fork()
	f.tasks = make([]*Task, len(m.tasks))
	f.live = make([]*Task, len(m.live))
	for i, t := range m.live { // in the order of live, which is not always that of tasks
		f.live[i] = t.fork()
		f.tasks[t.num] = f.live[i]
	}
	f.clos = slices.Clone(m.clos)
	for i := range f.clos {
		f.clos[i].mask = slices.Clone(m.clos[i].mask)
		f.clos[i].mba = slices.Clone(m.clos[i].mba)
	}
	f.mem, f.byCPU = slices.Clone(m.mem), slices.Clone(m.byCPU)
	f.taken = slices.Clone(m.taken)
	f.monitor = m.monitor.fork()
	f.placement = m.placement.fork()
	f.flows, f.fillers, f.throttled, f.ran = nil, nil, nil, nil // scratch
	f.ranks = slices.Clone(m.ranks)
	return &f
}

func (t *Task) fork() *Task {
	f := *t
	f.rng = t.rng.fork()
	f.pages = slices.Clone(t.pages)
	if c := t.copying; c != nil {
		f.copying = &copying{}
		*f.copying = *c
		f.copying.aim, f.copying.leave, f.copying.come = slices.Clone(c.aim), slices.Clone(c.leave), slices.Clone(c.come)
	}
	f.mem.heats = slices.Clone(t.mem.heats)
	f.on = slices.Clone(t.on)
	f.moved = slices.Clone(t.moved)
	f.share = slices.Clone(t.share)
	f.perf = slices.Clone(t.perf)
	for s := range f.perf {
		f.perf[s].ways = slices.Clone(t.perf[s].ways)
	}
	f.waits = t.waits.fork()
	f.queue.waiting = slices.Clone(t.queue.waiting)
	f.queue.free = slices.Clone(t.queue.free)
	f.queue.serving = slices.Clone(t.queue.serving)
	f.queue.fresh = slices.Clone(t.queue.fresh)
	f.queue.wholes, f.queue.unused = slices.Clone(t.queue.wholes), slices.Clone(t.queue.unused)
	if t.queue.taken != nil {
		f.queue.taken = hdrhistogram.Import(t.queue.taken.Export())
	}
	return &f
}

func (p *placement) fork() placement {
	f := *p
	f.atoms = slices.Clone(p.atoms)
	for a := range f.atoms {
		f.atoms[a].sibling = slices.Clone(p.atoms[a].sibling)
		f.atoms[a].by, f.atoms[a].met = slices.Clone(p.atoms[a].by), slices.Clone(p.atoms[a].met)
	}
	f.of = slices.Clone(p.of)
	for i := range f.of {
		f.of[i] = slices.Clone(p.of[i])
	}
	return f
}
