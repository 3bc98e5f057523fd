package numa

// /proc/sys/kernel/numa_balancing: whether the kernel moves pages after the CPUs that
// touch them.
//
// https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing
//
//	1
//
// 0 off; bit 0: toward the CPUs that use a page; bit 1: hot pages to the faster tier.
// On, it works against the Mover: pages that were moved away from a task's CPUs come
// back as the task touches them, some seconds later. It leaves alone memory with an
// explicit policy (bind, interleave, prefer), unless that has MPOL_F_NUMA_BALANCING.

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const numaBalancingPath = "/proc/sys/kernel/numa_balancing"

// Balancing is what the kernel moves by itself.
type Balancing struct {
	TowardCPUs bool // pages follow the CPUs that touch them: what was moved may come back
	Tiering    bool // hot pages go to the faster memory tier
}

// ReadBalancing reads the machine's setting; it is never written. ErrUnsupported: a
// kernel without automatic NUMA balancing, which moves nothing by itself.
func ReadBalancing(root hostfs.FS) (Balancing, error) {
	data, err := root.ReadFile(numaBalancingPath, nil)
	if err != nil {
		return Balancing{}, wrapFile("read NUMA balancing", err, ErrUnsupported)
	}
	v, ok := parseUint(bytes.TrimSpace(data))
	if !ok {
		return Balancing{}, fmt.Errorf("read %s: %w: %q", numaBalancingPath, ErrMalformed, clip(data))
	}
	return Balancing{TowardCPUs: v&1 != 0, Tiering: v&2 != 0}, nil
}
