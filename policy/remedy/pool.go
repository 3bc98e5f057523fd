package remedy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Pool: a task may not run on CPUs that the service uses (cpuset.cpus). It is for two causes.
//
// The service waits for CPUs, and demotion did not help, or cannot (who is demoted already, a real-time class, weights that say little): it comes after demotion and
// before CPU time. A quota leaves a task the service's CPU until it is used up, so that the service waits as before in each period; a task that is elsewhere never has it.
//
// The core: of two hardware threads one slows the other down by what they compute. The service's CPI is above that of quiet windows, its misses and its memory's
// traffic are known and are not, and somebody uses CPU who may run on its cores. Ways and levels do nothing for that, so there it is the first rung, and takes the siblings of the
// service's CPUs with them. Where one of these figures is not known nothing is concluded.
//
// Which CPUs: where the service has a set of its own, off that, and for the core off its siblings; off other services' sets, too, where that leaves what the task uses. Where the
// service may run everywhere, the task has as few whole cores as what it uses needs, of all memory nodes in turn, since its pages are on those. That costs it no CPU time, so it goes at once. Where
// nothing would be left free so, half of its cores, and half again. What takes CPU time is taken as CPU time is: for a target that is missed often alone, and down to
// cpu_least of what it used; never below one core. Whether it is missed often takes a while to know, and where the core is named nothing else is tried meanwhile. Its price is that CPU time, and what its own CPI says (siblings that it fills itself).
//
// Tasks that are alike go together, as with demotion: of two on one sibling either alone shows nothing. Verified by how the service waits, or by its CPI or figure. The way back is
// whole: a CPU of the service's is shared or it is not. A task only ever loses CPUs of those that it has. While policy cpuset enforces, who runs where is its word.

// leastTraffic is by how much a memory has to move more, bytes a second, for that to slow anybody down: a channel moves ten times as much and more.
const leastTraffic = 1e9

// moves reports whether the service's memory moves more than in quiet windows, and whether that is known. Where there is no pool, as in older records, any rise counts.
func (x *Victim) moves(p *Params) (above, known bool) {
	above, known = x.Traffic.above(p.Rise, p.Windows)
	return above && (!p.Pool || x.Traffic.Now-x.Traffic.Quiet >= leastTraffic), known
}

// mayRun returns the CPUs that a task may run on, and whether that is known.
func mayRun(v *policy.View, t *policy.TaskView) (cpus model.CPUSet, known bool) {
	k := &t.Knobs[model.CPUPlace]
	if cpus = v.Topology.Online(); !k.Now.CPUs.Empty() {
		cpus = cpus.And(k.Now.CPUs)
	}
	return cpus, k.Known && !cpus.Empty()
}

// wary takes a figure in. What is worse while the service is well, above or below what is quiet, may be harm that is no trouble yet: it counts as quiet a sixth as much as what is better.
func (l *Level) wary(x float64, quiet, below bool) {
	was := *l
	if l.add(x, quiet); was.N >= 10 && l.Quiet != was.Quiet && l.Quiet < was.Quiet == below {
		l.Quiet = was.Quiet + (l.Quiet-was.Quiet)/6
	}
}

// coresOf are all threads of the cores that a set has one of.
func coresOf(t *model.Topology, cpus model.CPUSet) (all model.CPUSet) {
	used := make(map[int]bool, len(t.CPUs))
	for i := range t.CPUs {
		used[t.CPUs[i].Core] = used[t.CPUs[i].Core] || cpus.Has(t.CPUs[i].ID)
	}
	for i := range t.CPUs {
		if used[t.CPUs[i].Core] {
			all.Add(t.CPUs[i].ID)
		}
	}
	return all
}

// coresOfTask are those of the CPUs that a task may run on; none where that is not known.
func coresOfTask(v *policy.View, t *policy.TaskView) model.CPUSet {
	own, known := mayRun(v, t)
	if !known {
		return model.CPUSet{}
	}
	return coresOf(v.Topology, own)
}

// near is how much CPU a task uses on a service's cores, as far as is known: it is taken to use all of its CPUs alike.
func near(v *policy.View, cores model.CPUSet, t *policy.TaskView, cpu float64) float64 {
	may, known := mayRun(v, t)
	if !known || !(cpu < policy.Absurd) {
		return 0
	}
	both := may.And(cores)
	return cpu * float64(both.Len()) / float64(may.Len())
}

// forCore reports whether what a service is slow for is its core, and why.
func (x *Victim) forCore(p *Params, v *policy.View) (text string, ok bool) {
	above, known := x.Cycles.above(p.Rise, p.Windows)
	misses, counted := x.MPKI.above(p.Rise, p.Windows)
	moves, told := x.moves(p)
	victim := v.Task(x.Task)
	if !p.Pool || x.Waiting || !known || !above || !counted || misses || (!told || moves) && x.MPKI.Now >= policy.FewMisses || victim == nil {
		return "", false
	}
	text = fmt.Sprintf("its CPI is %.3g, %.3g in quiet windows, and neither misses nor memory are above those: the core, which others use too", x.Cycles.Now, x.Cycles.Quiet)
	threads := map[int]int{}
	for i := range v.Topology.CPUs {
		threads[v.Topology.CPUs[i].Core]++
	}
	cores := coresOfTask(v, victim)
	return text, len(threads) < len(v.Topology.CPUs) && slices.ContainsFunc(v.Tasks, func(t policy.TaskView) bool {
		return t.Task.Class == model.BE && near(v, cores, &t, v.History.RecentUsage(t.Task.Num, 1)) > 0
	})
}

// onCore are those who use the service's cores, who uses most of them first, and critical ones last. It reorders the list.
func onCore(list []candidate) []candidate {
	all := 0.0
	for i := range list {
		all += list[i].near
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Or(a.critical()-b.critical(), -cmp.Compare(a.near, b.near)) })
	return slices.DeleteFunc(list, func(c candidate) bool { return !(c.near >= leastCharge*all) || !(c.near > 0) })
}

// crowded is what others who were moved use of a set of CPUs.
func (s *State) crowded(cpus model.CPUSet, but model.TaskNum) (used float64) {
	for i := range s.Holds {
		if h := &s.Holds[i]; h.Means == Pool && h.Task != but && !h.over() && !h.Place.And(cpus).Empty() {
			used += h.Used
		}
	}
	return used
}

// left returns the CPUs that a task is left by a step, none where there is none, and whether they are as many as it uses.
func (s *State) left(v *policy.View, x *Victim, c *candidate, core bool) (cpus model.CPUSet, enough bool) {
	num := c.task.Task.Num
	fits := func(set model.CPUSet) bool { return float64(set.Len()) >= c.cpu+s.crowded(set, num) }
	own, known := mayRun(v, v.Task(x.Task))
	may, also := mayRun(v, c.task)
	switch {
	case !known || !also:
		return model.CPUSet{}, false
	case own == v.Topology.Online():
		cpus = s.fewest(v.Topology, may, num, fits)
		return cpus, fits(cpus)
	case core:
		own = coresOf(v.Topology, own)
	}
	cpus = may.Without(own)
	spared := cpus
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if set, known := mayRun(v, t); known && t.Task.Protected() && set != v.Topology.Online() {
			spared = spared.Without(set)
		}
	}
	if !spared.Empty() && fits(spared) {
		cpus = spared
	}
	return cpus, fits(cpus)
}

// fewest are as few whole cores of a set as are enough, of the nodes in turn and none that others were moved to where that can be; half of them where one would not be left free.
// Of one core there is none to be had.
func (s *State) fewest(machine *model.Topology, may model.CPUSet, num model.TaskNum, fits func(model.CPUSet) bool) (cpus model.CPUSet) {
	type core struct {
		id, node, turn int
		cpus           model.CPUSet
		crowd          float64
	}
	var list []core
	for i := range machine.CPUs {
		c := &machine.CPUs[i]
		if !may.Has(c.ID) {
			continue
		}
		at := slices.IndexFunc(list, func(o core) bool { return o.id == c.Core })
		if at < 0 {
			at = len(list)
			list = append(list, core{id: c.Core, node: c.Node})
		}
		list[at].cpus.Add(c.ID)
	}
	slices.SortFunc(list, func(a, b core) int { return cmp.Compare(b.id, a.id) }) // as policy cpuset does: what nobody confines lives on the lowest
	turns := map[int]int{}
	for i := range list {
		c := &list[i]
		c.turn, c.crowd = turns[c.node], s.crowded(c.cpus, num)
		turns[c.node]++
	}
	slices.SortStableFunc(list, func(a, b core) int { return cmp.Or(cmp.Compare(a.crowd, b.crowd), cmp.Compare(a.turn, b.turn)) })
	of := func(n int) (set model.CPUSet) {
		for _, c := range list[:n] {
			set = set.Or(c.cpus)
		}
		return set
	}
	for n := 1; n < len(list); n++ {
		if cpus = of(n); fits(cpus) {
			return cpus
		}
	}
	return of(len(list) / 2)
}

// poolOption is the step by which one task has fewer CPUs, if there is one; say: why there is none is worth telling, since nothing milder comes first.
func (s *State) poolOption(p *Params, v *policy.View, w *policy.Wishes, x *Victim, c candidate, core, say bool) (o option, ok bool) {
	t := c.task
	num := t.Task.Num
	cpus, enough := s.left(v, x, &c, core)
	o = option{task: t, means: Pool, amount: float64(cpus.Len()), place: cpus, by: c, core: core, draw: model.FactUsage.Is(c.cpu)}
	full := t.Knobs[model.CPUPlace].Found.CPUs.And(v.Topology.Online())
	if full.Empty() {
		full = v.Topology.Online()
	}
	o.full, o.used = float64(full.Len()), c.cpu
	if h := s.hold(num, Pool); h != nil {
		o.full, o.used = h.Full, h.Used
	}
	why, untried := "", s.untried(v, x, &o)
	switch _, closed := t.Closed(model.CPUPlace); {
	case v.Placing:
		why = placing
	case closed != "":
		why = closed
	case cpus.Empty():
		why = "it has no CPUs beside those of " + v.Table.Name(x.Task) + ", or it is not known which either has"
	case !enough && untried && o.amount >= p.CPULeast*o.used && x.Targeted && x.Figure.N < blips && !x.often():
		s.undecided = true
		return o, false
	case !enough && untried && !(x.often() && o.amount >= p.CPULeast*o.used):
		why = fmt.Sprintf("CPUs %s would be left, fewer than what it uses: no CPU time is taken for who does not miss a target often, or of that no more (cpu_least)", cpus)
	}
	if why != "" && say {
		w.Once("no pool", model.Decision{Kind: model.DecideLeftAlone, Task: num, Path: t.Task.Path, Reason: "it stays on its CPUs: " + why})
	}
	return o, why == "" && untried
}

// placing is why no task has other CPUs.
const placing = "policy cpuset enforces, and says who runs where"

// cpuTime is the logarithm of what CPUs that are fewer than a task used cost it.
func (h *Hold) cpuTime() float64 {
	if !(h.Used > h.Amount) || h.Amount < 1 {
		return 0
	}
	return math.Log(h.Used / h.Amount)
}

// named says which CPUs a task has.
func named(cpus model.CPUSet) string {
	if cpus.Empty() {
		return "all of its own"
	}
	return cpus.String()
}
