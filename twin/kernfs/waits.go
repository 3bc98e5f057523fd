package kernfs

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/schedwait"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin/machine"
)

// Waits returns what BPF programs at the scheduler's events measure. Another one takes the place
// of the one before, as of a program that has ended.
func (k *Kernel) Waits() linux.WaitSource {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waits != nil {
		k.waits.detach()
	}
	k.waits = &waits{k: k, groups: map[uint64]schedwait.Group{}, tasks: map[int]*waiting{}}
	return k.waits
}

// waits implements linux.WaitSource: cgroups are those of the hierarchy with the cpu controller.
type waits struct {
	k       *Kernel
	groups  map[uint64]schedwait.Group // by inode
	tasks   map[int]*waiting           // watched, by their number
	on      bool
	closed  bool
	since   uint64 // switches of the machine by the last reading
	taken   machine.Waits
	parties []payer // scratch: by number of the machine
}

// waiting is what a watched task is told of when it is read.
type waiting struct {
	count   [2]int64
	lengths schedwait.Distribution
	longest float64
	shares  map[payer]*charged
}

// payer is who a wait is charged to.
type payer struct {
	party  schedwait.Party
	cgroup uint64
}

type charged struct {
	nsec, most float64
	pid        int32
}

var errDetached = errors.New("schedwait: the programs are detached")

// SetGroups implements linux.WaitSource.
func (s *waits) SetGroups(groups []schedwait.Group) error {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.closed {
		return errDetached
	}
	changed := len(groups) != len(s.groups)
	for _, g := range groups {
		changed = changed || s.groups[g.Cgroup] != g
	}
	if !changed {
		return nil
	}
	s.fold()
	clear(s.groups)
	watched := map[int]bool{}
	for _, g := range groups {
		s.groups[g.Cgroup] = g
		if g.Watched {
			watched[g.Task] = true
		}
	}
	for task := range s.tasks {
		if !watched[task] {
			delete(s.tasks, task)
		}
	}
	for task := range watched {
		if s.tasks[task] == nil {
			s.tasks[task] = &waiting{shares: map[payer]*charged{}}
		}
	}
	s.watch()
	return nil
}

// Start implements linux.WaitSource.
func (s *waits) Start() error { return s.turn(true) }

// Stop implements linux.WaitSource.
func (s *waits) Stop() error { return s.turn(false) }

func (s *waits) turn(on bool) error {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.closed {
		return errDetached
	}
	s.fold()
	s.on = on
	s.watch()
	return nil
}

// watch has the machine measure the processes in watched groups.
func (s *waits) watch() {
	for _, p := range s.k.procs {
		g, ok := s.groupOf(p)
		if err := s.k.m.Watch(p.num, s.on && ok && g.Watched); err != nil && !errors.Is(err, machine.ErrNoTask) {
			panic("a process is a task: " + err.Error())
		}
	}
}

// groupOf returns the managed group that a process is in.
func (s *waits) groupOf(p *process) (schedwait.Group, bool) {
	for g := p.in[s.k.with(cgroup.CPU).i]; g != nil; g = g.up {
		if found, ok := s.groups[g.dir.ino]; ok {
			return found, true
		}
	}
	return schedwait.Group{}, false
}

// fold takes in what was measured, under the groups in which the processes are now: who moves one
// or ends it folds before.
func (s *waits) fold() {
	if !s.on {
		return
	}
	s.parties = s.parties[:0]
	pids := map[int]int32{}
	for _, pid := range s.k.pids {
		p := s.k.procs[pid]
		for len(s.parties) <= p.num {
			s.parties = append(s.parties, payer{party: schedwait.Unknown})
		}
		pids[p.num] = p.pid
		if p.kernel {
			s.parties[p.num] = payer{party: schedwait.Kernel} // in whatever group it is
		} else if g, ok := s.groupOf(p); ok {
			s.parties[p.num] = payer{party: schedwait.TaskParty(g.Task)}
		} else {
			s.parties[p.num] = payer{party: schedwait.Unmanaged, cgroup: p.in[s.k.with(cgroup.CPU).i].dir.ino}
		}
	}
	for _, pid := range s.k.pids {
		p := s.k.procs[pid]
		g, ok := s.groupOf(p)
		if !ok || !g.Watched {
			continue
		}
		t := &s.taken
		clear(t.Charged)
		*t = machine.Waits{Charged: t.Charged}
		if err := s.k.m.TakeWaits(p.num, t); err != nil {
			continue // somebody took the task from the machine
		}
		s.tasks[g.Task].add(t, s.parties, pids)
	}
}

func (w *waiting) add(t *machine.Waits, parties []payer, pids map[int]int32) {
	w.count[schedwait.AfterWakeup] += t.Wakeups
	w.count[schedwait.AfterPreemption] += int64(t.Preempted)
	for i, n := range t.Lengths {
		w.lengths[i] += n
	}
	w.longest = max(w.longest, t.LongestNsec)
	for num, nsec := range t.Charged {
		if nsec <= 0 {
			continue
		}
		by := payer{party: schedwait.Unknown}
		if num < len(parties) {
			by = parties[num]
		}
		w.charge(by, nsec, pids[num])
	}
	for party, nsec := range map[schedwait.Party]float64{
		schedwait.SoftIRQ: t.TakenNsec[machine.SoftIRQ], schedwait.Steal: t.TakenNsec[machine.Steal], schedwait.Throttled: t.ThrottledNsec,
	} {
		if nsec > 0 {
			w.charge(payer{party: party}, nsec, 0)
		}
	}
}

func (w *waiting) charge(by payer, nsec float64, pid int32) {
	c := w.shares[by]
	if c == nil {
		c = &charged{}
		w.shares[by] = c
	}
	c.nsec += nsec
	if nsec > c.most {
		c.most, c.pid = nsec, pid
	}
}

// Read implements linux.WaitSource. What is charged is rounded to nanoseconds, and Nsec the sum of
// that; open waits are counted when they end, as the machine tells of them.
func (s *waits) Read(r *schedwait.Reading, _ int64) error {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.closed {
		return errDetached
	}
	s.fold()
	*r = schedwait.Reading{Tasks: r.Tasks[:0]}
	for task, w := range s.tasks {
		t := schedwait.Waits{Task: task, Count: w.count, LongestNsec: int64(w.longest)}
		t.Lengths[schedwait.AfterWakeup] = w.lengths
		for by, c := range w.shares {
			share := schedwait.Share{Party: by.party, Cgroup: by.cgroup, Nsec: int64(math.Round(c.nsec)), PID: int(c.pid)}
			if share.Nsec > 0 {
				t.Shares = append(t.Shares, share)
				t.Nsec[schedwait.AfterWakeup] += share.Nsec
			}
		}
		slices.SortFunc(t.Shares, func(a, b schedwait.Share) int {
			return cmp.Or(cmp.Compare(b.Nsec, a.Nsec), cmp.Compare(a.Party, b.Party), cmp.Compare(a.Cgroup, b.Cgroup))
		})
		r.Tasks = append(r.Tasks, t)
		*w = waiting{shares: w.shares}
		clear(w.shares)
	}
	slices.SortFunc(r.Tasks, func(a, b schedwait.Waits) int { return cmp.Compare(a.Task, b.Task) })
	now := s.k.switched()
	r.Switches = int64(now - min(now, s.since))
	s.since = now
	return nil
}

// switched is how often the machine's CPUs have gone from one thread to another.
func (k *Kernel) switched() (n uint64) {
	for _, p := range k.procs {
		u := k.used(p)
		n += switches(u) + 2*u.Requests
	}
	return n
}

// Close implements linux.WaitSource.
func (s *waits) Close() error {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.closed {
		return unix.EBADF
	}
	s.detach()
	return nil
}

func (s *waits) detach() {
	s.on, s.closed = false, true
	s.watch()
	if s.k.waits == s {
		s.k.waits = nil
	}
}

// foldWaits comes before a process moves or ends, and watchWaits after it moved.
func (k *Kernel) foldWaits() {
	if k.waits != nil {
		k.waits.fold()
	}
}

func (k *Kernel) watchWaits() {
	if k.waits != nil && k.waits.on {
		k.waits.watch()
	}
}
