package remedy

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// A task's pages on another socket's memory (BALM III-A): its reads pass by the service's memory then, and take longer. It comes
// after ways and levels: copying takes bandwidth too, and what is moved is not held. Half of what lies there moves at once, and
// again if that is not enough: what a step is worth is told on the service before the next one. They come home in time (home.go). Where the service runs at all memories there is nowhere to go.
//
// The same makes room: where a step back brought trouble, or would, the task's pages move while services are well, and the step is tried
// once that helped (BALM's second dimension, which waits for the trouble). Trouble meanwhile ends that: copying may be its cause. It is
// for the task's good, so it ends where a move costs the task more than it could get back: the other memory may be the narrower one by then.

const (
	pagesKept = 0.5 // of a task's pages on the service's memory, by a step
	leastStay = 0.1 // with less there no step is worth its copying (BALM moves a tenth at once)
)

// off returns the memory that a victim is served by, wherever it runs; none where there is no other, and where services fill it by themselves: hardly a page of
// others is there whose going they would feel. None either where another service with a target is served by a memory to which pages would go, and is so close to
// its target that it would feel them.
func (s *State) off(p *Params, have *model.Classes, v *policy.View, victim model.TaskNum) model.CPUSet {
	t := v.Task(victim)
	if t == nil {
		return model.CPUSet{}
	}
	at := func(m *model.Memory) bool { return v.ServedBy(have, t, m) }
	list := v.Memories(have)
	for i, m := range list {
		if s.Loads[i].Alone() && at(&m) {
			return model.CPUSet{}
		}
	}
	nodes := v.MemoryAt(have, at)
	for i := range s.Victims {
		o := &s.Victims[i]
		other := v.Task(o.Task)
		if nodes.Empty() || o.Task == victim || !o.Targeted || other == nil || o.wellAway(p, leastSpread) {
			continue
		}
		if slices.ContainsFunc(list, func(m model.Memory) bool { return !m.Nodes.Within(nodes) && v.ServedBy(have, other, &m) }) {
			return model.CPUSet{}
		}
	}
	return nodes
}

// stay returns how much of a task's pages is on the memory that they are to be taken off, as far as moves have told: a share.
func (s *State) stay(task model.TaskNum, from model.CPUSet) float64 {
	if b := s.batch(task); b.Off == from {
		return b.Left
	}
	return 1
}

// makeRoom has pages moved of a task to which nothing can be given back soon, and reports whether it did.
func (s *State) makeRoom(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) bool {
	for i := range s.Holds {
		h := &s.Holds[i]
		x := s.victim(h.Victim)
		if !h.Means.classed() || x == nil || !s.calm(p, v, h.Task) || h.Patience == 0 && s.room(p, h.Task, h.lost()) {
			continue
		}
		if from, b := s.off(p, have, v, x.Task), s.batch(h.Task); from.Empty() || b.Dear && b.Off == from {
			continue
		}
		for _, c := range s.candidates(p, have, v, x) {
			if c.task.Task.Num != h.Task {
				continue
			}
			if o, ok := s.option(p, have, v, w, x, c, Pages); ok {
				s.take(v, w, x, o, nil, "giving back would bring trouble")
				s.Trial.Well = true
				return true
			}
		}
	}
	return false
}

// roomMade lets what a task is held to be given back soon: its pages are not in the way any more.
func (s *State) roomMade(task model.TaskNum) {
	for i := range s.Holds {
		if h := &s.Holds[i]; h.Task == task {
			h.RetryNsec, h.Patience = 0, 0
		}
	}
}

// weigh notes whether a move off the service's memory cost the task more than all that it is held to.
func (s *State) weigh(task model.TaskNum, t *Trial) {
	b, held := s.batch(task), 0.0
	for i := range s.Holds {
		if h := &s.Holds[i]; h.Task == task && h.Means != Pages {
			held += h.Price
		}
	}
	if cost, sem, known := b.rose(t); known {
		b.Dear = cost > held+sem
	}
}

// rose is by how much the task's own CPI went up in a trial, the logarithm, and its standard error; known is false where it was seen too rarely.
func (b *Batch) rose(t *Trial) (cost, sem float64, known bool) {
	if b.CPI.N < 2 || t.Own.N < 2 {
		return 0, 0, false
	}
	down, sem := b.CPI.below(&t.Own, 1)
	return -down, sem, true
}

// arrive takes in what became of pages on their way.
func (s *State) arrive(v *policy.View) {
	for i := range s.Holds {
		h := &s.Holds[i]
		if h.Means != Pages || h.Moved != "" || v.Task(h.Task) == nil || v.Pending(h.Task, model.MemoryPages) {
			continue
		}
		s.changed = true
		switch res := v.PagesMoved(h.Task, h.Off); {
		case h.Ending && (res == nil || res.Kind != model.Applied): // none had moved
			h.Moved = moved
		case res == nil:
			h.Moved = "not granted: too many actions in a short time, or the task is not to be touched"
		case res.Kind == model.Applied:
			h.Moved = moved
			b, left := s.batch(h.Task), float64(res.Now.Amount)/1000
			if h.Home {
				h.Amount, b.Left = 1-left, 1-left
				break
			}
			h.Amount, b.Left, b.Off, b.WentNsec = left, left, h.Off, v.NowNsec
		default:
			h.Moved = res.Error
		}
	}
}

// interrupt ends what makes room, and what brings pages home, while a service is in trouble, but for one elsewhere whom nobody can help.
func (s *State) interrupt(v *policy.View, x *Victim) {
	if t := s.Trial; t != nil && (t.Well || t.Back && t.Means == Pages) && (!s.CannotFix || s.feels(x, t.Task)) {
		if h := s.hold(t.Task, Pages); t.Well || h == nil || h.Moved == "" {
			s.away(v, h)
			s.Trial = nil
		}
	}
}

// away ends the hold on a task whose pages were moved: they stay where they are. Those on their way are ended there, and until that is so it is not
// known where they are.
func (s *State) away(v *policy.View, h *Hold) {
	switch {
	case h == nil:
	case v.EndsRuns && h.Moved == "" && v.Pending(h.Task, model.MemoryPages):
		h.Ending, s.changed, s.why = true, true, staying
	default:
		h.Amount, h.Home = h.Full, false
	}
	s.drop(staying)
}

const staying = "its pages stay where they are"

// moved is what Hold.Moved says of pages that were moved.
const moved = "moved"
