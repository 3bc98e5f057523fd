package remedy

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Who takes most of what is contended.

// candidate is a BE task from which something may be taken.
type candidate struct {
	task *policy.TaskView
	took float64    // misses a second; where nobody counts them, CPU-sec/sec
	fact model.Fact // of took
	cpu  float64
	// counted: it is known what it has of the victim's caches, bytes, and moves to and from memory, bytes a second.
	counted      bool
	lines, moved float64
	// apart: it is beside the victim by a memory alone, or reaches its memory from elsewhere (reaches): with it it shares no cache.
	apart bool
	// waited is what it answers for of what the victim waits for CPUs beyond quiet windows, and waiting of how much in all (waits.go).
	waited, waiting float64
	// near is how much CPU it uses on the victim's cores (pool.go).
	near float64
}

// takes is how much a task takes of what a means is about, as it is counted.
func (c *candidate) takes(m Means) float64 {
	if m == Ways {
		return c.lines
	}
	return c.moved
}

// share is how much a task takes of what a means is about, in the unit of whatever tells.
func (c *candidate) share(m Means) float64 {
	switch {
	case m == Demotion:
		return c.waited
	case m == Pool:
		return c.near
	case m == CPU:
		return c.cpu
	case m == Ways && c.apart:
		return 0
	case c.counted:
		return c.takes(m)
	}
	return c.took
}

// ranked are those who take more than nothing beside who takes most of what a means is about: first who is counted, by that, and then the others in
// their order. Critical ones come last.
func ranked(list []candidate, m Means) []candidate {
	list = slices.Clone(list)
	switch m {
	case Demotion:
		return guilty(list)
	case Pool:
		return onCore(list)
	}
	if m == Ways {
		list = slices.DeleteFunc(list, func(c candidate) bool { return c.apart })
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		switch {
		case a.critical() != b.critical():
			return a.critical() - b.critical()
		case m == CPU:
			return -cmp.Compare(a.cpu, b.cpu)
		case a.counted != b.counted:
			return policy.One(b.counted) - policy.One(a.counted)
		case a.counted:
			return -cmp.Compare(a.takes(m), b.takes(m))
		}
		return 0
	})
	most := map[bool]float64{} // of those who are counted, and of the others
	return slices.DeleteFunc(list, func(c candidate) bool {
		takes := c.share(m)
		if _, known := most[c.counted]; !known {
			most[c.counted] = takes
		}
		return takes < fewest*most[c.counted] || !(takes > 0)
	})
}

func (c *candidate) critical() int { return policy.One(c.task.Task.Importance == model.Critical) }

// candidates are those beside the victim, who takes most by an estimate first, and critical ones last. Who lives in the cache takes of it by what
// it misses, too: each miss fills a line.
func (s *State) candidates(p *Params, have *model.Classes, v *policy.View, x *Victim) []candidate {
	victim := v.Task(x.Task)
	var list []candidate
	misses, cores := false, model.CPUSet{}
	if p.Pool {
		cores = coresOfTask(v, victim)
	}
	s.elsewhere = 0
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if t.Task.Class != model.BE || t.Exempt != "" || v.Frozen(t.Task.Num) || v.Ledger.Held(t.Task.Num) && s.hold(t.Task.Num, CPU) == nil {
			continue
		}
		far := 0.0
		if !beside(have, v, victim, t) {
			if far = s.reaches(have, v, victim, t.Task.Num); far == 0 {
				continue
			}
		}
		cpu, missed := v.History.Took(t.Task.Num, 0, recent)
		if u, m := v.History.Took(t.Task.Num, 0, 1); m > missed || u > cpu { // who has just begun takes no less
			cpu, missed = max(cpu, u), max(missed, m)
		}
		if v.LeaveAlone(t.Task.Num, model.PolicyRemedy) != "" {
			if cpu > 0 || missed > 0 {
				s.elsewhere = t.Task.Num
			}
			continue
		}
		if cpu > 0 || missed > 0 {
			misses = misses || missed > 0
			c := candidate{task: t, took: missed, fact: model.FactDraw.Is(missed * policy.LineBytes), cpu: cpu, counted: s.counted(t.Task.Num), apart: !inOneDomain(have, victim, t)}
			if p.Pool {
				c.near = near(v, cores, t, cpu)
			}
			if c.moved = far; c.counted && far == 0 {
				for _, took := range s.batch(t.Task.Num).Took {
					if victim.Near(have, took.Domain) {
						c.lines += took.Lines
					}
					if v.NearMemoryOf(have, victim, took.Domain) {
						c.moved += took.Moved
					}
				}
			}
			list = append(list, c)
		}
	}
	for i := range list {
		if c := &list[i]; !misses {
			c.took, c.fact = c.cpu, model.FactUsage.Is(c.cpu)
		}
	}
	waiting := x.waited(p, list)
	for i := range list {
		list[i].waiting = waiting
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(a.critical()-b.critical(), -cmp.Compare(a.took, b.took))
	})
	return slices.DeleteFunc(list, func(c candidate) bool {
		return !(c.took > 0) && !(c.lines+c.moved > 0) && !(c.waited > 0) && !(c.near > 0)
	})
}

// reaches is what a task that runs elsewhere moves to and from the memories that a victim is served by, bytes a second, as resctrl counts it; 0 where that is less
// than policy.FarPages of all that it moves, or nobody counts it: its pages were left behind, or came there. What goes to other memories goes to all of them alike.
func (s *State) reaches(have *model.Classes, v *policy.View, victim *policy.TaskView, task model.TaskNum) (sum float64) {
	if !s.counted(task) {
		return 0
	}
	all, list := 0.0, v.Memories(have)
	for _, took := range s.batch(task).Took {
		all += took.Moved
		for i := range list {
			switch m := &list[i]; {
			case !v.ServedBy(have, victim, m):
			case m.Has(took.Domain):
				sum += max(0, took.Moved-took.Away)
			case len(list) > 1:
				sum += took.Away / float64(len(list)-1)
			}
		}
	}
	if sum < policy.FarPages*all {
		return 0
	}
	return sum
}

// beside reports whether two tasks may run near one memory.
func beside(have *model.Classes, v *policy.View, a, b *policy.TaskView) bool {
	return slices.ContainsFunc(v.Memories(have), func(m model.Memory) bool { return a.NearMemory(have, &m) && b.NearMemory(have, &m) })
}

// inOneDomain reports whether two tasks may run on CPUs that share a last-level cache.
func inOneDomain(have *model.Classes, a, b *policy.TaskView) bool {
	near := func(d int32) bool { return a.Near(have, d) && b.Near(have, d) }
	return slices.ContainsFunc(have.Caches, near) || slices.ContainsFunc(have.Memory, near) || slices.ContainsFunc(have.Domains, func(d model.Domain) bool { return near(d.ID) })
}
