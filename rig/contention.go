package rig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Tenant is the task behind an RMID: what its instructions are like. How many CPUs it keeps busy, and under
// which limits, the guest's own kernel says.
type Tenant struct {
	RMID int
	Task machine.TaskConfig
}

// Contention answers with the counters that the guest's caches and memory would have shown, by the twin's physics
// (docs/TWIN.md): who really ran in the guest, on which socket, with which mask of ways and which MBA delay, goes into
// the machine, and what its tasks' counters and monitoring then say is what perf and resctrl read in the guest.
type Contention struct {
	Table   *Table
	Machine machine.Config
	Tenants []Tenant
	Seed    uint64

	mu     sync.Mutex
	placed map[int][]float64 // by RMID: the share of its pages on each node, as the guest told last
}

// Hear takes a line that the guest printed: where a tenant's pages are (rigtest.Pages), which the emulator does not see. Other lines are none of it.
func (c *Contention) Hear(line string) {
	text, ok := strings.CutPrefix(line, rigtest.PagesLine)
	if !ok {
		return
	}
	var rmid int
	shares := make([]float64, 2)
	if _, err := fmt.Sscan(text, &rmid, &shares[0], &shares[1]); err != nil || !(shares[0]+shares[1] > 0) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.placed == nil {
		c.placed = map[int][]float64{}
	}
	c.placed[rmid] = shares
}

// place moves pages of the machine's tasks to where the guest has those of its own.
func (c *Contention) place(l *loop) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for i := range l.seats {
		if shares := c.placed[l.seats[i].rmid]; shares != nil {
			err = errors.Join(err, l.m.SetPages(l.seats[i].num, shares))
		}
	}
	clear(c.placed)
	return err
}

const (
	// contentionEvery is how often the guest is looked at, in the host's time.
	contentionEvery = 20 * time.Millisecond
	// contentionSpan is the guest's time over which CPU time is averaged: several
	// periods of CFS bandwidth control, so that a capped task counts by its mean.
	contentionSpan = 400 * time.Millisecond
	// contentionMost is how much of the guest's time is played at once, after a halt of the host.
	contentionMost = time.Second
)

// Run answers until ctx ends. The emulator need not have started.
func (c *Contention) Run(ctx context.Context) error {
	var now [tableDomains][tableRMIDs]Ran
	state, err := newLoop(c)
	if err != nil {
		return err
	}
	tick := time.NewTicker(contentionEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		clock, err := c.Table.Clock()
		if errors.Is(err, ErrNoTable) {
			continue
		}
		if err == nil {
			err = c.Table.ReadRan(&now)
		}
		if err == nil {
			err = c.place(state)
		}
		if err == nil {
			err = state.advance(clock, &now)
		}
		if err != nil {
			return err
		}
		for i := range state.seats {
			s := &state.seats[i]
			if err := c.Table.Set(s.domain, s.rmid, s.answer); err != nil {
				return err
			}
		}
	}
}

// loop is the machine that plays what the guest's tasks run.
type loop struct {
	m     *machine.Machine
	clock uint64 // the guest's, of the last reading
	owed  int64  // of the guest's time, not played yet: less than a step
	seats []seat
}

// seat is a tenant in one domain: a task of the machine that is kept on one socket.
type seat struct {
	domain, rmid int
	task         machine.TaskConfig
	num, class   int     // of the machine
	ran          uint64  // CPU time of the last reading
	busy         float64 // CPUs, averaged
	last         machine.Counters
	total        float64 // of its traffic, as of last
	answer       Answer
}

func newLoop(c *Contention) (*loop, error) {
	m, err := machine.New(c.Machine, c.Seed)
	if err != nil {
		return nil, err
	}
	l := &loop{m: m}
	for d := range c.Machine.Sockets {
		var cpus model.CPUSet
		for cpu := range c.Machine.CPUs() {
			if c.Machine.SocketOf(cpu) == d {
				cpus.Add(cpu)
			}
		}
		for _, t := range c.Tenants {
			s := seat{domain: d, rmid: t.RMID, class: m.AddCLOS(), task: t.Task}
			s.task.CPUs, s.task.Threads, s.task.Work = cpus, c.Machine.CoresPerSocket*c.Machine.ThreadsPerCore, &machine.Work{Phases: []machine.Phase{{Nsec: 1e9}}}
			if s.num, err = m.Add(s.task); err != nil {
				return nil, err
			}
			if err := errors.Join(m.SetCLOS(s.num, s.class), m.SetRMID(s.num, 1+s.num)); err != nil {
				return nil, err
			}
			l.seats = append(l.seats, s)
		}
	}
	return l, nil
}

// advance takes in a reading, and plays the guest's time since the last one. Nothing happens when none has passed.
func (l *loop) advance(clock uint64, now *[tableDomains][tableRMIDs]Ran) error {
	if clock <= l.clock {
		return nil
	}
	span := clock - l.clock
	l.clock = clock
	for i := range l.seats {
		if err := l.seats[i].follow(l.m, span, &now[l.seats[i].domain][l.seats[i].rmid]); err != nil {
			return err
		}
	}
	l.owed += int64(min(span, uint64(contentionMost)))
	step := l.m.Config().StepNsec
	l.m.Advance(l.owed / step * step)
	l.owed %= step
	for i := range l.seats {
		if err := l.seats[i].read(l.m); err != nil {
			return err
		}
	}
	return nil
}

// follow gives a task of the machine the CPU time and the limits that its tenant has in the guest.
func (s *seat) follow(m *machine.Machine, span uint64, now *Ran) error {
	if ran := now.CPUNsec; ran >= s.ran {
		weight := min(float64(span)/float64(contentionSpan), 1)
		s.busy += weight * (float64(ran-s.ran)/float64(span) - s.busy)
	}
	s.ran = now.CPUNsec
	s.task.Work = &machine.Work{Phases: []machine.Phase{{Nsec: time.Hour.Nanoseconds(), CPUs: s.busy}}}
	err := m.Become(s.num, s.task)
	if now.WayMask != 0 { // else it has not run yet
		err = errors.Join(err, m.SetWays(s.class, s.domain, uint32(now.WayMask)), m.SetMBA(s.class, s.domain, 100-int(now.DelayPercent)))
	}
	return err
}

// read turns what its task has done since the last reading that said something into the tenant's counters.
func (s *seat) read(m *machine.Machine) error {
	now, err := m.Counters(s.num)
	if err != nil {
		return err
	}
	held, err := m.Occupancy(s.num, s.domain)
	if err != nil {
		return err
	}
	s.answer.OccupancyBytes = max(1, uint64(held))
	ran, instructions := float64(now.UsageNsec-s.last.UsageNsec), float64(now.Instructions-s.last.Instructions)
	if ran < 1e6 || instructions < 1 { // what hardly ran shows nothing, and adds to the next reading
		return nil
	}
	total, local := m.RMIDTraffic(1+s.num, s.domain)
	s.answer.CPIMilli = max(1, uint64(1000*float64(now.Cycles-s.last.Cycles)/instructions))
	s.answer.MPKI = uint64(1000*float64(now.LLCMisses-s.last.LLCMisses)/instructions + 0.5)
	s.answer.RateBytes = max(1, uint64((total-s.total)/ran*1e9))
	s.answer.LocalPercent = uint64(100*local/max(total, 1) + 0.5)
	s.last, s.total = now, total
	return nil
}
