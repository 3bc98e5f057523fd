package cgroup

// cpuacct.usage: CPU time of a group and its descendants, in nanoseconds, from the
// scheduler's own clock (no tick rounding).
//
// https://docs.kernel.org/admin-guide/cgroup-v1/cpuacct.html
//
//	1046385113204

import (
	"bytes"
	"fmt"
	"strconv"
)

// parseUint reads the single number of a kernel file. It does not allocate unless it
// fails.
func parseUint(data []byte) (uint64, error) {
	v, err := strconv.ParseUint(string(bytes.TrimSuffix(data, []byte("\n"))), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w number %q", ErrMalformed, clip(data))
	}
	return v, nil
}

// parseInt reads the single signed number of a kernel file (a quota may be -1).
func parseInt(data []byte) (int64, error) {
	v, err := strconv.ParseInt(string(bytes.TrimSuffix(data, []byte("\n"))), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w number %q", ErrMalformed, clip(data))
	}
	return v, nil
}

// clip keeps an error's text short whatever a file held.
func clip(data []byte) []byte { return data[:min(len(data), 64)] }
