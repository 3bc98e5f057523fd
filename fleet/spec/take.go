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
		j.signal(o.Signals[i].Source, o.Signals[i].Definition.Value())
	}
	theirs := make([]*Signal, len(j.Signals))
	for k := range j.Signals {
		sig := &j.Signals[k]
		i, ok := o.place(sig.Source, sig.Definition.Value())
		if !ok {
			continue
		}
		theirs[k] = &o.Signals[i]
		sig.merge(p, theirs[k])
		if later || sig.Spec == nil {
			sig.Spec, sig.Held = theirs[k].Spec, theirs[k].Held
		}
	}
	j.mergeSince(o, theirs)
	j.mergeTallies(p, o, theirs)
	if later {
		j.Revision, j.Pinned = o.Revision, o.Pinned
	}
	if j.Only != o.Only {
		j.Only = 0
	}
}

// merge takes another one's values in, both as old as the later calculation.
func (s *Signal) merge(p *Params, o *Signal) {
	at := max(s.AtNsec, o.AtNsec)
	mine, theirs := s.age(p, at), o.age(p, at)
	s.Sketch.Age(mine)
	s.Sketch.Merge(&o.Sketch, theirs)
	all := Moments{}
	all.merge(s.History, mine)
	all.merge(o.History, theirs)
	s.History, s.AtNsec, s.Nodes = all, at, max(s.Nodes, o.Nodes)
}

// mergeSince takes in what another learner's nodes sent since the last calculation; theirs are its signals by their places here.
func (j *Job) mergeSince(o *Job, theirs []*Signal) {
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
			if theirs[k] != nil {
				m = o.moments(theirs[k], i)
			}
			return m
		})
	}
}

// mergeTallies counts another learner's tasks; theirs as above.
func (j *Job) mergeTallies(p *Params, o *Job, theirs []*Signal) {
	if day := max(j.DayNsec, o.DayNsec); day != 0 {
		j.turn(p, day)
		o.turn(p, day)
	}
	j.Full, j.Level = j.Full || o.Full, max(j.Level, o.Level)
	for i, t := range o.Tallies {
		day, all := uint32(t.Day&^recently), uint32(t.samples()) //nolint:gosec // it fits
		j.tally(p, t.Task, day, func(k int) uint32 {
			if theirs[k] == nil || all == 0 {
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
			if theirs[k] == nil {
				j.lack(k)[at] += uint16(night) //nolint:gosec // as above
			} else if not := all - uint32(o.gave(theirs[k], i)); not > 0 { //nolint:gosec // no more than all
				j.lack(k)[at] += uint16(night * not / all) //nolint:gosec // as above
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
