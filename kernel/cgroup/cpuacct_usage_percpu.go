package cgroup

// cpuacct.usage_percpu: CPU time of a group and its descendants on each possible CPU, in
// nanoseconds, as cpuacct.usage is their sum. v1 only: v2 keeps no time by CPU.
//
// https://docs.kernel.org/admin-guide/cgroup-v1/cpuacct.html
//
//	1046385113204 983467120934
//
// The scheduler charges a CPU's time when it takes a task off that CPU and at each tick,
// and a reading forces neither: a task that runs on makes its CPU's number step once a
// tick, by the time that it ran without a break up to then.

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// UsagePerCPU is a group's open cpuacct.usage_percpu. It stays bound to the directory it
// was opened on, and is not safe for concurrent use.
type UsagePerCPU struct {
	d    *V1
	path string
	file hostfs.File
	buf  []byte
}

// OpenUsagePerCPU opens the CPU time by CPU of a group for repeated reading.
func (d *V1) OpenUsagePerCPU(path string) (*UsagePerCPU, error) {
	name, err := d.file(CPUAcct, path, "cpuacct.usage_percpu")
	if err != nil {
		return nil, fmt.Errorf("open cpuacct.usage_percpu of cgroup %s: %w", path, err)
	}
	f, err := d.fs.Open(name)
	if err != nil {
		return nil, d.wrap("open cpuacct.usage_percpu of", path, err)
	}
	return &UsagePerCPU{d: d, path: path, file: f, buf: make([]byte, 0, readBuffer)}, nil
}

// UsageNsec appends to dst[:0] the CPU time in nanoseconds on each possible CPU. It does
// not allocate when dst is large enough. ErrVanished: the group is gone.
func (u *UsagePerCPU) UsageNsec(dst []uint64) ([]uint64, error) {
	var err error
	if u.buf, err = u.file.ReadRecord(u.buf); err != nil {
		return dst[:0], u.d.wrap("read cpuacct.usage_percpu of", u.path, err)
	}
	if dst, err = parseUsagePerCPU(dst[:0], u.buf); err != nil {
		return dst, fmt.Errorf("read cpuacct.usage_percpu of cgroup %s: %w", u.path, err)
	}
	return dst, nil
}

// Close lets go of the descriptor.
func (u *UsagePerCPU) Close() error { return u.file.Close() }

// parseUsagePerCPU appends the file's numbers, of which there is at least one. It does not
// allocate unless it fails or dst is too small.
func parseUsagePerCPU(dst []uint64, data []byte) ([]uint64, error) {
	rest := bytes.TrimRight(data, " \n")
	for more := true; more; {
		var field []byte
		field, rest, more = bytes.Cut(rest, []byte(" "))
		v, err := parseUint(field)
		if err != nil {
			return dst[:0], err
		}
		dst = append(dst, v)
	}
	return dst, nil
}
