package spec

import (
	"errors"
	"maps"
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
		for i := range j.Since {
			if !j.Grouped { // which nodes are in which group changes with each calculation anyway
				j.Since[i].Node = number(j.Since[i].Node)
			}
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
		kind := o.Signals[i].Kind.Value()
		j.signal(kind.Source, kind.Definition)
	}
	theirs := make([]int, len(j.Signals))
	ats := make([]int64, len(j.Signals))
	for k := range j.Signals {
		ats[k] = j.at(k)
		kind := j.Signals[k].Kind.Value()
		i, ok := o.place(kind.Source, kind.Definition)
		if theirs[k] = -1; !ok {
			continue
		}
		theirs[k], ats[k] = i, max(ats[k], o.at(i))
		j.mergeSignal(p, k, o, i)
		if _, ok := j.Spec(k); later || !ok {
			var f *Figures
			if is, ok := o.Spec(i); ok {
				f = &is
			}
			j.setSpec(k, f)
			j.setHeld(k, o.Held(i))
		}
	}
	j.setAts(ats)
	j.together()
	j.mergeSince(o, theirs)
	j.mergeTallies(p, o, theirs)
	if later {
		j.Revision, j.Pinned = o.Revision, o.Pinned
	}
	if j.Only != o.Only {
		j.Only = 0
	}
}

// mergeSignal takes the values of another one's signal in, both as old as the later calculation.
func (j *Job) mergeSignal(p *Params, k int, o *Job, i int) {
	s, other := &j.Signals[k], &o.Signals[i]
	at := max(j.at(k), o.at(i))
	mine, theirs := j.age(p, k, at), o.age(p, i, at)
	s.Sketch.Age(mine)
	s.Sketch.Merge(&other.Sketch, theirs)
	all := Moments{}
	all.merge(s.History, mine)
	all.merge(other.History, theirs)
	j.remember(k, all)
	s.Nodes = max(s.Nodes, other.Nodes)
}

// mergeSince takes in what another learner's nodes sent since the last calculation; theirs are the places of its signals, -1: it has none, by those here.
func (j *Job) mergeSince(o *Job, theirs []int) {
	if o.Grouped && !j.Grouped {
		j.regroup()
	}
	for i := range o.Since {
		w, at := &o.Since[i], i
		if o.Grouped {
			j.Since[at].Node |= w.Node
		} else {
			at = j.who(w.Node)
		}
		j.give(at, w.N, float64(w.Usage), func(k int) (m Moments) {
			if theirs[k] >= 0 {
				m = o.moments(&o.Signals[theirs[k]], i)
			}
			return m
		})
	}
}

// mergeTallies counts another learner's tasks; theirs as above.
func (j *Job) mergeTallies(p *Params, o *Job, theirs []int) {
	if day := max(j.DayNsec, o.DayNsec); day != 0 {
		j.turn(p, day)
		o.turn(p, day)
	}
	j.Full, j.Level = j.Full || o.Full, max(j.Level, o.Level)
	for i, t := range o.Tallies {
		day, all := uint32(t.Day&^recently), uint32(t.samples()) //nolint:gosec // it fits
		j.tally(p, t.Task, day, func(k int) uint32 {
			if theirs[k] < 0 || all == 0 {
				return 0
			}
			return day * uint32(o.gave(theirs[k], i)) / all //nolint:gosec // below 2^32
		})
		at, ok := j.find(t.Task)
		if !ok {
			continue
		}
		mine := &j.Tallies[at]
		night := min(uint32(t.Night&^recently), MaxSamplesPerTask-uint32(mine.Night&^recently))
		mine.Night += uint16(night) //nolint:gosec // it fits
		for k := range j.Signals {
			if theirs[k] < 0 {
				j.setLack(k, at, j.lack(k, at)+night) //nolint:gosec // as above
			} else if not := all - uint32(o.gave(theirs[k], i)); not > 0 { //nolint:gosec // no more than all
				j.setLack(k, at, j.lack(k, at)+night*not/all)
			}
		}
	}
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
		for _, w := range j.Since {
			used[w.Node] = used[w.Node] || !j.Grouped
		}
	}
	for name, i := range maps.All(s.Nodes) {
		if used[i] {
			part.Nodes[name] = i
		}
	}
	return part
}
