package machine

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// CPUSet is a set of logical CPUs or memory nodes. It is comparable.
type CPUSet [16]uint64

// maxCPUs is how many a CPUSet holds.
const maxCPUs = 16 * 64

// FullSet returns {0 ... n-1}.
func FullSet(n int) CPUSet {
	var s CPUSet
	for i := range n {
		s.Add(i)
	}
	return s
}

// Add adds an element.
func (s *CPUSet) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Remove removes an element.
func (s *CPUSet) Remove(i int) { s[i/64] &^= 1 << (i % 64) }

// Has says whether an element is in the set.
func (s *CPUSet) Has(i int) bool { return i >= 0 && i < maxCPUs && s[i/64]>>(i%64)&1 == 1 }

// And returns the elements of both.
func (s CPUSet) And(o CPUSet) CPUSet {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// Len returns the number of elements.
func (s *CPUSet) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// String returns the kernel's list format, "0-3,8".
func (s CPUSet) String() string {
	var b strings.Builder
	for i := 0; i < maxCPUs; i++ {
		if !s.Has(i) {
			continue
		}
		from := i
		for s.Has(i + 1) {
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, from)
		if i > from {
			fmt.Fprintf(&b, "-%d", i)
		}
	}
	return b.String()
}

// ParseCPUSet reads the kernel's list format; "" is the empty set.
func ParseCPUSet(text string) (CPUSet, error) {
	var s CPUSet
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 0 || to < from || to >= maxCPUs {
			return s, fmt.Errorf("machine: %q is no list of CPUs", text)
		}
		for i := from; i <= to; i++ {
			s.Add(i)
		}
	}
	return s, nil
}
