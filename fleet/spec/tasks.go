package spec

import (
	"cmp"
	"slices"
)

// A spec needs tasks with samples enough. Of a job with many tasks some are counted: half of the room is for those that are drawn by their hash, from which it is estimated
// how many there are (P. B. Gibbons, "Distinct sampling for highly-accurate answers to distinct values queries and event reports", VLDB 2001), and
// half for who comes while there is some, which are in the long run those that last. As long as all of them fit all are counted.

// Tally is how many samples a task gave in this day and in the one before, each at most MaxSamplesPerTask. Each task that is counted has one a
// signal, so it is small: two tasks of a job count as one where their hashes are the same, which two of a node are in a pair of 65,000.
type Tally struct {
	Task       uint32 // hash: of the node in the upper half, of node and path in the lower one
	Day, Night uint16 // the highest bit says that it gave some in this period, or in the one before
}

const (
	// MaxSamplesPerTask bounds Params.MinSamplesPerTask: a task's samples of a day are not counted any further.
	MaxSamplesPerTask = recently - 1

	recently   = 1 << 15 // the bit of Tally
	leastSlots = 32
	mostLevel  = 16 // halvings that the lower half of a hash is good for
)

// slots is how many tasks of a signal are counted at most: some times what a spec needs.
func (p *Params) slots() int { return max(leastSlots, 4*p.MinTasks) }

func (t Tally) samples() int { return int(t.Day&^recently) + int(t.Night&^recently) }

func (p *Params) enough(t Tally) bool { return t.samples() >= p.MinSamplesPerTask }

// tally counts samples of a task.
func (s *Signal) tally(p *Params, task, n uint32) {
	i, ok := s.find(task)
	if !ok {
		if s.Full && !s.turnOf(task) {
			return
		}
		if len(s.Tallies) >= p.slots() {
			if !s.makeRoom(p, task) {
				return
			}
			i, _ = s.find(task)
		}
		s.Tallies = insert(s.Tallies, i, Tally{Task: task})
	}
	t := &s.Tallies[i]
	t.Day = recently | uint16(min(uint32(t.Day&^recently)+min(n, MaxSamplesPerTask), MaxSamplesPerTask)) //nolint:gosec // it fits
}

func (s *Signal) find(task uint32) (i int, ok bool) {
	return slices.BinarySearchFunc(s.Tallies, task, func(t Tally, task uint32) int { return cmp.Compare(t.Task, task) })
}

// turnOf: where there was no room for all, in each period a quarter of the tasks may come, another one each time: else those would that come first each time.
func (s *Signal) turnOf(task uint32) bool {
	return (task^uint32(s.Period)*0x9e3779b1)*0x85ebca6b>>30 == 0
}

// drawn: the task is one of those from which all are estimated.
func (s *Signal) drawn(task uint32) bool { return task&(1<<s.Level-1) == 0 }

// makeRoom makes room for a task, or says that there is none. First those go that ended before they had given enough. Where one node has more than a quarter it gives way to
// nodes that have less than half as many: one that invents tasks keeps nobody else's from being counted. Else one that is drawn takes the place of one that is not and has given enough, while
// more than a spec needs have.
func (s *Signal) makeRoom(p *Params, task uint32) bool {
	s.Full = true
	s.Tallies = slices.DeleteFunc(s.Tallies, func(t Tally) bool { return (t.Day|t.Night)&recently == 0 && !p.enough(t) })
	if len(s.Tallies) < p.slots() {
		return true
	}
	last, most, run, own := 0, 0, 0, 0
	for i, t := range s.Tallies {
		if i == 0 || t.Task>>16 != s.Tallies[i-1].Task>>16 {
			run = 0
		}
		if run++; run > most {
			last, most = i, run
		}
		if t.Task>>16 == task>>16 {
			own++
		}
	}
	if most > p.slots()/4 {
		if 2*own < most {
			s.Tallies = slices.Delete(s.Tallies, last, last+1)
		}
		return 2*own < most
	}
	for s.Level < mostLevel && s.countDrawn() > p.slots()/2 {
		s.Level++
	}
	n, _ := s.haveEnough(p)
	at := slices.IndexFunc(s.Tallies, func(t Tally) bool { return !s.drawn(t.Task) && p.enough(t) })
	if at < 0 || !s.drawn(task) || n <= 2*p.MinTasks {
		return false
	}
	s.Tallies = slices.Delete(s.Tallies, at, at+1)
	return true
}

func (s *Signal) countDrawn() (n int) {
	for _, t := range s.Tallies {
		if s.drawn(t.Task) {
			n++
		}
	}
	return n
}

// look notes which tasks gave samples in the last period, at the first look in each.
func (s *Signal) look(p *Params, wallNsec int64) {
	period := uint8(wallNsec / p.PeriodNsec) //nolint:gosec // whether it is another one is all that matters
	if period == s.Period {
		return
	}
	s.Period = period
	for i := range s.Tallies {
		t := &s.Tallies[i]
		t.Night = t.Night&^recently | t.Day&recently
		t.Day &^= recently
	}
}

// turn begins a new day of the tallies, in which more of them may be drawn again.
func (s *Signal) turn(p *Params, wallNsec int64) {
	switch {
	case s.DayNsec == 0:
		s.DayNsec = wallNsec
	case wallNsec-s.DayNsec >= 24*3600e9:
		s.DayNsec, s.Full = wallNsec, false
		for i := range s.Tallies {
			t := &s.Tallies[i]
			t.Day, t.Night = t.Day&recently, t.Night&recently|t.Day&^recently
		}
		s.Tallies = slices.DeleteFunc(s.Tallies, func(t Tally) bool { return t.Night&^recently == 0 })
		if s.Level > 0 && s.countDrawn() <= p.slots()/8 {
			s.Level--
		}
	}
}

// haveEnough counts the tasks with samples enough, and says about how many there are with those that are not counted.
func (s *Signal) haveEnough(p *Params) (n, about int) {
	for _, t := range s.Tallies {
		if p.enough(t) {
			n++
			if s.drawn(t.Task) {
				about += 1 << s.Level
			}
		}
	}
	return n, max(n, about)
}

// Tasks is how many tasks gave samples in these two days; where not all are counted, about.
func (s *Signal) Tasks() int { return max(len(s.Tallies), s.countDrawn()<<s.Level) }

// taskHash is FNV-1a of a node, folded, and of node and path, mixed so that each bit is as good as the others.
func taskHash(node, path string) uint32 {
	h := fnv(14695981039346656037, node)
	of := uint32(h^h>>16^h>>32^h>>48) << 16 //nolint:gosec // which folds it
	h = fnv(fnv(h, "\x00"), path)
	h = (h ^ h>>33) * 0xff51afd7ed558ccd // as MurmurHash3 ends
	return of | uint32(h>>48)            //nolint:gosec // it fits
}

func fnv(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
