package record

import (
	"encoding/binary"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// What tasks have in domains of resctrl follows a snapshot, all integers as varints: how many entries there are, and for each the task's
// number, the domain, since_nsec as difference to the same entry of the snapshot before that had any, mono_nsec as difference to the snapshot's
// (both signed), and its counters as differences.

// earlierDomain is the same entry of the snapshot before; without any an empty one.
func (c *coder) earlierDomain(of *model.DomainSample) (earlier model.DomainSample) {
	if i, ok := slices.BinarySearchFunc(c.domains, of, func(a model.DomainSample, b *model.DomainSample) int { return a.Compare(b) }); ok {
		earlier = c.domains[i]
	}
	return earlier
}

func (c *coder) encodeDomains(b []byte, s *model.Snapshot) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.Domains)))
	for i := range s.Domains {
		d := &s.Domains[i]
		prev := c.earlierDomain(d)
		b = binary.AppendUvarint(b, uint64(d.Num))
		b = binary.AppendUvarint(b, uint64(uint32(d.Domain)))
		b = binary.AppendVarint(b, d.SinceNsec-prev.SinceNsec)
		b = binary.AppendVarint(b, d.MonoNsec-s.MonoNsec)
		b = appendCounters(b, d.C[:], prev.C[:])
	}
	c.domains = append(c.domains[:0], s.Domains...)
	return b
}

func (c *coder) decodeDomains(cur *cursor, s *model.Snapshot) {
	n := cur.uvarint()
	if n > uint64(len(cur.b)) { // an entry takes more than a byte
		cur.fail("more entries than bytes")
		return
	}
	for range n {
		d := model.DomainSample{Num: model.TaskNum(cur.uvarint()), Domain: int32(uint32(cur.uvarint()))}
		prev := c.earlierDomain(&d)
		d.SinceNsec, d.MonoNsec = prev.SinceNsec+cur.varint(), s.MonoNsec+cur.varint()
		readCounters(cur, d.C[:], prev.C[:], c.domainAt)
		if k := len(s.Domains); k > 0 && s.Domains[k-1].Compare(&d) >= 0 {
			cur.fail("domains are not in order")
		}
		if cur.err != nil {
			return
		}
		s.Domains = append(s.Domains, d)
	}
	c.domains = append(c.domains[:0], s.Domains...)
}
