package linux

import "github.com/commensal-io/commensal/kernel/resctrl"

// What a control group counts is the sum of its own number's count and of those of its monitoring groups, as far as the hardware has them at present: one that
// it lost (AMD, where more numbers are in use than it can count) is left out without a word, and in the sum again, with all that it ever counted, once the
// hardware has it back. Nobody moved that. Of monitoring groups each is asked; of a control group's own number the sum tells, which falls.

// summand is what the sum of a control group has of a monitoring group in one domain.
type summand struct {
	name resctrl.Name
	in   resctrl.Monitored // as last read; what is not Counted is not in the sum
	lost resctrl.Monitored // Counted: it was in the sum, and is not
}

// partKey is a monitoring group in one domain. Its inode stays where it goes into another control group.
type partKey struct {
	inode  uint64
	domain int
}

// turned is what a sum falls or grows by as the hardware loses a part of it or has it back.
type turned struct {
	control resctrl.Name
	by      resctrl.Monitored
	comes   bool
}

// reading is what one reading of a group says.
type reading struct {
	list []resctrl.Monitored
	id   resctrl.Identity
}

// partsLost reads monitoring groups before the sums are read, and returns what these will have lost.
func (k *meter) partsLost(d *resctrl.Driver, names []resctrl.Name) (list []turned) {
	now := map[partKey]*summand{}
	k.fresh = map[resctrl.Name]reading{}
	for _, name := range names {
		if !name.IsMon() {
			continue
		}
		read, id, err := monitored(d, name)
		if err != nil {
			continue // gone
		}
		k.fresh[name] = reading{read, id}
		for i := range read {
			m := &read[i]
			key := partKey{id.Inode, m.Domain}
			p := k.parts[key]
			if p == nil {
				p = &summand{}
			}
			p.name, now[key] = name, p
			by := resctrl.Monitored{Domain: m.Domain}
			for _, e := range p.events(m, &by) {
				if e.lost.State != resctrl.Counted && e.now.State != resctrl.Counted && e.in.State == resctrl.Counted {
					*e.by, *e.lost = *e.in, *e.in
				}
				if e.lost.State != resctrl.Counted {
					*e.in = *e.now
				}
			}
			list = append(list, turned{name.Parent(), by, false})
		}
	}
	k.parts = now
	return list
}

// partsBack reads those that were lost after the sums were read, and returns what these may have back.
func (k *meter) partsBack(d *resctrl.Driver) (list []turned) {
	for key, p := range k.parts {
		if p.lost.Total.State != resctrl.Counted && p.lost.Local.State != resctrl.Counted {
			continue
		}
		read, id, err := monitored(d, p.name)
		for i := range read {
			if err != nil || id.Inode != key.inode || read[i].Domain != key.domain {
				continue
			}
			by := resctrl.Monitored{Domain: key.domain}
			for _, e := range p.events(&read[i], &by) {
				if e.lost.State == resctrl.Counted && e.now.State == resctrl.Counted {
					*e.by, *e.in, *e.lost = *e.now, *e.now, resctrl.Count{}
				}
			}
			list = append(list, turned{p.name.Parent(), by, true})
		}
	}
	return list
}

// partEvent is one of the two counts of a part.
type partEvent struct{ in, lost, now, by *resctrl.Count }

func (p *summand) events(now, by *resctrl.Monitored) [2]partEvent {
	return [2]partEvent{{&p.in.Total, &p.lost.Total, &now.Total, &by.Total}, {&p.in.Local, &p.lost.Local, &now.Local, &by.Local}}
}

// shifted has what was read of a group fall, or grow, by what nobody moved.
func (k *meter) shifted(key meterKey, by *resctrl.Monitored, comes bool) {
	was, known := k.seen[key]
	if !known && !comes {
		return
	}
	if !known {
		was = resctrl.Monitored{Domain: by.Domain, Total: resctrl.Count{State: resctrl.Counted}, Local: resctrl.Count{State: resctrl.Counted}}
	}
	move := func(c *resctrl.Count, n resctrl.Count) {
		switch {
		case c.State != resctrl.Counted || n.State != resctrl.Counted:
		case comes:
			c.Bytes += n.Bytes
		default:
			c.Bytes -= min(c.Bytes, n.Bytes)
		}
	}
	mark := k.marks[key]
	move(&was.Total, by.Total)
	move(&was.Local, by.Local)
	move(&mark.Total, by.Total)
	move(&mark.Local, by.Local)
	k.seen[key], k.marks[key] = was, mark
}

// grown is what a count grew by. Where it fell, a part of it may come back at once: what it was stands as a mark, and the reading that reaches it is none.
func grown(now, was resctrl.Count, mark *resctrl.Count) resctrl.Count {
	g := now.Since(was)
	switch {
	case g.State == resctrl.Backwards:
		*mark = was
	case now.State == resctrl.Counted && mark.State == resctrl.Counted && now.Bytes >= mark.Bytes:
		*mark, g = resctrl.Count{}, resctrl.Count{State: resctrl.Backwards}
	}
	return g
}
