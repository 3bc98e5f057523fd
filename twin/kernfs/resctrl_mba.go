package kernfs

// The kernel's own controller of mba_MBps: once a second it compares a group's bandwidth in
// each domain with the limit, and moves the group's MBA level by one step (update_mba_bw).

// mbaControl is the controller's memory.
type mbaControl struct {
	next int64
	last map[mbaKey]float64 // local traffic when it last looked
}

type mbaKey struct {
	rmid, domain int
}

// regulate does what has become due. A look that was missed is not made up for.
func (r *resctrlFS) regulate() {
	c, now := &r.control, r.m.NowNsec()
	if c.last == nil {
		c.last, c.next = map[mbaKey]float64{}, now
	}
	if now < c.next {
		return
	}
	seconds := float64(now-c.next)/1e9 + 1
	c.next = now + 1e9
	for _, g := range r.groups {
		for d, on := range r.online {
			if on {
				r.regulateGroup(g, d, seconds)
			}
		}
	}
}

func (r *resctrlFS) regulateGroup(g *resctrlGroup, d int, seconds float64) {
	c, mb := &r.control, r.schemata[0]
	rate, known := 0.0, true
	for _, m := range append(g.mon[:len(g.mon):len(g.mon)], g) {
		key := mbaKey{m.rmid, d}
		local := r.traffic(m.rmid, d)[1]
		before, ok := c.last[key]
		c.last[key] = local
		known = known && ok
		rate += (local - before) / seconds / (1 << 20)
	}
	if !known {
		return
	}
	level, limit := int(mb.ctrl[d][g.closid]), float64(mb.mbps[d][g.closid])
	// A step up costs no more than the bandwidth of a step at the present level.
	step := rate * bandwidthGran / float64(level)
	switch {
	case rate > limit && level-bandwidthGran >= minBandwidth:
		r.set(mb, d, g.closid, uint32(level-bandwidthGran))
	case rate+step < limit && level+bandwidthGran <= 100:
		r.set(mb, d, g.closid, uint32(level+bandwidthGran))
	}
}
