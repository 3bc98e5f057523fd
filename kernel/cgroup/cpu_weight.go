package cgroup

// cpu.weight and cpu.idle of v2: a group's weight against its siblings (v1: cpu_shares.go).
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
//
//	cpu.weight  100   (1 to 10000; beyond that ERANGE)
//	cpu.idle      0   (1: SCHED_IDLE for the whole group; since Linux 5.15)
//
// The kernel keeps the weight on v1's scale, in which 1024 is the default:
// shares = round(weight * 1024 / 100). So each weight has shares of its own, and about ten
// values of shares have the same weight.
//
// cpu.idle = 1 makes cpu.weight read 0 (1 on newer kernels: 6.12) and refuse writes
// (EINVAL); cpu.idle = 0 then sets it to 100, whatever it was before.

import (
	"fmt"
	"strconv"
)

const (
	minWeight     = 1     // CGROUP_WEIGHT_MIN
	maxWeight     = 10000 // CGROUP_WEIGHT_MAX
	defaultWeight = 100   // CGROUP_WEIGHT_DFL
	defaultShares = 1024  // of v1
	idleShares    = 3     // WEIGHT_IDLEPRIO: what cpu.shares of an idle group reads on v1
)

// ReadWeight returns the group's cpu.weight: 1 to 10000, 0 or 1 for an idle group.
func (d *V2) ReadWeight(path string) (uint64, error) {
	w, err := d.readUint(path, "cpu.weight")
	if err == nil && w > maxWeight {
		return 0, fmt.Errorf("read cpu.weight of cgroup %s: %w: %d", path, ErrMalformed, w)
	}
	return w, err
}

// WriteWeight sets the group's cpu.weight: 1 to 10000, else ERANGE.
func (d *V2) WriteWeight(path string, weight uint64) error {
	return d.write(path, "cpu.weight", strconv.FormatUint(weight, 10))
}

// ReadShares implements Driver.
func (d *V2) ReadShares(path string) (uint64, error) {
	w, err := d.ReadWeight(path)
	if err != nil {
		return 0, err
	}
	return weightToShares(w), nil
}

// WriteShares implements Driver.
func (d *V2) WriteShares(path string, shares uint64) error {
	return d.WriteWeight(path, sharesToWeight(shares))
}

// RoundShares returns what shares read back as once V2's WriteShares wrote them.
func RoundShares(shares uint64) uint64 { return weightToShares(sharesToWeight(shares)) }

func weightToShares(weight uint64) uint64 {
	if weight == 0 {
		return idleShares
	}
	return (weight*defaultShares + defaultWeight/2) / defaultWeight
}

func sharesToWeight(shares uint64) uint64 {
	shares = min(shares, maxWeight*defaultShares/defaultWeight)
	return min(max((shares*defaultWeight+defaultShares/2)/defaultShares, minWeight), maxWeight)
}

// ReadIdle implements Driver.
func (d *V2) ReadIdle(path string) (bool, error) {
	v, err := d.readUint(path, "cpu.idle")
	if err != nil {
		return false, err
	}
	if v > 1 {
		return false, fmt.Errorf("read cpu.idle of cgroup %s: %w: %d", path, ErrMalformed, v)
	}
	return v == 1, nil
}

// WriteIdle implements Driver.
func (d *V2) WriteIdle(path string, idle bool) error {
	if idle {
		return d.write(path, "cpu.idle", "1")
	}
	return d.write(path, "cpu.idle", "0")
}
