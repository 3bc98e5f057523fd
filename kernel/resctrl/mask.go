package resctrl

import (
	"fmt"
	"math/bits"
	"strconv"
)

// maxWays is how many ways a mask can name. The kernel's masks have 32 bits.
const maxWays = 64

// Mask is a set of cache ways. A group fills only the ways of its mask; what lies in
// other ways still hits, and shrinking a mask evicts nothing.
type Mask uint64

// Ways returns the number of ways.
func (m Mask) Ways() int { return bits.OnesCount64(uint64(m)) }

// Contiguous says whether there is no gap between the ways. An empty mask has none.
func (m Mask) Contiguous() bool {
	run := uint64(m) >> bits.TrailingZeros64(uint64(m)|1<<63)
	return m == 0 || run&(run+1) == 0
}

// String returns the mask as schemata takes it, in hexadecimal.
func (m Mask) String() string { return strconv.FormatUint(uint64(m), 16) }

// Side says where in the cache to look for ways first. Intel's I/O (DDIO) fills the high
// ones: see Cache.ShareableBits.
type Side uint8

// The sides.
const (
	LowWays Side = iota
	HighWays
)

// ContiguousMask returns a mask of n ways in a row without any way of avoid (such as what
// TakenBits returns, and the ShareableBits if devices should be left alone), as far to one
// side as it goes. ErrNoRoom when there is none; n below MinBits is refused likewise.
func (c *Cache) ContiguousMask(n int, avoid Mask, from Side) (Mask, error) {
	full := bits.Len64(uint64(c.FullMask))
	switch {
	case n < 1 || n < c.MinBits:
		return 0, fmt.Errorf("%s: a mask of %d ways: %w: the least is %d", c.Resource, n, ErrNoRoom, max(c.MinBits, 1))
	case n > full:
		return 0, fmt.Errorf("%s: a mask of %d ways: %w: there are %d", c.Resource, n, ErrNoRoom, full)
	}
	run := ^Mask(0) >> (64 - n)
	for i := 0; i+n <= full; i++ {
		shift := i
		if from == HighWays {
			shift = full - n - i
		}
		if m := run << shift; m&c.FullMask == m && m&avoid == 0 {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%s: a mask of %d ways of %s without %s: %w", c.Resource, n, c.FullMask, avoid, ErrNoRoom)
}

// TakenBits returns, per domain, the ways of a cache that groups hold for themselves:
// those in exclusive mode and the pseudo-locked ones. Groups for which skip says so (ours,
// say) do not count; skip may be nil. Under cdp the code and data halves share the ways,
// and either's count for both.
//
// The kernel refuses masks that touch an exclusive group's, so this is for choosing, not
// for safety.
func TakenBits(groups []Group, r Resource, skip func(Group) bool) map[int]Mask {
	taken := map[int]Mask{}
	for _, g := range groups {
		if g.Mode != Exclusive && g.Mode != PseudoLocked || skip != nil && skip(g) {
			continue
		}
		for _, line := range g.Schemata {
			if line.Resource.cache() != r.cache() || !line.Resource.IsCache() {
				continue
			}
			for _, v := range line.Domains {
				taken[v.Domain] |= Mask(v.Value)
			}
		}
	}
	return taken
}
