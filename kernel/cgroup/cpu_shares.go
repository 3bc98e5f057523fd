package cgroup

// cpu.shares and cpu.idle: a v1 group's weight against its siblings (v2: cpu_weight.go).
//
// https://docs.kernel.org/scheduler/sched-design-CFS.html#cfs-group-scheduler-extensions-to-cfs
//
//	cpu.shares  1024   (2 to 262144; the kernel clamps what is written)
//	cpu.idle       0   (1: SCHED_IDLE for the whole group; since Linux 5.15)
//
// cpu.idle = 1 makes cpu.shares read 3 and refuse writes (EINVAL); cpu.idle = 0 then sets
// it to 1024, whatever it was before. So shares must be read before a group is made idle,
// and written again after.

import "fmt"

// ReadShares returns the group's cpu.shares.
func (d *V1) ReadShares(path string) (uint64, error) {
	data, err := d.read(CPU, path, "cpu.shares")
	return parsed(data, err, path, "cpu.shares", parseUint)
}

// WriteShares sets the group's cpu.shares.
func (d *V1) WriteShares(path string, shares uint64) error {
	return d.write(CPU, path, "cpu.shares", fmt.Sprint(shares))
}

// ReadIdle says whether the group is SCHED_IDLE; ErrUnsupported before Linux 5.15.
func (d *V1) ReadIdle(path string) (bool, error) {
	v, err := d.readInt(CPU, path, "cpu.idle")
	if err != nil {
		return false, err
	}
	if v != 0 && v != 1 {
		return false, fmt.Errorf("read cpu.idle of cgroup %s: %w: %d", path, ErrMalformed, v)
	}
	return v == 1, nil
}

// WriteIdle makes the group SCHED_IDLE, or normal again with cpu.shares 1024.
func (d *V1) WriteIdle(path string, idle bool) error {
	value := int64(0)
	if idle {
		value = 1
	}
	return d.writeInt(CPU, path, "cpu.idle", value)
}
