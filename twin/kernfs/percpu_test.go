package kernfs_test

import (
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// The root's cpuacct.usage_percpu has what ran on each CPU, whatever cpusets did meanwhile.
func TestUsagePerCPU(t *testing.T) {
	k := newKernel(t, newMachine(t, 1), cgroup.LayoutV1)
	if _, err := k.Start("/b-registers", bystander()); err != nil {
		t.Fatal(err)
	}
	m, err := cgroup.Discover(k)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cgroup.Open(k, m)
	if err != nil {
		t.Fatal(err)
	}
	file, err := d.(*cgroup.V1).OpenUsagePerCPU("/")
	if err != nil {
		t.Fatal(err)
	}
	read := func() []uint64 {
		t.Helper()
		list, err := file.UsageNsec(nil)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	k.Advance(1e9)
	first := read()
	if err := d.(cgroup.Placer).WriteCPUs("/b-registers", "3"); err != nil {
		t.Fatal(err)
	}
	k.Advance(1e9)
	sum := uint64(0)
	for cpu, nsec := range read() {
		if grew := nsec - first[cpu]; cpu == 3 && grew < 9e8 || cpu != 3 && grew > 1e6 {
			t.Errorf("CPU %d worked for %d ns while only CPU 3 might be used", cpu, grew)
		}
		sum += nsec
	}
	if busy := k.Machine().BusyNsec(); sum > busy || sum+1e3 < busy {
		t.Errorf("%d ns on the CPUs, %d in all", sum, busy)
	}
}
