package kernfs

import (
	"slices"

	"golang.org/x/sys/unix"
)

// limboCheck is how often the kernel looks for RMIDs to release (CQM_LIMBOCHECK_INTERVAL).
const limboCheck = int64(1e9)

// rmidPool hands RMIDs out: first come, first served. One that is given back is busy until
// its lines in every domain are fewer than the threshold.
type rmidPool struct {
	free []int // in the order in which they are handed out
	busy []busyRMID
	next int64 // when the kernel looks for such
}

// busyRMID is an RMID in limbo.
type busyRMID struct {
	rmid  int
	clean []bool // by domain
}

// init fills the pool. RMID 0 is the root group's.
func (p *rmidPool) init(n int) {
	for rmid := 1; rmid < n; rmid++ {
		p.free = append(p.free, rmid)
	}
}

// alloc takes an RMID. EBUSY: all that are left are in limbo.
func (r *resctrlFS) allocRMID() (int, error) {
	p := &r.pool
	if len(p.free) == 0 {
		r.say("Out of RMIDs\n")
		if len(p.busy) > 0 {
			return 0, unix.EBUSY
		}
		return 0, unix.ENOSPC
	}
	rmid := p.free[0]
	p.free = p.free[1:]
	return rmid, nil
}

// freeRMID puts an RMID into limbo, as Linux does since 6.9 whether it is clean or not.
func (r *resctrlFS) freeRMID(rmid int) {
	p := &r.pool
	b := busyRMID{rmid: rmid, clean: make([]bool, r.cfg.Caches())}
	for d, on := range r.online {
		b.clean[d] = !on
	}
	if len(p.busy) == 0 {
		p.next = r.m.NowNsec() + limboCheck
	}
	p.busy = append(p.busy, b)
}

// forget takes a domain that goes offline for clean.
func (p *rmidPool) forget(domain int) {
	for i := range p.busy {
		p.busy[i].clean[domain] = true
	}
}

// limbo releases the RMIDs that are clean, when the kernel's worker would have looked.
func (r *resctrlFS) limbo() {
	p, now := &r.pool, r.m.NowNsec()
	if len(p.busy) == 0 || now < p.next {
		return
	}
	p.next = now - (now-p.next)%limboCheck + limboCheck
	p.busy = slices.DeleteFunc(p.busy, func(b busyRMID) bool {
		clean := true
		for d := range b.clean {
			if !b.clean[d] {
				_, odd := r.answers[b.rmid] // the hardware's refusal is taken for a no
				b.clean[d] = !odd && r.occupancy(b.rmid, d) < r.threshold
			}
			clean = clean && b.clean[d]
		}
		if clean {
			p.free = append(p.free, b.rmid)
		}
		return clean
	})
}

// occupancy returns an RMID's bytes in a domain's cache, in the hardware's unit.
func (r *resctrlFS) occupancy(rmid, domain int) uint64 {
	return uint64(r.m.RMIDOccupancy(rmid, domain)) / monScale * monScale
}

// allocCLOSID takes the lowest CLOSID that is free.
func (r *resctrlFS) allocCLOSID() (int, error) {
	for closid := range r.maxCLOSIDs() {
		if r.byCLOSID(closid) == nil {
			return closid, nil
		}
	}
	r.say("Out of CLOSIDs\n")
	return 0, unix.ENOSPC
}

// byCLOSID returns the control group that has a CLOSID, or nil.
func (r *resctrlFS) byCLOSID(closid int) *resctrlGroup {
	for _, g := range r.groups {
		if g.closid == closid {
			return g
		}
	}
	return nil
}
