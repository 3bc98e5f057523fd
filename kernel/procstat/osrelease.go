package procstat

// /proc/sys/kernel/osrelease: the kernel's release, as uname -r prints it.
//
// https://docs.kernel.org/admin-guide/sysctl/kernel.html#osrelease-ostype-version
//
//	6.12.43+deb13-amd64

import (
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const osreleasePath = "/proc/sys/kernel/osrelease"

// ReadKernelRelease returns the kernel's release.
func ReadKernelRelease(fs hostfs.FS) (string, error) {
	return hostfs.ReadAs(fs, "read kernel release", osreleasePath, parseRelease)
}

func parseRelease(data []byte) (string, error) {
	release := strings.TrimSuffix(string(data), "\n")
	if release == "" || strings.ContainsAny(release, " \t\n") {
		return "", fmt.Errorf("%w: kernel release %q", ErrMalformed, release[:min(len(release), 64)])
	}
	return release, nil
}
