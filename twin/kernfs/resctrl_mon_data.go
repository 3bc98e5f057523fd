package kernfs

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// The events of mon_data.
const (
	eventOccupancy = iota
	eventTotal
	eventLocal
)

var eventNames = [...]string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"}

func monDomainName(d int) string { return fmt.Sprintf("mon_L3_%02d", d) }

// addMonDomain adds a domain's directory to a group's mon_data.
func (r *resctrlFS) addMonDomain(g *resctrlGroup, d int) {
	dir := r.k.addDir(g.monData, monDomainName(d))
	for event, name := range eventNames {
		r.k.addFile(dir, name, func(buf []byte) ([]byte, error) {
			r.sync()
			if dir.gone {
				return buf, unix.ENODEV
			}
			return r.showMonitored(g, d, event, buf), nil
		}, nil)
	}
}

// setAnswer lets reading a value of an RMID say "Unavailable" or "Error", as hardware does that
// has lost it; "" is numbers again.
func (r *resctrlFS) setAnswer(rmid int, text string) {
	if text == "" {
		delete(r.answers, rmid)
		return
	}
	r.answers[rmid] = text
}

// showMonitored appends a value: a monitoring group's own, a control group's with those of
// its monitoring groups, as far as any can be read.
func (r *resctrlFS) showMonitored(g *resctrlGroup, d, event int, buf []byte) []byte {
	sum, counted := uint64(0), false
	answer := r.answers[g.rmid]
	if answer == "" {
		sum, counted = r.monitored(g, d, event), true
	}
	for _, m := range g.mon {
		if r.answers[m.rmid] == "" {
			sum, counted = sum+r.monitored(m, d, event), true
		}
	}
	if counted {
		buf = strconv.AppendUint(buf, sum, 10)
	} else {
		buf = append(buf, answer...)
	}
	return append(buf, '\n')
}

// monitored returns one group's own value.
func (r *resctrlFS) monitored(g *resctrlGroup, d, event int) uint64 {
	if event == eventOccupancy {
		return r.occupancy(g.rmid, d)
	}
	i := event - eventTotal
	return uint64(r.traffic(g.rmid, d)[i]-g.base[d][i]) / monScale * monScale
}
