package model

import (
	"cmp"
	"slices"
)

// Memory is one memory with all that is near it. resctrl divides by last-level cache, and a memory is another thing: the caches of
// one socket mostly share one (AMD has up to sixteen a socket), and where a socket is divided into several nodes (Intel's sub-NUMA
// clusters) one cache has several. Nobody counts by node, so nodes of one cache are one memory here.
type Memory struct {
	// Domains are of caches and of memory bandwidth, ascending: those whose CPUs are near it.
	Domains []int32
	// Nodes are its memory nodes; none where it is not known which CPUs a domain has.
	Nodes CPUSet
}

// ID is the number of its first domain, by which it is known.
func (m *Memory) ID() int32 { return m.Domains[0] }

// Has says whether a domain is one of its.
func (m *Memory) Has(domain int32) bool { return slices.Contains(m.Domains, domain) }

// Memories returns the memories that the domains of a machine's classes of service are near, ordered by their first domain. A domain
// whose CPUs are not known is a memory of its own, and one whose CPUs are all offline is none. Nodes without CPUs (CXL, persistent memory)
// are near no domain.
func (t *Topology) Memories(have *Classes) []Memory {
	ids := slices.Concat(have.Memory, have.Caches)
	for i := range have.Domains {
		ids = append(ids, have.Domains[i].ID)
	}
	slices.Sort(ids)
	var list []Memory
	for _, id := range slices.Compact(ids) {
		m := Memory{Domains: []int32{id}}
		at := slices.IndexFunc(have.Domains, func(d Domain) bool { return d.ID == id })
		for i := range t.CPUs {
			if c := &t.CPUs[i]; at >= 0 && have.Domains[at].CPUs.Has(c.ID) {
				m.Nodes.Add(c.Node)
			}
		}
		if at >= 0 && m.Nodes.Empty() {
			continue
		}
		list = slices.DeleteFunc(list, func(o Memory) bool {
			shared := !o.Nodes.And(m.Nodes).Empty()
			if shared {
				m.Domains, m.Nodes = append(o.Domains, m.Domains...), m.Nodes.Or(o.Nodes)
			}
			return shared
		})
		slices.Sort(m.Domains)
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Memory) int { return cmp.Compare(a.ID(), b.ID()) })
	return list
}

// Online returns the classes without the domains whose CPUs are all offline: the kernel has them no longer.
func (c *Classes) Online(cpus CPUSet) *Classes {
	gone := func(id int32) bool {
		return slices.ContainsFunc(c.Domains, func(d Domain) bool { return d.ID == id && d.CPUs.And(cpus).Empty() })
	}
	if !slices.ContainsFunc(c.Domains, func(d Domain) bool { return gone(d.ID) }) {
		return c
	}
	now := *c
	now.Caches, now.Memory = slices.DeleteFunc(slices.Clone(c.Caches), gone), slices.DeleteFunc(slices.Clone(c.Memory), gone)
	now.Domains = slices.DeleteFunc(slices.Clone(c.Domains), func(d Domain) bool { return gone(d.ID) })
	return &now
}

// ObserveMemories sums up what a window says of domains by the memories that they are near, in their order: From is the earliest reading,
// To the last, the latency that of the slowest. Each has the number of its memory's first domain. What is missing of one of its domains is missing of the
// memory: a part would pass for the whole.
//
// Node is what the memory delivers to all CPUs. Of one memory it is Total; of several, what goes to others is taken to go to all of them alike,
// where Local tells how much that is, and else Total stands in its place. Of a machine of one or two domains it is what they say.
func ObserveMemories(list []Memory, of []MemoryObservation, dst []MemoryObservation) []MemoryObservation {
	dst = dst[:0]
	for i := range list {
		dst = append(dst, list[i].sum(of))
	}
	if len(of) == len(list) && len(list) <= 2 {
		return dst
	}
	for i := range dst {
		o := &dst[i]
		o.Node = o.Total
		if len(dst) == 1 || o.Local.Outcome != OK || o.Total.Outcome != OK {
			continue
		}
		node, known := o.Local.V, true
		for j := range dst {
			if other := &dst[j]; j != i {
				known = known && other.Total.Outcome == OK && other.Local.Outcome == OK
				node += max(0, other.Total.V-other.Local.V) / float64(len(dst)-1)
			}
		}
		if known {
			o.Node = Known(node)
		}
	}
	return dst
}

// sum sums up what is said of a memory's domains.
func (m *Memory) sum(of []MemoryObservation) MemoryObservation {
	none := Missing(Unavailable)
	sum := MemoryObservation{Domain: m.ID(), Total: none, Local: none, BE: none, Node: none, Latency: none}
	add := func(to *Value, v Value, first bool) {
		switch {
		case first:
			*to = v
		case to.Outcome == OK && v.Outcome == OK:
			to.V += v.V
		case to.Outcome == OK:
			*to = Missing(v.Outcome)
		}
	}
	seen := 0
	for i := range of {
		o := &of[i]
		if !m.Has(o.Domain) {
			continue
		}
		first := seen == 0
		if seen++; first {
			sum.FromNsec, sum.Latency = o.FromNsec, o.Latency
		}
		sum.FromNsec, sum.ToNsec = min(sum.FromNsec, o.FromNsec), max(sum.ToNsec, o.ToNsec)
		add(&sum.Total, o.Total, first)
		add(&sum.Local, o.Local, first)
		add(&sum.BE, o.BE, first)
		add(&sum.Node, o.Node, first)
		if o.Latency.Outcome == OK && (sum.Latency.Outcome != OK || o.Latency.V > sum.Latency.V) {
			sum.Latency = o.Latency
		}
	}
	if seen > 0 && seen < len(m.Domains) {
		sum.Total, sum.Local, sum.BE, sum.Node = none, none, none, none
	}
	return sum
}
