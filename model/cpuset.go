package model

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// CPUSet is a set of logical CPUs or memory nodes. It is comparable.
type CPUSet [16]uint64

// MaxCPUs is how many a CPUSet holds.
const MaxCPUs = 16 * 64

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
func (s *CPUSet) Has(i int) bool { return i >= 0 && i < MaxCPUs && s[i/64]>>(i%64)&1 == 1 }

// And returns the elements of both.
func (s CPUSet) And(o CPUSet) CPUSet {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// Or returns the elements of either.
func (s CPUSet) Or(o CPUSet) CPUSet {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// Without returns the elements of s that are not in o.
func (s CPUSet) Without(o CPUSet) CPUSet {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

// Within says whether every element is in o.
func (s CPUSet) Within(o CPUSet) bool { return s.And(o) == s }

// Empty says whether there is no element.
func (s CPUSet) Empty() bool { return s == CPUSet{} }

// Members returns the elements in order.
func (s CPUSet) Members() []int {
	var list []int
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			list = append(list, w*64+bits.TrailingZeros64(word))
		}
	}
	return list
}

// MarshalText writes the kernel's list format.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the kernel's list format.
func (s *CPUSet) UnmarshalText(b []byte) error {
	v, err := ParseCPUSet(string(b))
	if err == nil {
		*s = v
	}
	return err
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
	b := make([]byte, 0, 64)
	for i := s.next(0, true); i < MaxCPUs; {
		end := s.next(i, false)
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(i), 10)
		if end > i+1 {
			b = strconv.AppendInt(append(b, '-'), int64(end-1), 10)
		}
		i = s.next(end, true)
	}
	return string(b)
}

// next returns the first number from i on that is in the set, or that is not; MaxCPUs when
// there is none.
func (s *CPUSet) next(i int, in bool) int {
	for i < MaxCPUs {
		word := s[i/64]
		if !in {
			word = ^word
		}
		if word >>= i % 64; word != 0 {
			return i + bits.TrailingZeros64(word)
		}
		i = (i/64 + 1) * 64
	}
	return MaxCPUs
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
		if err != nil || from < 0 || to < from || to >= MaxCPUs {
			return s, fmt.Errorf("%q is no list of CPUs", text)
		}
		for i := from; i <= to; i++ {
			s.Add(i)
		}
	}
	return s, nil
}
