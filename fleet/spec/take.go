package spec

import (
	"cmp"
	"errors"
	"maps"
	"slices"
)

// errNoNode: what is taken over speaks of a node that it does not name.
var errNoNode = errors.New("spec: a job has samples of a node without a name")

// Take takes over the jobs that want is true of, with all that another learner knows of them; what it gives away is not to be used there any more. Of a job that
// is known here as well both must have learned from other samples: none that is in both is told apart.
func (s *State) Take(p *Params, o *State, want func(k Key) bool) (n int, err error) {
	names := make(map[uint32]string, len(o.Nodes))
	for name, i := range o.Nodes {
		names[i] = name
	}
	number := func(i uint32) uint32 {
		name, ok := names[i]
		if !ok {
			err = errNoNode
		}
		at, ok := s.Nodes[name]
		if !ok && err == nil {
			at = uint32(len(s.Nodes)) //nolint:gosec // nodes are enrolled one by one
			s.Nodes[name] = at
		}
		return at
	}
	for k, j := range o.Jobs {
		if !want(k) {
			continue
		}
		if j.Only != 0 {
			j.Only = number(j.Only-1) + 1
		}
		for i := range j.Signals {
			since := j.Signals[i].Since
			if j.Signals[i].Grouped { // which nodes are in which group changes with each calculation anyway
				continue
			}
			for at := range since {
				since[at].Node = number(since[at].Node)
			}
			slices.SortFunc(since, func(a, b From) int { return cmp.Compare(a.Node, b.Node) })
		}
		if err != nil {
			return n, err
		}
		s.put(p, k, j)
		n++
	}
	return n, nil
}

// put puts a job of another learner, whose nodes have this one's numbers, beside what is known of it.
func (s *State) put(p *Params, k Key, j *Job) {
	mine := s.Jobs[k]
	if mine == nil {
		mine = s.job(k)
		*mine = *j
	} else {
		if s.alone != nil {
			s.alone[mine.Only]--
		}
		mine.merge(p, j)
	}
	if s.alone != nil {
		s.alone[mine.Only]++
	}
}

// merge takes in what another learner knows of the job, of other samples. What was published last is in force.
func (j *Job) merge(p *Params, o *Job) {
	later := o.Revision > j.Revision
	for i := range o.Signals {
		from := &o.Signals[i]
		sig := j.signal(from.Source, from.Definition)
		sig.merge(p, from)
		if later || sig.Spec == nil {
			sig.Spec, sig.Held = from.Spec, from.Held
		}
	}
	if later {
		j.Revision, j.Pinned = o.Revision, o.Pinned
	}
	if j.Only != o.Only {
		j.Only = 0
	}
}

// merge takes another one's samples in, both as old as the later calculation.
func (s *Signal) merge(p *Params, o *Signal) {
	at := max(s.AtNsec, o.AtNsec)
	mine, theirs := s.age(p, at), o.age(p, at)
	s.Sketch.Age(mine)
	s.Sketch.Merge(&o.Sketch, theirs)
	all := Moments{}
	all.merge(s.History, mine)
	all.merge(o.History, theirs)
	s.History, s.Unseen, s.AtNsec, s.Nodes = all, s.Unseen*mine+o.Unseen*theirs, at, max(s.Nodes, o.Nodes)
	since, grouped := o.Since, o.Grouped
	if grouped && !s.Grouped {
		since, grouped, s.Since, s.Grouped = s.Since, false, since, true
	}
	for i := range since {
		f := &since[i]
		if !grouped {
			f.put(s.from(f.Node))
			continue
		}
		f.put(&s.Since[i])
		s.Since[i].Node |= f.Node
	}
	if day := max(s.DayNsec, o.DayNsec); day != 0 {
		s.turn(p, day)
		o.turn(p, day)
	}
	s.Full, s.Level = s.Full || o.Full, max(s.Level, o.Level)
	for _, t := range o.Tallies {
		s.tally(p, t.Task, uint32(t.Day&^recently))
		if i, ok := s.find(t.Task); ok {
			night := uint32(s.Tallies[i].Night&^recently) + uint32(t.Night&^recently)
			s.Tallies[i].Night = s.Tallies[i].Night&recently | uint16(min(night, MaxSamplesPerTask)) //nolint:gosec // it fits
		}
	}
}

// put adds what a node, or a group of them, sent to what else it sent.
func (f *From) put(into *From) {
	m := into.moments()
	m.merge(f.moments(), 1)
	into.set(&m, into.N+f.N)
}

// Part is a learner that has only some of the jobs, and the names of their nodes. It shares the jobs with this one.
func (s *State) Part(want func(k Key) bool) *State {
	part := New()
	used := map[uint32]bool{}
	for k, j := range s.Jobs {
		if !want(k) {
			continue
		}
		part.Jobs[k] = j
		if j.Only != 0 {
			used[j.Only-1] = true
		}
		for i := range j.Signals {
			for _, f := range j.Signals[i].Since {
				used[f.Node] = used[f.Node] || !j.Signals[i].Grouped
			}
		}
	}
	for name, i := range maps.All(s.Nodes) {
		if used[i] {
			part.Nodes[name] = i
		}
	}
	return part
}
