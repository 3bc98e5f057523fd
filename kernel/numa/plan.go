package numa

// The arithmetic of shares: how many pages go from where to where, and which. Pure.
//
// Which pages: those of a node with too many are passed in the order of their addresses,
// and every so manieth is taken, so that what moves is spread evenly over the address
// space. BALM wants it so: the task's threads, whatever part each works on, then all see
// the same share of remote memory. With S pages on the node of which M are to go, each
// page that is passed adds M to what is owed, and when that has come to half of S the page
// is taken and S is paid. After S pages exactly M are taken, also when M does not divide
// S; and a page that could not be moved is owed again, so that the next one goes instead.
//
// A huge page moves as one. It is taken when half of its own size is owed, which leaves at
// most half a huge page too many or too few.
//
// Rejected: a random choice (not the same twice, and clustered); the first M pages (one
// end of the heap would be remote and the other local); a hash of the address against the
// share (nested sets are pleasant for going back, but the number is only roughly right,
// and pages that already lie on the target would be moved away by turns).

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/commensal-io/commensal/cpus"
)

// Share is how large a part of a process's pages is to be on a node: Parts of the sum of
// all parts. {0, 90} and {1, 10} put a tenth on node 1; the pages that a survey found by
// node put them back. Pages on nodes that no share names are to leave them.
type Share struct {
	Node  int
	Parts uint64
}

// SharesOf returns the shares that put pages back where they were counted.
func SharesOf(pages Counts) []Share {
	shares := make([]Share, 0, len(pages))
	for _, c := range pages {
		shares = append(shares, Share{Node: c.Node, Parts: c.Count})
	}
	return shares
}

// checkShares returns ErrBadShares unless each node is named once, in range, and the parts
// have a sum above zero that does not overflow.
func checkShares(shares []Share) error {
	var seen cpus.Set
	var sum, carry uint64
	for _, s := range shares {
		if s.Node < 0 || s.Node >= MaxNodes || seen.Has(s.Node) {
			return fmt.Errorf("%w: node %d", ErrBadShares, s.Node)
		}
		seen.Add(s.Node)
		if sum, carry = bits.Add64(sum, s.Parts, 0); carry != 0 {
			return fmt.Errorf("%w: they add up to more than 64 bits", ErrBadShares)
		}
	}
	if sum == 0 {
		return ErrBadShares
	}
	return nil
}

// apportion splits total by the shares: each node's part rounded down, and what is left
// one by one to the largest remainders, the lower number first among equals.
func apportion(total uint64, shares []Share) Counts {
	var sum uint64
	for _, s := range shares {
		sum += s.Parts
	}
	type part struct {
		node      int
		remainder uint64
	}
	want := make(Counts, 0, len(shares))
	parts := make([]part, 0, len(shares))
	left := total
	for _, s := range shares {
		high, low := bits.Mul64(total, s.Parts)
		n, remainder := bits.Div64(high, low, sum)
		want = want.Add(s.Node, n)
		parts = append(parts, part{s.Node, remainder})
		left -= n
	}
	slices.SortFunc(parts, func(a, b part) int {
		if a.remainder != b.remainder {
			if a.remainder > b.remainder {
				return -1
			}
			return 1
		}
		return a.node - b.node
	})
	for i := range left {
		want = want.Add(parts[i].node, 1)
	}
	return want
}

// planNode is one node's part in a plan. Numbers are pages.
type planNode struct {
	node int
	have uint64 // when the plan was made
	out  uint64 // to leave: have above want
	in   uint64 // to arrive: want above have
	// owed is what is due of the pages that were passed, times have.
	owed int64
	// come is what is still to arrive; below zero after a huge page too many.
	come int64
	// turn spreads arrivals over several targets, as their in demands.
	turn int64
}

// plan is what one process's pages are to do.
type plan struct {
	nodes []planNode // ascending
	total uint64     // pages to move
}

// newPlan plans from where pages are to the shares.
func newPlan(have Counts, shares []Share) plan {
	var p plan
	for _, c := range apportion(have.Total(), shares).AddAll(zeros(have)) {
		want := c.Count
		present, _ := have.Get(c.Node)
		stay := min(present, want)
		n := planNode{node: c.Node, have: present, out: present - stay, in: want - stay}
		n.come = int64(n.in)
		p.nodes = append(p.nodes, n)
		p.total += n.out
	}
	return p
}

// shift makes another pass choose other pages than the one before: those that did not move
// would be chosen again, and would not move again. It changes when the first page is due,
// anywhere within one stride, and not how many are.
func (p *plan) shift(pass int) {
	for i := range p.nodes {
		n := &p.nodes[i]
		// Multiples of the golden ratio fall far from each other; the first is zero.
		n.owed = int64(n.have)*int64((500+618*pass)%1000)/1000 - int64(n.have/2)
	}
}

// zeros returns the nodes of c with nothing on them.
func zeros(c Counts) Counts {
	z := slices.Clone(c)
	for i := range z {
		z[i].Count = 0
	}
	return z
}

// index returns the index of a node, -1 when the plan has nothing on it.
func (p *plan) index(node int) int {
	return slices.IndexFunc(p.nodes, func(n planNode) bool { return n.node == node })
}

// source returns the index of a node that has pages to give, -1 for any other.
func (p *plan) source(node int) int {
	return slices.IndexFunc(p.nodes, func(n planNode) bool { return n.node == node && n.out > 0 })
}

// pass notes that a page of source i was come to.
func (p *plan) pass(i int) { p.nodes[i].owed += int64(p.nodes[i].out) }

// unpass takes a pass back: the page will be come to again.
func (p *plan) unpass(i int) { p.nodes[i].owed -= int64(p.nodes[i].out) }

// due says whether pages that move together, of which the last passed is one, are to go.
func (p *plan) due(i int, pages uint64) bool {
	n := &p.nodes[i]
	return 2*n.owed >= int64(n.have*pages)
}

// noTarget and noRoom are what target answers instead of an index.
const (
	noTarget = -1 // nothing more is to arrive anywhere
	noRoom   = -2 // what is to arrive has no room
)

// target chooses where pages that move together go: a node that still wants at least half
// of them and has room, each in its turn.
func (p *plan) target(pages uint64, room func(node int) uint64) int {
	best := noTarget
	for d := range p.nodes {
		n := &p.nodes[d]
		switch {
		case 2*n.come < int64(pages):
		case room(n.node) < pages:
			if best == noTarget {
				best = noRoom
			}
		case best < 0 || n.turn+int64(n.in) > p.nodes[best].turn+int64(p.nodes[best].in):
			best = d
		}
	}
	return best
}

// take notes that pages of source i are on their way to target d.
func (p *plan) take(i, d int, pages uint64) {
	n := &p.nodes[i]
	n.owed -= int64(n.have * pages)
	for k := range p.nodes {
		p.nodes[k].turn += int64(p.nodes[k].in * pages)
	}
	p.nodes[d].turn -= int64(p.total * pages)
	p.nodes[d].come -= int64(pages)
}

// giveBack undoes a take of pages that did not move: they are owed again. Whose turn it is
// stays as it is.
func (p *plan) giveBack(i, d int, pages uint64) {
	p.nodes[i].owed += int64(p.nodes[i].have * pages)
	p.nodes[d].come += int64(pages)
}

// remaining returns how many pages are still to arrive.
func (p *plan) remaining() uint64 {
	var n uint64
	for i := range p.nodes {
		n += uint64(max(p.nodes[i].come, 0))
	}
	return n
}
