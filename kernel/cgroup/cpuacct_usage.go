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

	"github.com/commensal-io/commensal/kernel/hostfs"
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

// v1RootUsage reads the root's cpuacct.usage.
type v1RootUsage struct {
	file hostfs.File
	buf  []byte
}

// OpenRootUsage implements Driver.
func (d *V1) OpenRootUsage() (RootUsage, error) {
	name, err := d.file(CPUAcct, "/", "cpuacct.usage")
	if err != nil {
		return nil, fmt.Errorf("open the root's usage: %w", err)
	}
	f, err := d.fs.Open(name)
	if err != nil {
		return nil, d.wrap("open cpuacct.usage of", "/", err)
	}
	return &v1RootUsage{file: f}, nil
}

// UsageNsec implements RootUsage.
func (u *v1RootUsage) UsageNsec() (uint64, error) {
	var err error
	if u.buf, err = u.file.ReadRecord(u.buf); err != nil {
		return 0, fmt.Errorf("read the root's cpuacct.usage: %w", err)
	}
	return parseUint(u.buf)
}

// Close implements RootUsage.
func (u *v1RootUsage) Close() error { return u.file.Close() }
