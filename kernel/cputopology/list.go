// Package cputopology reads which CPUs are online and what they share: core, package,
// NUMA node and last-level cache.
package cputopology

// The kernel's list format, as in /sys/devices/system/cpu/online and cpuset.cpus.
//
// https://docs.kernel.org/admin-guide/cputopology.html
//
//	0-3,5,8-11

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrMalformed is returned when a file or list does not read as its documentation says.
var ErrMalformed = errors.New("malformed")

// maxID bounds the numbers of a list, so that a wrong one cannot ask for gigabytes. The
// kernel's greatest NR_CPUS is 8192.
const maxID = 1<<16 - 1

// ParseList reads a list of CPU or node numbers and returns them ascending, each once.
// Surrounding white space is ignored; an empty list is none. The kernel writes lists in
// order; people need not.
func ParseList(s string) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	if len(s) > 8*(maxID+1) {
		return nil, fmt.Errorf("%w list: %d bytes long", ErrMalformed, len(s))
	}
	member := make([]bool, 0, 64)
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := parseID(low)
		last := first
		if err == nil && isRange {
			last, err = parseID(high)
		}
		if err != nil || last < first {
			return nil, fmt.Errorf("%w list: %q", ErrMalformed, part[:min(len(part), 64)])
		}
		if need := last + 1 - len(member); need > 0 {
			member = append(member, make([]bool, need)...)
		}
		for i := first; i <= last; i++ {
			member[i] = true
		}
	}
	var ids []int
	for i, in := range member {
		if in {
			ids = append(ids, i)
		}
	}
	return ids, nil
}

func parseID(s string) (int, error) {
	v, err := strconv.ParseUint(s, 10, 32)
	if err == nil && v > maxID {
		err = strconv.ErrRange
	}
	return int(v), err
}

// FormatList writes numbers as the kernel does: ascending, each once, with ranges.
func FormatList(ids []int) string {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}
