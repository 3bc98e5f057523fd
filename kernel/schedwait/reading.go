package schedwait

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// Party is who ran, or why nobody did, while a watched task waited. From firstTask on it is a managed task.
type Party uint32

// The parties that are no managed task.
const (
	Unmanaged Party = iota // a cgroup that no managed group contains: Share.Cgroup names it
	Idle                   // nobody: the wake-up was on its way
	Kernel                 // a kernel thread
	SoftIRQ                // soft interrupts
	Steal                  // the hypervisor ran another guest
	Throttled              // the task's own quota, or one above it, was used up
	Unknown                // no longer known: see Lost
	firstTask = 16
)

var partyNames = [...]string{"unmanaged", "idle", "kernel", "softirq", "steal", "throttled", "unknown"}

// Task returns the caller's number of a managed task, and whether the party is one.
func (p Party) Task() (int, bool) { return int(p) - firstTask, p >= firstTask }

// TaskParty returns the party of a managed task.
func TaskParty(task int) Party { return Party(firstTask + task) }

// String implements fmt.Stringer.
func (p Party) String() string {
	if int(p) < len(partyNames) {
		return partyNames[p]
	}
	task, _ := p.Task()
	return fmt.Sprintf("task %d", task)
}

// Share is how much of a task's waiting one party is charged with.
type Share struct {
	Party  Party
	Cgroup uint64 // of Unmanaged: the inode number of its directory; 1 is the root
	Nsec   int64
	// PID is the process that ran longest in a wait, 0 when there is none; it may have ended.
	PID int
}

// Kinds of waits.
const (
	AfterWakeup     = iota // it was woken and had to wait
	AfterPreemption        // it was put off the CPU and had to wait
	kinds
)

// Buckets is how many classes of length a Distribution has.
const Buckets = 96

// Distribution counts waits by length.
type Distribution [Buckets]uint64

// BucketNsec returns the shortest wait of a class in nanoseconds: four classes from each power of two to the next.
func BucketNsec(i int) int64 {
	if i < 4 {
		return int64(i) << 10
	}
	e := i/4 + 1
	return int64(4+i%4) << (e - 2) << 10
}

// Quantile returns below what length, in nanoseconds, a share q of the waits is: the upper end of a class, at most a
// quarter too long. 0 without waits.
func (d *Distribution) Quantile(q float64) int64 {
	var n uint64
	for _, c := range d {
		n += c
	}
	if n == 0 {
		return 0
	}
	want, sum := q*float64(n), uint64(0)
	for i, c := range d {
		if sum += c; float64(sum) >= want && c > 0 {
			return BucketNsec(i + 1)
		}
	}
	return BucketNsec(Buckets)
}

// Waits is how a watched task waited since the reading before.
type Waits struct {
	Task    int
	Count   [kinds]int64 // of those that ended
	Nsec    [kinds]int64 // with what waits that go on were charged with on CPUs that they left
	Lengths [kinds]Distribution
	// LongestNsec is of the waits that ended.
	LongestNsec int64
	// Open are threads that wait still, and OpenNsec for how long in all; they are counted, and charged, when they end.
	Open     int
	OpenNsec int64
	// Shares add up to Nsec, largest first.
	Shares []Share
	// NotTaken are waits that found no room among the threads that are followed: nothing else here has them. Strays, of
	// those that ended, did so on another CPU than was known: who ran there is charged with a part of them in error.
	NotTaken, Strays int64
}

// Lost is what could not be measured as it should since the reading before.
type Lost struct {
	Waits  int64 // not taken: too many threads; of all tasks
	Rows   int64 // charged to Unknown: too many parties
	Long   int64 // charged to Unknown in part: longer than what a CPU remembers, or from before the measurement
	Strays int64 // ended on another CPU than was known; of all tasks
	Events int64 // that the programs were not called for: the same one was at work on that CPU already
}

// Unfit is what found no room among the groups that SetGroups was told of.
type Unfit struct {
	Groups  int // beyond Options.Groups: they count as the group that contains them, or as unmanaged
	Watched int // tasks beyond Options.Watched: who makes them wait is not measured; they are blamed as others are
}

// Reading is what was measured since the reading before.
type Reading struct {
	Tasks    []Waits // in the order of Group.Task
	Switches int64
	Lost     Lost
	Unfit    Unfit // of the groups as they are now
}

// The programs' own structures.
type (
	group   struct{ Party, Slot uint32 }
	control struct{ Epoch, Generation uint64 }
	rowKey  struct {
		Slot, Party uint32
		Cgroup      uint64
	}
	row   struct{ Nsec, Most, Tgid uint64 }
	waits struct {
		Count, Nsec      [kinds]uint64
		NotTaken, Strays uint64
		Buckets          [kinds][Buckets]uint64
	}
	tally struct{ Switches, NoRow, RingEnd uint64 }
	wait  struct {
		Since, From, IRQ, Steal, Throttled, Epoch, Times uint64
		CPU, Slot, Kind, _                               uint32
	}
	seenRow struct {
		nsec  uint64
		still int // readings without a change
	}
	buffers struct {
		keys    []rowKey
		rows    []row
		pids    []uint32
		threads []wait
		cpus    []uint32
		tallies []tally
	}
)

// forgetAfter is after how many readings without a change an unmanaged cgroup's row is given up.
const forgetAfter = 60

// batch is how many entries one system call brings.
const batch = 512

// Read returns what came since the last reading. monoNsec is CLOCK_MONOTONIC now.
func (s *Source) Read(r *Reading, monoNsec int64) error {
	r.Tasks, r.Unfit = r.Tasks[:0], s.unfit
	index := make(map[uint32]int, len(s.slots))
	tasks := make([]int, 0, len(s.slots))
	for task := range s.slots {
		tasks = append(tasks, task)
	}
	slices.Sort(tasks)
	for _, task := range tasks {
		slot := s.slots[task]
		w, err := s.waitsOf(task, slot)
		if err != nil {
			return fmt.Errorf("schedwait: read waits: %w", err)
		}
		index[slot] = len(r.Tasks)
		r.Tasks = append(r.Tasks, w)
	}
	if err := s.readRows(r, index); err != nil {
		return fmt.Errorf("schedwait: read who ran: %w", err)
	}
	if err := s.readOpen(r, index, monoNsec); err != nil {
		return fmt.Errorf("schedwait: read open waits: %w", err)
	}
	if err := s.readTally(r); err != nil {
		return fmt.Errorf("schedwait: read losses: %w", err)
	}
	return nil
}

func (s *Source) waitsOf(task int, slot uint32) (w Waits, err error) {
	var now waits
	var longest uint64
	w.Task = task
	if err := s.maps.Waits.Lookup(slot, &now); err != nil {
		return w, err
	}
	if err := s.maps.Longest.Lookup(slot, &longest); err != nil {
		return w, err
	}
	if longest != 0 {
		w.LongestNsec = int64(longest)
		if err := s.maps.Longest.Put(slot, uint64(0)); err != nil {
			return w, err
		}
	}
	before := s.last[slot]
	s.last[slot] = now
	w.NotTaken, w.Strays = int64(now.NotTaken-before.NotTaken), int64(now.Strays-before.Strays)
	for k := range kinds {
		w.Count[k] = int64(now.Count[k] - before.Count[k])
		w.Nsec[k] = int64(now.Nsec[k] - before.Nsec[k])
		for i := range w.Lengths[k] {
			w.Lengths[k][i] = now.Buckets[k][i] - before.Buckets[k][i]
		}
	}
	return w, nil
}

// each goes through a hash map in batches.
func each[K, V any](m *ebpf.Map, keys *[]K, values *[]V, visit func(K, V)) error {
	if len(*keys) == 0 {
		*keys, *values = make([]K, batch), make([]V, batch)
	}
	var at ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&at, *keys, *values, nil)
		for i := range n {
			visit((*keys)[i], (*values)[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil // that was the last
		}
		if err != nil {
			return err
		}
	}
}

func (s *Source) readRows(r *Reading, index map[uint32]int) error {
	err := each(s.maps.Rows, &s.buffers.keys, &s.buffers.rows, func(k rowKey, v row) {
		i, ok := index[k.Slot]
		if !ok {
			return
		}
		was := s.seen[k]
		if was == nil {
			was = &seenRow{}
			s.seen[k] = was
		}
		if v.Nsec == was.nsec {
			was.still++
			return
		}
		t := &r.Tasks[i]
		t.Shares = append(t.Shares, Share{Party: Party(k.Party), Cgroup: k.Cgroup, Nsec: int64(v.Nsec - was.nsec), PID: int(v.Tgid)})
		*was = seenRow{nsec: v.Nsec}
	})
	if err != nil {
		return err
	}
	for k, was := range s.seen {
		if Party(k.Party) == Unmanaged && was.still > forgetAfter {
			delete(s.seen, k)
			_ = s.maps.Rows.Delete(k) // gone already is as good
		}
	}
	for i := range r.Tasks {
		slices.SortFunc(r.Tasks[i].Shares, func(a, b Share) int { return int(b.Nsec - a.Nsec) })
	}
	return nil
}

func (s *Source) readOpen(r *Reading, index map[uint32]int, monoNsec int64) error {
	return each(s.maps.Threads, &s.buffers.pids, &s.buffers.threads, func(_ uint32, w wait) {
		i, ok := index[w.Slot]
		if !ok || w.Since == 0 || w.Epoch != s.epoch || monoNsec < int64(w.Since) {
			return
		}
		r.Tasks[i].Open++
		r.Tasks[i].OpenNsec += monoNsec - int64(w.Since)
	})
}

func (s *Source) readTally(r *Reading) error {
	var sum tally
	if err := each(s.maps.Tallies, &s.buffers.cpus, &s.buffers.tallies, func(_ uint32, t tally) {
		sum.Switches += t.Switches
		sum.NoRow += t.NoRow
		sum.RingEnd += t.RingEnd
	}); err != nil {
		return err
	}
	was := s.tallied
	s.tallied = sum
	r.Switches = int64(sum.Switches - was.Switches)
	r.Lost = Lost{Rows: int64(sum.NoRow - was.NoRow), Long: int64(sum.RingEnd - was.RingEnd)}
	for i := range r.Tasks {
		r.Lost.Waits += r.Tasks[i].NotTaken
		r.Lost.Strays += r.Tasks[i].Strays
	}
	missed := s.missedSoFar()
	r.Lost.Events, s.missed = int64(missed-s.missed), missed
	return nil
}

// missedSoFar is how often the kernel did not call a program. Where it does not say (before 5.12) it is 0.
func (s *Source) missedSoFar() (n uint64) {
	for _, p := range s.coll.Programs {
		if stats, err := p.Stats(); err == nil {
			n += stats.RecursionMisses
		}
	}
	return n
}
