package cgroup

import (
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// openV2 returns the driver of pure v2 hosts.
func openV2(_ hostfs.FS, m *Mounts) (Driver, error) {
	return nil, fmt.Errorf("open cgroups: %w: pure cgroup v2 (%s): this build drives v1 and hybrid only",
		ErrUnsupportedLayout, m.Unified)
}
