package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// DomainCounter says which counter of a task in one domain is meant. Records name counters.
type DomainCounter uint8

// The counters of a task in a domain.
const (
	CountOccupancy DomainCounter = iota
	CountMovedTotal
	CountMovedLocal
	NumDomainCounters
)

var domainCounters = [NumDomainCounters]CounterRow{
	// No count: as it is at the reading.
	CountOccupancy:  {Name: "occupancy", Unit: "bytes", From: "llc_occupancy of the task's monitoring group of resctrl: its lines in the domain's last-level cache", Optional: true},
	CountMovedTotal: {Name: "total", Unit: "bytes", From: "mbm_total_bytes: to and from any memory, by what of the task runs in the domain", Optional: true},
	CountMovedLocal: {Name: "local", Unit: "bytes", From: "mbm_local_bytes: the part to the domain's own memory", Optional: true},
}

// DomainCounters describes the counters of a task in a domain, by number.
func DomainCounters() []CounterRow { return domainCounters[:] }

// DomainSample is one raw reading of what a task has of the last-level cache of a domain of resctrl, and of what its threads there
// move to and from memory. It is taken beside the loop, so it has a time of its own.
type DomainSample struct {
	Num    TaskNum
	Domain int32
	// SinceNsec is when the task was begun to be counted, by the monotonic clock. Counters of other beginnings are other counters: the kernel gave
	// the task another number to be counted by, and its lines in the cache bear the old one until they are replaced.
	SinceNsec int64
	MonoNsec  int64
	C         [NumDomainCounters]Counter
}

// Compare orders samples by task and domain.
func (s *DomainSample) Compare(o *DomainSample) int {
	return cmp.Or(cmp.Compare(s.Num, o.Num), cmp.Compare(s.Domain, o.Domain))
}

// MarshalJSON writes the counters by name.
func (s DomainSample) MarshalJSON() ([]byte, error) {
	b := fmt.Appendf(nil, `{"task":%d,"domain":%d,"since_nsec":%d,"mono_nsec":%d`, s.Num, s.Domain, s.SinceNsec, s.MonoNsec)
	return appendCounters(b, domainCounters[:], s.C[:]), nil
}

// UnmarshalJSON reads the counters by name.
func (s *DomainSample) UnmarshalJSON(b []byte) error {
	var at struct {
		Domain    int32 `json:"domain"`
		SinceNsec int64 `json:"since_nsec"`
		MonoNsec  int64 `json:"mono_nsec"`
	}
	if err := json.Unmarshal(b, &at); err != nil {
		return err
	}
	s.Domain, s.SinceNsec, s.MonoNsec = at.Domain, at.SinceNsec, at.MonoNsec
	return readCounters(b, domainCounters[:], s.C[:], "task", &s.Num)
}

// DomainObservation is what two readings of a task in a domain say.
type DomainObservation struct {
	Num    TaskNum `json:"task"`
	Domain int32   `json:"domain"`
	// Occupancy is the bytes of the domain's last-level cache that the task's lines fill, at the later reading. Fresh where the task was not
	// counted by the same number at the earlier one: lines of before bear another, and those under this one may be of whoever had it.
	Occupancy Value `json:"occupancy"`
	Total     Value `json:"total"` // bytes a second to and from any memory
	Local     Value `json:"local"` // the part to the domain's own
}

// observeDomains derives what two snapshots say of each task and domain that the later one has.
func observeDomains(prev, cur *Snapshot, dst []DomainObservation) []DomainObservation {
	for i := range cur.Domains {
		c := &cur.Domains[i]
		o := DomainObservation{Num: c.Num, Domain: c.Domain, Occupancy: Missing(Fresh), Total: Missing(Fresh), Local: Missing(Fresh)}
		j, ok := slices.BinarySearchFunc(prev.Domains, c, func(a DomainSample, b *DomainSample) int { return a.Compare(b) })
		if ok && prev.Domains[j].SinceNsec == c.SinceNsec && prev.Domains[j].MonoNsec < c.MonoNsec {
			p := &prev.Domains[j]
			bytes := func(k DomainCounter) Value {
				v := rate(p.C[k], c.C[k], c.MonoNsec-p.MonoNsec)
				v.V *= 1e9
				return v
			}
			o.Occupancy, o.Total, o.Local = c.C[CountOccupancy].gauge(), bytes(CountMovedTotal), bytes(CountMovedLocal)
		}
		dst = append(dst, o)
	}
	return dst
}

// In returns what the window says of one task, by domain; none where nobody counted.
func (o *Observation) In(num TaskNum) []DomainObservation {
	at := func(n TaskNum) int {
		i, _ := slices.BinarySearchFunc(o.Domains, n, func(d DomainObservation, n TaskNum) int { return cmp.Compare(d.Num, n) })
		return i
	}
	return o.Domains[at(num):at(num+1)]
}

// SumDomains sums up what a task has of the last-level caches, in bytes, and moves to and from memory, in bytes a second. What is missing in one domain is
// missing in the sum.
func SumDomains(list []DomainObservation) (occupancy, moved Value) {
	occupancy, moved = Missing(Unavailable), Missing(Unavailable)
	add := func(sum *Value, v Value, first bool) {
		switch {
		case first:
			*sum = v
		case sum.Outcome == OK && v.Outcome == OK:
			sum.V += v.V
		case sum.Outcome == OK:
			*sum = Missing(v.Outcome)
		}
	}
	for i := range list {
		add(&occupancy, list[i].Occupancy, i == 0)
		add(&moved, list[i].Total, i == 0)
	}
	return occupancy, moved
}
