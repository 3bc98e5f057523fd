package resctrl

// How many groups can still be made. The kernel has no file for it; it follows from the
// groups that there are:
//
//   - A control group takes a CLOSID and, where anything is monitored, an RMID; a
//     monitoring group an RMID. The root group takes one of each.
//   - A pseudo-locked group has given both back, one that waits for its region has given
//     its RMID back. Devices with an allocation of their own (io_alloc) take a CLOSID.
//   - An RMID whose group was removed may still have lines in the cache, and is kept in
//     limbo until its occupancy is below info/L3_MON/max_threshold_occupancy in every
//     domain. The kernel looks once a second. Before 6.9 an RMID that was clean when its
//     group was removed is free at once; later ones always go through limbo.
//
// On Arm an RMID belongs to a CLOSID, and num_rmids counts the pairs: there the number of
// free RMIDs is an upper bound.
//
// What is in limbo cannot be read, only noticed: a creation fails with EBUSY when all
// free RMIDs are in it. So Pool.Limbo is a memory of what this driver has seen within the
// last second: RMIDs that it freed, or such a failure.

import (
	"fmt"
	"time"
)

// limboPeriod is how often the kernel looks for RMIDs to release (CQM_LIMBOCHECK_INTERVAL).
const limboPeriod = time.Second

// limbo is what the driver knows of RMIDs in limbo.
type limbo struct {
	freed []time.Time // when this driver removed groups, within the last limboPeriod
	all   time.Time   // when a creation last failed because all were
}

// Pool is one kind of number that groups take.
type Pool struct {
	Known  bool // false where groups take none: nothing is monitored, or nothing controlled
	Total  int
	Ours   int // taken by our groups
	Others int // taken by the root group, by others' groups and by devices
	// Limbo is how many of the free ones may be in limbo, as far as this driver knows;
	// always 0 for CLOSIDs.
	Limbo int
}

// Free returns what no group holds, those in limbo included.
func (p Pool) Free() int { return max(p.Total-p.Ours-p.Others, 0) }

// String says it for people: "1 of 8 free (2 ours, 5 others')".
func (p Pool) String() string {
	if !p.Known {
		return "none here"
	}
	s := fmt.Sprintf("%d of %d free (%d ours, %d others')", p.Free(), p.Total, p.Ours, p.Others)
	if p.Limbo > 0 {
		s += fmt.Sprintf(", up to %d of them in limbo", p.Limbo)
	}
	return s
}

// Budget is what groups can still be made of.
type Budget struct {
	CLOSIDs Pool
	RMIDs   Pool
	Bound   Bound
}

// Bound is what our options leave to us: the numbers of groups that the driver would still
// make, after its reserve for others. RMIDs in limbo count as left.
type Bound struct {
	CtrlGroups int
	MonGroups  int
	// MonBeside is how many monitoring groups there can be while all control groups are made that may be; below 0: so many are too many.
	MonBeside int
}

// Budget counts what is left.
func (d *Driver) Budget() (Budget, error) {
	var b Budget
	err := d.locked(toRead, func() (err error) {
		b, err = d.budget()
		return err
	})
	return b, err
}

func (d *Driver) budget() (Budget, error) {
	info, err := d.info()
	if err != nil {
		return Budget{}, err
	}
	names, err := d.Names()
	if err != nil {
		return Budget{}, err
	}
	var users []user
	for _, n := range names {
		u := user{ours: d.ours(n), mon: n.IsMon()}
		if !u.mon && !n.IsRoot() {
			// A group that vanishes here counts once too often: the safe side.
			u.mode, _ = d.ReadMode(n)
		}
		users = append(users, u)
	}
	b := countBudget(info, users)
	b.RMIDs.Limbo = d.inLimbo(d.opt.Clock.Now(), b.RMIDs.Free())
	left := func(p Pool, reserve int) int { return max(p.Free()-reserve, 0) }
	b.Bound.CtrlGroups = left(b.CLOSIDs, d.opt.ReserveCLOSIDs)
	if b.RMIDs.Known {
		b.Bound.MonGroups = left(b.RMIDs, d.opt.ReserveRMIDs)
		b.Bound.MonBeside = b.RMIDs.Free() - d.opt.ReserveRMIDs - b.Bound.CtrlGroups
		b.Bound.CtrlGroups = min(b.Bound.CtrlGroups, b.Bound.MonGroups)
	}
	return b, nil
}

// user is a group as far as the budget is concerned.
type user struct {
	ours, mon bool
	mode      Mode
}

// countBudget counts what groups take.
func countBudget(info *Info, users []user) Budget {
	var b Budget
	b.CLOSIDs = Pool{Total: info.NumCLOSIDs()}
	b.CLOSIDs.Known = b.CLOSIDs.Total > 0
	if info.Monitoring != nil {
		b.RMIDs = Pool{Known: true, Total: info.Monitoring.NumRMIDs}
	}
	if info.ioAlloc() {
		b.CLOSIDs.Others++
	}
	for _, u := range users {
		if b.CLOSIDs.Known && !u.mon && u.mode != PseudoLocked {
			b.CLOSIDs.take(u.ours)
		}
		if b.RMIDs.Known && u.mode != PseudoLocked && u.mode != PseudoLockSetup {
			b.RMIDs.take(u.ours)
		}
	}
	return b
}

func (p *Pool) take(ours bool) {
	if ours {
		p.Ours++
	} else {
		p.Others++
	}
}

// inLimbo returns how many of the free RMIDs may be in limbo, and forgets what is old.
func (d *Driver) inLimbo(now time.Time, free int) int {
	d.limboMu.Lock()
	defer d.limboMu.Unlock()
	recent := d.limbo.freed[:0]
	for _, t := range d.limbo.freed {
		if now.Sub(t) < limboPeriod {
			recent = append(recent, t)
		}
	}
	d.limbo.freed = recent
	if now.Sub(d.limbo.all) < limboPeriod {
		return free
	}
	return min(len(recent), free)
}

// noteFreed remembers RMIDs that were freed.
func (d *Driver) noteFreed(now time.Time, n int) {
	d.limboMu.Lock()
	defer d.limboMu.Unlock()
	for range n {
		d.limbo.freed = append(d.limbo.freed, now)
	}
}

// noteLimbo remembers whether a creation found all free RMIDs in limbo.
func (d *Driver) noteLimbo(now time.Time, all bool) {
	d.limboMu.Lock()
	defer d.limboMu.Unlock()
	d.limbo.all = time.Time{}
	if all {
		d.limbo.all = now
	}
}

// allows refuses what would go below the reserve. The kernel is not asked.
func (b Budget) allows(mon bool, o Options) error {
	switch {
	case !mon && !b.CLOSIDs.Known:
		return fmt.Errorf("%w: nothing can be controlled here", ErrUnsupported)
	case mon && !b.RMIDs.Known:
		return fmt.Errorf("%w: nothing can be monitored here", ErrUnsupported)
	case !mon && b.CLOSIDs.Free() <= o.ReserveCLOSIDs:
		return fmt.Errorf("CLOSIDs: %w: %s, %d kept for others", ErrExhausted, b.CLOSIDs, o.ReserveCLOSIDs)
	case b.RMIDs.Known && b.RMIDs.Free() <= o.ReserveRMIDs:
		return fmt.Errorf("RMIDs: %w: %s, %d kept for others", ErrExhausted, b.RMIDs, o.ReserveRMIDs)
	}
	return nil
}
