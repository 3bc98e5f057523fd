package balm

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Who draws how much from the memory of a service in trouble. BALM orders by the bandwidth that a task consumes of the
// memory in trouble, which resctrl counts for groups, and not by memory. Here it is estimated: a task's LLC misses are lines
// that it loads; the part of its socket's traffic that goes to the socket's own memory, or to others, is that of resctrl's
// counters, and is taken to be each task's there. Without counters of misses the CPU time stands in for them.

const (
	windows = 3 // that a task's misses are the mean of, where the last has no more
	// unknownRemote is the share that goes to other memories where nobody counts it: little, so that those who run beside
	// the victim come first.
	unknownRemote = 0.1
)

// candidate is a BE task from which bandwidth may be taken.
type candidate struct {
	task model.TaskNum
	draw float64 // bytes a second; where nobody counts misses, CPU-sec/sec
	fact model.FactKind
}

// measure takes in what a window says of where traffic goes.
func (s *State) measure(have *model.Classes, v *policy.View) {
	if n := len(v.Memories(have)); len(s.Remote) != n {
		s.Remote = make([]float64, n)
		for i := range s.Remote {
			s.Remote[i] = -1
		}
	}
	for i, m := range v.MemoryUse(have) {
		if m.Total.Outcome != model.OK || m.Local.Outcome != model.OK || !(m.Total.V > 0) || !(m.Local.V >= 0) {
			continue
		}
		if remote := 1 - m.Local.V/m.Total.V; remote <= 1 {
			s.Remote[i] = max(0, remote)
		}
	}
}

// candidates are those from whom something may be taken, who draws most first.
func (s *State) candidates(have *model.Classes, v *policy.View) []candidate {
	var list []candidate
	misses := false
	s.waits = false
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if t.Task.Class != model.BE || s.rungOf(t.Task.Num) != nil || s.barred(t.Task.Num) >= 0 {
			continue
		}
		if _, why := t.Closed(model.ServiceClass); why != "" {
			continue
		}
		usage, missed := v.History.Took(t.Task.Num, 0, windows)
		if u, m := v.History.Took(t.Task.Num, 0, 1); m > missed || u > usage { // who has just begun draws no less
			usage, missed = max(usage, u), max(missed, m)
		}
		share := s.share(have, v, t)
		if !(usage > 0) && !(missed > 0) || share <= 0 {
			continue
		}
		if v.LeaveAlone(t.Task.Num, model.PolicyBalm) != "" {
			s.waits = s.waits || !v.Frozen(t.Task.Num) // who is frozen draws nothing
			continue
		}
		if missed > 0 && !misses {
			misses, list = true, list[:0] // who has no misses where others have draws nothing
		}
		switch {
		case missed > 0:
			list = append(list, candidate{t.Task.Num, missed * policy.LineBytes * share, model.FactDraw})
		case !misses:
			list = append(list, candidate{t.Task.Num, usage * share, model.FactUsage})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return -cmp.Compare(a.draw, b.draw) })
	return list
}

// troubles reports whether a memory is in trouble.
func (s *State) troubles(m *model.Memory) bool { return slices.Contains(s.Domains, m.ID()) }

// share is the part of a task's traffic that goes to the memories in trouble. What goes to others goes to all of them alike.
func (s *State) share(have *model.Classes, v *policy.View, t *policy.TaskView) float64 {
	share, all, troubled := 0.0, v.Memories(have), 0
	for i := range all {
		troubled += policy.One(s.troubles(&all[i]))
	}
	for i := range all {
		if !t.NearMemory(have, &all[i]) {
			continue
		}
		remote := s.Remote[i]
		switch {
		case len(all) == 1: // there is nowhere else
			remote = 0
		case remote < 0:
			remote = unknownRemote
		}
		if s.troubles(&all[i]) {
			share = max(share, 1-remote)
		} else if others := len(all) - 1; others > 0 {
			share = max(share, remote*float64(troubled)/float64(others))
		}
	}
	return share
}

// draws reports whether any task of a rung draws from the memories in trouble.
func (s *State) draws(have *model.Classes, v *policy.View, r *Rung) bool {
	for _, num := range r.Tasks {
		if t := v.Task(num); t != nil && s.share(have, v, t) > 0 {
			return true
		}
	}
	return false
}

// rungOf returns the rung that a task is on, nil: none.
func (s *State) rungOf(task model.TaskNum) *Rung {
	for i := range s.Rungs {
		if slices.Contains(s.Rungs[i].Tasks, task) {
			return &s.Rungs[i]
		}
	}
	return nil
}

// barred returns where a task stands among those that are left alone, -1: it is not.
func (s *State) barred(task model.TaskNum) int {
	return slices.IndexFunc(s.Barred, func(b Barred) bool { return b.Task == task })
}

// filled returns the load of a memory in trouble that services fill by themselves, and which it is; nil: there is none, or nobody can tell.
func (s *State) filled(have *model.Classes, v *policy.View) (l *policy.Load, domain int32) {
	for i, m := range v.Memories(have) {
		if s.troubles(&m) && s.Loads[i].Alone() {
			return &s.Loads[i], m.ID()
		}
	}
	return nil, 0
}
