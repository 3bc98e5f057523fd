package cgroup

// cpuset.cpus, cpuset.mems and cpuset.effective_cpus: where a group may run and allocate.
//
// https://docs.kernel.org/admin-guide/cgroup-v1/cpusets.html
//
//	cpuset.cpus            0-3,8
//	cpuset.mems            0
//	cpuset.effective_cpus  0-3      (cpus that are online, within the parent's)
//
// Lists are the kernel's list format and are handed through as text without the newline;
// a new group's are empty, and a group with an empty list takes no process (ENOSPC).

import "bytes"

// ReadCPUs returns the group's cpuset.cpus.
func (d *V1) ReadCPUs(path string) (string, error) { return d.readLine(path, "cpuset.cpus") }

// ReadMems returns the group's cpuset.mems.
func (d *V1) ReadMems(path string) (string, error) { return d.readLine(path, "cpuset.mems") }

// ReadEffectiveCPUs returns the CPUs that the group's processes may in fact use.
func (d *V1) ReadEffectiveCPUs(path string) (string, error) {
	return d.readLine(path, "cpuset.effective_cpus")
}

// WriteCPUs sets the group's cpuset.cpus.
func (d *V1) WriteCPUs(path, list string) error {
	// The newline makes an empty list a write at all.
	return d.write(CPUSet, path, "cpuset.cpus", list+"\n")
}

// WriteMems sets the group's cpuset.mems.
func (d *V1) WriteMems(path, list string) error {
	return d.write(CPUSet, path, "cpuset.mems", list+"\n")
}

func (d *V1) readLine(path, name string) (string, error) {
	data, err := d.read(CPUSet, path, name)
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(data, []byte("\n"))), nil
}
