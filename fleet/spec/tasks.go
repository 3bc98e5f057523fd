package spec

import (
	"cmp"
	"slices"
)

// A spec needs tasks with samples enough. Of a job with many tasks some are counted: half of the room is for those that are drawn by their hash, from which it is estimated
// how many there are (P. B. Gibbons, "Distinct sampling for highly-accurate answers to distinct values queries and event reports", VLDB 2001), and
// half for who comes while there is some, which are in the long run those that last. As long as all of them fit all are counted.

// Tally is how many samples a task gave in this day and in the one before, each at most MaxSamplesPerTask. Each task that is counted has one, which
// all signals of the job share (Less.Tasks is what one of them had not), so it is small: two tasks of a job count as one where their hashes are the same, which two of a node are in a pair of 65,000.
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

// tally counts windows of a task, and those of them that each signal, by its place in Signals, had.
func (j *Job) tally(p *Params, task, n uint32, had func(k int) uint32) {
	i, ok := j.find(task)
	if !ok {
		if j.Full && !j.turnOf(task) {
			return
		}
		if len(j.Tallies) >= p.slots() {
			if !j.makeRoom(p, task, had) {
				return
			}
			i, _ = j.find(task)
		}
		j.Tallies = insert(j.Tallies, i, Tally{Task: task}, p.slots())
		if j.Less != nil {
			j.Less.Tasks.insertColumn(i)
		}
	}
	t := &j.Tallies[i]
	day := uint32(t.Day &^ recently)
	counted := min(n, MaxSamplesPerTask-day)
	t.Day = recently | uint16(day+counted) //nolint:gosec // it fits
	for k := range j.Signals {
		if not := n - had(k); not > 0 && counted > 0 {
			j.setLack(k, i, j.lack(k, i)+uint32((uint64(not)*uint64(counted)+uint64(n)-1)/uint64(n))) //nolint:gosec // no more than is counted
		}
	}
}

// lack is how many samples of a signal, by its place in Signals, one of Tallies gave not.
func (j *Job) lack(k, i int) uint32 {
	if j.Less == nil {
		return 0
	}
	return j.Less.Tasks.at(k, i)
}

func (j *Job) setLack(k, i int, n uint32) {
	if j.Less == nil {
		if n == 0 {
			return
		}
		j.Less = &Less{}
	}
	j.Less.Tasks.set(k, i, n, len(j.Signals), len(j.Tallies))
}

// anySignal stands for a signal that all windows have.
const anySignal = -1

// gave is how many samples of a signal, by its place in Signals, one of Tallies gave.
func (j *Job) gave(k, i int) int {
	n := j.Tallies[i].samples()
	if k != anySignal {
		n = max(0, n-int(j.lack(k, i)))
	}
	return n
}

func (j *Job) find(task uint32) (i int, ok bool) {
	return slices.BinarySearchFunc(j.Tallies, task, func(t Tally, task uint32) int { return cmp.Compare(t.Task, task) })
}

// drop takes away the tasks that f is true of.
func (j *Job) drop(f func(i int) bool) {
	for i := len(j.Tallies) - 1; i >= 0; i-- {
		if !f(i) {
			continue
		}
		j.Tallies = slices.Delete(j.Tallies, i, i+1)
		if j.Less != nil {
			j.Less.Tasks.deleteColumn(i)
		}
	}
}

// turnOf: where there was no room for all, in each period a quarter of the tasks may come, another one each time: else those would that come first each time.
func (j *Job) turnOf(task uint32) bool {
	return (task^uint32(j.Period)*0x9e3779b1)*0x85ebca6b>>30 == 0
}

// drawn: the task is one of those from which all are estimated.
func (j *Job) drawn(task uint32) bool { return task&(1<<j.Level-1) == 0 }

// makeRoom makes room for a task, or says that there is none. First those go that ended before they had given enough. Where one node has more than a quarter it gives way to
// nodes that have less than half as many: one that invents tasks keeps nobody else's from being counted. Else one that is not drawn and can be spared, since all its signals have more
// tasks than a spec needs, makes room for one that gives a signal which has not, and, where it has given enough, for one that is drawn.
func (j *Job) makeRoom(p *Params, task uint32, had func(k int) uint32) bool {
	j.Full = true
	j.drop(func(i int) bool {
		t := j.Tallies[i]
		return (t.Day|t.Night)&recently == 0 && t.samples() < p.MinSamplesPerTask
	})
	if len(j.Tallies) < p.slots() {
		return true
	}
	last, most, run, own := 0, 0, 0, 0
	for i, t := range j.Tallies {
		if i == 0 || t.Task>>16 != j.Tallies[i-1].Task>>16 {
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
			j.drop(func(i int) bool { return i == last })
		}
		return 2*own < most
	}
	for j.Level < mostLevel && j.countDrawn() > p.slots()/2 {
		j.Level++
	}
	n, _ := j.haveEnough(p, anySignal)
	rare := j.rare(p)
	needed := slices.ContainsFunc(rare, func(k int) bool { return had(k) > 0 })
	if !needed && (!j.drawn(task) || n <= 2*p.MinTasks) {
		return false
	}
	for i, t := range j.Tallies {
		if j.drawn(t.Task) || !needed && t.samples() < p.MinSamplesPerTask || slices.ContainsFunc(rare, func(k int) bool { return j.gave(k, i) > 0 }) {
			continue
		}
		j.drop(func(at int) bool { return at == i })
		return true
	}
	return false
}

// rare are the signals that hardly more of the tasks give than a spec needs, or fewer, while others give more.
func (j *Job) rare(p *Params) (list []int) {
	for k := range j.Signals {
		n := 0
		if j.Less == nil || j.Less.Tasks.zero(k) {
			continue
		}
		for i := 0; i < len(j.Tallies) && n <= 2*p.MinTasks; i++ {
			if j.gave(k, i) > 0 {
				n++
			}
		}
		if n <= 2*p.MinTasks {
			list = append(list, k)
		}
	}
	return list
}

func (j *Job) countDrawn() (n int) {
	for _, t := range j.Tallies {
		if j.drawn(t.Task) {
			n++
		}
	}
	return n
}

// look notes which tasks gave samples in the last period, at the first look in each.
func (j *Job) look(p *Params, wallNsec int64) {
	period := uint8(wallNsec / p.PeriodNsec) //nolint:gosec // whether it is another one is all that matters
	if period == j.Period {
		return
	}
	j.Period = period
	for i := range j.Tallies {
		t := &j.Tallies[i]
		t.Night = t.Night&^recently | t.Day&recently
		t.Day &^= recently
	}
}

// turn begins a new day of the tallies, in which more of them may be drawn again.
func (j *Job) turn(p *Params, wallNsec int64) {
	switch {
	case j.DayNsec == 0:
		j.DayNsec = wallNsec
	case wallNsec-j.DayNsec >= 24*3600e9:
		j.DayNsec, j.Full = wallNsec, false
		for i := range j.Tallies {
			t := &j.Tallies[i]
			j.halve(i)
			t.Day, t.Night = t.Day&recently, t.Night&recently|t.Day&^recently
		}
		j.drop(func(i int) bool { return j.Tallies[i].Night&^recently == 0 })
		if j.Less != nil {
			j.Less.Tasks.pack(j.Less.Tasks.unpack(0, 0)) // in no more bits than it needs now
			j.noLess()
		}
		if j.Level > 0 && j.countDrawn() <= p.slots()/8 {
			j.Level--
		}
	}
}

// halve leaves of what signals had not of a task the share that is of this day: on which of the two it was nobody knows.
func (j *Job) halve(i int) {
	all, day := j.Tallies[i].samples(), int(j.Tallies[i].Day&^recently)
	for k := range j.Signals {
		if n := j.lack(k, i); n > 0 && all > 0 {
			j.setLack(k, i, uint32(int(n)*day/all)) //nolint:gosec // it gets less
		}
	}
}

// haveEnough counts the tasks with samples enough of a signal, by its place in Signals, and says about how many there are with those that are not counted.
func (j *Job) haveEnough(p *Params, k int) (n, about int) {
	for i, t := range j.Tallies {
		if j.gave(k, i) >= p.MinSamplesPerTask {
			n++
			if j.drawn(t.Task) {
				about += 1 << j.Level
			}
		}
	}
	return n, max(n, about)
}

// Tasks is how many tasks gave samples of a signal, by its place in Signals, in these two days; where not all are counted, about.
func (j *Job) Tasks(k int) int {
	n, about := 0, 0
	for i, t := range j.Tallies {
		if j.gave(k, i) > 0 {
			n++
			if j.drawn(t.Task) {
				about += 1 << j.Level
			}
		}
	}
	return max(n, about)
}

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
