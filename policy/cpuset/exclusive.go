package cpuset

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Own are the physical cores of one exclusive task. They do not move while it lives, unless
// one of them goes offline.
type Own struct {
	Task  model.TaskNum `json:"task"`
	Cores []int         `json:"cores"` // ids, ascending
}

// wantedCores returns how many cores an exclusive task is to have: as many as its rule says,
// else as many as its quota fills, 0 when that cannot be told.
func wantedCores(t *policy.TaskView, threads int) int {
	if t.Task.Cores > 0 {
		return t.Task.Cores
	}
	k := &t.Knobs[model.CPUBandwidth]
	if r := k.Found.Ratio(); k.Known && !math.IsInf(r, 1) && threads > 0 {
		return max(1, int(math.Ceil(r/float64(threads)-1e-9)))
	}
	return 0
}

// assign gives exclusive tasks their cores: those that have some first, then the others in
// the view's order. Who gets none runs with the shared ones. It returns how many cores are
// left to the others.
func (s *State) assign(p *Params, m *machine, v *policy.View, w *policy.Wishes) int {
	old := s.living(v)
	s.Exclusive, s.UncountedCores = nil, 0
	free := newFree(m, old, s.Order[:s.BE])
	// BE's floor (one core at least, or the two sides are not two) and one core for what LC
	// shares are never given away.
	spare := len(m.cores) - max(p.floor(len(m.cores)), 1) - 1
	keep := func(task model.TaskNum, cores []int) {
		i, _ := slices.BinarySearchFunc(s.Exclusive, task, compareOwn)
		s.Exclusive = slices.Insert(s.Exclusive, i, Own{task, cores})
		spare -= len(cores)
	}
	for pass := range 2 { // whoever has cores is served before whoever has none
		for i := range v.Tasks {
			t, e := &v.Tasks[i], &s.Placed[i]
			if t.Task.Class != model.LC || !t.Task.Exclusive {
				continue
			}
			var had []int
			if at, ok := slices.BinarySearchFunc(old, t.Task.Num, compareOwn); ok {
				had = old[at].Cores
			}
			if (had != nil) != (pass == 0) {
				continue
			}
			want := wantedCores(t, m.threads)
			if had != nil {
				want = len(had)
			}
			cores, why := free.take(e.Side == sideLC, had, want, spare, t.Knobs[model.CPUPlace].Found.CPUs)
			if why != "" {
				s.UncountedCores += max(want, 1)
				w.Once("shared", model.Decision{
					Kind: model.DecideLimit, Task: t.Task.Num, Facts: []model.Fact{model.FactCores.Is(float64(want))},
					Reason: "it gets no cores of its own and runs with the shared tasks: " + why,
				})
				continue
			}
			e.Side = sideOwn
			keep(t.Task.Num, cores)
			if !slices.Equal(cores, had) {
				w.Decide(model.Decision{
					Kind: model.DecideResize, Task: t.Task.Num, Facts: []model.Fact{model.FactCores.Is(float64(len(cores)))},
					Reason: fmt.Sprintf("it gets %d cores of its own: CPUs %s", len(cores), m.cpus(cores)),
				})
			}
		}
	}
	n := len(m.cores)
	for i := range s.Exclusive {
		n -= len(s.Exclusive[i].Cores)
	}
	return n
}

// living returns what the exclusive tasks have that are still there and still exclusive.
func (s *State) living(v *policy.View) []Own {
	var list []Own
	for i := range v.Tasks {
		t := &v.Tasks[i].Task
		if t.Class != model.LC || !t.Exclusive {
			continue
		}
		if at, ok := slices.BinarySearchFunc(s.Exclusive, t.Num, compareOwn); ok {
			list = append(list, s.Exclusive[at])
		}
	}
	slices.SortFunc(list, func(a, b Own) int { return cmp.Compare(a.Task, b.Task) })
	return list
}

func compareOwn(o Own, task model.TaskNum) int { return cmp.Compare(o.Task, task) }

// ownCPUs returns the logical CPUs of an exclusive task.
func (s *State) ownCPUs(task model.TaskNum) model.CPUSet {
	if i, ok := slices.BinarySearchFunc(s.Exclusive, task, compareOwn); ok {
		return s.plan.m.cpus(s.Exclusive[i].Cores)
	}
	return model.CPUSet{}
}

// cpus returns the logical CPUs of cores.
func (m *machine) cpus(ids []int) model.CPUSet {
	var set model.CPUSet
	for _, id := range ids {
		if at, ok := m.find(id); ok {
			set = set.Or(m.cores[at].cpus)
		}
	}
	return set
}

// free is which cores exclusive tasks can still have.
type free struct {
	m    *machine
	used []bool // an exclusive task has it
	be   []bool // BE has it: taking it moves the border
}

func newFree(m *machine, own []Own, be []int) *free {
	f := &free{m: m, used: make([]bool, len(m.cores)), be: make([]bool, len(m.cores))}
	f.mark(f.be, be)
	for i := range own {
		f.mark(f.used, own[i].Cores)
	}
	return f
}

func (f *free) mark(list []bool, ids []int) {
	for _, id := range ids {
		if at, ok := f.m.find(id); ok {
			list[at] = true
		}
	}
}

// take returns the cores of a task that had some of them already, or why it gets none.
func (f *free) take(usable bool, had []int, want, spare int, found model.CPUSet) (cores []int, why string) {
	var still []int
	for _, id := range had {
		if at, ok := f.m.find(id); ok {
			still = append(still, id)
			f.used[at] = false // given back unless all goes well
		}
	}
	switch {
	case !usable:
		return nil, "its CPUs are not ours to set"
	case want == 0:
		return nil, "it has no quota, and no rule says how many cores it needs"
	case want > spare:
		return nil, fmt.Sprintf("of the %d cores that it needs %d can be spared", want, max(spare, 0))
	}
	f.mark(f.used, still)
	more := f.pick(want-len(still), still, found)
	if len(more) < want-len(still) {
		for _, id := range still {
			at, _ := f.m.find(id)
			f.used[at] = false
		}
		return nil, fmt.Sprintf("fewer than %d whole cores are free among the CPUs that it may run on", want)
	}
	f.mark(f.used, more)
	cores = append(still, more...)
	slices.Sort(cores)
	return cores, ""
}

// group is the free cores of one last-level cache, or of one socket.
type group struct {
	socket, llc int // llc -1: the whole socket
	cores, be   int // that can be had, and how many of them BE has
	near        int // 0: where the task has cores already
}

// pick chooses cores: of one last-level cache when one has enough of them, else of one
// socket, else of several. Among equals come those of which BE loses the fewest, then the
// tightest, so that large gaps stay for large tasks.
func (f *free) pick(want int, near []int, found model.CPUSet) []int {
	if want <= 0 {
		return nil
	}
	var can []int // indices
	for at := range f.m.cores {
		if !f.used[at] && (found.Empty() || f.m.cores[at].cpus.Within(found)) {
			can = append(can, at)
		}
	}
	caches, sockets := f.groups(can, near)
	best := group{socket: -1, llc: -1}
	for _, list := range [][]group{caches, sockets} {
		if i := fittest(list, want); i >= 0 {
			best = list[i]
			break
		}
	}
	slices.SortStableFunc(can, func(a, b int) int {
		x, y := &f.m.cores[a], &f.m.cores[b]
		in := func(c *core) int {
			if (best.llc < 0 || c.llc == best.llc) && (best.socket < 0 || c.socket == best.socket) {
				return 0
			}
			return 1
		}
		room := func(c *core) int { return -(caches[c.llc].cores - caches[c.llc].be) }
		return cmp.Or(cmp.Compare(in(x), in(y)), cmp.Compare(caches[x.llc].near, caches[y.llc].near),
			cmp.Compare(sockets[x.socket].near, sockets[y.socket].near), cmp.Compare(policy.One(f.be[a]), policy.One(f.be[b])),
			cmp.Compare(room(x), room(y)), cmp.Compare(x.llc, y.llc), cmp.Compare(x.id, y.id))
	})
	var ids []int
	for _, at := range can[:min(want, len(can))] {
		ids = append(ids, f.m.cores[at].id)
	}
	return ids
}

// groups counts the cores that can be had by cache and by socket.
func (f *free) groups(can, near []int) (caches, sockets []group) {
	caches, sockets = make([]group, f.m.llcs), make([]group, f.m.sockets)
	for i := range sockets {
		sockets[i] = group{socket: i, llc: -1, near: 1}
	}
	for at := range f.m.cores {
		c := &f.m.cores[at]
		caches[c.llc].socket, caches[c.llc].llc, caches[c.llc].near = c.socket, c.llc, 1
	}
	for _, at := range can {
		c := &f.m.cores[at]
		for _, g := range []*group{&caches[c.llc], &sockets[c.socket]} {
			g.cores++
			g.be += policy.One(f.be[at])
		}
	}
	for _, id := range near {
		at, _ := f.m.find(id)
		caches[f.m.cores[at].llc].near, sockets[f.m.cores[at].socket].near = 0, 0
	}
	return caches, sockets
}

// fittest returns the group to take cores from, -1 when none has enough.
func fittest(list []group, want int) int {
	best := -1
	lost := func(g *group) int { return max(0, want-(g.cores-g.be)) }
	for i := range list {
		g := &list[i]
		if g.cores < want {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(g.near, list[best].near), cmp.Compare(lost(g), lost(&list[best])), cmp.Compare(g.cores, list[best].cores)) < 0 {
			best = i
		}
	}
	return best
}
