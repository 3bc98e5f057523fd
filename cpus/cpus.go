// Package cpus has sets of logical CPUs or memory nodes, and the kernel's list format for
// them, as in /sys/devices/system/cpu/online and cpuset.cpus:
//
//	0-3,5,8-11
//
// https://docs.kernel.org/admin-guide/cputopology.html
package cpus

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Max is how many elements a Set can have: numbers are below it. The largest servers have
// fewer CPUs, and the kernel has no more memory nodes.
const Max = 16 * 64

// Set is a set of logical CPUs or memory nodes. It is comparable.
type Set [Max / 64]uint64

// ErrMalformed: a list does not read as the kernel writes it, or has numbers from Max on.
var ErrMalformed = errors.New("malformed list of CPUs or nodes")

// Full returns {0 ... n-1}.
func Full(n int) Set {
	var s Set
	for i := range n {
		s.Add(i)
	}
	return s
}

// Of returns the set of some numbers, which are below Max.
func Of(ids ...int) Set {
	var s Set
	for _, i := range ids {
		s.Add(i)
	}
	return s
}

// Add adds an element.
func (s *Set) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Remove removes an element.
func (s *Set) Remove(i int) { s[i/64] &^= 1 << (i % 64) }

// Has says whether an element is in the set.
func (s *Set) Has(i int) bool { return i >= 0 && i < Max && s[i/64]>>(i%64)&1 == 1 }

// And returns the elements of both.
func (s Set) And(o Set) Set {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// Or returns the elements of either.
func (s Set) Or(o Set) Set {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// Without returns the elements of s that are not in o.
func (s Set) Without(o Set) Set {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

// Within says whether every element is in o.
func (s Set) Within(o Set) bool { return s.And(o) == s }

// Empty says whether there is no element.
func (s Set) Empty() bool { return s == Set{} }

// Members returns the elements in order.
func (s Set) Members() []int {
	var list []int
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			list = append(list, w*64+bits.TrailingZeros64(word))
		}
	}
	return list
}

// MarshalText writes the kernel's list format.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the kernel's list format.
func (s *Set) UnmarshalText(b []byte) error {
	v, err := Parse(string(b))
	if err == nil {
		*s = v
	}
	return err
}

// Len returns the number of elements.
func (s *Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// String returns the kernel's list format, "0-3,8".
func (s Set) String() string {
	b := make([]byte, 0, 64)
	for i := s.next(0, true); i < Max; {
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

// next returns the first number from i on that is in the set, or that is not; Max when
// there is none.
func (s *Set) next(i int, in bool) int {
	for i < Max {
		word := s[i/64]
		if !in {
			word = ^word
		}
		if word >>= i % 64; word != 0 {
			return i + bits.TrailingZeros64(word)
		}
		i = (i/64 + 1) * 64
	}
	return Max
}

// Parse reads the kernel's list format; "" is the empty set. Surrounding white space is
// ignored. The kernel writes lists in order; people need not.
func Parse(text string) (Set, error) {
	var s Set
	text = strings.TrimSpace(text)
	if text == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(low, 10, 32)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(high, 10, 32)
		}
		if err != nil || last < first || last >= Max {
			return Set{}, fmt.Errorf("%w: %q (numbers are below %d)", ErrMalformed, part[:min(len(part), 64)], Max)
		}
		for i := first; i <= last; i++ {
			s.Add(int(i))
		}
	}
	return s, nil
}
